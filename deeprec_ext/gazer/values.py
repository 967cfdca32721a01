"""From what processes report to the metrics of `metrics.METRICS`: rates and shares over the interval of a report. Pure.

Reports come from processes that may be broken: numbers that are negative or not finite, or intervals that make no sense, are
not measured; nothing here raises.
"""

from __future__ import annotations

from deeprec_ext.gazer.metrics import STEP_BUCKETS
from deeprec_ext.proto import deeprec_ext_pb2 as pb

INTERVAL_MAX_SECONDS = 3600.0
LARGEST = 1e18
NAMES_MAX = 300
"""Characters of a name in a trace."""

OPS_MAX, PROCESSES_MAX = 40, 4000

_LEVELS = (
    "rss_bytes", "working_set_bytes", "memory_limit_bytes", "cpu_limit_cores", "open_files", "threads", "oom_kills",
)  # fmt: skip
_RATES = {
    "cpu_cores": "cpu_seconds", "throttled_share": "throttled_seconds", "received_bytes_per_second": "received_bytes",
    "sent_bytes_per_second": "sent_bytes",
}  # fmt: skip


def usable(value: float) -> bool:
    """A number that can have been measured."""
    return 0 <= value < LARGEST


def interval(report: pb.GazerReport) -> float:
    """Seconds; 0 when rates cannot be told: the first report, or nonsense."""
    return report.interval_seconds if 0 < report.interval_seconds <= INTERVAL_MAX_SECONDS else 0.0


def process_values(sample: pb.ProcessSample, before: pb.ProcessSample | None, seconds: float) -> dict[str, float]:
    """Metrics of a process. Totals become rates since `before`, `seconds` ago; 0 in a sample means: not known."""
    found = {name: float(value) for name in _LEVELS if usable(value := getattr(sample, name)) and value}
    if before is not None and seconds > 0:
        for name, total in _RATES.items():
            new, old = getattr(sample, total), getattr(before, total)
            if usable(new) and usable(old) and 0 < new >= old:
                found[name] = (new - old) / seconds
    return found


def host_values(sample: pb.HostSample, before: pb.HostSample | None, seconds: float) -> dict[str, float]:
    """`cores` and `busy_cores` of the processors, `quota_cores` and `quota_busy_cores` of a quota, as far as they are known."""
    found: dict[str, float] = {}
    for cores, total, busy in (
        ("cores", "busy_seconds", "busy_cores"),
        ("quota_cores", "quota_seconds", "quota_busy_cores"),
    ):
        most, new = getattr(sample, cores), getattr(sample, total)
        old = getattr(before, total) if before is not None else 0.0
        if not usable(most) or not most:
            continue
        found[cores] = most
        if seconds > 0 and usable(new) and usable(old) and 0 < old <= new:
            found[busy] = min(most, (new - old) / seconds)
    return found


def step_values(sample: pb.StepSample, seconds: float) -> dict[str, float]:
    """Metrics of a trainer. Where the batch size is unknown there are no examples."""
    found: dict[str, float] = {}
    if seconds > 0 and usable(sample.steps):
        found["steps_per_second"] = sample.steps / seconds
        if usable(sample.examples) and (sample.examples or not sample.steps):
            found["examples_per_second"] = sample.examples / seconds
    if seconds > 0:
        waits = {"gate_wait_share": sample.gate_wait_seconds, "input_wait_share": sample.input_wait_seconds}
        found.update({name: min(1.0, value / seconds) for name, value in waits.items() if usable(value)})
    if sample.steps > 0:
        times = {"step_seconds": sample.median_seconds, "step_p95_seconds": sample.p95_seconds,
                 "step_longest_seconds": sample.longest_seconds, "sum_seconds": sample.sum_seconds}  # fmt: skip
        found.update({name: value for name, value in times.items() if usable(value) and value})  # the first has none
    return found


def histogram(sample: pb.StepSample) -> list[int]:
    """Steps per bucket, the last above all; empty when it is not as agreed."""
    counts = list(sample.histogram[: len(STEP_BUCKETS) + 2])
    return counts if len(counts) == len(STEP_BUCKETS) + 1 and all(map(usable, counts)) else []


def trace_is_sound(trace: pb.Trace, slots: int) -> bool:
    """Whether it keeps to the bounds of the protocol, and may be stored and counted."""
    return (
        len(trace.ops) <= OPS_MAX
        and len(trace.devices) <= PROCESSES_MAX
        and len(trace.edges) <= PROCESSES_MAX
        and len(trace.slots) <= slots
        and usable(trace.step)
        and all(map(usable, (trace.seconds, trace.usual_seconds, trace.input_seconds)))
        and all(usable(one.seconds) and len(one.name) <= NAMES_MAX and -1 <= one.slot < slots for one in trace.ops)
        and all(usable(one.busy_seconds) and usable(one.op_seconds) and usable(one.ops) for one in trace.devices)
        and all(usable(one.bytes) and usable(one.tensors) and usable(one.seconds) for one in trace.edges)
        and all(_slot_is_sound(one, slots) for one in trace.slots)
    )


def _slot_is_sound(use: pb.SlotUse, slots: int) -> bool:
    numbers = (use.lookup_seconds, use.update_seconds, use.lookup_rows, use.update_rows, use.bytes)
    return 0 <= use.slot < slots and all(map(usable, numbers))
