"""The authority of the history service: in a Secret that all operators share, and from which the service mounts its own files.

Whoever comes first makes it; who sees that the service's certificate has less than a third of its time left makes a new one.
The key of the authority never leaves this namespace: an AIMaster gets a certificate of its job's namespace and no more.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from deeprec_ext.errors import UnreachableError
from deeprec_ext.history import identities
from tfjob.api.client import Api, ApiError, ConflictError, NotFoundError
from tfjob.model.kinds import SECRETS, Manifest

log = logging.getLogger(__name__)

SECRET = "deeprec-ext-history"
LOOK_SECONDS = 3600.0
"""How long files that were read are good: a certificate has months left when it is renewed."""

RETRY_SECONDS = 10.0
LEFT_SHARE = 1 / 3
TRIES = 5

Files = Mapping[str, bytes]


class HistoryAuthority:
    def __init__(self, api: Api, namespace: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._namespace, self._clock = api, namespace, clock
        self._files: Files = {}
        self._read_at = float("-inf")

    async def keep(self) -> None:
        """For ever: it exists, and its certificates are good."""
        while True:
            try:
                await self.files()
                await asyncio.sleep(LOOK_SECONDS)
            except (ApiError, UnreachableError) as error:
                log.warning("the certificates of the history (Secret %s/%s): %s", self._namespace, SECRET, error)
                await asyncio.sleep(RETRY_SECONDS)

    async def files(self) -> Files:
        """Those of `identities.OWN`. Raises ApiError, UnreachableError."""
        if self._clock() - self._read_at >= LOOK_SECONDS:
            self._files = await self._ensure()
            self._read_at = self._clock()
        return self._files

    async def _ensure(self) -> Files:
        for _ in range(TRIES):
            try:
                found = await self._api.get(SECRETS, self._namespace, SECRET)
            except NotFoundError:
                found = None
            files = {} if found is None else _decoded(found)
            if not due(files, datetime.datetime.now(datetime.timezone.utc)):
                return files
            made = await asyncio.to_thread(issue, files)
            data = {name: base64.b64encode(content).decode("ascii") for name, content in sorted(made.items())}
            try:
                if found is None:
                    metadata = {"name": SECRET, "labels": {"app.kubernetes.io/name": "deeprec-ext"}}
                    body = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data}
                    await self._api.create(SECRETS, self._namespace, body)
                else:
                    await self._api.replace(SECRETS, self._namespace, {**found, "data": data})
                return made
            except ConflictError:  # another operator was faster
                continue
        raise ConflictError(409, "Conflict", f"Secret {self._namespace}/{SECRET} changes all the time")


def _decoded(secret: Manifest) -> dict[str, bytes]:
    return {name: base64.b64decode(text) for name, text in (secret.get("data") or {}).items()}


def due(files: Files, now: datetime.datetime) -> bool:
    """Whether certificates have to be made; also of files that somebody has damaged."""
    from cryptography import x509

    if not set(identities.OWN) <= set(files):
        return True
    try:
        found = [x509.load_pem_x509_certificate(files[name]) for name in ("history.pem", "admin.pem", "ca.pem")]
    except ValueError:
        return True
    return any(
        one.not_valid_after_utc - now < (one.not_valid_after_utc - one.not_valid_before_utc) * LEFT_SHARE
        for one in found[:2]
    )


def issue(files: Files) -> dict[str, bytes]:
    """New certificates, by the authority that there is, else by a new one."""
    with tempfile.TemporaryDirectory(prefix="deeprec-ext-history-") as name:
        directory = Path(name)
        for each in ("ca.pem", "ca-key.pem"):
            if each in files:
                (directory / each).write_bytes(files[each])
        try:
            identities.create(directory)
        except ValueError:  # damaged: AIMasters that live have certificates of an authority that nobody knows any more
            for path in directory.iterdir():
                path.unlink()
            identities.create(directory)
        return {each: (directory / each).read_bytes() for each in identities.OWN}
