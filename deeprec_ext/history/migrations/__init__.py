"""Alembic's part: how a database of an earlier release becomes one of this. `database` runs it when the service starts."""
