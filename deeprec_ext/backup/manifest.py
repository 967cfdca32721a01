"""The manifest of a snapshot: JSON with a checksum of its own, one file per snapshot, written last and renamed.

It names everything a reader needs: the variables, the files of the base and of all deltas up to this snapshot, and where
training stood when the snapshot began. A reader that does not know its version says so and stops.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deeprec_ext.backup import dtypes
from deeprec_ext.backup.errors import DamagedError, WrongBackupError
from deeprec_ext.decoding import built

FORMAT = "deeprec-ext backup"
VERSION = 1
SUFFIX = ".manifest"
DATA_SUFFIX = ".drx"
KEPT_POSITION = "ledger"
"""In a file of a kept model (`allreduce.kept`), which a cut can be made into: the data ledger's position, beside the arrays."""
_CUT = re.compile(r"cut-((\d{8,})-\d+-\w+)(?:-slot\d+\.drx|\.manifest)$")
_NAME = re.compile(r"[\w.@-]{1,200}$")


@dataclass(frozen=True)
class SavedVariable:
    """One variable as it lay on its slot."""

    name: str
    container: str
    dtype: int
    shape: tuple[int, ...]
    slot: int
    reference: bool
    saved_name: str
    slice: str

    @property
    def known_shape(self) -> str:
        return "×".join(map(str, self.shape)) or "scalar"


@dataclass(frozen=True)
class DataFile:
    """One file of one snapshot: the state of one slot, or what changed of it."""

    name: str
    bytes: int
    crc32: int
    slot: int
    rows: int
    raw_bytes: int
    whole: bool


@dataclass(frozen=True)
class Snapshot:
    id: str
    number: int
    files: tuple[DataFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True)
class Manifest:
    """One snapshot with everything it builds on."""

    job: str
    job_id: str
    fingerprint: str
    """Of the model (`model.fingerprint`): the same however its tables are partitioned."""
    layout: str
    """Of the variables on their slots (`model.layout`): the same only with the same slots and partitions."""
    step: int
    epoch: int
    time: float
    """When the snapshot began, Unix seconds."""
    ledger: bytes
    """Position of the data ledger, read before the first row."""
    slots: int
    global_step: str
    variables: tuple[SavedVariable, ...]
    chain: tuple[Snapshot, ...]
    """The base first, this snapshot last."""

    @property
    def cut(self) -> Snapshot:
        return self.chain[-1]

    @property
    def id(self) -> str:
        return self.cut.id

    @property
    def number(self) -> int:
        return self.cut.number

    @property
    def base(self) -> Snapshot:
        return self.chain[0]

    @property
    def name(self) -> str:
        return manifest_name(self.id)

    def files(self) -> dict[str, DataFile]:
        """Every file of the chain by name."""
        return {file.name: file for cut in self.chain for file in cut.files}

    def needed(self) -> dict[int, list[DataFile]]:
        """By slot, the files to apply one after the other: from the last one that is whole."""
        found: dict[int, list[DataFile]] = {}
        for cut in self.chain:
            for file in cut.files:
                if file.whole:
                    found[file.slot] = [file]
                else:
                    found.setdefault(file.slot, []).append(file)
        return found


def snapshot_id(number: int, aimaster_incarnation: int, job_id: str) -> str:
    """Names of files begin with it; nobody else uses it."""
    return f"{number:08d}-{aimaster_incarnation}-{job_id}"


def manifest_name(identifier: str) -> str:
    return f"cut-{identifier}{SUFFIX}"


def data_name(identifier: str, slot: int) -> str:
    return f"cut-{identifier}-slot{slot:04d}{DATA_SUFFIX}"


def number_of(name: str) -> int:
    """The number of the snapshot that a file belongs to, from its name; -1: none of ours."""
    found = _CUT.match(name)
    return int(found[2]) if found else -1


def id_of(name: str) -> str:
    """The id of the snapshot that a file belongs to, from its name; empty: none of ours."""
    found = _CUT.match(name)
    return found[1] if found else ""


def dumps(manifest: Manifest) -> str:
    """As text, with a checksum of the rest."""
    values = dataclasses.asdict(manifest)
    values["ledger"] = base64.b64encode(manifest.ledger).decode()
    values = {"format": FORMAT, "version": VERSION, **values}
    values["crc32"] = _checksum(values)
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def _checksum(values: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(values, sort_keys=True, separators=(",", ":")).encode())


def loads(text: str | bytes, name: str) -> Manifest:
    """Raises DamagedError (named `name`), or WrongBackupError when it is of another version or no manifest at all."""
    try:
        values = json.loads(text)
    except ValueError as error:
        raise DamagedError(name, "torn", f"not JSON ({error})") from error
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise WrongBackupError(f"{name} is no manifest of a {FORMAT}")
    if values.get("version") != VERSION:
        raise WrongBackupError(
            f"{name} has version {values.get('version')} of the format, this deeprec-ext reads version {VERSION}: "
            "use the release that wrote it"
        )
    expected = values.pop("crc32", None)
    if expected != _checksum(values):
        raise DamagedError(name, "flipped", "its checksum does not match its text")
    try:
        return _manifest(values)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedError(name, "flipped", f"{type(error).__name__}: {error}") from error


def _manifest(values: Mapping[str, Any]) -> Manifest:
    ledger = base64.b64decode(values["ledger"], validate=True)
    made = built(Manifest, {**values, "ledger": ledger}, newer=True)
    if not made.chain:
        raise ValueError("an empty chain")
    for one in made.variables:
        if not dtypes.known(one.dtype) or any(size < 0 for size in one.shape):
            raise ValueError(f"variable {one.name!r}: {one.shape} of {dtypes.name_of(one.dtype)}")
    for file in (file for cut in made.chain for file in cut.files):
        if not _NAME.match(file.name) or file.bytes < 0:
            raise ValueError(f"file {file.name!r}")
    return made


def variables_of(catalogue: Iterable[Any]) -> tuple[SavedVariable, ...]:
    """From `pb.Variable` messages. What cannot be written (resources, variants) is left out."""
    return tuple(
        SavedVariable(v.name, v.container, v.dtype, tuple(v.shape), v.slot, v.reference, v.saved_name, v.slice)
        for v in catalogue
        if dtypes.known(v.dtype)
    )


def newest_first(manifests: Iterable[Manifest]) -> Sequence[Manifest]:
    return sorted(manifests, key=lambda one: (one.number, one.time), reverse=True)
