"""The token with which the web page may scale a job: made by the launcher, kept beside the job's certificates.

Whoever can read it can read the administrator's key too, so it opens nothing more. It is never printed: what is printed is in
scrollbacks and logs. A file, the *door*, that its owner alone can read leads a browser to the page, with the token behind the
`#` of the address: no server, proxy or history of requests sees that part.
"""

from __future__ import annotations

import html
import secrets
from pathlib import Path
from urllib.parse import quote

from deeprec_ext import wholefiles

NAME = "dashboard.token"
BYTES_MAX = 256


def make_token(certificates: Path) -> str:
    """The token of the job; a new one (mode 0600) if there is none yet. Raises OSError."""
    if token := read_token(certificates):
        return token
    token = new_token()
    wholefiles.write(certificates / NAME, token + "\n", 0o600)
    return token


def new_token() -> str:
    return secrets.token_urlsafe(24)


def read_token(certificates: Path) -> str:
    """Empty if there is none that can be read: then nobody may scale from the page."""
    try:
        with (certificates / NAME).open(encoding="ascii") as file:
            return file.read(BYTES_MAX).strip()
    except (OSError, ValueError):
        return ""


def with_token(url: str, token: str) -> str:
    """The address that opens the page with the right to scale."""
    return f"{url}#token={quote(token)}" if url and token else url


_DOOR = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}">
<title>deeprec-ext</title>
<a href="{address}">the dashboard of this job</a>
"""


def write_door(path: Path, url: str, token: str) -> Path:
    """The local page (mode 0600) that leads to the job's page at `url`; its path. Raises OSError."""
    wholefiles.write(path, _DOOR.format(address=html.escape(with_token(url, token))), 0o600)
    return path


def page_line(url: str, door: Path, certificates: Path) -> str:
    """What is shown of the page: its address, which reads only, and what opens it with the right to scale."""
    if url and door.exists():
        return f"{url} (reads only; to scale from it, open {door.as_uri()})"
    token = certificates / NAME
    return (
        f"{url} (reads only; to scale from it, add #token= and what is in {token})" if url and token.exists() else url
    )
