"""The arbiter: how many pods each elastic job of a cluster, or of one machine's pool, may have. Deciding is pure."""
