"""What a job tells of itself: the answer to Status, `summary.json`, Prometheus' figures."""
