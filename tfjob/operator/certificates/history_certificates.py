"""The authority of the history service: in a Secret that all operators share, and from which the service mounts its own files.

Its certificates, and it itself, are renewed when `deeprec_ext.security.lifetimes` says so.
The key of the authority never leaves this namespace: an AIMaster gets a certificate of its job's namespace and no more.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from deeprec_ext.errors import UnreachableError
from deeprec_ext.history import identities
from deeprec_ext.security.renewing import renewed
from tfjob.api.client import Api, ApiError
from tfjob.operator.certificates import shared_secrets
from tfjob.operator.certificates.shared_secrets import Files

log = logging.getLogger(__name__)

SECRET = "deeprec-ext-history"
LOOK_SECONDS = 3600.0
"""How long files that were read are good: a certificate has months left when it is renewed."""

RETRY_SECONDS = 10.0


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
            except Exception:  # a Secret of one service never ends the operator of all jobs
                log.exception("the certificates of the history (Secret %s/%s)", self._namespace, SECRET)
                await asyncio.sleep(RETRY_SECONDS)

    async def files(self) -> Files:
        """Those of `identities.OWN`. Raises ApiError, UnreachableError."""
        if self._clock() - self._read_at >= LOOK_SECONDS:
            now = datetime.datetime.now(datetime.timezone.utc)
            self._files = await shared_secrets.ensure(
                self._api, self._namespace, SECRET, lambda files: due(files, now), issue
            )
            self._read_at = self._clock()
        return self._files


def due(files: Files, now: datetime.datetime) -> bool:
    """Whether certificates have to be made; also of files that somebody has damaged."""
    if not set(identities.OWN) <= set(files):
        return True
    try:
        return bool(renewed(files, identities.NAME, (identities.SERVER, identities.ADMIN), now.timestamp()))
    except ValueError:
        return True


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
