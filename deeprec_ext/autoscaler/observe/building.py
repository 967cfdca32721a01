"""The one place where observations are made: the loop hands it what it has measured, the simulator what it has worked out.

Nothing has a default, so neither can leave out what the other gives; what holds for a kind of process, whoever observes it,
is said here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deeprec_ext.autoscaler.observe.observed import (
    Change,
    Host,
    Limits,
    Loss,
    Model,
    Observed,
    Progress,
    RoleUse,
    Size,
    SlotUse,
    Stood,
    Window,
)

CHANGES_KEPT, LOSSES_KEPT = 40, 40
"""The newest: what is older has no bearing on a decision. Changes of size and others (of a large job many processes are
replaced) each have room for so many."""


def observation(
    *, number: int, time: float, size: Size, limits: Limits, objective: str, deadline_seconds: float, model: Model,
    windows: Iterable[Window], roles: Iterable[RoleUse], hosts: Iterable[Host], one_host: bool,
    slots: Iterable[SlotUse], changes: Sequence[Change], losses: Sequence[Loss], progress: Progress,
    backups: bool, copies_bytes: int, hold: bool, busy: bool, reclaimed: Iterable[str], first: Size | None,
    stood: Iterable[Stood], local_batch: bool,
) -> Observed:  # fmt: skip
    """Of a job that runs. `Observed` says what each value is; changes and losses are given oldest first."""
    return Observed(
        number=number, time=round(time, 3), size=size, limits=limits, objective=objective,
        deadline_seconds=deadline_seconds, model=model, windows=tuple(windows), roles=tuple(roles), hosts=tuple(hosts),
        one_host=one_host, slots=tuple(slots), changes=_newest_changes(changes),
        losses=tuple(losses[-LOSSES_KEPT:]), progress=progress, backups=backups,
        copies_bytes=copies_bytes, hold=hold, busy=busy, reclaimed=tuple(sorted(reclaimed)), start="",
        first=first, stood=tuple(stood), local_batch=local_batch,
    )  # fmt: skip


def _newest_changes(changes: Sequence[Change]) -> tuple[Change, ...]:
    kept = [
        at for of_size in (True, False)
        for at in [at for at, one in enumerate(changes) if (one.from_count != one.to_count) == of_size][-CHANGES_KEPT:]
    ]  # fmt: skip
    return tuple(changes[at] for at in sorted(kept))


def before_the_start(
    *, size: Size, limits: Limits, objective: str, deadline_seconds: float, backups: bool, start: str
) -> Observed:
    """For decision 0: there is a wish, and nothing to measure yet. `start`: how the size was estimated."""
    return Observed(
        number=0, time=0.0, size=size, limits=limits, objective=objective, deadline_seconds=deadline_seconds,
        model=Model.unknown(), windows=(), roles=(), hosts=(), one_host=False, slots=(), changes=(), losses=(),
        progress=Progress(0, 0), backups=backups, copies_bytes=0, hold=False, busy=False, reclaimed=(), start=start,
        first=None, stood=(), local_batch=False,
    )  # fmt: skip


def ps_use(
    *, name: str, cpu_cores: float, cpu_limit_cores: float, working_set_bytes: int, memory_limit_bytes: int,
    memory_slope_bytes_per_second: float, throttled_share: float, busy_share: float, age_seconds: float,
) -> RoleUse:  # fmt: skip
    """A PS: it makes no steps, waits for no input, and the copies it keeps are other PS'."""
    return RoleUse(
        name=name, cpu_cores=cpu_cores, cpu_limit_cores=cpu_limit_cores, working_set_bytes=working_set_bytes,
        memory_limit_bytes=memory_limit_bytes, memory_slope_bytes_per_second=memory_slope_bytes_per_second,
        throttled_share=throttled_share, step_seconds=0.0, step_seconds_lasting=0.0, steps_per_second=0.0,
        stepless_seconds=0.0, input_wait_share=0.0, busy_share=busy_share, age_seconds=age_seconds, copies_bytes=0,
        sum_seconds=0.0,
    )  # fmt: skip


def trainer_use(
    *, name: str, cpu_cores: float, cpu_limit_cores: float, working_set_bytes: int, memory_limit_bytes: int,
    memory_slope_bytes_per_second: float, throttled_share: float, step_seconds: float, step_seconds_lasting: float,
    steps_per_second: float, stepless_seconds: float, input_wait_share: float, age_seconds: float, copies_bytes: int,
    sum_seconds: float,
) -> RoleUse:  # fmt: skip
    """The chief or a worker: traces tell of no share of time in which it is busy."""
    return RoleUse(
        name=name, cpu_cores=cpu_cores, cpu_limit_cores=cpu_limit_cores, working_set_bytes=working_set_bytes,
        memory_limit_bytes=memory_limit_bytes, memory_slope_bytes_per_second=memory_slope_bytes_per_second,
        throttled_share=throttled_share, step_seconds=step_seconds, step_seconds_lasting=step_seconds_lasting,
        steps_per_second=steps_per_second, stepless_seconds=stepless_seconds, input_wait_share=input_wait_share,
        busy_share=0.0, age_seconds=age_seconds, copies_bytes=copies_bytes, sum_seconds=sum_seconds,
    )  # fmt: skip
