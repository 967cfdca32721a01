"""Who may talk to whom: the per-job `authority`, and gRPC `credentials` made from its files."""
