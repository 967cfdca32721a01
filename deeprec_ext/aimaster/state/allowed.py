"""What the arbiter of the cluster, or of one machine's pool, lets the job have, and what the job goes back to once it may.

Roles are `ps` and `worker` here; workers are counted beside the chief. Without an allowance nothing is limited by it. It is
kept in the store: an AIMaster that is started again goes on with the last one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.arbiter.observed import Allowance
from deeprec_ext.decoding import built
from deeprec_ext.options import JobSpec
from deeprec_ext.units import sized

KEY, BACK_KEY = "allowance", "goes_back_to"
ROLES = ("ps", "worker")


class Allowed:
    """`job.allowed`."""

    def __init__(self, spec: JobSpec, store: Store) -> None:
        self._spec, self._store = spec, store
        self.allowance: Allowance | None = store.read(KEY, lambda found: built(Allowance, found, newer=True), None)
        self._back: dict[str, int] = store.read(BACK_KEY, _counts, {})

    # ------------------------------------------------------------------------------------------------ limits

    def limits(self, role: str) -> tuple[int, int]:
        """(fewest, most) of the job itself."""
        spec = self._spec
        if role == "ps":
            return (0 if spec.sums else max(1, spec.min_ps)), spec.ps_limit
        return spec.min_workers, spec.max_workers

    def most(self, role: str) -> int:
        """In force now: of the job's own limit and the allowance the lower; never below what it has at least."""
        low, high = self.limits(role)
        return high if self.allowance is None else max(low, min(high, _of(self.allowance, role)))

    def complaint(self, allowance: Allowance) -> str:
        """Why it cannot be obeyed, as a sentence; empty: it can."""
        for role in ROLES:
            low, given = self.limits(role)[0], _of(allowance, role)
            if given < low:
                what = "PS" if role == "ps" else "workers"
                return f"{given} {what} are fewer than the {low} that this job has at least"
        return ""

    def set(self, allowance: Allowance | None) -> None:
        self.allowance = allowance
        self._store.put(**{KEY: None if allowance is None else dataclasses.asdict(allowance)})

    def forget(self) -> None:
        """There is no arbiter any more."""
        if self.allowance is not None:
            self.set(None)
        self._keep({})

    def beyond(self, sizes: Mapping[str, int]) -> str:
        """Of these counts by role: the sentence for what the arbiter does not allow at present; empty: it allows all."""
        if self.allowance is None or all(count <= self.most(role) for role, count in sizes.items()):
            return ""
        return f"{self.told()}; more comes when it allows more"

    def told(self) -> str:
        """`the arbiter allows 1 PS, 1 worker at present (a pod of higher priority waits)`; empty: nothing is limited."""
        if self.allowance is None:
            return ""
        why = f" ({self.allowance.why})" if self.allowance.why else ""
        return f"the arbiter allows {sized(self.most('ps'), self.most('worker'))} at present{why}"

    # ------------------------------------------------------------------------------------------------ what it goes back to

    def back(self, role: str) -> int | None:
        """How many there are to be once they are allowed; None: as many as there are, or as the autoscaler decides."""
        return self._back.get(role)

    def remember(self, sizes: Mapping[str, int]) -> None:
        """These are wanted, whatever is allowed: written, asked for by hand, or taken away by the arbiter. While it limits the
        job, or what it took is not there again: else the job has what it wants."""
        if self.allowance is not None or self._back:
            self._keep({**self._back, **sizes})

    def decided(self, sizes: Mapping[str, int]) -> None:
        """By the autoscaler, within what is allowed: where that is less than it may have, it wants no more."""
        known = {role: count for role, count in sizes.items() if role in self._back and count < self.most(role)}
        self._keep({**self._back, **{role: min(count, self._back[role]) for role, count in known.items()}})

    def reached(self, role: str) -> None:
        """What the arbiter had taken is there again: from now on the autoscaler, or the user, alone decides."""
        self._keep({one: count for one, count in self._back.items() if one != role})

    def _keep(self, back: dict[str, int]) -> None:
        if back != self._back:
            self._back = back
            self._store.put(**{BACK_KEY: back})


def _of(allowance: Allowance, role: str) -> int:
    return allowance.ps if role == "ps" else allowance.workers


def _counts(found: object) -> dict[str, int]:
    if not isinstance(found, dict):
        raise TypeError(f"{found!r:.60} is no size")
    return {role: int(found[role]) for role in ROLES if role in found}
