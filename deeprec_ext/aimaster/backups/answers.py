"""What PS answer about disk backups, read as what it must be: from it follow names of files that another PS removes. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from deeprec_ext.backup import manifest
from deeprec_ext.backup.chains import CommittedSnapshot
from deeprec_ext.backup.manifest import DataFile
from deeprec_ext.decoding import alike, built
from deeprec_ext.errors import DeepRecError
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto.bounds import NAMED

TEXT_MAX = 200


class ImpossibleError(DeepRecError):
    """An honest PS does not say this. One line."""


@dataclass(frozen=True)
class FoundSnapshot:
    """The newest consistent one."""

    id: str
    number: int
    step: int
    layout: str
    ledger: bytes


@dataclass(frozen=True)
class Looked:
    """At a directory of backups."""

    cuts: Sequence[CommittedSnapshot]
    highest: int
    unsealed: Sequence[str]
    damaged: Sequence[str]
    found: FoundSnapshot | None


def written(ack: pb.Ack, identifier: str, slots: Collection[int]) -> list[DataFile]:
    """The files of a snapshot by one PS: one of each of its slots. Raises ImpossibleError.

    Args:
        identifier: of the snapshot.
        slots: that it was told to write.
    """
    files = [alike(DataFile, file) for file in ack.files]
    for file in files:
        if file.slot not in slots or file.name != manifest.data_name(identifier, file.slot):
            raise ImpossibleError(
                f"ack.files has {file.name[:TEXT_MAX]!r} of slot {file.slot}, which it was not to write"
            )
    if len(files) != len(slots) or {file.slot for file in files} != set(slots):
        raise ImpossibleError(f"ack.files has {len(files)} files, it was to write {len(slots)} slots")
    return files


def looked(text: str) -> Looked:
    """Raises ImpossibleError."""
    try:
        values = json.loads(text)
        found = values["found"]
        return Looked(
            [_cut(one) for one in values["cuts"]], _number(values["highest"]), [_id(one) for one in values["unsealed"]],
            [str(one)[:TEXT_MAX] for one in values["damaged"]], None if found is None else _found(found),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ImpossibleError(f"ack.backup_json is none: {type(error).__name__}: {error}"[:TEXT_MAX]) from error


def _cut(values: dict[str, Any]) -> CommittedSnapshot:
    one = built(CommittedSnapshot, values)
    for name in one.files:
        if manifest.id_of(name) != one.id:
            raise ValueError(f"{name!r} is no file of the cut {one.id!r}")
    _id(one.id), _id(one.base), _number(one.number), _number(one.bytes)
    return one


def _found(values: dict[str, Any]) -> FoundSnapshot:
    one = built(FoundSnapshot, {**values, "ledger": base64.b64decode(values["ledger"], validate=True)}, newer=True)
    _id(one.id), _number(one.number), _number(one.step)
    return one


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= NAMED["STEP"]:
        raise ValueError(f"{str(value)[:40]} is no such number")
    return value


def _id(value: object) -> str:
    if not isinstance(value, str) or manifest.id_of(manifest.manifest_name(value)) != value:
        raise ValueError(f"{str(value)[:40]!r} is no cut")
    return value
