"""What died or hung, and what takes its place: promotion, fetching, replacement."""
