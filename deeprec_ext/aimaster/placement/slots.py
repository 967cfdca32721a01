"""What lies on which slot, from the variable catalogue. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from deeprec_ext.proto import deeprec_ext_pb2 as pb


def slot_bytes(variables: Iterable[pb.Variable], slots: int) -> list[int]:
    """[S] bytes of the variables of each slot."""
    sizes = [0] * slots
    for variable in variables:
        if 0 <= variable.slot < slots:
            sizes[variable.slot] += variable.bytes
    return sizes


def slot_rows(variables: Iterable[pb.Variable], slots: int) -> list[int]:
    """[S] rows of the tables of each slot. A table's optimizer slots share its bitmap and are not counted again."""
    tables = {}
    for variable in variables:
        if variable.update == pb.Variable.ROWS and variable.shape and 0 <= variable.slot < slots:
            tables[variable.slot, variable.bitmap or variable.name] = max(0, variable.shape[0])
    rows = [0] * slots
    for (slot, _), count in tables.items():
        rows[slot] += count
    return rows


def moves_of(variables: Iterable[pb.Variable], old: Sequence[int], new: Sequence[int]) -> dict[int, list[pb.Move]]:
    """Every variable of a slot that changes its owner, by the task of the target."""
    moves: dict[int, list[pb.Move]] = {}
    for variable in variables:
        source, target = old[variable.slot], new[variable.slot]
        if source != target:
            moves.setdefault(target, []).append(pb.Move(variable=variable, source_task=source))
    return moves


def tracked(variables: Iterable[pb.Variable], slots: Collection[int]) -> dict[str, str]:
    """variable -> bitmap of every table on these slots whose dirty rows are marked."""
    return {v.name: v.bitmap for v in variables if v.slot in slots and v.update == pb.Variable.ROWS and v.bitmap}
