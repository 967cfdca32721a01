"""Faults at the writes of a job's own processes; `benchmarks/faults.py` draws and plays them."""
