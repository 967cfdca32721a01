"""`DistributedSampler`: the records of an epoch are leased from the data ledger, so each is trained once, by whoever has it.

A DataLoader with such a sampler is passed over together (`Pass`): all members leave it after the same step. Whoever has no
batch at the moment gets one that counts nothing, so that the script does with each step what the others do. A pass that is
over for the others before this process came to it has one batch, which trains nothing: what the script does after its loop
finds what it wants.

Where gradients are not wanted (`torch.no_grad`, or the model is in `eval` mode) records are divided as PyTorch does, without
padding: by the ring as it is at the beginning.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, Sampler

from deeprec_ext.allreduce.summing import Summed
from deeprec_ext.data import streams
from deeprec_ext.data.feeder import Feeder
from deeprec_ext.data.plan import plan, shard_of
from deeprec_ext.elastic.member import joined
from deeprec_ext.elastic.member.member import Member
from deeprec_ext.errors import DeepRecError
from deeprec_ext.torch.replica import REPLICA

log = logging.getLogger("deeprec_ext")

WAIT_SECONDS = 0.2
"""For a batch whose lease is on its way: all others stand still meanwhile."""

REWIND_SECONDS = 5.0
"""For the word that leases are void to come to who holds them."""

IDLE_SECONDS = 0.05
"""Between two sums to which nobody has given anything."""

_made = 0


class DistributedSampler(Sampler):  # type: ignore[misc]
    """As PyTorch's. `num_replicas` and `rank` are the job's to say."""

    def __init__(
        self, dataset: Any, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True, seed: int = 0,
        drop_last: bool = False,
    ) -> None:  # fmt: skip
        global _made
        self.dataset, self.shuffle, self.seed, self.drop_last = dataset, shuffle, seed, drop_last
        self.epoch = 0
        self.place, _made = _made, _made + 1
        self.passed = -1  # the last pass that this process has come through
        self._told: int | None = None
        self._leased: Pass | None = None

    @property
    def num_replicas(self) -> int:
        return REPLICA.size

    @property
    def rank(self) -> int:
        return REPLICA.rank

    @property
    def num_samples(self) -> int:
        return math.ceil(len(self.dataset) / REPLICA.size)

    @property
    def total_size(self) -> int:
        return len(self.dataset)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = self._told = int(epoch)

    def __len__(self) -> int:
        """Of this process, about: who is faster trains more of them."""
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        if self._leased is not None:
            return self._leased.numbers()
        size, place = REPLICA.place
        return iter(self.order()[place::size].tolist())

    def order(self) -> np.ndarray:
        """Of all records in this epoch, the same in all processes."""
        if not self.shuffle:
            return np.arange(len(self.dataset))
        chance = torch.Generator()
        chance.manual_seed(self.seed + self.epoch)
        found: np.ndarray = torch.randperm(len(self.dataset), generator=chance).numpy()
        return found

    def number(self) -> int:
        """Of the pass that begins: that of its epoch, where the script says it."""
        told, self._told = self._told, None
        return max(self.passed + 1, told if told is not None else 0)


def iterated(original: Callable[[Any], Any], loader: Any) -> Any:
    """`DataLoader.__iter__`."""
    sampler = sampler_of(loader)
    if sampler is None:
        return original(loader)
    training = torch.is_grad_enabled() and any(one.training for one in REPLICA.snapshot.models)
    return Pass(loader, sampler, original).run() if training else original(loader)


def sampler_of(loader: Any) -> DistributedSampler | None:
    for one in (loader.sampler, getattr(loader.batch_sampler, "sampler", None)):
        if isinstance(one, DistributedSampler):
            if loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler:
                joined.give_up(
                    f"a DistributedSampler within a {type(loader.batch_sampler).__name__}, which makes batches in a way of its "
                    "own: give DataLoader the sampler and batch_size"
                )
            return one
    return None


class Pass:
    """Over the records of one epoch.

    Attributes:
      past: it is over for the others; closed: for this process.
      weight: records of the batches that the next sum is of.
      pending: counted by the last sum; whether that is in the model is known with the next one.
    """

    def __init__(self, loader: Any, sampler: DistributedSampler, original: Callable[[Any], Any]) -> None:
        self._loader, self._sampler, self._original = loader, sampler, original
        self.past = self.closed = False
        self.pending: list[Any] = []
        self._taken: list[tuple[Any, int]] = []
        self._go = False  # somebody has a batch for the next step
        self._real = self._summed = self._idle = self._stale = False
        self._ever = False  # a step of it was summed
        self._weight = 0
        self._size = getattr(loader.batch_sampler, "batch_size", None) or 1
        self._inner: Iterator[Any] | None = None
        self._batches: Iterator[Any] | None = None
        self._promised: tuple[Any, list[int]] | None = None
        self._issued: deque[tuple[Any, int]] = deque()  # in the loader, and not here yet
        self._held: Any = None
        self._order: np.ndarray = np.empty(0, np.int64)

    @property
    def weight(self) -> int:
        if not self._summed:  # else of another backward pass of the same step
            self._weight = sum(records for _, records in self._taken)
        return self._weight

    # ------------------------------------------------------------------------------------------------ the script's loop

    def run(self) -> Iterator[Any]:
        self._begin()
        yielded = False
        while self._find():
            yielded, self._summed = True, False
            REPLICA.position, REPLICA.accumulates = 0, False
            batch, self._held = self._held, None
            yield batch
            self._after()
        if not yielded:
            self.past = True
            yield self._sample()
            if not self._fetch():
                REPLICA.restore_at((self._sampler.place, self._number))
        self._end()

    def _begin(self) -> None:
        REPLICA.beginning.end()
        member = REPLICA.here
        before, REPLICA.current = REPLICA.current, None
        number = self._sampler.number()
        if before is not None:
            before.close()
        REPLICA.current = self
        REPLICA.snapshot.place = (self._sampler.place, number)
        REPLICA.meet()
        self._number, self._order = number, self._sampler.order()
        self._sampler._leased = self
        self._feeder = self._open(member, number)
        known = REPLICA.job_place
        if not REPLICA.in_step:
            REPLICA.restore()
            self.past = known is not None and known[0] == self._sampler.place and known[1] > number

    def _open(self, member: Member, number: int) -> Feeder:
        count, drop = len(self._sampler.dataset), bool(getattr(self._loader.batch_sampler, "drop_last", False))
        made = plan(
            count, self._size, 1, False, 0, "range", shard_of(count, self._size),
            f"sampler {self._sampler.place}, epoch {number}", "train", False, {}, drop_remainder=drop,
        )  # fmt: skip
        feeder = streams.shared(made, member.inputs)
        feeder.claim()
        return feeder

    def _find(self) -> bool:
        """The batch of the next step; whether there is one."""
        if self.closed:
            joined.give_up(
                "two DataLoaders with a DistributedSampler are read at once, and nobody knows of which a step's records are: "
                "give one of them another sampler, or read one after the other"
            )
        while not self.past:
            if REPLICA.here.leaving.is_set():
                REPLICA.settle()
            if REPLICA.in_step and not self._go:
                if not self._agree():
                    return False
                continue
            if REPLICA.in_step:
                if self._held is None:
                    self._held = self._next(0.0 if self._feeder.drained else WAIT_SECONDS)
            elif self.is_over():
                self.past = True
                return False
            elif REPLICA.chief and self._held is None:  # nobody else may have the model: then the first step is its own
                REPLICA.restore_at()
                self._held = self._next(WAIT_SECONDS)
            self._real = self._held is not None
            if not self._real:
                self._held = self._sample()
            return True
        return False

    def _agree(self) -> bool:
        """Whether to go on: somebody has a batch, or this process is as new."""
        if self._held is None:
            drained = self._feeder.drained
            self._held = self._next(IDLE_SECONDS if self._idle else 0.0 if drained else WAIT_SECONDS)
        has = self._held is not None
        if not has and self._taken:  # they are in the gradients that the script has not summed yet
            self._trained([ticket for ticket, _ in self._taken])
            self._taken.clear()
        summed = REPLICA.agree(float(has), not has and not self.pending and self._over)
        if summed is None:
            self._give_again()
            return True
        self._idle = not summed.weight
        self._go = bool(summed.weight)
        return not summed.unanimous or self._go

    def _after(self) -> None:
        if self._real and not (self._summed or REPLICA.accumulates or self.past):  # the script has skipped it
            self._trained([ticket for ticket, _ in self._taken[-1:]])
            del self._taken[-1:]
        elif not (self._real or self._summed or REPLICA.accumulates or self.past):  # nothing is summed in this loop
            self._go = False

    def _end(self) -> None:
        self._sampler.passed = self._number
        if not self.past:
            REPLICA.ended()
        self.close()

    def withdraw(self) -> None:
        """What was read and not summed is for others: before what was summed is said to be trained, which is told in order."""
        ahead = [*self._taken, *self._issued, *([self._promised] if self._promised is not None else [])]
        for ticket, _ in ahead:
            self._feeder.withdraw(ticket)
        self._taken.clear()
        self._issued.clear()
        self._promised = self._held = None

    def close(self) -> None:
        """It is over, or left."""
        self.closed = True
        self.withdraw()
        if REPLICA.current is self:
            REPLICA.current = None
        self._sampler._leased = None
        if self.pending:
            self._settled()
        self._inner = None
        self._feeder.finish()
        self._feeder.release()
        if REPLICA.member is not None:
            inputs: Any = REPLICA.member.inputs
            inputs.remove(self._feeder)
        self._feeder.close()

    def _settled(self) -> None:
        """Of a loop that was left in its midst: what it has summed counts, what it has not is for others."""
        for ticket in self.pending:
            self._feeder.trained(ticket)
        self.pending = []
        if self._ever:
            self._sampler.passed = self._number

    # ------------------------------------------------------------------------------------------------ sums

    def stepped(self, summed: Summed) -> None:
        """The step under way was summed."""
        self._summed = self._ever = True
        self._go = not summed.unanimous
        if summed.counted and self._taken:
            self.pending += [ticket for ticket, _ in self._taken]
            self._taken.clear()
        elif self._taken:
            self._give_again()

    def heard(self, summed: Summed) -> None:
        """What became of the sum before."""
        if summed.followed:
            self._trained(self.pending)
        elif self.pending:
            self._give_again()
        self.pending = []

    @property
    def rewinds(self) -> int:
        """So often its records were given free, as is known here."""
        return self._feeder.rewinds

    def rewound(self, before: int) -> None:
        """They were once more: what it holds is void, and nothing is read until that is known here."""
        end = time.monotonic() + REWIND_SECONDS
        while self._taken and self.rewinds == before and time.monotonic() < end:
            time.sleep(0.01)
        self._give_again()

    def is_over(self) -> bool:
        """Whether the ledger says that nothing is left of it."""
        if not self._feeder.ended:
            ticket = self._feeder.begin(1, 1.0)
            if ticket is not None:
                self._feeder.withdraw(ticket)
        return self._over

    @property
    def _over(self) -> bool:
        if self._feeder.failure:
            raise DeepRecError(self._feeder.failure)
        return self._feeder.ended

    def has_next(self) -> bool:
        """Whether there is a batch for the step after this one, now."""
        return self._held is not None or bool(self._issued) or self._promise(0.0)

    # ------------------------------------------------------------------------------------------------ batches

    def _trained(self, tickets: list[Any]) -> None:
        for ticket in tickets:
            self._feeder.trained(ticket)

    def _give_again(self) -> None:
        """What was read and is in nobody's model."""
        self._stale = True
        self._held = None
        self._taken.clear()

    def _next(self, seconds: float) -> Any:
        """The next batch; None within the time."""
        if self._stale or self._feeder.restart_needed or self._batches is None:
            self._stale = False
            self._inner, self._promised = None, None
            self._issued.clear()
            self.pending = []
            self._feeder.renew()
            self._batches = self._feeder.batches()
        if not self._issued and (self._feeder.exhausted or not self._promise(seconds)):
            return None
        if self._inner is None:
            self._inner = iter(self._original(self._loader))
        try:
            batch = next(self._inner)
        except StopIteration:
            self._inner = None
            return self._next(seconds) if self._promised is not None else None
        self._taken.append(self._issued.popleft())
        return batch

    def numbers(self) -> Iterator[int]:
        """What the loader reads, as far as there is something now."""
        while self._promise(0.0 if self._issued else WAIT_SECONDS):
            assert self._promised is not None
            (ticket, numbers), self._promised = self._promised, None
            self._issued.append((ticket, len(numbers)))
            yield from numbers
            if len(numbers) < self._size:
                return

    def _promise(self, seconds: float) -> bool:
        if self._promised is None and self._batches is not None and not self._feeder.restart_needed:
            ticket = self._feeder.begin(1, seconds)
            if ticket is None:
                return False
            found = next(self._batches, None)
            if found is None:
                self._feeder.unused(ticket)
                self._batches = None
                return False
            self._promised = ticket, self._order[np.asarray(found)].tolist()
        return self._promised is not None

    def _sample(self) -> Any:
        """A batch that counts nothing."""
        dataset, collate = self._sampler.dataset, self._loader.collate_fn
        if self._loader.batch_sampler is None:
            return collate(dataset[0])
        numbers = range(min(self._size, len(dataset)))
        if hasattr(dataset, "__getitems__"):
            return collate(dataset.__getitems__(list(numbers)))
        return collate([dataset[number] for number in numbers])

    def _fetch(self) -> bool:
        """A chief that comes late, and may be asked to save the model: that of the others, if they are there."""
        known = REPLICA.job_place
        if REPLICA.chief and not REPLICA.in_step and (known is None or known[1] <= self._number):
            return REPLICA.fetch()
        return False
