"""Training in step on leased records, without PS: a step's records are trained when the step is, wherever they were computed.

Each worker has batches of its own from the ledger. Whoever has none at the moment (others hold the last ones, or its leases are
on their way) sums with weight 0, so nobody waits for it and the last uneven step counts. What a step was given is trained once
the sum after it says that it is in the state (`Summed.followed`); what was not counted is given again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from deeprec_ext.allreduce.ring import Array
from deeprec_ext.allreduce.summing import State, Summed
from deeprec_ext.data import streams
from deeprec_ext.data.batches import Ticket
from deeprec_ext.data.feeder import Feeder
from deeprec_ext.data.plan import Files, plan
from deeprec_ext.data.readers import Reader
from deeprec_ext.data.readers.base import Columns
from deeprec_ext.elastic.member.joined import Alone, join
from deeprec_ext.elastic.member.member import Member
from deeprec_ext.errors import DeepRecError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

WAIT_SECONDS = 0.2
"""For a batch whose lease is on its way: all others stand still meanwhile."""

RESTORED_SECONDS = 10.0
"""For the word that records are trained to reach the AIMaster, and come back."""

IDLE_SECONDS = 0.05
"""Between two sums to which nobody has given anything."""


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
        self._idle = False  # the last sum was of nothing

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
                arrays = self._arrays(batch)
                if arrays is not None:
                    self._sum(arrays, ticket, batch)
        finally:
            feeder.release()

    def _go_back(self) -> None:
        """The state is that of a backup, and nobody has a newer one: so is the ledger, before anybody trains."""
        member, end = self._member, time.monotonic() + RESTORED_SECONDS
        if not isinstance(member, Member) or not member.restored or member.size:
            return
        request = pb.EpochRequest(dataset=self._feeder.name, passes=1, restored=member.restored)
        while time.monotonic() < end:
            reply = member.inputs.end_of_epoch(request)
            if reply is not None and reply.rewinds and self._feeder.rewinds >= reply.rewinds:
                return
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
        drained = feeder.drained and self._nothing is not None  # else there is nothing to do meanwhile
        seconds = IDLE_SECONDS if self._idle else 0.0 if drained else WAIT_SECONDS
        ticket = feeder.begin(1, seconds)
        if ticket is None:
            return None, None
        batch = next(self._batches, None)
        if batch is None:
            feeder.unused(ticket)
            self._batches = None
            return None, None
        return ticket, batch

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
        self._idle = not summed.weight
        self._apply_if(summed)


def _records(batch: Columns) -> int:
    return len(next(iter(batch.values())) if isinstance(batch, dict) else batch)
