"""The job in Prometheus' terms: the facts for `gazer.prometheus.EXPORTED`, read from the job's state when somebody asks.

Counters of this process begin at 0 with each AIMaster, which Prometheus recognises as a reset; those of the tally go on. None
is restored from something that may be behind what was exported: that would look like a reset and a jump.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from deeprec_ext import __version__
from deeprec_ext.aimaster.core.records import RoleRecord
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.metrics.tally import kind_of
from deeprec_ext.aimaster.metrics.totals import Totals
from deeprec_ext.aimaster.placement.slots import slot_bytes
from deeprec_ext.aimaster.reporting.reply import job_state
from deeprec_ext.aimaster.scaling.queue import ScalingQueue
from deeprec_ext.gazer.prometheus import Distribution, Facts, Value
from deeprec_ext.proto import deeprec_ext_pb2 as pb

STATES = ("starting", "training", "scaling", "finishing", "finished", "failed")
ROLES_AT_ONCE = 100
"""Roles read before others have a turn on the loop."""

_PROCESS = {
    "deeprec_process_cpu_seconds_total": "cpu_seconds", "deeprec_process_resident_memory_bytes": "rss_bytes",
    "deeprec_process_open_fds": "open_files", "deeprec_process_threads": "threads",
    "deeprec_container_working_set_bytes": "working_set_bytes",
    "deeprec_container_memory_limit_bytes": "memory_limit_bytes",
    "deeprec_container_cpu_limit_cores": "cpu_limit_cores",
    "deeprec_container_cpu_throttled_seconds_total": "throttled_seconds",
    "deeprec_container_oom_kills_total": "oom_kills", "deeprec_network_received_bytes_total": "received_bytes",
    "deeprec_network_sent_bytes_total": "sent_bytes",
}  # fmt: skip
_PS = {
    "deeprec_ps_busy_ratio": "busy_share", "deeprec_ps_transfer_ratio": "rpc_share",
    "deeprec_ps_transferred_bytes_per_second": "rpc_bytes_per_second",
}  # fmt: skip
_SLOT = {
    "deeprec_slot_bytes": "bytes", "deeprec_slot_rows": "rows", "deeprec_slot_lookup_ratio": "lookup_share",
    "deeprec_slot_update_ratio": "update_share", "deeprec_slot_lookup_rows_per_second": "lookup_rows_per_second",
    "deeprec_slot_update_rows_per_second": "update_rows_per_second",
    "deeprec_slot_touched_rows_per_second": "touched_rows_per_second",
}  # fmt: skip
_DATA = ("records", "trained", "leased", "repeated", "repeated_at_least", "stale", "set_aside", "skipped")

_Add = Callable[..., None]


async def collect(job: Job, scalings: ScalingQueue) -> Facts:
    """All facts at about this moment, in pieces: others have their turn on the loop between them."""
    facts: dict[str, list[tuple[tuple[str, ...], Value]]] = defaultdict(list)

    def add(name: str, value: Value, *labels: str) -> None:
        facts[name].append((labels, value))

    for part in (_job, _trained, _slots, _happened, _backups):
        part(job, scalings, add)
        await asyncio.sleep(0)
    for _ in _roles(job, add):
        await asyncio.sleep(0)
    return facts


def _job(job: Job, scalings: ScalingQueue, add: _Add) -> None:
    cluster = job.cluster
    add("deeprec_job_info", 1.0, job.spec.name, __version__)
    state = job_state(job, scalings)
    for one in STATES:
        add("deeprec_job_state", float(one == state), one)
    add("deeprec_job_start_time_seconds", job.started)
    add("deeprec_aimaster_incarnation", job.incarnation)
    add("deeprec_epoch", cluster.epoch)
    add("deeprec_generation", cluster.generation)
    add("deeprec_global_step", job.members.step)
    if job.members.last_step:
        add("deeprec_last_step", job.members.last_step)
    add("deeprec_slots", job.spec.slots)
    add("deeprec_parameter_servers", len(cluster.ps))
    add("deeprec_trainers", len(job.workers()))
    add("deeprec_gazer_reports_total", job.metrics.reports)
    add("deeprec_gazer_ignored_total", job.metrics.ignored)
    add("deeprec_gazer_flush_seconds", job.metrics.flush_seconds)


def _trained(job: Job, _: ScalingQueue, add: _Add) -> None:
    datasets = [one for one in job.ledger.status() if one.purpose == "train"]
    if datasets:
        add("deeprec_trained_records_total", job.metrics.trained_records)
    for state in _DATA if datasets else ():
        add(
            "deeprec_data_records",
            sum(getattr(one, state) for one in datasets),
            "known" if state == "records" else state,
        )
    histograms: dict[str, tuple[list[int], float]] = {}
    for name, totals in job.metrics.totals.items():
        role = kind_of(name)
        _totals(totals, role, name, add)
        if totals.histogram:
            counts, seconds = histograms.get(role, ([0] * len(totals.histogram), 0.0))
            histograms[role] = ([a + b for a, b in zip(counts, totals.histogram)], seconds + totals.histogram_seconds)
    for role, (counts, seconds) in histograms.items():
        add("deeprec_step_seconds", Distribution(counts, seconds), role)


def _totals(totals: Totals, role: str, name: str, add: _Add) -> None:
    add("deeprec_steps_total", totals.steps, role, name)
    if totals.examples:
        add("deeprec_examples_total", totals.examples, role, name)
    add("deeprec_gate_wait_seconds_total", totals.gate_wait_seconds, role, name)
    add("deeprec_input_wait_seconds_total", totals.input_wait_seconds, role, name)


def _roles(job: Job, add: _Add) -> Iterator[None]:
    """Yields now and then. Who is gone for good is not shown."""
    shown = [record for record in job.members.records.values() if record.wanted or not record.ended]
    for number, record in enumerate(shown):
        _role(job, record, add)
        if number % ROLES_AT_ONCE == ROLES_AT_ONCE - 1:
            yield
    _process(job.metrics.process("aimaster"), "aimaster", "aimaster", add)


def _role(job: Job, record: RoleRecord, add: _Add) -> None:
    name, role = record.name, kind_of(record.name)
    add("deeprec_role_running", float(record.state == "running"), role, name)
    add("deeprec_role_restarts_total", record.restarts, role, name)
    member = job.members.get(name)
    if member is None:
        return
    add("deeprec_role_silence_seconds", max(0.0, job.clock.monotonic() - member.seen), role, name)
    _process(job.metrics.process(name), role, name, add)
    values = job.metrics.latest(name)
    if "step_seconds" in values:
        add("deeprec_step_median_seconds", values["step_seconds"], role, name)
    _mapped(values, _PS, name, add)


def _process(sample: pb.ProcessSample | None, role: str, name: str, add: _Add) -> None:
    for exported, field in _PROCESS.items() if sample is not None else ():
        if value := getattr(sample, field):  # 0: not known
            add(exported, value, role, name)


def _mapped(values: Mapping[str, float], names: Mapping[str, str], label: str, add: _Add) -> None:
    for exported, metric in names.items():
        if metric in values:
            add(exported, values[metric], label)


def _slots(job: Job, _: ScalingQueue, add: _Add) -> None:
    cluster = job.cluster
    owners = {ps.task: ps.name for ps in cluster.ps}
    held = dict.fromkeys(owners.values(), 0)
    sizes = slot_bytes(job.catalogue.variables, job.spec.slots)
    for slot, task in enumerate(cluster.slot_map):
        if (owner := owners.get(task)) is not None:
            add("deeprec_slot_owner", 1.0, str(slot), owner)
            held[owner] += sizes[slot]
        _mapped(job.metrics.latest(f"slot-{slot}"), _SLOT, str(slot), add)
    for name, size in held.items():
        add("deeprec_ps_bytes", size, name)


def _happened(job: Job, scalings: ScalingQueue, add: _Add) -> None:
    tally = job.metrics.tally
    tally.catch_up(job.store)
    for key, count in tally.scalings.items():
        add("deeprec_scalings_total", count, *key.split())
    for key, count in tally.failures.items():
        add("deeprec_failures_total", count, *key.split())
    add("deeprec_scalings_waiting", sum(not scaling.outcome for scaling in scalings.records()))
    add("deeprec_scaling_moved_bytes_total", tally.moved_bytes)
    add("deeprec_scaling_pause_seconds", Distribution(tally.pauses.counts, tally.pauses.total))
    for role, observed in tally.recoveries.items():
        add("deeprec_recovery_seconds", Distribution(observed.counts, observed.total), role)
    add("deeprec_lost_steps_total", tally.lost_steps)
    add("deeprec_warnings_total", tally.warnings)


def _backups(job: Job, _: ScalingQueue, add: _Add) -> None:
    backup = pb.BackupStatus()
    job.peer_backups.status(backup)
    job.disk.status(backup)
    if backup.peer:
        add("deeprec_backup_unprotected_slots", len(backup.unprotected_slots))
        add("deeprec_backup_age_seconds", backup.oldest_seconds)
        add("deeprec_backup_sent_bytes_total", backup.bytes_sent)
    if backup.disk_cut:
        add("deeprec_backup_disk_age_seconds", backup.disk_seconds)
