"""What every process of a job begins with; small graphs of ours; the view and the session configuration it leads to."""
