"""The token with which the web page may scale a job: made by the launcher, kept beside the job's certificates.

Whoever can read it can read the administrator's key too, so it opens nothing more.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from urllib.parse import quote

NAME = "dashboard.token"
BYTES_MAX = 256


def make_token(certificates: Path) -> str:
    """The token of the job; a new one (mode 0600) if there is none yet. Raises OSError."""
    if token := read_token(certificates):
        return token
    temporary = certificates / f".{NAME}.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    token = secrets.token_urlsafe(24)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token + "\n")
    temporary.replace(certificates / NAME)
    return token


def read_token(certificates: Path) -> str:
    """Empty if there is none that can be read: then nobody may scale from the page."""
    try:
        with (certificates / NAME).open(encoding="ascii") as file:
            return file.read(BYTES_MAX).strip()
    except (OSError, ValueError):
        return ""


def with_token(url: str, token: str) -> str:
    """The address that opens the page with the right to scale."""
    return f"{url}?token={quote(token)}" if url and token else url
