"""The steps of an epoch of which the script says how many it has: `fit(..., steps_per_epoch=...)`.

They are those of the job. The ledger leases them one by one, as it leases records: an epoch has ended when all of its steps are
made, by whomever. What they train on is leased besides, from a dataset without turns whose passes have nothing to do with
epochs (`.repeat()`); or each process takes it from an input of its own, as with any data-parallel training.

These are two tables of the ledger, and a step wants something of both. Towards the end of the records one process could hold
the last steps, another the last records, and each wait for the other. So they are taken in one order: a process asks for a step
when it has a batch, and one that finds all that is left of the records with others gives its steps back, which they can make.
Whoever holds a step can make it, then, and something always goes on. Only there, where the records end, is anything given back
before the end of `fit`: it costs the steps before nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from deeprec_ext.data.batches import Ticket
from deeprec_ext.data.feeder import Feeder
from deeprec_ext.data.plan import Plan, plan

LEASES_OF_AN_EPOCH = 256
STEPS_OF_A_LEASE_MAX = 32
"""An epoch is cut into so many leases of steps, unless they would have more: who holds the last ones lets the others wait."""


class InputEnded(Exception):
    """Steps are left, but nothing that they could train on."""


@dataclass(frozen=True)
class Both:
    """A step, and the batch that it trains on."""

    step: Ticket
    batch: Ticket | None


def plan_of_steps(name: str, steps: int, epochs: int, shuffle: bool = False, seed: int = 0, content: str = "") -> Plan:
    """A dataset whose records are the steps.

    Args:
      steps: of an epoch.
      shuffle: their numbers.
      content: of the input of which they are; processes whose contents differ are told.
    """
    lease = max(1, min(STEPS_OF_A_LEASE_MAX, steps // LEASES_OF_AN_EPOCH))
    made = plan(steps, 1, epochs, shuffle, seed, "range", lease, None, "train", False, {}).of_its_own(
        name, epochs, content
    )
    made.declaration.steps = True
    return made


class Counted:
    """Of one `fit` in one process; for `Epochs`, what the feeder of records is elsewhere.

    Args:
      steps: of all epochs, in turn.
      records: that are leased; None: the process has an input of its own.
    """

    def __init__(self, steps: Feeder, records: Feeder | None) -> None:
        self._steps, self._records = steps, records
        self._all = [steps] if records is None else [steps, records]

    @property
    def name(self) -> str:
        return self._steps.name

    @property
    def complete(self) -> int:
        """Epochs."""
        return self._steps.complete

    @property
    def epoch(self) -> int:
        """Of the step that was given last."""
        return self._steps.epoch

    @property
    def ended(self) -> bool:
        return self._steps.ended

    @property
    def drained(self) -> bool:
        """Whether processes hold all steps that are left, or all records, this one perhaps among them."""
        return any(one.drained for one in self._all)

    @property
    def reading(self) -> bool:
        """Whether the next batch waits for this process alone."""
        return self._records is not None and self._records.reading

    @property
    def failure(self) -> str:
        return next((one.failure for one in self._all if one.failure), "")

    @property
    def restart_needed(self) -> bool:
        return any(one.restart_needed for one in self._all)

    def batches(self, of_records: Iterator[Any] | None) -> Iterator[Any]:
        """One for each step; without records, the numbers of the steps."""
        steps = self._steps.batches()
        return steps if of_records is None else (batch for _, batch in zip(steps, of_records))

    def begin(self, batches: int, timeout_seconds: float) -> Both | None:
        """Raises InputEnded: a step is in hand, and all records are trained."""
        if self._records is None:
            step = self._steps.begin(batches, timeout_seconds)
            return None if step is None else Both(step, None)
        batch = self._records.begin(batches, timeout_seconds)
        if batch is None:
            if self._records.others_hold_the_rest and not self._steps.under_way:  # else what is made would go back, too
                self._steps.rest()
            return None
        step = self._steps.begin(batches, timeout_seconds)
        if step is not None and not self._records.ended:
            return Both(step, batch)
        self._records.withdraw(batch)
        if step is not None:
            self._steps.withdraw(step)
            raise InputEnded
        return None

    def rest(self) -> None:
        """The epoch is over here; callbacks and validation take long. Where the records end others may want what is left."""
        if self._records is not None and self._records.drained:
            for one in self._all:
                one.rest()

    def _pairs(self, ticket: Both) -> list[tuple[Feeder, Ticket]]:
        found = [(self._steps, ticket.step)]
        return [*found, (self._records, ticket.batch)] if self._records is not None and ticket.batch else found

    def valid(self, ticket: Both) -> bool:
        return all(feeder.valid(one) for feeder, one in self._pairs(ticket))

    def withdraw(self, ticket: Both) -> None:
        for feeder, one in self._pairs(ticket):
            feeder.withdraw(one)

    def trained(self, ticket: Both) -> None:
        for feeder, one in self._pairs(ticket):
            feeder.trained(one)

    def repeated(self, records: int) -> None:
        if self._records is not None:
            self._records.repeated(records)

    def claim(self) -> None:
        for one in self._all:
            one.claim()

    def renew(self) -> None:
        for one in self._all:
            one.renew()

    def finish(self) -> None:
        for one in self._all:
            one.finish()

    def release(self) -> None:
        for one in self._all:
            one.release()

    def close(self) -> None:
        for one in self._all:
            one.close()

    def waits_for(self) -> str:
        return "; ".join(one.waits_for() for one in self._all)
