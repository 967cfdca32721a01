"""What the policy sees of a job, live or simulated: the facts, and what they are measured from."""
