"""What Gazer measures: one table that the store, the exporter, the dashboard and the report share.

A *subject* is what a value belongs to: the name of a role (`ps-0`, `worker-1`), a slot (`slot-3`), a host (`host-0`), or
`job`. Values are rates and shares over the interval of a sample, so that means over longer times are simply means; the highest
value is kept beside the mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

STEP_BUCKETS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Upper bounds of the step time histogram, seconds; one more bucket has all above."""

PAUSE_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the histograms of pauses and recoveries, seconds."""


@dataclass(frozen=True)
class Metric:
    """One column. `of`: process (every role), trainer, ps, slot, host or job. `unit`: seconds, bytes, cores, share, ..."""

    name: str
    of: str
    unit: str
    help: str


METRICS: tuple[Metric, ...] = (
    Metric("cpu_cores", "process", "cores", "CPU time per second of the process"),
    Metric("rss_bytes", "process", "bytes", "resident memory of the process"),
    Metric("working_set_bytes", "process", "bytes", "memory of the container that cannot be reclaimed"),
    Metric("memory_limit_bytes", "process", "bytes", "memory limit of the container"),
    Metric("cpu_limit_cores", "process", "cores", "CPU limit of the container"),
    Metric("throttled_share", "process", "share", "share of time in which the container wanted CPU and was not let"),
    Metric("received_bytes_per_second", "process", "bytes per second", "received from the network"),
    Metric("sent_bytes_per_second", "process", "bytes per second", "sent to the network"),
    Metric("open_files", "process", "files", "open file descriptors"),
    Metric("threads", "process", "threads", "threads of the process"),
    Metric(
        "oom_kills",
        "process",
        "kills",
        "processes of the container that were killed for want of memory, since its start",
    ),
    Metric("steps_per_second", "trainer", "steps per second", "completed steps of this trainer"),
    Metric("examples_per_second", "trainer", "examples per second", "examples this trainer trained"),
    Metric("step_seconds", "trainer", "seconds", "median time of a step"),
    Metric("step_p95_seconds", "trainer", "seconds", "time that 95 % of the steps stay below"),
    Metric("step_longest_seconds", "trainer", "seconds", "longest step"),
    Metric("sum_seconds", "trainer", "seconds", "median time of a step in sums with the others, who may be waited for"),
    Metric("gate_wait_share", "trainer", "share", "share of time spent waiting at the gate (scalings, failovers)"),
    Metric("input_wait_share", "trainer", "share", "share of time spent waiting for input"),
    Metric("rpc_bytes_per_second", "ps", "bytes per second", "tensors sent to trainers and received from them"),
    Metric("rpc_share", "ps", "share", "seconds of tensor transfers to and from trainers, per second"),
    Metric("busy_share", "ps", "share", "seconds in which an op ran for a trainer, per second"),
    Metric("lookup_share", "slot", "share", "seconds of ops that read rows or variables, per second"),
    Metric("update_share", "slot", "share", "seconds of ops that write, per second"),
    Metric("lookup_rows_per_second", "slot", "rows per second", "rows read"),
    Metric("update_rows_per_second", "slot", "rows per second", "rows written"),
    Metric("touched_rows_per_second", "slot", "rows per second", "distinct rows written, as backups collect them"),
    Metric("bytes", "slot", "bytes", "variables on the slot"),
    Metric("rows", "slot", "rows", "rows of the tables on the slot"),
    Metric("cores", "host", "cores", "processors that processes of the job may use there"),
    Metric("job_cores", "host", "cores", "CPU time per second of the PS and trainers there"),
    Metric("others_cores", "host", "cores", "CPU time per second of everybody else there"),
    Metric("ps", "job", "processes", "parameter servers in the view"),
    Metric("workers", "job", "processes", "trainers in the view, with the chief"),
    Metric("steps_per_second", "job", "steps per second", "completed steps of all trainers"),
    Metric("examples_per_second", "job", "examples per second", "examples all trainers trained"),
    Metric("step", "job", "steps", "global step"),
    Metric("trained_records", "job", "records", "records of the data ledger that are trained"),
)

_OF = {"aimaster": ("process",), "evaluator": ("process",), "ps": ("process", "ps"), "chief": ("process", "trainer"),
       "worker": ("process", "trainer"), "slot": ("slot",), "host": ("host",), "job": ("job",)}  # fmt: skip


def metrics_of(subject: str) -> Mapping[str, Metric]:
    """By name, what is measured of this subject (`ps-0`, `slot-3`, `job`); empty for one that is unknown."""
    kinds = _OF.get(subject.rsplit("-", 1)[0] if "-" in subject else subject, ())
    return {metric.name: metric for metric in METRICS if metric.of in kinds}
