"""The policy: every threshold by which `decide` decides, with unit, default and reason, in one place.

Seconds are seconds, bytes are bytes, shares are between 0 and 1. `--set name=value` changes one of them; `describe()` lists
them all. A policy is recorded with every decision, so that a replay can use the very same one, or another.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from deeprec_ext.errors import UsageError
from deeprec_ext.units import parse_bytes


def _setting(default: Any, low: float, high: float, why: str) -> Any:
    return dataclasses.field(default=default, metadata={"low": low, "high": high, "why": why})


@dataclass(frozen=True)
class Policy:
    """Thresholds of deciding. The reason of each stands beside it."""

    # ---------------------------------------------------------------------------------------------- evidence

    windows_min: int = _setting(
        2, 1, 100,
        "undisturbed windows at the present size before throughput is a reason to change; one alone cannot show how "
        "much it scatters",
    )  # fmt: skip
    obvious_gain: float = _setting(
        0.3, 0.05, 10.0,
        "from this predicted gain (share) on, one window is enough: no usual noise looks like it, and a second window "
        "would cost its time at the wrong size",
    )  # fmt: skip
    windows_per_size: int = _setting(12, 2, 1000, "newest windows of one size that count; more say the same again")
    windows_of_noise: int = _setting(
        30, 2, 1000,
        "and of the present size, where its windows scatter: their mean tells the more surely, the more there are",
    )  # fmt: skip
    sizes_max: int = _setting(16, 2, 200, "newest sizes that count; bounds what is recorded and fitted")
    spread_max: float = _setting(
        0.3, 0.02, 2.0,
        "relative scatter of the windows at the present size (robust standard deviation) beyond which throughput is "
        "taken for noise and nothing is decided by it",
    )  # fmt: skip
    error_max: float = _setting(
        0.35, 0.02, 2.0,
        "held-out error of the model (mean absolute relative error) beyond which it is not believed at sizes that "
        "were not tried: then, and where it is not known, one step of one role is tried, never a leap; where far more "
        "processes than cores fill a host, half of them",
    )  # fmt: skip
    confidence_full: float = _setting(
        0.6, 0.0, 1.0,
        "confidence (0 to 1) from which a decision goes straight to the best size; below, it is approached in steps",
    )  # fmt: skip
    step_factor: float = _setting(
        2.0, 1.1, 100.0,
        "largest step with less confidence: trainers or PS times or divided by this. Doubling reaches any size in a "
        "few steps and halves the error of none",
    )  # fmt: skip
    leap_factor: float = _setting(
        4.0, 1.1, 1000.0, "largest step with full confidence: a model of few sizes is wrong far away",
    )  # fmt: skip

    # ---------------------------------------------------------------------------------------------- objectives

    marginal_gain: float = _setting(
        0.05, 0.001, 1.0,
        "`fastest` stops where one more pod (beyond ten of a role: a tenth more) adds less than this share of "
        "throughput",
    )  # fmt: skip
    marginal_loss: float = _setting(
        0.045, 0.0, 1.0,
        "`fastest` gives a pod back when it costs less than this share of throughput; the gap to marginal_gain keeps "
        "a size from being left and entered in turns",
    )  # fmt: skip
    most_given: float = _setting(
        0.1, 0.0, 1.0,
        "and gives back no more than this share of the best throughput measured so far: many small losses are a large one",
    )  # fmt: skip
    cheapest_share: float = _setting(
        0.05, 0.001, 1.0, "`cheapest` takes the fastest size within this share of the best throughput per cost",
    )  # fmt: skip
    deadline_margin: float = _setting(
        0.1, 0.0, 0.9, "`deadline` plans to end this share of the time left earlier: failures and noise take some",
    )  # fmt: skip
    bytes_per_core: int = _setting(
        4 << 30, 1 << 20, 1 << 50,
        "memory that costs as much as one core, for weighing CPU against memory; the ratio of common machines and "
        "prices",
    )  # fmt: skip

    # ---------------------------------------------------------------------------------------------- gain and cost

    gain_min: float = _setting(
        0.05, 0.0, 10.0, "predicted gain (share of throughput, or of cost for savings) below which nothing is changed",
    )  # fmt: skip
    saving_min: float = _setting(
        0.08, 0.0, 1.0, "share of the cost that a scale-down must save; every change risks something",
    )  # fmt: skip
    settled_seconds: float = _setting(
        600.0, 0.0, 1e7,
        "a size that the job has had for so long has proved itself, and is only left for `settled_factor` times the "
        "usual gain or saving",
    )  # fmt: skip
    settled_factor: float = _setting(2.0, 1.0, 100.0, "see settled_seconds; 1: time makes no difference")
    noise_factor: float = _setting(
        2.0, 0.0, 100.0, "the gain must also exceed so many standard errors of what it is compared with",
    )  # fmt: skip
    payback: float = _setting(
        2.0, 0.0, 100.0, "the gain over the remaining work must be so many times the cost of the change",
    )  # fmt: skip
    horizon_seconds: float = _setting(
        3600.0, 1.0, 1e7,
        "remaining time that is assumed at most where the end of the job is not known; until then it is taken to run on "
        "for as long as it has run",
    )  # fmt: skip
    change_seconds: float = _setting(
        30.0, 0.0, 1e5, "how long a change takes until one was seen: start of a pod and of its session",
    )  # fmt: skip
    pause_seconds: float = _setting(
        1.0, 0.0, 1e5,
        "how long training stands still in a change of PS until one was seen: 0.2 to 0.4 s, 0.9 s on a third of a core",
    )  # fmt: skip
    disturbance: float = _setting(
        0.1, 0.0, 1.0, "share of throughput that a change takes while pods start and slots are copied",
    )  # fmt: skip
    bytes_per_second: float = _setting(100e6, 1.0, 1e15, "speed at which slots move, until a move was seen")

    # ---------------------------------------------------------------------------------------------- trying

    explore_share: float = _setting(
        0.025, 0.0, 1.0,
        "share of the expected rest of the job that going to a size which was not measured may cost, the way back "
        "included; and of the whole job that all changes together may have cost, against its first size",
    )  # fmt: skip
    explore_loss: float = _setting(
        0.25, 0.0, 1.0,
        "share of throughput that a first step of one process may take where nothing says how much: 1 to 2 PS on "
        "cores that were full took 15 %, 2 to 4 another 22 %",
    )  # fmt: skip
    direction_seconds: float = _setting(
        1800.0, 1.0, 1e7,
        "after a prediction that failed its direction (PS up, workers up, both, ...) is not tried for so long, "
        "doubled with each further failure",
    )  # fmt: skip

    # ---------------------------------------------------------------------------------------------- calm

    up_cooldown_seconds: float = _setting(15.0, 0.0, 1e6, "no growth so soon after a change: queues and caches settle")
    down_cooldown_seconds: float = _setting(
        60.0, 0.0, 1e6, "no shrinking so soon after a change; a lull is not the end of demand",
    )  # fmt: skip
    reverse_seconds: float = _setting(
        300.0, 0.0, 1e6,
        "a role that grew is not shrunk, nor the other way round, so soon, unless the windows since then show that "
        "the change did not bring what it was made for",
    )  # fmt: skip
    reversals_per_hour: int = _setting(
        2, 0, 100,
        "changes of direction of one role within an hour, then it is left alone until the hour is over: this bounds "
        "flapping whatever is measured",
    )  # fmt: skip
    changes_per_hour: int = _setting(16, 1, 1000, "changes made for throughput or cost within an hour")
    manual_seconds: float = _setting(
        1800.0, 0.0, 1e7,
        "after a scaling by hand the count of that role is the user's for so long; lost or reclaimed pods are still "
        "replaced and memory is still added",
    )  # fmt: skip
    failed_seconds: float = _setting(
        60.0, 1.0, 1e6,
        "wait after a change that was refused or rolled back, doubled with each further one of the same kind, up to "
        "an hour",
    )  # fmt: skip

    # ---------------------------------------------------------------------------------------------- processes

    straggler_factor: float = _setting(
        1.5, 1.05, 100.0,
        "a trainer whose step takes so many times the median's, in the last minute and over the last five, is a "
        "straggler",
    )  # fmt: skip
    straggler_seconds: float = _setting(
        120.0, 0.0, 1e6, "age from which a process is compared with others: caches fill, graphs are optimised",
    )  # fmt: skip
    hung_seconds: float = _setting(120.0, 1.0, 1e6, "a worker that makes no step for so long while others do is hung")
    slow_ps_factor: float = _setting(
        2.0, 1.05, 100.0,
        "a PS that is busy so many times as long per CPU second as the median PS sits on a host that is short of CPU",
    )  # fmt: skip
    busy_share: float = _setting(0.7, 0.05, 1.0, "share of time from which a PS counts as the bottleneck")
    starved_share: float = _setting(
        0.5, 0.05, 1.0, "share of time trainers wait for input from which more PS cannot help",
    )  # fmt: skip
    imbalance: float = _setting(1.25, 1.01, 100.0, "load of the busiest PS ÷ mean from which slots are rebalanced")
    rebalance_gain: float = _setting(0.1, 0.0, 1.0, "share by which a rebalance must lower the load of the busiest PS")

    # ---------------------------------------------------------------------------------------------- CPU and memory

    throttled_share: float = _setting(
        0.1, 0.0, 1.0,
        "share of time a process is throttled from which more CPU may help; below a fifth of it its limit does not "
        "bind",
    )  # fmt: skip
    worker_cpu_headroom: float = _setting(
        1.1, 1.0, 10.0, "CPU requested ÷ use of the busiest trainer; where peaks are cut off, it is seen as throttling",
    )  # fmt: skip
    ps_cpu_headroom: float = _setting(
        1.6, 1.0, 10.0, "the same for PS: trainers queue for a PS long before all its CPU is used",
    )  # fmt: skip
    cpu_factor: float = _setting(
        1.5, 1.05, 10.0, "by how much a request of CPU grows at once, and at most shrinks twofold of it",
    )  # fmt: skip
    memory_headroom: float = _setting(
        1.2, 1.0, 10.0, "memory requested ÷ the largest process of the role, growth to come included",
    )  # fmt: skip
    shrink_below: float = _setting(0.85, 0.05, 1.0, "a request shrinks only when less than this share of it is needed")
    memory_factor: float = _setting(
        1.5, 1.05, 10.0, "memory after an out-of-memory kill ÷ before: the need is not known, only that it is more",
    )  # fmt: skip
    memory_full: float = _setting(
        0.92, 0.3, 1.0, "share of the limit at which memory counts as used up; the kernel needs some itself",
    )  # fmt: skip
    memory_margin_seconds: float = _setting(
        120.0, 0.0, 1e6, "memory is added so long before it is used up, beyond the time a change takes",
    )  # fmt: skip
    memory_age_seconds: float = _setting(
        60.0, 0.0, 1e6, "growth is not projected from younger processes: they are still loading",
    )  # fmt: skip
    process_bytes: int = _setting(400 << 20, 0, 1 << 50, "memory of a PS without variables: TensorFlow itself")


LATER = frozenset({"explore_share", "explore_loss", "direction_seconds", "windows_of_noise"})
"""Settings that records of earlier releases lack: these are read with today's defaults."""

NAMES: Mapping[str, dataclasses.Field[Any]] = {field.name: field for field in dataclasses.fields(Policy)}


def parse(pairs: Iterable[str], base: Policy = Policy()) -> Policy:
    """`["gain_min=0.1", "bytes_per_core=8Gi"]` → Policy. Raises UsageError that names the setting and the remedy."""
    values: dict[str, Any] = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not separator:
            raise UsageError(f"--set {pair}: write name=value, for example --set gain_min=0.1")
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(NAMES)}"
            raise UsageError(f"--set {name}: there is no such policy setting; {hint}")
        if name in values:
            raise UsageError(f"--set {name}: is given twice")
        values[name] = _number(name, text.strip())
    return dataclasses.replace(base, **values)


def _number(name: str, text: str) -> Any:
    field = NAMES[name]
    whole = isinstance(field.default, int)
    try:
        value = (
            parse_bytes(text) if "bytes" in name and not text[-1:].isdigit() else (int(text) if whole else float(text))
        )
    except ValueError:
        what = "an amount of bytes, for example 512Mi" if "bytes" in name else "a whole number" if whole else "a number"
        raise UsageError(f"--set {name}={text}: give {what}") from None
    return _checked(name, value, f"--set {name}={text}")


def _checked(name: str, value: float, what: str) -> float:
    low, high = NAMES[name].metadata["low"], NAMES[name].metadata["high"]
    if not (math.isfinite(value) and low <= value <= high):
        raise UsageError(f"{what}: must be between {low:g} and {high:g}")
    return value


def to_values(policy: Policy) -> dict[str, Any]:
    """For a record: all settings by name."""
    return dataclasses.asdict(policy)


def from_values(values: Any) -> Policy:
    """The opposite. Raises UsageError where a setting is unknown, missing, no number, or out of its range."""
    if not isinstance(values, dict) or (wrong := sorted(set(values) ^ (set(NAMES) - (LATER - set(values))))):
        wrong = wrong if isinstance(values, dict) else []
        raise UsageError(f"the recorded policy is of another version ({', '.join(wrong[:5]) or 'no settings'})")
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UsageError(f"the recorded policy is damaged: {name} is {value!r}")
        _checked(name, value, f"the recorded policy, {name}={value}")
    return Policy(**values)


def describe(policy: Policy) -> list[tuple[str, Any, Any, str]]:
    """(name, value, default, reason) of every setting, for a table."""
    return [(name, getattr(policy, name), field.default, field.metadata["why"]) for name, field in NAMES.items()]
