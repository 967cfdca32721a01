"""What processes report, kept as newest values, time series, counters and totals."""
