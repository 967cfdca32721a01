"""Quantities for people: bytes and durations, parsed and printed. Internally: bytes are int, durations float seconds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from deeprec_ext.bounds import DIGITS, MOST, within

_BYTES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40,
          "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}  # fmt: skip


def _match(pattern: str, text: str) -> re.Match[str] | None:
    """In ASCII: for Python, digits of every script are digits, but for nobody who reads a manifest."""
    return re.fullmatch(pattern, text, re.ASCII)


def parse_bytes(text: str) -> int:
    """`"512Mi"` → 536870912; suffixes as in Kubernetes (K, M, G, Ki, Mi, Gi), with or without B.

    Raises ValueError for anything else, a bare negative number included, and for more than `bounds` allows.
    """
    match = _match(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if not match or match[2].upper() not in _BYTES:
        raise ValueError(f"{text[:DIGITS]!r} is no amount of bytes; write for example 512Mi or 2GB")
    return int(_bounded(float(match[1]) * _BYTES[match[2].upper()], text, "bytes"))


def parse_cores(text: str) -> float:
    """`"0.5"` or, as in Kubernetes, `"500m"` → 0.5. Raises ValueError for anything else."""
    match = _match(r"\s*(\d+(?:\.\d+)?|\.\d+)(m?)\s*", text)
    if not match:
        raise ValueError(f"{text[:DIGITS]!r} is no number of cores; write for example 0.5 or 500m")
    return _bounded(float(match[1]) / (1000 if match[2] else 1), text, "cores")


_DURATIONS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float:
    """`90s`, `30m`, `1.5h`, `2d` → seconds. Raises ValueError; a bare number does not say what it counts."""
    match = _match(r"\s*(\d+(?:\.\d+)?)\s*([smhd])\s*", text)
    if not match or not float(match[1]):
        raise ValueError(f"{text[:DIGITS]!r} is no duration; write for example 90s, 30m or 2h")
    return _bounded(float(match[1]) * _DURATIONS[match[2]], text, "seconds")


def _bounded(value: float, text: str, kind: str) -> float:
    if not within(value, kind):
        raise ValueError(f"{text[:DIGITS]!r} is too much; the most is {MOST[kind]:,} {kind}")
    return value


def format_bytes(count: float) -> str:
    """`268435456` → `"268 MB"` (decimal units)."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def format_memory(count: float) -> str:
    """`966367641600` → `"900 GiB"`, as limits of memory are written."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{round(count, 1 if count < 100 else 0):g} {unit}"
        count /= 1024
    return f"{round(count, 1):g} TiB"


def format_seconds(seconds: float) -> str:
    """`0.0123` → `"12 ms"`, `83` → `"1:23"`, `200_000` → `"2 d 7 h"`."""
    if seconds < 1:
        return f"{1e3 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_rate(per_second: float) -> str:
    """`12469.3` → `"12,469"`, `812.44` → `"812.4"`."""
    return f"{per_second:,.0f}" if abs(per_second) >= 1000 else f"{per_second:.4g}"


def format_busy(share: float) -> str:
    """Of a PS, seconds in which an op ran for a trainer, per second: `0.33` → `"33 % busy"`. Ops may run, or wait for a core,
    several at once: `3.33` → `"3.3 ops at once"`."""
    return f"{share:.1f} ops at once" if share > 1 else f"{100 * share:.0f} % busy"


def sized(ps: int, workers: int) -> str:
    """`2 PS, 3 workers`; of a job without PS `3 workers`."""
    return (f"{ps} PS, " if ps else "") + counted(workers, "worker")


def counted(count: float | str, name: str) -> str:
    """`1 worker`, `2 workers`; a name in capitals, as PS, stays as it is."""
    return f"{count} {name}{'' if count == 1 or name.isupper() else 's'}"


def few(names: Sequence[str], most: int = 5, between: str = ", ") -> str:
    """`a, b and 3 more`: the first of them."""
    return between.join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


Figure = TypeVar("Figure")


def once(metrics: Mapping[str, Figure]) -> dict[str, Figure]:
    """Those to be shown: figures of a validation, `val_auc`, are also those of the last evaluation, `auc`, until there is
    another. By that name alone they would be taken for those of the training."""
    return {name: value for name, value in metrics.items() if metrics.get(f"val_{name}") != value}


INT64_MAX = 2**63 - 1


def saturated(number: int) -> int:
    """Where sums of 64 bits end: they stay there instead of failing, or becoming negative."""
    return max(-INT64_MAX, min(INT64_MAX, number))


def format_scaling(kind: str, role: str, counts: tuple[object, object], workers: tuple[object, object]) -> str:
    """`scale-up ps 2 → 4`; where the workers change with the PS, `scale-up ps 2 → 4, workers 3 → 1`.

    Args: counts, workers: before and after.
    """
    sizes = ["" if before == after else f"{before} → {after}" for before, after in (counts, workers)]
    return f"{kind} {role} {sizes[0]}".rstrip() + (f", workers {sizes[1]}" if sizes[1] else "")
