"""A parameter server: its program, the slots that come and go, dirty rows, and backups beside it and on disk."""
