"""Points in time as Kubernetes writes them: RFC 3339, UTC, whole seconds."""

from __future__ import annotations

from datetime import datetime, timezone


def stamp(now: datetime) -> str:
    """`2025-01-31T12:00:00Z`."""
    return now.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """Raises ValueError."""
    form = "%Y-%m-%dT%H:%M:%S.%f%z" if "." in text else "%Y-%m-%dT%H:%M:%S%z"
    return datetime.strptime(text, form)


def seconds_since(text: str | None, now: datetime) -> float | None:
    """None: nothing is written there."""
    return (now - parse_time(text)).total_seconds() if text else None
