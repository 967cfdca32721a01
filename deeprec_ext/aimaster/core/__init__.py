"""What every room uses and that uses none of them: records and names (`facts`), time, signals, reading of what was stored."""
