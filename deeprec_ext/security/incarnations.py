"""An incarnation is the secret of the process that has chosen it: who knows it may speak for that process.

The AIMaster turns it into its *public* form at its border. Views, the store, status and logs have only that: it tells
incarnations apart, and opens nothing.
"""

from __future__ import annotations

import hashlib

_DOMAIN = b"deeprec_ext incarnation\0"
PUBLIC_CHARACTERS = 32


def public(secret: str) -> str:
    """What others may know of it: 32 hexadecimal digits. Of an empty one: empty."""
    if not secret:
        return ""
    return hashlib.sha256(_DOMAIN + secret.encode()).hexdigest()[:PUBLIC_CHARACTERS]
