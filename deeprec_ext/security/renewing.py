"""Renews what is due of the certificates that we have issued: in a directory (launcher, history) or in a Secret (operator).

A certificate is renewed with the key that it has. So one file alone changes, nobody ever reads half a pair, and the proofs
that hang on the AIMaster's key (`proofs`) hold on. A process that is started again gets a new key (`authority.issue`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from deeprec_ext import wholefiles
from deeprec_ext.security import authority, lifetimes
from deeprec_ext.security.authority import CA, CA_KEY

log = logging.getLogger(__name__)

KEY = "-key.pem"


def is_due(certificate: bytes | None, key: bytes | None, now: float) -> bool:
    """Whether it has to be made; also where it is missing or damaged."""
    if not certificate or not key:
        return True
    try:
        return lifetimes.read(certificate).due <= now
    except ValueError:
        return True


def renewed(files: Mapping[str, bytes], job: str, names: Iterable[str], now: float) -> dict[str, bytes]:
    """File name → content of what has to be written, all at once; empty: everything is good.

    Args:
        files: what there is, `ca.pem` and `ca-key.pem` among them.
        names: of the certificates: roles, or processes. Those that are not there are made.
        now: Unix seconds.

    Raises:
        ValueError: the authority is missing or damaged.
    """
    certificates, keys, changed = files.get(CA, b""), files.get(CA_KEY, b""), dict[str, bytes]()
    if (both := authority.continued(certificates, keys, job, now)) is not None:
        certificates, keys = changed[CA], changed[CA_KEY] = both
    for name in names:
        before = files.get(f"{name}{KEY}")
        if is_due(files.get(f"{name}.pem"), before, now):
            made = authority.issued(certificates, keys, job, name, key=before or b"", now=now)
            changed[f"{name}.pem"], changed[f"{name}{KEY}"] = made
    return {name: data for name, data in changed.items() if files.get(name) != data}


def next_due(files: Mapping[str, bytes], names: Iterable[str]) -> float:
    """Unix seconds from when on `renewed` will have something to do. Raises ValueError for what is damaged."""
    found = authority.authorities(files[CA], files[CA_KEY])
    first = max(one.life.due for one in found if one.key is not None)
    return min([first, *(lifetimes.read(files[f"{name}.pem"]).due for name in names)])


def names_in(directory: Path) -> list[str]:
    """Of the certificates there, without the authority's."""
    return sorted(one.name[: -len(KEY)] for one in directory.glob(f"*{KEY}") if one.name != CA_KEY)


class Renewing:
    """Looks after a directory of certificates, for ever, on an event loop: that of whoever issues certificates there, so that
    no two are ever made at once."""

    def __init__(
        self, directory: Path, job: str, tell: Callable[[str], None], clock: Callable[[], float] = time.time,
        only: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        """
        Args:
            tell: called with a line when renewal begins to fail, and when it succeeds again.
            only: names of certificates, where others lie there that are of another job; None: all that there are.
        """
        self._directory, self._job, self._tell, self._clock, self._only = directory, job, tell, clock, only
        self._failing = False

    async def run(self) -> None:
        while True:
            await asyncio.sleep(await self.look())

    async def look(self) -> float:
        """Renews what is due; seconds until the next look."""
        now, wait, failed = self._clock(), lifetimes.LOOK_SECONDS, ""
        for step in (self._authority, *(self._certificate(name) for name in self._names())):
            try:
                wait = min(wait, lifetimes.pause(step(now), now))
            except (OSError, ValueError) as error:
                failed = failed or str(error)
            await asyncio.sleep(0)  # of a thousand
        if failed:
            self._failed(failed, now)
            return min(wait, lifetimes.AGAIN_SECONDS)
        if self._failing:
            self._failing = False
            self._tell("the certificates of the job are renewed again")
        return wait

    def _names(self) -> Sequence[str]:
        if self._only is not None:
            return self._only
        try:
            return names_in(self._directory)
        except OSError:  # which the authority's step tells
            return []

    def _authority(self, now: float) -> float:
        authority.renew_authority(self._directory, self._job, now)
        return next_due({name: (self._directory / name).read_bytes() for name in (CA, CA_KEY)}, ())

    def _certificate(self, name: str) -> Callable[[float], float]:
        def step(now: float) -> float:
            files = {one: self._directory / one for one in (CA, CA_KEY, f"{name}.pem", f"{name}{KEY}")}
            there = {one: path.read_bytes() for one, path in files.items() if path.exists()}
            if is_due(there.get(f"{name}.pem"), there.get(f"{name}{KEY}"), now):
                changed = renewed(there, self._job, (name,), now)
                wholefiles.write_together(
                    *((files[one], data, 0o600 if one.endswith(KEY) else 0o644) for one, data in changed.items())
                )
                there |= changed
                log.info("certificate %s is renewed", name)
            return lifetimes.read(there[f"{name}.pem"]).due

        return step

    def _failed(self, why: str, now: float) -> None:
        log.debug("certificates are not renewed: %s", why)
        if self._failing:
            return
        self._failing = True
        first = lifetimes.earliest(self._directory, ["ca", *self._names()])
        ends = f"; {first[1].name} expires at {lifetimes.shown(first[0].ends)}" if first is not None else ""
        self._tell(f"warning: certificates of the job cannot be renewed: {why}{ends}; it is tried again every minute")
