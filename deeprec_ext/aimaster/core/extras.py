"""What the web page, the autoscaler and a cluster need, looked at before anything starts and without importing it."""

from __future__ import annotations

import importlib.util

from deeprec_ext.errors import UsageError

EXTRAS = {
    "dashboard": ("starlette", "uvicorn", "prometheus_client"),  # the web page
    "autoscale": ("scipy", "sklearn"),  # fit the autoscaler's models
    "kubernetes": ("kubernetes", "aiohttp"),  # the client of its API
    "history": (
        "sqlalchemy",
        "alembic",
        "psycopg",
        "starlette",
        "uvicorn",
    ),  # the service, and whoever opens its database
}


def require(extra: str, flag: str) -> None:
    """Raises UsageError that says what to install, when libraries of this extra are missing, which the flag needs."""
    missing = [name for name in EXTRAS[extra] if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"{flag}: {', '.join(missing)} not installed; pip install 'deeprec-ext[{extra}]', or leave it out"
        )


def parse_address(text: str, flag: str = "--http") -> tuple[str, int]:
    """`127.0.0.1:8080`, `[::1]:0` → both. Raises UsageError that names the flag."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{flag} {text}: write HOST:PORT, for example 127.0.0.1:8080; port 0 is any free one")
    return host, int(port)
