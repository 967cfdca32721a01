"""Models: memory from the catalogue, throughput by non-negative least squares."""
