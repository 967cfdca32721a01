"""What rules look at: an observation made sane, with what follows from it, computed at first use and once."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from functools import cached_property

from deeprec_ext.autoscaler.model import synchronous, throughput
from deeprec_ext.autoscaler.model.capacity import Cost, Counts, costs_of, least_cost, of_hosts, of_one_host
from deeprec_ext.autoscaler.model.surroundings import Surroundings, around
from deeprec_ext.autoscaler.observe.observed import Change, Observed, RoleUse, Size, Window
from deeprec_ext.autoscaler.observe.sane import sane
from deeprec_ext.autoscaler.outcomes import account, conditions, trials
from deeprec_ext.autoscaler.outcomes.measured import Key, Measured, key_of, measure, newest
from deeprec_ext.autoscaler.policy.thresholds import Policy

HOUR = 3600.0
UNKNOWN_SPREAD = 0.1
"""Relative scatter of windows that is assumed until some size has two."""

HOPE = 2.0
"""A hoped gain is at most so many times the predicted one."""

LEFT_LEAST = 60.0
"""Seconds that a job is expected to go on at least, where its end is not known: so long it has hardly begun."""

START_LEAST = 1.0
"""Seconds that no job needs less of until it trains: who says so began to count later."""

FULL = 0.95
"""Share of its CPU that a role can use at most, as a mean."""


class Evidence:
    """Args: raw: an observation as it was recorded."""

    def __init__(self, raw: Observed, policy: Policy) -> None:
        self.raw, self.policy = raw, policy
        self.observed = sane(raw)
        self.size, self.limits, self.now = raw.size, raw.limits, self.observed.time

    # ------------------------------------------------------------------------------------------------ throughput

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        return self._newest()

    def _newest(self, here: int = 0) -> tuple[Window, ...]:
        policy, observed = self.policy, self.observed
        return newest(observed.windows, policy.windows_per_size, policy.sizes_max, observed.first, here)

    @cached_property
    def measured(self) -> dict[Key, Measured]:
        """By size: what was measured there, as it would be under the present conditions."""
        return conditions.by_size(self._comparable)

    @cached_property
    def _comparable(self) -> tuple[conditions.Comparable, ...]:
        return conditions.comparable(self.windows)

    @cached_property
    def stays(self) -> list[trials.Stay]:
        """The sizes that the job had, oldest first; the last is the present one."""
        return trials.stays(self.size, self.observed.changes, self.observed.first)

    @cached_property
    def tried(self) -> list[trials.Trial]:
        """What changes of ours have brought, oldest first."""
        return trials.trials(self.stays, self._comparable)

    @cached_property
    def brought(self) -> account.Account:
        """What all changes together have brought."""
        stood = [(one.start, one.end) for one in self.observed.stood]
        return account.account(self.stays, self._comparable, self.now, self.policy.disturbance, stood)

    @cached_property
    def changed_at(self) -> float:
        """Since when the job has been as it is: the last change of counts or requests, or window of another size."""
        ends = [change.time for change in self.observed.changes if change.outcome == "committed"]
        here = key_of(self.size)
        ends += [window.start for window in self.windows if key_of(window.size) != here]
        return min(max(ends, default=0.0), self.now)

    @property
    def stake(self) -> float:
        """Factor on the gain and saving that a change must bring: a size that has proved itself is not left for little."""
        settled = self.now - self.changed_at >= self.policy.settled_seconds
        return self.policy.settled_factor if settled else 1.0

    @cached_property
    def present(self) -> Measured | None:
        """Throughput at the present size since it has it, where that is noise by all windows there are; None: not measured."""
        found = self._here(self._comparable)
        if found is None or found.spread <= self.policy.spread_max:
            return found
        return self._here(conditions.comparable(self._newest(self.policy.windows_of_noise)))

    def _here(self, windows: Sequence[conditions.Comparable]) -> Measured | None:
        here, since = key_of(self.size), self.changed_at - 1e-3
        mine = [one for one in windows if key_of(one.window.size) == here and one.window.start >= since]
        mine = [one for one in mine if not one.drift] or mine
        return measure([one.rate for one in mine]) if mine else None

    @property
    def rate(self) -> float:
        """Examples per second now; 0: not known."""
        return self.present.rate if self.present is not None else 0.0

    @cached_property
    def model(self) -> throughput.SizeModel | None:
        """None: there is nothing to learn from, or no fit."""
        try:
            if self.limits.sums:
                return synchronous.fit(self.windows, self.around, self.observed.local_batch)
            return throughput.fit(self.windows, self.around)
        except (ValueError, ArithmeticError, RuntimeError):  # numbers of absurd sizes; the solver gives up
            return None

    @cached_property
    def around(self) -> Surroundings:
        return around(self.observed.windows, self.observed.slots, one_host=self.observed.one_host)

    @property
    def confidence(self) -> float:
        return self.model.confidence if self.model is not None else 0.0

    def modelled(self, size: Size) -> float:
        """The model's throughput at a size, in proportion to what is measured now. 0: nothing is known."""
        if self.model is None or not self.rate:
            return 0.0
        result = self._scale * self.model.predict(size)
        return min(result, self.capacity(size)) if math.isfinite(result) else 0.0

    def hoped(self, size: Size) -> float:
        """The same, with the benefit of the doubt for a size that was not tried: a predicted gain may be twice as large."""
        likely = self.modelled(size)
        if self.model is None or likely <= self.rate or key_of(size) in self.measured:
            return likely
        most = min(self._scale * self.model.optimistic(size), self.rate + HOPE * (likely - self.rate))
        return min(max(likely, most), self.capacity(size)) if math.isfinite(most) else likely

    def capacity(self, size: Size) -> float:
        """Throughput at which the CPU of the PS, of the trainers, or of their hosts would be used up: no size trains faster.

        By what an example costs (the utilisation law); infinite where use, requests and hosts are not known.
        """
        ps, worker = self._per_core
        if size.ps == 1 < self.size.ps and self.observed.backups:
            ps = math.inf  # it has no peer to back up to, which may be half of what PS do now
        of_ps = size.ps * (size.ps_cpu or self._limit("ps")) * ps if size.ps else math.inf
        of_trainers = size.trainers * (size.worker_cpu or self._limit("worker")) * worker
        return min(FULL * min(of_ps, of_trainers), self.host_capacity(size))

    def host_capacity(self, size: Size) -> float:
        """The same of the hosts alone."""
        one_host, hosts = self.observed.one_host, self.observed.hosts
        cost = least_cost(self._costs, size) if (self.around.cores if one_host else hosts) else None
        if cost is None:
            return math.inf
        return of_one_host(cost, self.around.free) if one_host else of_hosts(cost, hosts, size)

    @cached_property
    def _costs(self) -> dict[Counts, Cost]:
        return costs_of(self.windows)

    def _limit(self, role: str) -> float:
        """Cores that each process of a role is held to, though it has requested none; infinite: to nothing that it tells of."""
        limits = [use.cpu_limit_cores for use in self.of_role(role)]
        return max(limits) if limits and min(limits) > 0 else math.inf

    def binding(self, size: Size) -> str:
        """What rules at a size, of `throughput.BINDING`; empty: nothing is known."""
        rate = self.modelled(size)
        if self.model is None or not rate:
            return ""
        if self.host_capacity(size) <= rate * (1 + 1e-9):
            return "host CPU"
        binding = self.model.binding(size)[0]
        return "waiting" if binding == "network" and self.observed.one_host else binding

    def forecast(self, size: Size) -> throughput.Forecast | None:
        """What a size is expected to train, with what binds there; None: nothing is known."""
        rate = self.modelled(size)
        if self.model is None or not rate:
            return None
        found, most = self.model.forecast(size), max(rate, self.capacity(size))
        return dataclasses.replace(
            found, examples_per_second=rate, low=rate / (1 + found.error), high=min(most, rate * (1 + found.error)),
            binding=self.binding(size),
        )  # fmt: skip

    @cached_property
    def _per_core(self) -> tuple[float, float]:
        """Examples per second and core of PS, of trainers; infinite where it is not known. The busiest process counts."""
        found = []
        for role in ("ps", "worker"):
            used = [use.cpu_cores for use in self.of_role(role)]
            held = getattr(self.size, f"{role}_cpu") or self._limit(role)
            known = used and min(used) > 0 and held < math.inf and self.rate > 0
            found.append(self.rate / (max(used) * len(used)) if known else math.inf)
        return found[0], found[1]

    @cached_property
    def _scale(self) -> float:
        here = self.model.predict(self.size) if self.model is not None else 0.0
        return self.rate / here if here > 0 else 0.0

    def expected(self, size: Size) -> float:
        """What was measured at a size, and the model's throughput where nothing was."""
        if key_of(size) == key_of(self.size):
            return self.rate
        found = self.measured.get(key_of(size))
        return found.rate if found is not None and found.windows >= self.policy.windows_min else self.modelled(size)

    def error(self, size: Size) -> float:
        """Relative standard error of the comparison of a size with the present one."""
        here = self.error_here
        found = self.measured.get(key_of(size))
        return math.hypot(here, self._error(found) if found is not None and found is not self.present else 0.0)

    @property
    def error_here(self) -> float:
        """Relative standard error of the present size's rate."""
        return self._error(self.present) if self.present is not None else 1.0

    def _error(self, measured: Measured) -> float:
        """Relative standard error of a measured rate. Two windows may agree by chance: what other sizes scatter counts too."""
        spread = max(measured.spread if measured.windows > 1 else 0.0, self._usual_spread)
        return math.hypot(spread / math.sqrt(measured.windows), measured.drift)

    @property
    def usual_error(self) -> float:
        """Relative standard error of a size that was measured by a few windows."""
        return self._usual_spread / math.sqrt(self.policy.windows_min)

    @cached_property
    def _usual_spread(self) -> float:
        known = [one.spread for one in self.measured.values() if one.windows > 1]
        usual = [spread for spread in known if spread <= self.policy.spread_max]  # what is all noise is not
        known = usual or known
        return statistics.median(known) if known else UNKNOWN_SPREAD

    def exhausted(self, dimension: int) -> bool:
        """Whether growth in one dimension alone (index of a key) has been tried and has brought next to nothing."""
        return self._exhausted[dimension]

    @cached_property
    def _exhausted(self) -> tuple[bool, ...]:
        return tuple(self._is_exhausted(dimension) for dimension in range(4))

    def _is_exhausted(self, dimension: int) -> bool:
        here = key_of(self.size)
        others = here[:dimension] + here[dimension + 1 :]
        lower = [
            (key[dimension], measured) for key, measured in sorted(self.measured.items())
            if key[dimension] < here[dimension] and key[:dimension] + key[dimension + 1 :] == others
        ]  # fmt: skip
        if not lower or not self.rate:
            return False
        _, before = lower[-1]
        sure = math.hypot(self._error(before), self.error_here)
        return self.rate / before.rate - 1 + sure < self.policy.marginal_gain

    # ------------------------------------------------------------------------------------------------ the work ahead

    @cached_property
    def examples_left(self) -> float:
        """0: the end is not known."""
        progress = self.observed.progress
        return float(max(0, progress.total - progress.done)) if progress.total > 0 else 0.0

    @property
    def end_known(self) -> bool:
        return self.observed.progress.total > 0

    @cached_property
    def seconds_left(self) -> float:
        """At the present throughput. Without a known end: as long again as the job has run.

        So what may be given for a trial grows with the time trained so far, whenever the job ends.
        """
        return self._left(LEFT_LEAST)

    @cached_property
    def seconds_to_last(self) -> float:
        """How long memory must suffice: for a young job without a known end, which may not end so soon, longer."""
        return self._left(self.policy.horizon_seconds / 4)

    def _left(self, least: float) -> float:
        if self.end_known and self.rate:
            return self.examples_left / self.rate
        return min(self.policy.horizon_seconds, max(self.trained_for, least))

    @property
    def trained_for(self) -> float:
        """Seconds since the start of the job, without those in which it stood."""
        return max(0.0, self.now - sum(one.end - one.start for one in self.observed.stood))

    @cached_property
    def start_seconds(self) -> float:
        """From the start of the job to the first step of the trainer that has trained longest; infinite: nobody has seen it."""
        ages = [use.age_seconds for use in self.trainers if use.age_seconds > 0]
        took = self.now - max(ages) if ages else 0.0
        return took if took >= START_LEAST else math.inf

    @property
    def share_left(self) -> float:
        """Of the job's whole time; where the end is not known, of the time it is looked at over, the past included."""
        past = self.trained_for if self.end_known else min(self.trained_for, self.policy.horizon_seconds)
        return self.seconds_left / max(1e-9, past + self.seconds_left)

    # ------------------------------------------------------------------------------------------------ processes

    @cached_property
    def ps(self) -> tuple[RoleUse, ...]:
        return tuple(role for role in self.observed.roles if role.name.startswith("ps-"))

    @cached_property
    def trainers(self) -> tuple[RoleUse, ...]:
        return tuple(role for role in self.observed.roles if role.name.startswith(("chief-", "master-", "worker-")))

    def of_role(self, role: str) -> tuple[RoleUse, ...]:
        return self.ps if role == "ps" else self.trainers

    @cached_property
    def starved(self) -> float:
        """Share of time that trainers wait for input, on average; by the processes, else by the newest window."""
        if self.trainers:
            return statistics.fmean(min(1.0, role.input_wait_share) for role in self.trainers)
        return self.windows[-1].input_wait_share if self.windows else 0.0

    def pressed(self, role: str) -> bool:
        """Whether a role's CPU limit binds: one of its processes is throttled, or uses nearly all it may."""
        return role in self._pressed

    @cached_property
    def _pressed(self) -> frozenset[str]:
        return frozenset(role for role in ("ps", "worker") if any(map(self._is_pressed, self.of_role(role))))

    def _is_pressed(self, use: RoleUse) -> bool:
        nearly_all = use.cpu_limit_cores > 0 and use.cpu_cores >= 0.9 * use.cpu_limit_cores
        return nearly_all or use.throttled_share >= self.policy.throttled_share

    # ------------------------------------------------------------------------------------------------ the past

    def past(self, *, seconds: float = math.inf, role: str = "", outcome: str = "committed") -> list[Change]:
        """Changes that ended within the last `seconds`, oldest first."""
        return [
            change for change in self.observed.changes
            if change.outcome == outcome and self.now - change.time <= seconds and role in ("", change.role)
        ]  # fmt: skip

    def with_size(self, **changes: float) -> Size:
        return dataclasses.replace(self.size, **changes)  # type: ignore[arg-type]
