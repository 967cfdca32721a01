"""What every room uses and that uses none of them: records and names (`records`), time, signals, reading of what was stored."""
