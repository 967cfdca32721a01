"""Faults at the writes of a job's own processes: see `__main__`."""
