"""Which visits of a dataset are trained: TODO, DOING in somebody's hands, DONE. No I/O, no clock.

A *visit* is one shard in one epoch. An epoch leases its shards in the order of their *rank* (the shuffled order, else the
shards' own). What is kept is little: how far leasing has come (`cursor`), and the visits before it that are not done
(`open`). All others before the cursor are DONE, all behind it TODO, so a million shards cost nothing, and the ledger's
position is a few numbers. Visits in `open` without a lease came back and go to the next who asks.

Counting a file is a visit too, of epoch SCAN, its rank the file's number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from deeprec_ext.aimaster.ledger.files import ShardTable
from deeprec_ext.order import ShardOrder
from deeprec_ext.proto import deeprec_ext_pb2 as pb

SCAN = -1


@dataclass
class Visit:
    """One that has begun and is not done."""

    epoch: int
    rank: int
    records: int
    done: int = 0  # records trained, in the shard's own order
    lease: int = 0  # fencing number; 0: nobody's
    incarnation: str = ""
    sequence: int = 0  # of the request that leased it: a request that is repeated gets the same leases

    @property
    def left(self) -> int:
        return self.records - self.done


@dataclass
class Epoch:
    """One that has begun and is not complete."""

    number: int
    cursor: int = 0  # ranks before it have been leased or set aside
    issued: int = 0  # their records
    aside: int = 0  # records of them that were given up: their shard keeps failing
    open: dict[int, Visit] = field(default_factory=dict)


@dataclass
class Numbers:
    """Fencing numbers of all datasets: never used twice, so `last` is persisted before a lease is handed out."""

    last: int = 0

    def next(self) -> int:
        self.last += 1
        return self.last


@dataclass
class Changes:
    """What is not in the store yet."""

    visits: set[tuple[int, int]] = field(default_factory=set)
    epochs: set[int] = field(default_factory=set)
    files: set[int] = field(default_factory=set)
    everything: bool = False  # visits and epochs are others than before

    def __bool__(self) -> bool:
        return bool(self.visits or self.epochs or self.files or self.everything)


class Visits:
    """The visits of one dataset."""

    def __init__(self, declaration: pb.Dataset, table: ShardTable, numbers: Numbers) -> None:
        self.table = table
        self._shuffle, self._seed = declaration.shuffle, declaration.seed
        self._in_turn = declaration.in_turn
        self.epochs_wanted = declaration.epochs  # 0: without end
        self._numbers = numbers
        self.complete = 0  # epochs from the first on of which nothing is left
        self.complete_aside = 0  # records of them that were given up
        self.epochs: dict[int, Epoch] = {SCAN: Epoch(SCAN, len(declaration.files))}
        self.aside: set[int] = set()  # shards that are given up in every epoch
        self.changes = Changes()
        self.blocked = False  # no shard is leased: a position waits until all files are counted
        self._returned: deque[tuple[int, int]] = deque()  # (epoch, rank); perhaps leased or done meanwhile
        self._scans = deque(file for file in range(len(declaration.files)) if not table.counted(file))
        self._by_lease: dict[int, Visit] = {}
        self._held: dict[str, dict[int, Visit]] = {}
        self._order: tuple[int, ShardOrder | None] = (-1, None)

    # ------------------------------------------------------------------------------------------------ what there is

    def held(self, incarnation: str) -> list[Visit]:
        return list(self._held.get(incarnation, {}).values())

    def holders(self) -> list[str]:
        return [incarnation for incarnation, held in self._held.items() if held]

    def find(self, incarnation: str, lease: int) -> Visit | None:
        """The visit, if the lease is in the hands of this incarnation."""
        visit = self._by_lease.get(lease)
        return visit if visit is not None and visit.incarnation == incarnation else None

    def shard(self, epoch: int, rank: int) -> int:
        """Which shard has this rank. Asked mostly for one epoch after the other."""
        if not self._shuffle:
            return rank
        number, order = self._order
        if order is None or number != epoch:
            order = ShardOrder(self._seed, epoch, self.table.count)
            self._order = (epoch, order)
        return order.shard(rank)

    @property
    def _leasable(self) -> int:
        """Shards that may be leased by now: with shuffle all or none."""
        return self.table.count if (self.table.complete or not self._shuffle) and not self.blocked else 0

    @property
    def current(self) -> int:
        """The epoch from which the next shard comes."""
        number = max(self.epochs)
        if number == SCAN:
            return self.complete if not self._over(self.complete) else self.complete - 1
        if self._in_turn:  # until all of it is trained, and it is no epoch that has begun any more
            return number
        if self.table.complete and self.epochs[number].cursor >= self.table.count and not self._over(number + 1):
            return number + 1
        return number

    def _over(self, epoch: int) -> bool:
        return 0 < self.epochs_wanted <= epoch

    @property
    def ended(self) -> bool:
        """Every visit of every epoch is done, or given up."""
        if not self.table.complete:
            return False
        if self.table.count == 0 or (self.epochs_wanted == 0 and len(self.aside) >= self.table.count):
            return not any(epoch.open for number, epoch in self.epochs.items() if number != SCAN)
        return self._over(self.complete)

    @property
    def counting(self) -> bool:
        return not self.table.complete

    def todo(self) -> int | None:
        """Visits that can be leased now or later and are in nobody's hands; None: without end.

        Where epochs are read in turn: of the one that is under way.
        """
        if self.epochs_wanted == 0 and not self.ended:
            return None
        begun = [epoch for number, epoch in self.epochs.items() if number != SCAN]
        untouched = self.epochs_wanted - self.complete - len(begun)
        if self._in_turn:
            untouched = 0 if begun else min(1, untouched)
        return len(self._returned) + sum(self.table.count - e.cursor for e in begun) + untouched * self.table.count

    def available(self) -> bool:
        """Whether somebody who asks now gets a shard or a file to count."""
        if self._scans or self._returned:
            return True
        number = self.current
        epoch = self.epochs.get(number)
        if self.ended or self._over(number) or number < 0:
            return False
        return (epoch.cursor if epoch is not None else 0) < self._leasable

    @property
    def trained(self) -> int:
        """Records of distinct visits that are trained."""
        begun = [epoch for number, epoch in self.epochs.items() if number != SCAN]
        whole = self.complete * self.table.records - self.complete_aside
        return whole + sum(e.issued - e.aside - sum(visit.left for visit in e.open.values()) for e in begun)

    @property
    def leased(self) -> int:
        """Records in somebody's hands that are not trained."""
        return sum(visit.left for held in self._held.values() for visit in held.values())

    @property
    def set_aside(self) -> int:
        return self.complete_aside + sum(epoch.aside for epoch in self.epochs.values())

    # ------------------------------------------------------------------------------------------------ leasing

    def lease(self, incarnation: str, sequence: int, count: int) -> list[Visit]:
        """At most `count` shards: first what came back, then the next in order."""
        given: list[Visit] = []
        while len(given) < count and (visit := self._take()) is not None:
            self._hand_out(visit, incarnation, sequence)
            given.append(visit)
        return given

    def lease_files(self, incarnation: str, sequence: int, count: int) -> list[Visit]:
        """At most `count` files to be counted."""
        given: list[Visit] = []
        while self._scans and len(given) < count:
            file = self._scans.popleft()
            if not self.table.counted(file):
                visit = self.epochs[SCAN].open.setdefault(file, Visit(SCAN, file, 0))
                self._hand_out(visit, incarnation, sequence)
                given.append(visit)
        return given

    def _hand_out(self, visit: Visit, incarnation: str, sequence: int) -> None:
        visit.lease, visit.incarnation, visit.sequence = self._numbers.next(), incarnation, sequence
        self._by_lease[visit.lease] = visit
        self._held.setdefault(incarnation, {})[visit.lease] = visit
        self.changes.visits.add((visit.epoch, visit.rank))

    def _take(self) -> Visit | None:
        while self._returned:
            number, rank = self._returned.popleft()
            epoch = self.epochs.get(number)
            visit = epoch.open.get(rank) if epoch is not None else None
            if visit is not None and not visit.lease:
                return visit
        while not self.ended:
            number = self.current
            epoch = self.epochs.get(number)
            if self._over(number) or (epoch.cursor if epoch is not None else 0) >= self._leasable:
                return None
            if epoch is None:
                epoch = self.epochs[number] = Epoch(number)
            rank = epoch.cursor
            shard = self.shard(number, rank)
            records = self.table.extent(shard).records
            epoch.cursor += 1
            epoch.issued += records
            self.changes.epochs.add(number)
            if shard in self.aside:
                epoch.aside += records
                self._tidy(number)
                continue
            visit = epoch.open[rank] = Visit(number, rank, records)
            return visit
        return None

    # ------------------------------------------------------------------------------------------------ coming back

    def acknowledge(self, visit: Visit, done: int) -> int:
        """The first `done` records of the visit's order are trained; returns how many are new. Less than before: nothing."""
        done = min(done, visit.records)
        gained = max(0, done - visit.done)
        if gained:
            visit.done = done
            self.changes.visits.add((visit.epoch, visit.rank))
            if not visit.left:
                self._unhand(visit)
                self._close(visit)
        return gained

    def counted(self, visit: Visit) -> None:
        """The file of this SCAN visit is in the table now."""
        self._unhand(visit)
        self.changes.files.add(visit.rank)
        self._close(visit)
        if not self.blocked:
            self._tidy(self.complete)

    def give_back(self, visit: Visit, *, last: bool = False) -> None:
        """Nobody's again, from its last progress on. `last`: others first."""
        self._unhand(visit)
        self.changes.visits.add((visit.epoch, visit.rank))
        if visit.epoch == SCAN:
            self._scans.append(visit.rank) if last else self._scans.appendleft(visit.rank)
        else:
            key = (visit.epoch, visit.rank)
            self._returned.append(key) if last else self._returned.appendleft(key)

    def keep_back(self, visit: Visit) -> tuple[int, int]:
        """Nobody's again, and nobody gets it before it is offered: by what this returns."""
        self._unhand(visit)
        self.changes.visits.add((visit.epoch, visit.rank))
        return visit.epoch, visit.rank

    def offer(self, kept_back: tuple[int, int]) -> None:
        """To whoever asks next."""
        if kept_back[0] == SCAN:
            self._scans.appendleft(kept_back[1])
        else:
            self._returned.appendleft(kept_back)

    def put_aside(self, visit: Visit) -> None:
        """The shard is given up: in this epoch and in those to come."""
        self._unhand(visit)
        self.aside.add(self.shard(visit.epoch, visit.rank))
        epoch = self.epochs[visit.epoch]
        epoch.aside += visit.left
        self.changes.epochs.add(visit.epoch)
        self._close(visit)

    def release(self, incarnation: str) -> list[Visit]:
        """All it holds comes back; returns that."""
        visits = self.held(incarnation)
        for visit in reversed(visits):
            self.give_back(visit)
        self._held.pop(incarnation, None)
        return visits

    def _unhand(self, visit: Visit) -> None:
        self._by_lease.pop(visit.lease, None)
        held = self._held.get(visit.incarnation)
        if held is not None:
            held.pop(visit.lease, None)
            if not held:
                del self._held[visit.incarnation]
        visit.lease, visit.incarnation, visit.sequence = 0, "", 0

    def _close(self, visit: Visit) -> None:
        self.epochs[visit.epoch].open.pop(visit.rank, None)
        self.changes.visits.add((visit.epoch, visit.rank))
        self._tidy(visit.epoch)

    def _tidy(self, number: int) -> None:
        """Epochs of which nothing is left are one number; they end in order."""
        while number == self.complete and (epoch := self.epochs.get(number)) is not None:
            if epoch.open or not self.table.complete or epoch.cursor < self.table.count:
                return
            self.complete += 1
            self.complete_aside += epoch.aside
            del self.epochs[number]
            self.changes.epochs.add(number)
            number += 1

    # ------------------------------------------------------------------------------------------------ another state

    def restore(self, complete: int, complete_aside: int, epochs: Iterable[Epoch]) -> None:
        """Puts this in place of what is known, leases and all; files stay counted. From the store, or by a rewind."""
        scans = self.epochs[SCAN]
        for visit in [visit for held in self._held.values() for visit in held.values()]:
            self._unhand(visit)
        scans.open.clear()
        self.complete, self.complete_aside = complete, complete_aside
        self.epochs = {SCAN: scans, **{epoch.number: epoch for epoch in epochs}}
        self._scans = deque(file for file in range(scans.cursor) if not self.table.counted(file))
        self._returned.clear()
        for epoch in sorted((e for e in self.epochs.values()), key=lambda e: e.number):
            for rank, visit in sorted(epoch.open.items()):
                if visit.lease:
                    self._by_lease[visit.lease] = visit
                    self._held.setdefault(visit.incarnation, {})[visit.lease] = visit
                elif epoch.number != SCAN:
                    self._returned.append((epoch.number, rank))
        if self.table.complete:
            self._tidy(self.complete)
        self.changes.everything = True

    def restore_scans(self, scans: Iterable[Visit]) -> None:
        """Files that are being counted, from the store."""
        for visit in scans:
            if visit.lease and not self.table.counted(visit.rank):
                self.epochs[SCAN].open[visit.rank] = visit
                self._by_lease[visit.lease] = visit
                self._held.setdefault(visit.incarnation, {})[visit.lease] = visit
                self._scans.remove(visit.rank)
