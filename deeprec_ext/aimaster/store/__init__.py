"""What is durable: the SQLite store, the file that follows it, the event log."""
