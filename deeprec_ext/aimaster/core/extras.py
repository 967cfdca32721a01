"""What the web page, the autoscaler and a cluster need, looked at before anything starts and without importing it."""

from __future__ import annotations

import importlib.util

from deeprec_ext.errors import UsageError

DASHBOARD = ("starlette", "uvicorn", "prometheus_client")
AUTOSCALE = ("scipy", "sklearn")
KUBERNETES = ("kubernetes", "aiohttp")


def require_dashboard(flag: str) -> None:
    """Raises UsageError that says what to install, when the libraries of the web page are missing."""
    _require(flag, "dashboard", DASHBOARD)


def require_autoscale(flag: str) -> None:
    """The same for the libraries that fit the autoscaler's models."""
    _require(flag, "autoscale", AUTOSCALE)


def require_kubernetes(flag: str) -> None:
    """The same for the client of the Kubernetes API."""
    _require(flag, "kubernetes", KUBERNETES)


def _require(flag: str, extra: str, names: tuple[str, ...]) -> None:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"{flag}: {', '.join(missing)} not installed; pip install 'deeprec-ext[{extra}]', or leave it out"
        )


def parse_address(text: str) -> tuple[str, int]:
    """`127.0.0.1:8080`, `[::1]:0` → both. Raises UsageError."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"--http {text}: write HOST:PORT, for example 127.0.0.1:8080; port 0 is any free one")
    return host, int(port)
