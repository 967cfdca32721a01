"""How many pods each job may have: `decide`, pure, total and deterministic.

What there is stays, and is changed only for a reason, in this order:

1. Who runs keeps its pods where they are. A pod without a node is placed, first fit; where there is no room, it is given up.
2. Claims by priority: the least of each job that waits (all or nothing), and pods of others that wait. They take room from what
   jobs have beyond their least, workers before PS, the least important job first; from lower priorities also whole jobs.
3. Deadlines: what a job needs to make its own, from what others have beyond their least and their need.
4. What is left, priority by priority: the step with the largest gain per core, of jobs that are nearly equal the one that is
   worst off. Where nothing is left, from lower priorities, and from equals whose loss is smaller.

A change for 4 must bring more than it costs within the horizon. What was decided is decided on again until nothing changes: the
same observation with the given allowances is a fixed point. Of more than `MANY` jobs, where pods of some may not go everywhere
or are counted by quotas, only `ROUNDS_OF_MANY` rounds are made, and what is not settled then is for the next decision.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Sequence

from deeprec_ext.arbiter import saying
from deeprec_ext.arbiter.curve import Size
from deeprec_ext.arbiter.giving import Givers
from deeprec_ext.arbiter.observed import Allowance, Cluster, Decision, Job, Waiting
from deeprec_ext.arbiter.room import Shape, finite, together
from deeprec_ext.arbiter.rules import WEIGHT, Rules
from deeprec_ext.arbiter.seating import (
    CHIEF,
    OTHER,
    PS,
    WORKER,
    Curves,
    Party,
    Seating,
    Shortage,
    could_give,
    runs_before,
)  # fmt: skip
from deeprec_ext.arbiter.sharing import Sharing

SKEW_SECONDS = 1.0
"""That the clock of who decided before may be ahead. Nobody has decided later than that: it counts from now."""
ROUNDS = 8
"""Of deciding on what was decided. The second one nearly always changes nothing."""
MANY, ROUNDS_OF_MANY = 100, 3
"""Where pods may not go everywhere, what is placed anew finds other gaps each time, and many jobs settle by turns: the rest is
for the next decision, a second later."""
TRIES = 4
"""Of those, each with others barred who would start and stop in turn."""
WAITING_MAX = 1000
"""Pods of others that are looked at, the most important ones."""


def decide(cluster: Cluster, rules: Rules = Rules()) -> Decision:  # noqa: B008  (frozen)
    """One allowance for each job. Never raises, whatever was observed."""
    if not math.isfinite(cluster.time):
        cluster = dataclasses.replace(cluster, time=0.0)
    seen, curves, barred = cluster, Curves(), frozenset[int]()
    for _ in range(TRIES):
        allowances, used, turned = _rounds(seen, rules, curves, barred)
        given = tuple(_lasting(now, job, cluster.time) for now, job in zip(allowances, cluster.jobs))
        barred |= turned
        if not turned and all(one.since == now.since for one, now in zip(given, allowances)):
            break
        if not turned:  # to whom it came back to what he had, since longer than was thought
            jobs = tuple(dataclasses.replace(job, allowance=now) for job, now in zip(cluster.jobs, given))
            seen = dataclasses.replace(cluster, jobs=jobs)
    changed = tuple(job.name for job, now in zip(cluster.jobs, given) if job.allowance != now)
    return Decision(cluster.time, given, changed, used)


def _rounds(
    cluster: Cluster, rules: Rules, curves: Curves, barred: frozenset[int]
) -> tuple[list[Allowance], float, frozenset[int]]:
    """Decided until nothing changes: (allowances, share of the cores used, who started and was stopped again at once).

    Pods of those have room together in one order, and not in the order in which they are placed anew: they wait, or others
    would give back room for nothing.
    """
    before = cluster
    ran: set[int] = set()
    settles = len(cluster.jobs) <= MANY or all(job.bounds is None for job in cluster.jobs)
    for _ in range(ROUNDS if settles else ROUNDS_OF_MANY):
        found = Round(cluster, rules, curves, barred)
        allowances, used = found.decided(), found.used_share()
        ran |= {at for at, one in enumerate(allowances) if one.runs}
        if all(map(same, allowances, (job.allowance for job in cluster.jobs))):
            break
        pairs = zip(cluster.jobs, allowances)
        cluster = dataclasses.replace(
            cluster, jobs=tuple(dataclasses.replace(job, allowance=given) for job, given in pairs)
        )
    waited = {at for at, job in enumerate(before.jobs) if not runs_before(job)}
    return allowances, used, frozenset(at for at in ran & waited if not allowances[at].runs)


def same(one: Allowance, other: Allowance | None) -> bool:
    return other is not None and (one.runs, one.ps, one.workers, one.why) == (
        other.runs, other.ps, other.workers, other.why,
    )  # fmt: skip


def _lasting(now: Allowance, before: Job, time: float) -> Allowance:
    """The one before, where it came back to that."""
    if before.allowance is None or not same_size(now, before.allowance) or _is_odd(before.allowance, time):
        return now
    return dataclasses.replace(before.allowance, job=now.job, why=now.why)


def _is_odd(given: Allowance, now: float) -> bool:
    """Whether it is from a time that cannot be."""
    return not (math.isfinite(given.since + given.last_until) and given.since <= now + SKEW_SECONDS)


def same_size(one: Allowance, other: Allowance) -> bool:
    return (one.runs, one.ps, one.workers) == (other.runs, other.ps, other.workers)


class Round:
    """One decision from an observation."""

    def __init__(self, cluster: Cluster, rules: Rules, curves: Curves, barred: frozenset[int]) -> None:
        self.cluster, self.rules, self.barred = cluster, rules, barred
        self.seating = Seating(cluster, rules, curves)
        self.sharing = Sharing(self.seating, rules)
        self.parties = self.seating.parties
        self.ordered = sorted(self.parties, key=lambda one: one.order)
        self.due: dict[
            tuple[str | None, object], Party
        ] = {}  # quota (None: room on these nodes) → the first it is kept for
        self.hopeless: set[tuple[object, ...]] = set()  # claims for which there is no room
        self.never: dict[tuple[object, ...], str | None] = {}
        self.short: dict[tuple[object, ...], Shortage | None] = {}
        self.sums: dict[int, list[int]] = {}
        self.above: dict[int, float] = {}  # priority → cores with higher ones, when all is decided
        self.higher: list[tuple[int, int]] = []  # (priority, thousandths of cores) of pods of others that get room

    def decided(self) -> list[Allowance]:
        self._stay()
        self._claim()
        self._needs()
        groups = [self._running()] if self.rules.priorities == WEIGHT else self._levels()
        for group in groups:
            self.sharing.share(group, ())
            below = [one for one in self._running() if one.priority < group[0].priority] if group else []
            if below and self.rules.priorities != WEIGHT:
                self.sharing.share(group, below)
            self.sharing.even(group)
        self.sharing.try_out(self._running())
        self.sharing.last(self._running())
        return self._allowances()

    def _running(self) -> list[Party]:
        return [one for one in self.ordered if one.runs]

    def _levels(self) -> list[list[Party]]:
        found: dict[int, list[Party]] = {}
        for one in self._running():
            found.setdefault(one.priority, []).append(one)
        return list(found.values())

    # ------------------------------------------------------------------------------------------------- what there is

    def _stay(self) -> None:
        seating = self.seating
        for party in self.parties:
            size = party.present if party.runs and party.present is not None else (0, 0)
            counts = {CHIEF: 1, PS: size[0], WORKER: size[1], OTHER: party.pods[OTHER]}
            for role in counts:
                homes = party.homes[role]
                count = min(len(homes), counts[role]) if party.runs else 0
                if count < len(homes) and party.age > self.rules.obey_seconds:
                    party.stay_behind(role, count)
                for _ in range(count):
                    seating.put(party, role)
            for role in party.staying():
                seating.put(party, role)
        running = self._running()
        self._unload(running)
        for party in running:
            for role in party.missing(party.least):
                if not seating.add(party, role):
                    party.lacks = True
        for party in running:
            if not party.lacks and party.present is not None:
                for role in party.missing(party.present):
                    if not seating.add(party, role):
                        party.note = saying.LOST

    def _unload(self, running: Sequence[Party]) -> None:
        """A node on which there is more than it has room for: what has shrunk, or a pool's machine."""
        for node in self.seating.room.short():
            there = [one for one in running if node in one.seats[WORKER] or node in one.seats[PS]]
            givers = Givers(there, lambda one: one.least, self.seating)
            while min(self.seating.room.free[node]) < 0 and (giver := givers.give()) is not None:
                giver.note = saying.LOST

    # -------------------------------------------------------------------------------------------------------- claims

    def _claim(self) -> None:
        """Who waits, by priority; of equals jobs that run and lack something, jobs that wait, pods of others."""
        claims: list[tuple[tuple[int, int, float, str, int], Party | Waiting]] = []
        for party in self.parties:
            if party.lacks if party.runs else not self._waits_again(party):
                claims.append(((-party.priority, 0 if party.runs else 1, *party.order[1:]), party))
        pods = sorted(self.cluster.waiting, key=lambda one: (-_priority(one), finite(one.since), one.name))[
            :WAITING_MAX
        ]
        for at, pod in enumerate(pods):
            claims.append(((-_priority(pod), 2, finite(pod.since), pod.name, at), pod))
        lowest = min((one.priority for one in self.parties), default=0)
        for _, claim in sorted(claims, key=lambda one: one[0]):
            if isinstance(claim, Party):
                self._job_claims(claim)
            elif _priority(claim) > lowest:
                self._pod_claims(claim)

    def _waits_again(self, party: Party) -> bool:
        """It was stopped just now, or it would start and stop in turn, or its queue starts nobody."""
        given = party.job.allowance
        if party.index in self.barred or party.held is not None:
            return True
        if given is None or given.runs or party.age >= self.rules.again_seconds:
            return False
        return party.started or given.since > party.arrived + 0.01  # else it has only ever waited

    def _job_claims(self, party: Party) -> None:
        ran = party.runs
        if (ran or self._behind(party) is None) and self._gang(party, party.missing(party.least)):
            party.runs, party.lacks = True, False
            if not ran:
                party.note = saying.STARTS
            return
        if ran and (party.job.admitted or (party.started and not party.job.strict)):
            return  # it goes on with what it has
        if ran:
            self.seating.leave(party)
            party.runs = False
        waited = self.cluster.time - party.arrived
        if waited >= self.rules.aging_seconds and self._never(party) is None:
            self._keep_room(party)

    def _pod_claims(self, pod: Waiting) -> None:
        shape, priority = self.seating.scale.of_pod(pod.resources), _priority(pod)
        among = self._admitting(pod)
        node = self._first(shape, among)
        if node < 0:
            key = (priority, shape, pod.nodes)
            if key in self.hopeless:
                return
            node = self._ask_for_pod(shape, priority, saying.gave_way(pod), among)
            if node < 0:
                self.hopeless.add(key)
                return
        self.seating.room.take(node, shape)
        self.higher.append((priority, shape[0]))

    def _first(self, shape: Shape, among: Sequence[int] | None) -> int:
        room = self.seating.room
        return room.first(shape) if among is None else room.among(shape, among)

    def _admitting(self, pod: Waiting) -> list[int] | None:
        """To which nodes it may go; None: to all."""
        where = self.seating.where
        return sorted({where[name] for name in pod.nodes if name in where}) if pod.nodes else None

    def _ask_for_pod(self, shape: Shape, priority: int, note: str, among: Sequence[int] | None) -> int:
        """The node, `among` these, that has room for it now; -1: none gets any."""
        wholes = self.seating.whole if among is None else [self.seating.whole[node] for node in among]
        if not any(all(map(int.__le__, shape, whole)) for whole in wholes):
            return -1
        if not self._could(priority, list(shape), equals=False):
            return -1
        asked = self._asking(priority, None, equals=False, ps_last=True)
        mark = self.seating.mark()
        stopped: list[Party] = []
        room = self.seating.room
        while (node := self._first(shape, among)) < 0:
            if not asked(stopped):
                self._take_back(mark, stopped)
                return -1
        room.take(node, shape)
        self._restore(mark, stopped, note)
        room.give(node, shape)
        return node

    def _gang(self, party: Party, roles: Sequence[str], *, equals: bool = True, stops: bool = True) -> bool:
        """All these pods more, or nothing."""
        pods = tuple((party.shapes[role], count) for role, count in Counter(roles).items())
        key = (party.priority, equals, stops, pods, self._signature(party))
        if key in self.hopeless:
            return False
        seating, mark = self.seating, self.seating.mark()
        stopped: list[Party] = []
        if not party.runs:
            seating.leave(party)  # of what is still there of it, as it was stopped
        asked: dict[str | None, Callable[[list[Party]], bool]] = {}
        for role in roles:
            while not seating.add(party, role):
                queue = seating.lacking(party, role)
                if queue not in asked:
                    needs = together(pods, len(party.shapes[role]))
                    if self._could(party.priority, needs, equals=equals):
                        asked[queue] = self._asking(party.priority, queue, equals=equals, stops=stops, besides=party)
                if queue not in asked or not asked[queue](stopped):
                    self._take_back(mark, stopped)
                    if not party.seats[CHIEF]:
                        self.hopeless.add(key)
                    return False
        self._restore(mark, stopped, saying.gave_to(party.job))
        return True

    def _could(self, priority: int, needs: Sequence[int], *, equals: bool) -> bool:
        """Whether all that could be free at best is enough, wherever it is."""
        return all(map(int.__le__, needs, self._at_best(priority if equals else priority - 1)))

    def _at_best(self, priority: int) -> list[int]:
        return [
            sum(max(0, one[at]) for one in self.seating.room.free)
            + sum(
                party.shapes[role][at] * len(seats)
                for party in self._running() if party.priority <= priority or self.rules.minimums_first
                for role, seats in party.seats.items()
            )
            for at in range(len(self.seating.scale.names))
        ]  # fmt: skip

    def _asking(
        self, priority: int, queue: str | None, *, equals: bool, stops: bool = True, besides: Party | None = None,
        ps_last: bool = False,
    ) -> Callable[[list[Party]], bool]:  # fmt: skip
        """A function that takes one more pod from somebody, or stops somebody; False: nobody is left."""
        above = math.inf if equals and self.rules.minimums_first and stops else priority if equals else priority - 1
        may = [
            one for one in self._running()
            if one is not besides and one.priority <= above and could_give(one, besides, queue)
            and (one.priority < priority or not (one.lacks or one.silent))
        ]  # fmt: skip
        givers = Givers(
            may, lambda one: one.least if one.priority < priority else one.need, self.seating, ps_last=ps_last
        )  # fmt: skip
        lower = [one for one in may if one.priority < priority and not one.job.admitted]
        lower = lower if stops and self.rules.stops else []
        lower.sort(key=lambda one: (one.priority, -one.arrived, -one.index))

        def ask(stopped: list[Party]) -> bool:
            if givers.give() is not None:
                return True
            while lower:
                one = lower.pop(0)
                if one.runs:
                    self.seating.leave(one)
                    one.runs = False
                    stopped.append(one)
                    return True
            return False

        return ask

    def _take_back(self, mark: int, stopped: list[Party]) -> None:
        self.seating.undo(mark)
        for one in stopped:
            one.runs = True

    def _restore(self, mark: int, stopped: list[Party], note: str) -> None:
        """What was given for nothing, as it was on another node, comes back: whole jobs first, the most important first."""
        gone = self.seating.dropped(mark)
        had = {(party.index, role): len(party.seats[role]) for party, role in gone}
        for party, role in gone:
            had[party.index, role] += 1
            party.note = note
        for one in reversed(stopped):
            left = Counter({role: count for (index, role), count in had.items() if index == one.index})
            roles = []
            for role in one.missing(one.least) + one.staying():
                if left[role] > 0 or not one.lacks:  # of what it lacked nothing comes back
                    roles.append(role)
                    left[role] -= 1
            if self.seating.add_all(one, roles) is None:
                one.runs = True
        for party, role in gone:
            if party.runs and len(party.seats[role]) < had[party.index, role]:
                self.seating.add(party, role)

    def _keep_room(self, party: Party) -> None:
        """For one that has waited long. Which node a pod gets is not for us to say: nobody behind it starts, as whoever does
        may get the one for which it waits (if it may go there); where it waits for a quota, nobody of that does."""
        there = None, party.groups
        if there in self.due and all((name, None) in self.due for name in party.quotas):
            return
        short = self.seating.shortage(party)
        limit = short.limit if short is not None else None
        self.due.setdefault((limit.name, None) if limit is not None else there, party)

    def _behind(self, party: Party) -> Party | None:
        """For whom room is kept that this one would take."""
        for (queue, _), one in self.due.items():
            if one.order < party.order and could_give(party, one, queue):
                return one
        return None

    def _signature(self, party: Party) -> tuple[object, ...]:
        """Equal for jobs whose least needs the same."""
        return (party.kind, party.least, party.pods[OTHER], *party.shapes.values())

    def _never(self, party: Party) -> str | None:
        key = self._signature(party)
        if key not in self.never:
            self.never[key] = self.seating.never(party)
        return self.never[key]

    # ------------------------------------------------------------------------------------------------------- deadlines

    def _needs(self) -> None:
        for party in self._running():
            size = party.size
            if party.lacks or party.last or self.sharing.rests(party) or party.need == party.least:
                continue
            more = max(size[0], party.need[0]), max(size[1], party.need[1])
            if more != size and self._gang(party, party.missing(more), stops=False):
                party.note = saying.DEADLINE

    # ------------------------------------------------------------------------------------------------------- the words

    def _allowances(self) -> list[Allowance]:
        line = [one for one in self.ordered if not one.runs and one.held is None and self._never(one) is None]
        places = {one.index: at for at, one in enumerate(line)}
        found = []
        for party in self.parties:
            job, before = party.job, party.job.allowance
            if party.runs:
                size = max(party.size[0], party.least[0]), max(party.size[1], party.least[1])
            else:
                size = (0, 0)
            new = before is None and not runs_before(job) and not party.runs and party.index not in self.barred
            began = party.arrived if new else self.cluster.time
            allowance = Allowance(job.name, party.runs, *size, began, "", self._last_until(party))
            if before is not None and same_size(allowance, before):
                odd = _is_odd(before, self.cluster.time)
                since = self.cluster.time if odd else before.since
                until = before.last_until if math.isfinite(before.last_until) else 0.0
                allowance = dataclasses.replace(allowance, since=since, last_until=until)
                why = before.why if party.runs and not party.lacks and not odd else ""
            else:
                why = ""
            if not why:
                why = self._why(party, size, places)
            found.append(dataclasses.replace(allowance, why=why))
        return found

    def _last_until(self, party: Party) -> float:
        """If its size has changed."""
        if not party.runs or not party.last:
            return 0.0
        if party.untaken is not None and party.size != party.untaken:
            return self.cluster.time + self.rules.last_seconds
        given = party.job.allowance
        return given.last_until if given is not None and party.untaken is None else 0.0

    def _why(self, party: Party, size: Size, places: dict[int, int]) -> str:
        if not party.runs:
            if (never := self._never(party)) is not None:
                return saying.never(self.seating, party, never)
            if party.held is not None:
                return saying.held(party.held)
            place = places[party.index]
            if place >= saying.FIGURES:
                return saying.waits_behind(self.seating, party, place)
            short, higher = self._shortage(party), self._with_higher(party)
            return saying.waits(self.seating, party, short, place, higher, self._behind(party))
        if party.lacks:
            return saying.lacks(self.seating, party, self._shortage(party))
        return saying.runs(party, size)

    def _shortage(self, party: Party) -> Shortage | None:
        if party.runs:
            return self.seating.shortage(party)
        key = self._signature(party)
        if key not in self.short:
            self.short[key] = self.seating.shortage(party)
        return self.short[key]

    def _with_higher(self, party: Party) -> float:
        """Cores."""
        if party.priority not in self.above:
            held = sum(
                one.shapes[role][0] * len(seats)
                for one in self.ordered if one.runs and one.priority > party.priority
                for role, seats in one.seats.items()
            )  # fmt: skip
            pods = sum(cores for priority, cores in self.higher if priority > party.priority)
            self.above[party.priority] = (held + pods) / 1000
        return self.above[party.priority]

    def used_share(self) -> float:
        cores = self.seating.sums[0]
        used = sum(one.shapes[role][0] * len(seats) for one in self.parties for role, seats in one.seats.items())
        return min(1.0, used / cores) if cores > 0 else 0.0


def _priority(pod: Waiting) -> int:
    return pod.priority if isinstance(pod.priority, int) else 0
