"""The values of the PriorityClasses that pod templates name: by them a gang's least resources are counted."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

from tfjob.api.client import Api, ApiError, ForbiddenError
from tfjob.model.kinds import PRIORITY_CLASSES, Manifest
from tfjob.operator.sight import Missing, Right

log = logging.getLogger(__name__)
KEPT_SECONDS = 300.0
"""How long a value counts; that of a class never changes, but one may be made or deleted."""

GET = Right("", PRIORITY_CLASSES, "get")


class Priorities:
    """For one event loop."""

    def __init__(self, api: Api, missing: Missing) -> None:
        self._api, self._missing = api, missing
        self._known: dict[str, tuple[float, int | None]] = {}  # until, value

    async def of(self, job: Manifest) -> dict[str, int]:
        """Name → value; without those that there are not, or that we may not read. Raises UnreachableError."""
        found = {}
        for name in sorted(set(_named(job))):
            value = await self._value(name)
            if value is not None:
                found[name] = value
        return found

    async def _value(self, name: str) -> int | None:
        until, value = self._known.get(name, (0.0, None))
        if until > time.monotonic():
            return value
        try:
            value = int((await self._api.get(PRIORITY_CLASSES, None, name)).get("value") or 0)
            self._missing.given(GET)
        except ForbiddenError as error:
            self._missing.add(GET, error, "a gang's least resources are counted in the order of the job's roles")
            value = None
        except ApiError as error:
            log.warning("the priority class %s is left out of account: %s", name, error)
            value = None
        self._known[name] = time.monotonic() + KEPT_SECONDS, value
        return value


def _named(job: Manifest) -> Iterator[str]:
    """Of a job that need not be valid."""
    spec = job.get("spec")
    replicas = spec.get("tfReplicaSpecs") if isinstance(spec, dict) else None
    for one in replicas.values() if isinstance(replicas, dict) else ():
        found = one
        for key in ("template", "spec", "priorityClassName"):
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, str) and found:
            yield found
