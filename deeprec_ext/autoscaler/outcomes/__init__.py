"""What was measured at each size, under which conditions, and what the changes between them brought. Pure."""
