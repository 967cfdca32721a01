"""Looking at a backup directory, and committing a snapshot in it."""

from __future__ import annotations

import base64
import dataclasses
import json
import logging
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from deeprec_ext.backup import chains
from deeprec_ext.backup.errors import DamagedError, NoCutError, WrongBackupError
from deeprec_ext.backup.files import Directory
from deeprec_ext.backup.manifest import (
    DATA_SUFFIX,
    SUFFIX,
    DataFile,
    Manifest,
    id_of,
    loads,
    manifest_name,
    newest_first,
    number_of,
)
from deeprec_ext.units import few

log = logging.getLogger("deeprec_ext")


@dataclass
class Found:
    """What a directory holds. A file without a manifest does not exist, as far as a reader is concerned."""

    manifests: list[Manifest] = field(default_factory=list)
    """Newest first."""
    damaged: dict[str, str] = field(default_factory=dict)
    """File name -> one line that names it."""
    sizes: dict[str, int] = field(default_factory=dict)
    uncommitted: list[str] = field(default_factory=list)
    """Ids of snapshots that have files and no manifest."""


def look(directory: Directory, *, may_be_new: bool = False, most: int = 0, before: int = 0) -> Found:
    """Reads the manifests (of `most` snapshots below number `before`, newest first) and compares the sizes of their files.

    Raises WrongBackupError: no such directory or no backup in it (unless it `may_be_new`), or one of another version.
    """
    if not directory.exists():
        if may_be_new:
            return Found()
        raise WrongBackupError(f"{directory.path}: no such directory")
    found = Found()
    names = directory.names()
    wanted = sorted((name for name in names if name.endswith(SUFFIX)), key=number_of, reverse=True)
    found.uncommitted = sorted({id_of(name) for name in names} - {id_of(name) for name in wanted} - {""})
    wanted = [name for name in wanted if not before or number_of(name) < before]
    for name in wanted[: most or None]:
        try:
            found.manifests.append(loads(directory.read(name), name))
        except DamagedError as error:
            found.damaged[name] = str(error)
        except OSError as error:
            found.damaged[name] = f"{name} cannot be read: {error}"
    if not found.manifests and not found.damaged and not may_be_new:
        some = "files of cuts that were never completed" if any(n.endswith(DATA_SUFFIX) for n in names) else "no cut"
        raise WrongBackupError(f"{directory.path} is not a backup directory: there is {some} in it, and no manifest")
    found.manifests = list(newest_first(found.manifests))
    there = set(names)
    for manifest in found.manifests:
        for file in manifest.files().values():
            if file.name not in found.sizes:
                found.sizes[file.name] = -1
                _compare_size(directory, file, there, found)
    forget_removed(directory, found)
    return found


def forget_removed(directory: Directory, found: Found) -> None:
    """A snapshot that a running job has removed since the names were listed is no snapshot, and what it lacks no damage.

    Manifests are removed before their files (`chains.removable`): whoever misses a file looks for its manifest once more.
    """
    if not found.damaged:
        return
    there = set(directory.names())
    found.manifests = [one for one in found.manifests if manifest_name(one.id) in there]
    named = {name for one in found.manifests for name in one.files()}
    found.damaged = {name: why for name, why in found.damaged.items() if name in named or name in there}


def exists(directory: Directory, manifest: Manifest) -> bool:
    """Whether a running job has not removed this snapshot."""
    return manifest_name(manifest.id) in directory.names()


def _compare_size(directory: Directory, file: DataFile, there: set[str], found: Found) -> None:
    if file.name not in there:
        found.damaged[file.name] = str(DamagedError(file.name, "missing", "a manifest names it"))
        return
    try:
        size = found.sizes[file.name] = directory.size(file.name)
    except OSError as error:
        found.damaged[file.name] = f"{file.name} cannot be read: {error}"
        return
    if size != file.bytes:
        detail = f"{size} bytes instead of {file.bytes}"
        found.damaged[file.name] = str(DamagedError(file.name, "torn", detail))


def check_files(directory: Directory, files: Iterable[DataFile]) -> dict[str, str]:
    """Reads every byte: file name -> what is wrong with it."""
    from deeprec_ext.backup.blocks import FileReader  # numpy; the rest of this module has no need of it

    damaged = {}
    for file in files:
        try:
            with directory.reading(file.name) as stream:
                crc32 = 0
                while data := stream.read(1 << 20):
                    crc32 = zlib.crc32(data, crc32)
                if crc32 != file.crc32:
                    stream.seek(0)
                    reader = FileReader(stream, file.name, directory.size(file.name))
                    for info in reader.blocks:  # which one?
                        reader.read(info)
                    raise DamagedError(file.name, "flipped", "its checksum does not match")
        except FileNotFoundError:
            damaged[file.name] = str(DamagedError(file.name, "missing", "a manifest names it"))
        except DamagedError as error:
            damaged[file.name] = str(error)
        except OSError as error:
            damaged[file.name] = f"{file.name} cannot be read: {error}"
    return damaged


def choose(found: Found, path: str, **conditions: Any) -> Manifest:
    """The newest consistent snapshot (conditions as `chains.newest_consistent`). Raises NoCutError naming what is damaged."""
    manifest = chains.newest_consistent(found.manifests, found.damaged, **conditions)
    if manifest is not None:
        return manifest
    texts = list(found.damaged.values())
    raise NoCutError(f"{path}: no consistent cut" + (f": {few(texts, 3, '; ')}" if texts else " that fits"))


def commit(directory: Directory, manifest: Manifest, text: str, remove: Iterable[str]) -> None:
    """Makes a snapshot exist: its manifest under another name, then renamed. Then removes what nobody needs, where it can.

    Raises NoCutError when a file of the snapshot is not here as it was written, OSError when the manifest cannot be written.
    """
    found, there = Found(), set(directory.names())
    for file in manifest.cut.files:
        _compare_size(directory, file, there, found)
    if found.damaged:
        raise NoCutError(
            f"{'; '.join(list(found.damaged.values())[:3])}: {directory.path} must be a directory that all PS share"
        )
    name = manifest_name(manifest.id)
    with directory.writing(name + ".tmp") as stream:
        stream.write(text.encode())
    directory.rename(name + ".tmp", name)
    for other in remove:
        try:
            directory.remove(other)
        except OSError as error:
            log.warning("%s cannot be removed from the backup: %s", other, error)


# ------------------------------------------------------------------------------- the answer to FindBackup (JSON)


def answer(found: Found, path: str, fingerprint: str, job_id: str, before: int) -> str:
    """Raises WrongBackupError for another model's directory, naming both."""
    for manifest in found.manifests:
        if fingerprint and manifest.fingerprint != fingerprint and manifest.job_id != job_id:
            raise WrongBackupError(
                f"{path} holds backups of another model: cut {manifest.number} of job {manifest.job!r} is of model "
                f"{manifest.fingerprint} ({len(manifest.variables)} variables), this job trains model {fingerprint}; "
                "give another directory"
            )
    newest = chains.newest_consistent(found.manifests, found.damaged, job_id=job_id, before=before)
    values: dict[str, Any] = {
        "cuts": [dataclasses.asdict(chains.committed(manifest)) for manifest in found.manifests],
        "highest": max((manifest.number for manifest in found.manifests), default=0),
        "unsealed": [one for one in found.uncommitted if job_id and one.endswith(f"-{job_id}")],
        "damaged": list(found.damaged.values())[:10],
        "found": None,
    }
    if newest is not None:
        values["found"] = {
            "id": newest.id, "number": newest.number, "step": newest.step, "epoch": newest.epoch, "time": newest.time,
            "ledger": base64.b64encode(newest.ledger).decode(), "layout": newest.layout,
            "bytes": sum(file.bytes for files in newest.needed().values() for file in files),
        }  # fmt: skip
    return json.dumps(values)
