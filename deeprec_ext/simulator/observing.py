"""What the policy sees of a simulated job: what an AIMaster would measure, with noise; nothing of the model behind it."""

from __future__ import annotations

from typing import Any

from deeprec_ext.autoscaler.observe import building
from deeprec_ext.autoscaler.observe.observed import Host, Model, Observed, Progress, RoleUse, SlotUse
from deeprec_ext.simulator.simulated_job import Pod, SimulatedJob


def observe(job: SimulatedJob, number: int, now: float, busy: bool = False) -> Observed:
    """Times are counted from the start of the job."""
    return building.observation(
        number=number, time=now - job.started, size=job.size, limits=job.work.limits, objective=job.work.objective,
        deadline_seconds=job.work.deadline_seconds, model=model(job), windows=job.windows, roles=roles(job, now),
        hosts=hosts(job, now), one_host=job.model.host_cores > 0, slots=slots(job), changes=job.changes, losses=job.losses,
        progress=Progress(int(job.done), int(job.work.examples)), backups=job.model.backups,
        copies_bytes=0, hold=False, busy=busy, reclaimed=job.reclaimed, first=job.first,
        stood=(), local_batch=job.model.local_batch,
    )  # fmt: skip


def model(job: SimulatedJob) -> Model:
    """All of it is tables, in slots of equal bytes; no simulated trainer keeps copies of a single PS."""
    variables = (job.model.variable_bytes + job.model.variable_growth * job.done) if job.size.ps else 0.0
    return Model(
        table_bytes=int(variables), dense_bytes=0, fields=0, batch_size=job.model.batch, lookups_per_step=0.0,
        flops_per_example=0.0, largest_slot_bytes=int(variables / max(1, job.slots)), variables=0, row_bytes=0.0,
        optimizer_slots=0.0,
    )  # fmt: skip


def hosts(job: SimulatedJob, now: float) -> tuple[Host, ...]:
    """The one that all processes share; not known where each has its own."""
    if not job.model.host_cores:
        return ()
    used = sum(job.pace.trainer_cores) + sum(job.pace.ps_cores)
    counts = len(working(job.ps, now)), len(working(job.trainers, now))
    return (Host("host-0", job.model.host_cores, round(used, 4), job.others, *counts, free_memory_bytes=0),)


def roles(job: SimulatedJob, now: float) -> tuple[RoleUse, ...]:
    """Processes that work."""
    size, model, pace = job.size, job.model, job.pace
    found = []
    held = size.ps_cpu > 0 and size.ps_cpu < model.ps_parallelism
    alike = dict(vars(building.ps_use(
        name="", cpu_cores=0.0, cpu_limit_cores=size.ps_cpu, working_set_bytes=int(job.ps_memory()),
        memory_limit_bytes=size.ps_memory_bytes, memory_slope_bytes_per_second=job.memory_growth(), throttled_share=0.0,
        busy_share=0.0, age_seconds=0.0,
    )))  # fmt: skip
    for pod, cores, busy in zip(working(job.ps, now), pace.ps_cores, pace.ps_busy):
        found.append(
            _like(
                alike, name=pod.name, cpu_cores=min(cores * job.luck.reading(), size.ps_cpu or cores),
                throttled_share=busy**2 if held else 0.0, busy_share=busy, age_seconds=now - pod.ready,
            )
        )  # fmt: skip
    request, held = size.worker_cpu, 0 < size.worker_cpu < model.parallelism
    alike = dict(vars(building.trainer_use(
        name="", cpu_cores=0.0, cpu_limit_cores=request, working_set_bytes=int(model.worker_bytes),
        memory_limit_bytes=size.worker_memory_bytes, memory_slope_bytes_per_second=0.0,
        throttled_share=round(pace.compute_share, 4) if held else 0.0, step_seconds=0.0, step_seconds_lasting=0.0,
        steps_per_second=0.0, stepless_seconds=0.0, input_wait_share=0.0, age_seconds=0.0, copies_bytes=0,
        sum_seconds=0.0,
    )))  # fmt: skip
    reading = job.luck.reading
    sums = pace.sum_seconds or (0.0,) * len(pace.step_seconds)
    for pod, cores, step, summing in zip(working(job.trainers, now), pace.trainer_cores, pace.step_seconds, sums):
        found.append(
            _like(
                alike, name=pod.name, cpu_cores=min(cores * reading(), request or cores), step_seconds=step * reading(),
                step_seconds_lasting=step - summing, steps_per_second=1 / step, sum_seconds=summing,
                input_wait_share=pace.input_wait_share, age_seconds=now - pod.ready,
            )
        )  # fmt: skip
    return tuple(found)


def _like(alike: dict[str, Any], **other: Any) -> RoleUse:
    """One with these fields: millions are made, and a frozen class sets its fields one by one.

    Args: alike: a plain dict, which is copied in a third of the time that an object's own takes.
    """
    use = object.__new__(RoleUse)
    use.__dict__.update(alike, **other)
    return use


def slots(job: SimulatedJob) -> tuple[SlotUse, ...]:
    """Load per slot, in seconds per second on its PS; not measured where all are alike."""
    if not job.work.hot_share:
        return ()
    busy = sum(job.pace.ps_busy)
    size = int(job.model.variable_bytes / job.slots)
    return tuple(
        SlotUse(slot, job.ps[owner].name, size, round(load * busy, 6))
        for slot, (owner, load) in enumerate(zip(job.map, job.slot_loads()))
    )


def working(pods: list[Pod], now: float) -> list[Pod]:
    return [pod for pod in pods if pod.ready <= now]
