"""What a job leaves behind: logs and events as they are read, its story and report, its summary, the history of all jobs."""
