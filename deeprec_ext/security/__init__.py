"""Who may talk to whom: the per-job `authority`, and gRPC `credentials` made from its files. `lifetimes` says how long they are
good, `renewing` sees to it that there are new ones by then."""
