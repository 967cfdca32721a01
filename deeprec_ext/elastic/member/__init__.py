"""A worker of a job without PS: it sums what it has with all others, step by step."""
