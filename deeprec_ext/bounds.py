"""The most that a number of the command line, of a file of events or of a setting may be: one table, far above what is of use.

What lies above is a slip, or meant to harm: it is refused before anything is made as large as that. Least values are checked
where they are used, which knows why; those of a setting stand in its row (`options.Option.least`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

YEARS = 10
MOST: dict[str, int] = {
    "PS": 10_000,  # a view names each of them to each trainer
    "workers": 100_000,
    "slots": 20_000,  # two for each PS; a script's TF_CONFIG names each of them
    "rows": 10_000_000,  # of a list on a terminal
    "lines": 10_000_000,  # of a log
    "port": 65_535,
    "seconds": YEARS * 366 * 86_400,
    "bytes": 1 << 60,  # int64 holds sums of some of them
    "cores": 1_000_000,
    "step": 1 << 53,  # a double, and so JSON, has each of them
    "cut": 1 << 53,
    "seed": 1 << 53,
    "count": (1 << 31) - 1,  # of a setting: int32 in messages
    "number": 10**9,
}
"""kind → the most."""

DIGITS = 40
"""Of any number, as text: more are not read at all."""


def within(value: float, kind: str) -> bool:
    """Whether it is a number (no nan) from minus the most to the most."""
    return -MOST[kind] <= value <= MOST[kind]


def whole(kind: str) -> Callable[[str], int]:
    """For `type=` of an option of argparse: a whole number that is not more than the most of its kind."""

    def read(text: str) -> int:
        if len(text) > DIGITS:
            raise argparse.ArgumentTypeError(f"a number of {len(text):,} characters; {_most(kind)}")
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
        if not within(value, kind):
            raise argparse.ArgumentTypeError(f"{text} is too much; {_most(kind)}")
        return value

    return read


def real(kind: str) -> Callable[[str], float]:
    """The same for a number with a fraction; neither nan nor infinity."""

    def read(text: str) -> float:
        try:
            value = float(text[:DIGITS])
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text[:DIGITS]!r} is no number") from None
        if not within(value, kind):
            raise argparse.ArgumentTypeError(f"{text[:DIGITS]} is no amount; {_most(kind)}")
        return value

    return read


def _most(kind: str) -> str:
    return f"the most is {MOST[kind]:,}"
