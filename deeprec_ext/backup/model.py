"""What two backups have in common when they are of the same model, and of the same model on the same slots."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from deeprec_ext.backup.dtypes import name_of
from deeprec_ext.backup.manifest import SavedVariable
from deeprec_ext.units import few


def whole_shape(variable: SavedVariable) -> tuple[int, ...]:
    """The shape of the whole variable, of which this may be a part. Raises ValueError for a slice nobody can read."""
    if not variable.slice:
        return variable.shape
    return tuple(int(size) for size in variable.slice.split()[:-1])


def part_of(variable: SavedVariable) -> tuple[tuple[int, int], ...]:
    """(first, count) per dimension of the part that this variable is; empty: the whole."""
    if not variable.slice:
        return ()
    whole, spec = whole_shape(variable), variable.slice.split()[-1].split(":")
    found = []
    for size, one in zip(whole, spec):
        if one == "-":
            found.append((0, size))
        else:
            first, count = one.split(",")
            found.append((int(first), int(count)))
    if len(found) != len(whole):
        raise ValueError(f"slice {variable.slice!r} of {variable.name}")
    return tuple(found)


def saved_tensors(variables: Iterable[SavedVariable]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """What a checkpoint of the model contains: name -> (type, whole shape)."""
    return {v.saved_name: (name_of(v.dtype), whole_shape(v)) for v in variables if v.saved_name}


def fingerprint(variables: Iterable[SavedVariable]) -> str:
    """Of what a checkpoint of the model contains: partitions and slots do not count."""
    digest = hashlib.sha256()
    for name, (kind, shape) in sorted(saved_tensors(variables).items()):
        digest.update(f"{name}\0{kind}\0{shape}\n".encode())
    return digest.hexdigest()[:16]


def layout(variables: Iterable[SavedVariable]) -> str:
    """Of the variables as they lie on the slots: what can be restored into a running job as it is."""
    digest = hashlib.sha256()
    for v in sorted(variables, key=lambda one: one.name):
        digest.update(f"{v.name}\0{v.container}\0{v.dtype}\0{v.shape}\0{v.slot}\0{v.reference}\n".encode())
    return digest.hexdigest()[:16]


def differences(
    one: dict[str, tuple[str, tuple[int, ...]]], other: dict[str, tuple[str, tuple[int, ...]]], limit: int = 3
) -> str:
    """One line: what the first has and the second has not, and what is different."""
    only = [f"{name} {list(one[name][1])}" for name in sorted(one.keys() - other.keys())]
    missing = [f"{name} {list(other[name][1])}" for name in sorted(other.keys() - one.keys())]
    changed = [
        f"{name} {one[name][0]}{list(one[name][1])} / {other[name][0]}{list(other[name][1])}"
        for name in sorted(one.keys() & other.keys())
        if one[name] != other[name]
    ]
    texts = [
        f"{title} {few(found, limit)}"
        for title, found in (("only in the first:", only), ("only in the second:", missing), ("different:", changed))
        if found
    ]
    return "; ".join(texts)
