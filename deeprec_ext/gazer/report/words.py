"""Quantities of a report in words."""

from __future__ import annotations

import time

from deeprec_ext.units import format_seconds


def offset(seconds: float) -> str:
    """Since the start: `83` → `1:23`."""
    sign = "-" if seconds <= -0.5 else ""
    minutes, rest = divmod(int(abs(seconds) + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours}:{minutes:02}:{rest:02}" if hours else f"{sign}{minutes}:{rest:02}"


def moment(unix: float) -> str:
    """`2026-11-21 16:41:53 UTC`; empty for 0."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(unix)) if unix > 0 else ""


def number(value: float) -> str:
    """Three figures: `1234.5` → `1,235`, `0.01234` → `0.0123`."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def count(value: float) -> str:
    """`1234567` → `1,234,567`."""
    return f"{value:,.0f}"


def cores(value: float) -> str:
    return f"{value:.2f}"


def seconds(value: float) -> str:
    """`0.0004` → `0.4 ms`, `0.00003` → `30 µs`, which `format_seconds` would round to nothing."""
    if 0 < value < 0.0001:
        return f"{1e6 * value:.0f} µs"
    return f"{1e3 * value:.1f} ms" if 0 < value < 0.01 else format_seconds(value)


def hours(value: float, unit: str) -> str:
    """Core-seconds or GB-seconds: `1.23 core-hours`, few of them `12.3 core-minutes`."""
    return f"{value / 3600:.3g} {unit}-hours" if value >= 3600 or value == 0 else f"{value / 60:.3g} {unit}-minutes"


def left_out(count: int, shown: int, note: str = "") -> str:
    """The note of a table, with what it does not show."""
    return f"{note} {count - shown} more are in `--json`.".strip() if count > shown else note


def shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
