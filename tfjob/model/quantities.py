"""Kubernetes quantities ("500m", "2Gi", 3, "1e3"), added up exactly.

By hand, since that of the `kubernetes` package takes what the server refuses ("1K", "inf", "1_000"), and its import takes half
a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

_SUFFIXES = {
    "n": Decimal(10) ** -9, "u": Decimal(10) ** -6, "m": Decimal(10) ** -3, "": Decimal(1),
    **{letter: Decimal(10) ** (3 * power) for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Decimal(2) ** (10 * power) for power, letter in enumerate("KMGTPE", 1)},
}  # fmt: skip
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([numkMGTPE]?|[KMGTPE]i)", re.ASCII)


def parse_quantity(value: str | int | float) -> Decimal:
    """Raises ValueError for what Kubernetes would not take."""
    match = _QUANTITY.fullmatch(str(value).strip())
    if not match:
        raise ValueError(f"{value!r} is no quantity; write for example 500m or 2Gi")
    return Decimal(match[1]) * _SUFFIXES[match[2]]


def format_quantity(amount: Decimal) -> str:
    """A whole number, else thousandths, rounded up."""
    if amount == amount.to_integral_value():
        return str(int(amount))
    return f"{int((amount * 1000).to_integral_value(rounding='ROUND_CEILING'))}m"


def add(resources: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The sum, resource by resource. Raises ValueError."""
    total: dict[str, Decimal] = {}
    for one in resources:
        for name, value in one.items():
            total[name] = total.get(name, Decimal(0)) + parse_quantity(value)
    return {name: format_quantity(total[name]) for name in sorted(total)}
