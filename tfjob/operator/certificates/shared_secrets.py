"""Certificates in a Secret that all operators share. Whoever comes first makes it; whoever first sees that they are due makes
new ones."""

from __future__ import annotations

import asyncio
import base64
import datetime
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from deeprec_ext.security.lifetimes import Life
from tfjob.api.client import Api, ConflictError, NotFoundError
from tfjob.model.kinds import SECRETS

if TYPE_CHECKING:
    from cryptography import x509

TRIES = 5

Files = Mapping[str, bytes]


async def ensure(
    api: Api, namespace: str, secret: str, due: Callable[[Files], bool], issue: Callable[[Files], Files]
) -> Files:
    """The files of the Secret, made or renewed where that is due. Raises ApiError, UnreachableError.

    Args:
        due: whether these have to be made anew; there may be none.
        issue: new ones, by the authority that there is among these; in another thread.
    """
    for _ in range(TRIES):
        try:
            found = await api.get(SECRETS, namespace, secret)
        except NotFoundError:
            found = None
        files = {name: base64.b64decode(text) for name, text in ((found or {}).get("data") or {}).items()}
        if not due(files):
            return files
        made = await asyncio.to_thread(issue, files)
        data = {name: base64.b64encode(content).decode("ascii") for name, content in sorted(made.items())}
        try:
            if found is None:
                metadata = {"name": secret, "labels": {"app.kubernetes.io/name": "deeprec-ext"}}
                body = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data}
                await api.create(SECRETS, namespace, body)
            else:
                await api.replace(SECRETS, namespace, {**found, "data": data})
            return made
        except ConflictError:  # another operator was faster: its certificates are as good
            continue
    raise ConflictError(409, "Conflict", f"Secret {namespace}/{secret} changes all the time")


def aging(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    """Whether it is to be renewed."""
    return Life.of(certificate).due < now.timestamp()
