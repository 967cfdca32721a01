"""All metrics the AIMaster exports, and the page that Prometheus reads. TensorFlow-free; prometheus_client on first use.

`EXPORTED` is the one table: names by Prometheus' conventions (one prefix, base units, `_total` for counters), labels with few
values: the kind of role (`role="ps"`), its name (`name="ps-0"`), the slot, and words from fixed lists. Shares are `_ratio`s.
A Grafana dashboard that uses them is `grafana.json` beside this file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Union

from deeprec_ext.gazer.metrics import PAUSE_BUCKETS, STEP_BUCKETS

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


@dataclass(frozen=True)
class Exported:
    """One metric. `buckets`: upper bounds of a histogram."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


@dataclass(frozen=True)
class Distribution:
    """Of a histogram: observations per bucket, one more for those above all; and the sum of the observed."""

    counts: Sequence[int]
    total: float


Value = Union[float, Distribution]
Facts = Mapping[str, Sequence[tuple[tuple[str, ...], Value]]]
"""Name -> (label values in the order of the table, value). What is not known is left out."""

ROLE = ("role", "name")
EXPORTED: tuple[Exported, ...] = (
    # the job
    Exported("deeprec_job_info", GAUGE, "1; the job and the version of its AIMaster", ("job_name", "version")),
    Exported("deeprec_job_state", GAUGE, "1 for the state the job is in, 0 for the others", ("state",)),
    Exported("deeprec_job_start_time_seconds", GAUGE, "Unix time at which the job started"),
    Exported("deeprec_aimaster_incarnation", GAUGE, "number of times an AIMaster started for this job"),
    Exported("deeprec_epoch", GAUGE, "version of the cluster view"),
    Exported("deeprec_generation", GAUGE, "grows when variables were lost and had to be restored"),
    Exported("deeprec_global_step", GAUGE, "global step of the model; goes back when it is restored"),
    Exported("deeprec_last_step", GAUGE, "global step at which training stops by itself, where that is known"),
    Exported("deeprec_slots", GAUGE, "slots (virtual PS) of the job"),
    Exported("deeprec_parameter_servers", GAUGE, "parameter servers in the view"),
    Exported("deeprec_trainers", GAUGE, "chief and workers in the view"),
    # training
    Exported("deeprec_steps_total", COUNTER, "steps completed", ROLE),
    Exported("deeprec_examples_total", COUNTER, "examples trained; missing where the batch size is unknown", ROLE),
    Exported("deeprec_step_seconds", HISTOGRAM, "time of a step", ("role",), STEP_BUCKETS),
    Exported("deeprec_step_median_seconds", GAUGE, "median time of the recent steps of one trainer", ROLE),
    Exported("deeprec_gate_wait_seconds_total", COUNTER, "time waited for scalings and failovers", ROLE),
    Exported("deeprec_input_wait_seconds_total", COUNTER, "time waited for a batch of an elastic dataset", ROLE),
    Exported("deeprec_trained_records_total", COUNTER, "records trained, those trained again after a restore included"),
    Exported("deeprec_data_records", GAUGE, "records of the datasets trained on, by what became of them", ("state",)),
    # processes
    Exported("deeprec_role_running", GAUGE, "1 while the process takes part", ROLE),
    Exported("deeprec_role_restarts_total", COUNTER, "times the process was started again", ROLE),
    Exported("deeprec_role_silence_seconds", GAUGE, "time since the last sign of life", ROLE),
    Exported("deeprec_process_cpu_seconds_total", COUNTER, "CPU time, user and system", ROLE),
    Exported("deeprec_process_resident_memory_bytes", GAUGE, "resident memory", ROLE),
    Exported("deeprec_process_open_fds", GAUGE, "open file descriptors", ROLE),
    Exported("deeprec_process_threads", GAUGE, "threads", ROLE),
    Exported("deeprec_container_working_set_bytes", GAUGE, "memory of the container that cannot be reclaimed", ROLE),
    Exported("deeprec_container_memory_limit_bytes", GAUGE, "memory limit of the container", ROLE),
    Exported("deeprec_container_cpu_limit_cores", GAUGE, "CPU limit of the container", ROLE),
    Exported("deeprec_container_cpu_throttled_seconds_total", COUNTER, "time it wanted CPU and was not let", ROLE),
    Exported(
        "deeprec_container_oom_kills_total", COUNTER, "processes of the container killed for want of memory", ROLE
    ),
    Exported("deeprec_network_received_bytes_total", COUNTER, "received by the container", ROLE),
    Exported("deeprec_network_sent_bytes_total", COUNTER, "sent by the container", ROLE),
    # PS and slots, from traced steps
    Exported("deeprec_ps_bytes", GAUGE, "variables on the slots of a PS", ("name",)),
    Exported("deeprec_ps_busy_ratio", GAUGE, "seconds per second in which an op runs for a trainer", ("name",)),
    Exported(
        "deeprec_ps_transfer_ratio", GAUGE, "seconds per second of tensor transfers to and from trainers", ("name",)
    ),
    Exported(
        "deeprec_ps_transferred_bytes_per_second", GAUGE, "tensors sent to trainers and received from them", ("name",)
    ),
    Exported("deeprec_slot_owner", GAUGE, "1; the PS that owns the slot", ("slot", "name")),
    Exported("deeprec_slot_bytes", GAUGE, "variables on the slot", ("slot",)),
    Exported("deeprec_slot_rows", GAUGE, "rows of the tables on the slot", ("slot",)),
    Exported("deeprec_slot_lookup_ratio", GAUGE, "seconds per second of ops that read the slot's variables", ("slot",)),
    Exported("deeprec_slot_update_ratio", GAUGE, "seconds per second of ops that write them", ("slot",)),
    Exported("deeprec_slot_lookup_rows_per_second", GAUGE, "rows read", ("slot",)),
    Exported("deeprec_slot_update_rows_per_second", GAUGE, "rows written", ("slot",)),
    Exported(
        "deeprec_slot_touched_rows_per_second", GAUGE, "distinct rows written, as backups collect them", ("slot",)
    ),
    # scalings and failures
    Exported("deeprec_scalings_total", COUNTER, "scalings that have ended", ("role", "kind", "outcome")),
    Exported("deeprec_scalings_waiting", GAUGE, "scalings queued or under way"),
    Exported("deeprec_scaling_moved_bytes_total", COUNTER, "variables moved from PS to PS by scalings"),
    Exported("deeprec_scaling_pause_seconds", HISTOGRAM, "pause of one trainer in one scaling", (), PAUSE_BUCKETS),
    Exported("deeprec_failures_total", COUNTER, "processes that died or hung", ("role", "cause")),
    Exported(
        "deeprec_recovery_seconds", HISTOGRAM, "from a death to the first step after it", ("role",), PAUSE_BUCKETS
    ),
    Exported("deeprec_lost_steps_total", COUNTER, "steps by which restores took the model back"),
    Exported("deeprec_warnings_total", COUNTER, "events of the type warning"),
    # backups
    Exported(
        "deeprec_backup_unprotected_slots", GAUGE, "slots without a usable peer backup, while peer backups are on"
    ),
    Exported("deeprec_backup_age_seconds", GAUGE, "age of the oldest peer backup"),
    Exported("deeprec_backup_disk_age_seconds", GAUGE, "age of the newest complete disk backup"),
    Exported("deeprec_backup_sent_bytes_total", COUNTER, "sent by peer refreshes since this AIMaster began"),
    # Gazer itself
    Exported("deeprec_gazer_reports_total", COUNTER, "reports received since this AIMaster began"),
    Exported("deeprec_gazer_ignored_total", COUNTER, "reports and traces that made no sense"),
    Exported("deeprec_gazer_flush_seconds", GAUGE, "what it took to write the last sample down"),
)


def exposition(facts: Facts, table: Sequence[Exported] = EXPORTED) -> bytes:
    """The page in Prometheus' text format. Of a thousand roles it takes a good part of a second: not on an event loop.

    Raises ImportError without prometheus_client, ValueError when a fact does not fit its metric.
    """
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(facts, table))
    return generate_latest(registry)


class _Collector:
    """What prometheus_client asks for the metrics."""

    def __init__(self, facts: Facts, table: Sequence[Exported]) -> None:
        self._facts, self._table = facts, table

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        for exported in self._table:
            if found := self._facts.get(exported.name):
                yield _family(exported, found)


def _family(exported: Exported, found: Sequence[tuple[tuple[str, ...], Value]]) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.utils import floatToGoString

    if any(len(labels) != len(exported.labels) for labels, _ in found):
        raise ValueError(f"{exported.name} has the labels {exported.labels}")
    if exported.kind == HISTOGRAM:
        histogram = HistogramMetricFamily(exported.name, exported.help, labels=exported.labels)
        for labels, value in found:
            assert isinstance(value, Distribution)
            bounds = [*map(floatToGoString, exported.buckets), "+Inf"]
            histogram.add_metric(labels, list(zip(bounds, accumulate(value.counts))), value.total)
        return histogram
    kind = CounterMetricFamily if exported.kind == COUNTER else GaugeMetricFamily
    family = kind(exported.name, exported.help, labels=exported.labels)
    for labels, value in found:
        assert not isinstance(value, Distribution)
        family.add_metric(labels, value)
    return family
