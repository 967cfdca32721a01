"""Estimating: memory from the catalogue, throughput by non-negative least squares, first sizes from the history of jobs."""
