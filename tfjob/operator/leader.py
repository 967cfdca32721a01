"""One of several operators acts: the holder of a Lease (coordination.k8s.io).

Times are those that client-go's leader election has by default. Whoever cannot renew in time ends at once: a new process
is cheaper than two leaders.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timezone

from deeprec_ext.errors import UnreachableError
from tfjob.api.client import Api, ApiError, ConflictError, ForbiddenError, NotFoundError
from tfjob.model.kinds import LEASES, Manifest
from tfjob.operator.sight import Missing, Right, verb_of

log = logging.getLogger(__name__)
LEASE_SECONDS, RENEW_LIMIT_SECONDS, RETRY_SECONDS = 15, 10.0, 2.0


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Leader:
    """`await wait()`, then act; `await lost()` returns when that is over.

    Somebody else's lease counts as expired when it has not changed for its whole duration *while we watched*: clocks of
    hosts are not compared.
    """

    def __init__(
        self, api: Api, namespace: str, name: str, identity: str, clock: Callable[[], float] | None = None,
        missing: Missing | None = None,
    ) -> None:  # fmt: skip
        self._api, self._namespace, self._name, self.identity = api, namespace, name, identity
        self._clock = clock or asyncio.get_running_loop().time
        self._missing = missing or Missing()
        self._seen: tuple[object, ...] = ()
        self._seen_at = 0.0

    async def wait(self) -> None:
        """Until we hold the lease."""
        while True:
            try:
                if await self._try():
                    log.info("%s leads", self.identity)
                    for verb in ("get", "create", "update"):
                        self._missing.given(Right(self._namespace, LEASES, verb))
                    return
            except ForbiddenError as error:
                right = Right(self._namespace, LEASES, verb_of(error) or "get")
                self._missing.add(right, error, "no lease, no leader: nothing is done")
            except (ApiError, UnreachableError) as error:
                log.warning("the lease could not be taken: %s", error)
            await asyncio.sleep(RETRY_SECONDS)

    async def lost(self) -> None:
        """Renews; returns when that has not succeeded for `RENEW_LIMIT_SECONDS`, or somebody else has the lease."""
        renewed = self._clock()
        while self._clock() - renewed < RENEW_LIMIT_SECONDS:
            await asyncio.sleep(RETRY_SECONDS)
            began = self._clock()
            try:
                if not await asyncio.wait_for(self._try(), RENEW_LIMIT_SECONDS):
                    log.error("%s does not lead any more: somebody else has the lease", self.identity)
                    return
                renewed = began
            except (ApiError, UnreachableError, asyncio.TimeoutError) as error:
                log.warning("the lease could not be renewed: %r", error)
        log.error("%s does not lead any more: the lease was not renewed in time", self.identity)

    async def release(self) -> None:
        """So that the next one need not wait for the lease to expire."""
        try:
            lease = await self._api.get(LEASES, self._namespace, self._name)
            if lease["spec"].get("holderIdentity") == self.identity:
                lease["spec"].update(holderIdentity="", leaseDurationSeconds=1, renewTime=_now())
                await self._api.replace(LEASES, self._namespace, lease)
        except (ApiError, UnreachableError) as error:
            log.debug("the lease was not released: %s", error)

    async def _try(self) -> bool:
        """Takes or renews the lease; whether we have it."""
        now = _now()
        try:
            lease = await self._api.get(LEASES, self._namespace, self._name)
        except NotFoundError:
            spec = {
                "holderIdentity": self.identity, "leaseDurationSeconds": LEASE_SECONDS, "acquireTime": now,
                "renewTime": now, "leaseTransitions": 0,
            }  # fmt: skip
            body: Manifest = {"metadata": {"name": self._name, "namespace": self._namespace}, "spec": spec}
            body.update(apiVersion="coordination.k8s.io/v1", kind="Lease")
            try:
                await self._api.create(LEASES, self._namespace, body)
            except ConflictError:
                return False
            return True
        spec = lease["spec"]
        holder = spec.get("holderIdentity") or ""
        if holder != self.identity:
            if holder and not self._expired(spec):
                return False
            spec.update(acquireTime=now, leaseTransitions=int(spec.get("leaseTransitions") or 0) + 1)
        spec.update(holderIdentity=self.identity, leaseDurationSeconds=LEASE_SECONDS, renewTime=now)
        try:
            await self._api.replace(LEASES, self._namespace, lease)
        except ConflictError:
            return False
        return True

    def _expired(self, spec: Manifest) -> bool:
        seen = (spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._clock()
        return self._clock() - self._seen_at > float(spec.get("leaseDurationSeconds") or LEASE_SECONDS)
