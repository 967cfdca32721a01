"""Who may talk to whom: the per-job authority (`authority`) and gRPC credentials made from its files (`credentials`)."""
