"""Jobs that have ended: what is kept of them, and the first size that follows from it."""
