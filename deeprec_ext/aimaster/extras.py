"""What the web page needs, looked at before anything starts and without importing it."""

from __future__ import annotations

import importlib.util

from deeprec_ext.errors import UsageError

DASHBOARD = ("starlette", "uvicorn", "prometheus_client")


def require_dashboard(flag: str) -> None:
    """Raises UsageError that says what to install, when the libraries of the web page are missing."""
    missing = [name for name in DASHBOARD if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"{flag}: {', '.join(missing)} not installed; pip install 'deeprec-ext[dashboard]', or leave the flag out"
        )


def parse_address(text: str) -> tuple[str, int]:
    """`127.0.0.1:8080`, `[::1]:0` → both. Raises UsageError."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"--http {text}: write HOST:PORT, for example 127.0.0.1:8080; port 0 is any free one")
    return host, int(port)
