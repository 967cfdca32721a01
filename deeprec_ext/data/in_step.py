"""Training in step on leased records, without PS: a step's records are trained when the step is, wherever they were computed.

Each worker has batches of its own from the ledger. Whoever has none at the moment (others hold the last ones, or its leases are
on their way) sums with weight 0, so nobody waits for it and the last uneven step counts. What a step was given is trained once
the sum after it says that it is in the state (`Summed.followed`); what was not counted is given again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NoReturn, Protocol

import numpy as np

from deeprec_ext.allreduce.handing import State
from deeprec_ext.allreduce.ring import Array
from deeprec_ext.allreduce.summing import Summed
from deeprec_ext.data import streams
from deeprec_ext.data.batches import Ticket
from deeprec_ext.data.feeder import Feeder
from deeprec_ext.data.plan import Files, plan
from deeprec_ext.data.readers import Reader
from deeprec_ext.data.readers.base import Columns
from deeprec_ext.elastic.agent.causes import INPUT, causes
from deeprec_ext.elastic.member.joined import Alone, join
from deeprec_ext.elastic.member.member import Member
from deeprec_ext.errors import DeepRecError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger("deeprec_ext")

WAIT_SECONDS = 0.2
"""For a batch whose lease is on its way: all others stand still meanwhile."""

RESTORED_SECONDS = 10.0
"""For the word that records are trained to reach the AIMaster, and come back."""

READ_SECONDS = 5.0
"""For one that is being read: it is this worker's part of the step, and a step without it is one of fewer records. So slow
storage makes all slow, as it does with one process; a worker whose storage hangs lets the others go on after so long."""

IDLE_SECONDS = 0.05
"""Between two sums to which nobody has given anything."""


class Source(Protocol):
    """Of batches: a `Feeder`, or a step's and its records' (`keras.leased.counted`)."""

    @property
    def drained(self) -> bool: ...

    @property
    def reading(self) -> bool: ...


class Patience:
    """How long a worker waits for its next batch, while all others wait for it."""

    def __init__(self, source: Source, clock: Callable[[], float] = time.monotonic) -> None:
        self._source, self._clock = source, clock
        self._since: float | None = None
        self._over = True  # who is new keeps nobody waiting for its first batch
        self.idle = False
        """The last sum was of nothing."""

    def seconds(self, drained: bool = True) -> float:
        """Before it is asked again whether to wait.

        Args:
          drained: where others hold all that is left this worker has something else to do.
        """
        if not self._over and self._source.reading:
            return WAIT_SECONDS
        return IDLE_SECONDS if self.idle else 0.0 if drained and self._source.drained else WAIT_SECONDS

    def goes_on(self) -> bool:
        """None came; whether it is waited on."""
        if self._over or not self._source.reading:
            return False
        now = self._clock()
        self._since = now if self._since is None else self._since
        self._over = now - self._since >= READ_SECONDS
        return not self._over

    def had(self) -> None:
        """There was a batch: the wait for another begins anew."""
        self._since, self._over = None, False


def train(
    state: State, gradients: Callable[[Columns], Sequence[Array]], apply: Callable[[Summed], None], files: Files,
    batch_size: int, epochs: int | None = 1, shuffle: bool = True, seed: int = 0,
    reader: str | Callable[..., Any] | Reader = "lines", *, shard_records: int | None = None, name: str | None = None,
    set_aside: bool = False, reader_options: dict[str, Any] | None = None, like: Sequence[Array] | None = None,
) -> Member | Alone:  # fmt: skip
    """Trains on each record once an epoch, over all workers of the job together; returns when the data has ended.

    Args:
      state: what steps leave behind (`allreduce.join`).
      gradients: of a batch, arrays of float32 or float64, alike in every step.
      apply: a step: changes the state by `summed.arrays`, the mean by records.
      files and what follows: as of `elastic_dataset`; `batch_size` is each worker's.
      like: arrays as `gradients` gives them, whatever they hold: by these a worker takes part, and gets the state, before it
        has had a batch.

    Raises DeepRecError where a chief that came late has got no state, since nobody is there any more who has it.
    """
    made = plan(
        files, batch_size, epochs, shuffle, seed, reader, shard_records, name, "train", set_aside, reader_options or {}
    )  # fmt: skip
    member = join(state)
    feeder = streams.shared(made, member.inputs) if isinstance(member, Member) else streams.alone(made)
    try:
        _Loop(member, feeder, gradients, apply, like).run()
    finally:
        if isinstance(member, Member):
            member.part()
        else:
            feeder.finish()
            feeder.close()
    return member


class _Loop:
    def __init__(
        self, member: Member | Alone, feeder: Feeder, gradients: Callable[[Columns], Sequence[Array]],
        apply: Callable[[Summed], None], like: Sequence[Array] | None = None,
    ) -> None:  # fmt: skip
        self._member, self._feeder, self._gradients, self._apply = member, feeder, gradients, apply
        self._batches: Iterator[Columns] | None = None
        self._given: Ticket | None = None  # counted; whether it is in the state is known with the next sum
        self._nothing = [np.zeros_like(one) for one in like] if like is not None else None
        self._patience = Patience(feeder)

    def run(self) -> None:
        feeder = self._feeder
        feeder.claim()
        self._go_back()
        try:
            while True:
                if isinstance(self._member, Member) and self._member.leaving.is_set():
                    self._leave(self._member)
                ticket, batch = self._next()
                if batch is None and feeder.exhausted and self._given is None:
                    self._end()
                    return
                if batch is None and self._patience.goes_on():
                    self._attend()
                    continue
                arrays = self._arrays(batch)
                if arrays is not None:
                    self._sum(arrays, ticket, batch)
        finally:
            feeder.release()

    def _go_back(self) -> None:
        """The state is that of a backup, and nobody has a newer one: so is the ledger, before anybody trains."""
        member, feeder = self._member, self._feeder
        if not isinstance(member, Member) or not member.restored or member.size:
            return
        request, told = pb.EpochRequest(dataset=feeder.name, passes=1, restored=member.restored), False
        while (
            reply := member.inputs.end_of_epoch(request)
        ) is None or not reply.rewinds:  # its records are not known yet
            if member.leaving.wait(IDLE_SECONDS) or feeder.failure:
                return
            if reply is None and not told:  # else what was trained since the backup would be in no state
                told = True
                log.warning("the AIMaster does not answer: training waits until the ledger has gone back to the backup")
        end = time.monotonic() + RESTORED_SECONDS
        while feeder.rewinds < reply.rewinds and time.monotonic() < end:  # its leases are void all the same
            time.sleep(IDLE_SECONDS)

    def _end(self) -> None:
        """All is trained. Who has not summed yet takes the state of those who are there."""
        member = self._member
        if not isinstance(member, Member) or member.step >= 0:
            return
        began = True
        if self._nothing is not None and member.size:
            summed = member.sum(self._nothing, 0, last=True)
            self._apply_if(summed)
            began = summed.step == 1  # by itself: the others have left meanwhile
        if began and member.identity.role == "chief":
            raise DeepRecError(
                "all records are trained, and this process, which came late, has not got the model of the others: give "
                "train(like=...), arrays as gradients() gives them; nothing is to be saved here"
            )

    def _apply_if(self, summed: Summed) -> None:
        if summed.weight:
            self._apply(summed)

    def _attend(self) -> None:
        """Others may wait for this worker in a new ring."""
        member = self._member
        if (
            isinstance(member, Member)
            and member.step >= 0
            and self._nothing is not None
            and not member.leaving.is_set()
        ):
            missed = member.attend(self._nothing)
            if missed is not None:
                self._apply_if(missed)

    def _leave(self, member: Member) -> NoReturn:
        """After what became of the last step is known: else its records would be trained again."""
        if self._given is not None and self._nothing is not None:
            self._settle(member.sum(self._nothing, 0, last=True))
        member.leave()

    def _settle(self, summed: Summed) -> None:
        """Of the step before."""
        if self._given is not None and summed.followed:
            self._feeder.trained(self._given)
        elif self._given is not None:
            self._give_again(self._given)
        self._given = None

    def _give_again(self, ticket: Ticket) -> None:
        """It was read, and is in nobody's state."""
        self._feeder.withdraw(ticket)
        self._batches = None

    def _next(self) -> tuple[Ticket | None, Columns | None]:
        """The next batch; none within the time."""
        feeder = self._feeder
        if feeder.restart_needed or self._batches is None:
            feeder.renew()
            self._batches = feeder.batches()
        seconds = self._patience.seconds(self._nothing is not None)
        with self._waiting(), causes.during(INPUT):
            ticket = feeder.begin(1, seconds)
        if ticket is None:
            return None, None
        batch = next(self._batches, None)
        if batch is None:
            feeder.unused(ticket)
            self._batches = None
            return None, None
        self._patience.had()
        return ticket, batch

    def _waiting(self) -> Any:
        return self._member.inputs.waiting if isinstance(self._member, Member) else nullcontext()

    def _arrays(self, batch: Columns | None) -> list[Array] | None:
        """What this worker gives; None: nobody knows yet which arrays the model has."""
        if batch is None:
            return self._nothing
        arrays = list(self._gradients(batch))
        if self._nothing is None:
            self._nothing = [np.zeros_like(one) for one in arrays]
        return arrays

    def _sum(self, arrays: list[Array], ticket: Ticket | None, batch: Columns | None) -> None:
        weight = _records(batch) if batch is not None else 0
        summed = self._member.sum(arrays, weight, last=True)  # it may be: who is told to leave now leaves after it
        self._settle(summed)
        if ticket is not None:
            if summed.counted:
                self._given = ticket
            else:
                self._give_again(ticket)
        self._patience.idle = not summed.weight
        self._apply_if(summed)


def _records(batch: Columns) -> int:
    return len(next(iter(batch.values())) if isinstance(batch, dict) else batch)
