"""Who takes part, the view that all agree on, the outbox of each process, and how far its word can be true."""
