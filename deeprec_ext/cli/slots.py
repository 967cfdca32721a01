"""One line per slot: where it lies, what it costs, how large it is."""

from __future__ import annotations

from collections.abc import Mapping

from deeprec_ext.cli.fitting import Column, Fitted, bar
from deeprec_ext.proto import deeprec_ext_pb2 as pb2
from deeprec_ext.units import format_bytes

COLUMNS = (
    Column("slot", 4),
    Column("on", 6, right=False),
    Column("load", 12, rank=1, right=False),
    Column("share", 6),
    Column("reads", 6, rank=4),
    Column("writes", 6, rank=4),
    Column("rows read/s", 11, rank=3),
    Column("rows written/s", 14, rank=3),
    Column("bytes", 7),
)


def slot_load(slot: pb2.SlotStatus) -> float:
    """Seconds of look-ups and updates per second."""
    return slot.gazer.get("lookup_share", 0.0) + slot.gazer.get("update_share", 0.0)


def owners(status: pb2.StatusReply) -> Mapping[int, str]:
    """slot → name of its PS."""
    return {slot: role.name for role in status.roles for slot in role.slots}


def slot_table(status: pb2.StatusReply, sort: str = "load", most: int | None = None) -> Fitted | None:
    """None while there are no slots.

    Args:
      sort: `load`, `memory` (bytes), or `name` (number).
    """
    if not status.slot_load:
        return None
    total = sum(slot_load(one) for one in status.slot_load)
    highest = max(slot_load(one) for one in status.slot_load)
    keys = {
        "load": lambda one: (-slot_load(one), -one.bytes, one.slot),
        "memory": lambda one: (-one.bytes, one.slot),
        "name": lambda one: one.slot,
    }
    names = owners(status)
    rows = [
        [
            str(one.slot), names.get(one.slot, ""), bar(slot_load(one) / highest) if highest else "",
            _share(slot_load(one) / total) if total else "", _share(one.gazer.get("lookup_share", 0.0)),
            _share(one.gazer.get("update_share", 0.0)), _rate(one.gazer.get("lookup_rows_per_second", 0.0)),
            _rate(one.gazer.get("update_rows_per_second", 0.0)), format_bytes(one.bytes) if one.bytes else "",
        ]
        for one in sorted(status.slot_load, key=keys[sort])
    ]  # fmt: skip
    return Fitted(COLUMNS, rows, most, "slots")


def _share(value: float) -> str:
    if not value:
        return ""
    return f"{100 * value:.1f} %" if value < 0.0995 else f"{100 * value:.0f} %"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value else ""
