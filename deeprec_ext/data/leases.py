"""What this process holds of one dataset and what it owes the ledger: pure bookkeeping, no thread, no clock of its own.

One request is under way at a time. Progress in it is cumulative; scans, failures and returns stay in it until its reply has
come, so the same request can be sent again after a broken stream or an AIMaster that came back.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from deeprec_ext.data.hand import Hand
from deeprec_ext.data.trained import TrainedVisits
from deeprec_ext.proto import deeprec_ext_pb2 as pb

REPORT_SECONDS = 0.5
"""Progress is told so often; sooner when leases run short."""

RESEND_SECONDS = 10.0
"""A request without an answer is sent again after so long (the stream looked healthy all the time)."""

RETRY_SECONDS = 0.2
"""Ask again after so long when the reply held no lease and named no time."""

WANT_MAX = 4096
"""Leases asked for at once, at most."""

RATE_WINDOW_SECONDS = 10.0


class Leases:
    """See the module. Its user holds a lock around every call.

    Args:
      declaration: the dataset.
      ahead_seconds: work to hold, so that training goes on so long without an AIMaster.
      least_records: never ask for less than this: a few batches.
    """

    def __init__(self, declaration: pb.Dataset, ahead_seconds: float, least_records: int) -> None:
        self.declaration = declaration
        self.to_read: deque[pb.Lease] = deque()
        self.to_scan: deque[pb.Lease] = deque()
        self.held = Hand()
        self.state = pb.DataReply.MORE
        self.error = ""
        self.complete = 0  # epochs, from the first on, of which nothing is left for anybody
        self.replayed = 0
        self.beyond = 0  # records trained of leases in hand that `trained` does not tell: one before them is not
        self.total_trained = 0
        self.fenced = 0  # leases lost to others
        self.asleep = False
        self.listens = False  # asleep, it still asks how far the others are
        self._ahead_seconds, self._least = ahead_seconds, least_records
        self._rewinds = 0
        self._answered = False
        self._incarnation = 0  # of the AIMaster
        self._declare = True
        self._sequence = 0
        self._under_way: pb.DataRequest | None = None
        self._sent_at = self._ask_at = -math.inf
        self._needed = 0  # leases, as the last request says
        self._again = False
        self._owed: dict[int, pb.LeaseProgress] = {}  # the last of leases that are given back
        self._returned: list[int] = []
        self._failed: list[pb.LeaseFailure] = []
        self._scanned: list[pb.Scanned] = []
        self._failed_shards: set[int] = set()
        self._given_up: set[int] = set()
        self._rates: deque[tuple[float, int]] = deque()
        self._fastest = 0.0  # of all half seconds
        self._trained = TrainedVisits()
        self._trained_records = 0  # since the last rewind
        self._told_beyond = self._told_handed = 0
        self._skipped = 0  # since the last rewind, and acknowledged
        self.handed: Callable[[], int] = lambda: 0
        """Records that were given to steps and are not trained, as far as is known."""
        self._highest_lease = 0

    # -- what the reading and training side does

    @property
    def rewinds(self) -> int:
        return self._rewinds

    @property
    def unread(self) -> int:
        """Records in hand that are in no batch yet."""
        return self.held.unread

    def trained(self, lease_id: int, done: int) -> bool:
        """The first `done` records of the shard's order are trained. False: the lease is not ours any more."""
        held = self.held.get(lease_id)
        if held is None:
            return False
        more = self.held.trained(held, done)
        self.total_trained += more
        self._trained_records += more
        return True

    def fail(self, lease_id: int, error: str) -> None:
        held = self.held.remove(lease_id)
        if held is not None or any(lease.id == lease_id for lease in self.to_scan):
            self._failed.append(pb.LeaseFailure(lease=lease_id, error=error[:2000]))
            if held is not None:
                self._failed_shards.add(held.lease.shard)
        self.to_scan = deque(lease for lease in self.to_scan if lease.id != lease_id)
        self._drop_unread()

    def scanned(self, result: pb.Scanned) -> None:
        if any(lease.id == result.lease for lease in self.to_scan):
            self.to_scan = deque(lease for lease in self.to_scan if lease.id != result.lease)
            self._scanned.append(result)

    def give_back(self) -> None:
        """Everything that is not trained goes back to the ledger."""
        self._returned += [*(one.lease.id for one in self.held), *(lease.id for lease in self.to_scan)]
        self._owed.update((one.lease.id, one.progress()) for one in self.held)
        self.held.clear()
        self.to_read.clear()
        self.to_scan.clear()

    def void(self) -> None:
        """Nothing in hand counts any more."""
        self.held.clear()
        self.to_read.clear()
        self.to_scan.clear()
        self._owed.clear()
        self._returned, self._failed, self._scanned = [], [], []
        self._trained.clear()
        self._trained_records = self._skipped = 0

    def _drop_unread(self) -> None:
        self.to_read = deque(lease for lease in self.to_read if lease.id in self.held)

    def tell(self) -> pb.DataKnown:
        """To an AIMaster that has lost its store."""
        known = pb.DataKnown(
            dataset=self.declaration.name, rewinds=self._rewinds, complete=self._trained.complete,
            trained=self._trained.tell(), highest_lease=self._highest_lease, replayed_records=self.replayed,
            trained_records=self._trained_records, skipped_records=self._skipped,
        )  # fmt: skip
        for one in self.held:
            lease = known.held.add()
            lease.CopyFrom(one.lease)
            lease.done = one.trained
        return known

    # -- requests and replies

    def registered(self, aimaster_incarnation: int) -> None:
        """There is a stream: declare to an AIMaster that does not know us, and repeat what was not answered."""
        if aimaster_incarnation != self._incarnation:
            self._incarnation, self._declare = aimaster_incarnation, True
        self._again = True

    def due_in(self, now: float) -> float:
        """Seconds until there is something to say; 0: now."""
        if not self._incarnation or self.error:
            return math.inf
        if self._under_way is not None:
            return 0.0 if self._again else max(0.0, self._sent_at + RESEND_SECONDS - now)
        if self._failed or self._scanned or self._returned:
            return 0.0
        waits = []
        need, want = self._want(now)
        if want:  # who needs what it could do without when it asked last does not wait
            waits.append(0.0 if need > self._needed else max(0.0, self._ask_at - now))
        told = self.held.any_untold
        handed = self.handed()
        if (
            handed > 0 and not self.total_trained and not self._told_handed
        ):  # the first: who dies now has trained no others
            waits.append(0.0)
        if told or self.beyond != self._told_beyond or handed != self._told_handed:
            idle = told and not self.unread and all(one.trained >= one.lease.records for one in self.held)
            waits.append(0.0 if idle else max(0.0, self._sent_at + REPORT_SECONDS - now))
        if self._again and (not self.asleep or (self._declare and self._answered)):
            waits.append(0.0)
        if self.asleep and self.listens and self.state != pb.DataReply.END:
            waits.append(max(0.0, self._sent_at + REPORT_SECONDS - now))
        return min(waits, default=math.inf)

    def request(self, now: float) -> pb.DataRequest | None:
        """What to send now, if anything."""
        if self.due_in(now) > 0:
            return None
        if self._under_way is None:
            self._sequence += 1
            need, want = self._want(now)
            self._needed = need
            self._under_way = pb.DataRequest(
                sequence=self._sequence,
                dataset=self.declaration.name,
                returned=self._returned,
                failed=self._failed,
                scanned=self._scanned,
                want=max(want, len(self._failed)),
                need=max(need, len(self._failed)),
            )
            self._returned, self._failed, self._scanned = [], [], []
        request = self._under_way
        if self._declare:
            request.declare.CopyFrom(self.declaration)
        request.rewinds, request.replayed_records = self._rewinds, self.replayed
        request.records_per_second, request.composed_seconds = max(self._rate(now), self._fastest), now
        request.beyond_records = self._told_beyond = self.beyond
        del request.progress[:]
        request.progress.extend(self._owed.values())
        request.progress.extend(one.progress() for one in self.held.untold)
        request.handed_records = self._told_handed = self.handed()
        request.holds_none = not (self.held or self.to_scan or self._owed or self._returned or self._given_up)
        self._sent_at, self._again = now, False
        copy = pb.DataRequest()
        copy.CopyFrom(request)
        return copy

    def last_request(self, now: float) -> pb.DataRequest | None:
        """Progress, and everything given back, at once; the reply to what is under way is not waited for."""
        self.give_back()
        if self._under_way is not None:
            self._given_up.add(self._under_way.sequence)
            self._returned += self._under_way.returned
            self._failed += self._under_way.failed
            self._scanned += self._under_way.scanned
            self._under_way = None
        return self.request(now)

    def receive(self, reply: pb.DataReply, now: float) -> bool:
        """Takes the ledger's answer in; True: the ledger was rewound, and nothing that was in hand counts any more."""
        if reply.rewinds > self._rewinds and not self._answered:  # before our time
            self._rewinds, self._under_way = reply.rewinds, None
            self._ask_at = now
        self._answered = True
        rewound = reply.rewinds > self._rewinds
        if rewound:
            self.replayed += sum(one.trained - one.told for one in self.held.untold)  # trained, and given once more
            self.void()
            self._rewinds, self._under_way = reply.rewinds, None
            self._ask_at = now
        if reply.error:
            self.error = reply.error
            return rewound
        if reply.undeclared:  # to a request that this AIMaster has taken nothing of in: it is no answer
            self._given_up.discard(reply.sequence)
            self._again = self._again or not self._declare
            self._declare = True
            return rewound
        if reply.sequence == 0:  # a hint: something changed
            self._ask_at = now
            if reply.state != pb.DataReply.STATE_UNSPECIFIED:
                self.state, self.complete = reply.state, reply.complete
            return rewound
        if reply.sequence in self._given_up:  # nobody waits for these leases any more
            self._given_up.discard(reply.sequence)
            self._returned += [lease.id for lease in reply.leases]
            return rewound
        under_way = self._under_way
        if rewound or under_way is None or reply.sequence != under_way.sequence:
            return rewound  # of a request that was answered before
        self._under_way = None
        if under_way.HasField("declare"):
            self._declare = False
        for progress in under_way.progress:
            self._owed.pop(progress.lease, None)
            held = self.held.get(progress.lease)
            if held is not None:
                self.held.told(held, progress.done)
                self._skipped += len(progress.skipped)
                if held.told >= held.lease.records:
                    self.held.remove(progress.lease)
                    self._trained.add(held.lease.epoch, held.lease.rank)
        for lease_id in reply.fenced:
            self.fenced += self.held.remove(lease_id) is not None
        self._drop_unread()
        self._trained.completed(reply.complete)
        self.complete = reply.complete
        for lease in reply.leases:
            self._highest_lease = max(self._highest_lease, lease.id)
            if lease.kind == pb.Lease.SCAN:
                self.to_scan.append(lease)
            elif lease.id not in self.held:
                self.held.add(lease)
                if lease.shard in self._failed_shards:  # whether it fails for good is to be known soon
                    self.to_read.appendleft(lease)
                else:
                    self.to_read.append(lease)
        self.state = reply.state
        self._ask_at = now + (0.0 if reply.leases else reply.retry_seconds or RETRY_SECONDS)
        return rewound

    def _want(self, now: float) -> tuple[int, int]:
        """Leases without which there is soon nothing to train, and those to train on without an AIMaster."""
        if self.asleep or self.state == pb.DataReply.END:
            return 0, 0
        shard = max(1, self.declaration.shard_records)
        least = max(self._least, 2 * shard)
        target = max(least, self._rate(now) * self._ahead_seconds)
        unread = self.unread + shard * len(self.to_scan)
        if unread > 0.75 * target:
            return 0, 0
        need = max(0, math.ceil((least - self.unread) / shard))
        return min(WANT_MAX, need), min(WANT_MAX, math.ceil((target - unread) / shard))

    def _rate(self, now: float) -> float:
        """Records a second, trained of late."""
        trained = self.total_trained + self.beyond
        if not self._rates or now - self._rates[-1][0] >= REPORT_SECONDS:
            if self._rates:
                then, before = self._rates[-1]
                self._fastest = max(self._fastest, (trained - before) / (now - then))
            self._rates.append((now, trained))
            while now - self._rates[0][0] > RATE_WINDOW_SECONDS:
                self._rates.popleft()
        then, before = self._rates[0]
        return max(0, trained - before) / (now - then) if now > then else 0.0
