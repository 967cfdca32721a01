"""Backups made by hand: a model in NumPy, written as a PS would write it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from deeprec_ext.backup import manifest as manifests
from deeprec_ext.backup import model, snapshots
from deeprec_ext.backup.blocks import FileWriter
from deeprec_ext.backup.files import directory

FLOAT, STRING, INT64 = 1, 7, 9
ROWS = 60


def variable(name, shape, slot, dtype=FLOAT, saved_name=None, part=""):
    saved = name if saved_name is None else saved_name
    return manifests.SavedVariable(name, "", dtype, tuple(shape), slot, False, saved, part)


class Model:
    """A table in two parts on two slots, a whole table, words, a local variable, and the global step."""

    def __init__(self, seed=0) -> None:
        random = np.random.default_rng(seed)
        self.variables = [
            variable("t/part_0", [40, 3], 0, saved_name="t", part=f"{ROWS} 3 0,40:0,3"),
            variable("t/part_1", [20, 3], 1, saved_name="t", part=f"{ROWS} 3 40,20:0,3"),
            variable("u", [50, 2], 0),
            variable("words", [3], 1, STRING),
            variable("local", [2], 1, saved_name=""),
            variable("global_step", [], 1, INT64),
        ]
        self.values = {
            v.name: random.normal(size=v.shape).astype("f4") for v in self.variables if v.dtype == FLOAT
        }  # fmt: skip
        self.values["words"] = np.array([b"a", b"", b"ccc"], object)
        self.values["global_step"] = np.array(10, np.int64)

    def whole(self, saved_name):
        parts = [self.values[v.name] for v in self.variables if v.saved_name == saved_name]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]


class Backup:
    """A directory with cuts of a model; `write` changes some rows first when it is a delta."""

    def __init__(self, path: Path, job: str = "job", made: Model | None = None, chunk: int = 7) -> None:
        self.path, self.job, self.model, self.chunk = path, job, made or Model(), chunk
        self.place = directory(str(path))
        self.place.make()
        self.chain: tuple[manifests.Cut, ...] = ()
        self.number = 0
        self.manifests: list[manifests.Manifest] = []
        self.states: list[dict[str, np.ndarray]] = []

    def write(self, base=False, changed=(), remove=()) -> manifests.Manifest:
        self.number += 1
        values = self.model.values
        values["global_step"] = values["global_step"] + 5
        for name in changed:
            values[name] = values[name] + 1  # all rows, of which only some are told apart below
        identifier = manifests.snapshot_id(self.number, 1, self.job)
        files = []
        for slot in (0, 1):
            name = manifests.data_name(identifier, slot)
            with self.place.writing(name) as stream:
                writer = FileWriter(stream, identifier, slot)
                for v in self.model.variables:
                    if v.slot == slot:
                        self._write_variable(writer, v, base, v.name in changed)
                writer.finish()
            files.append(manifests.DataFile(name, writer.size, writer.crc32, slot, writer.rows, writer.raw_bytes, base))
        self.chain = (*(() if base else self.chain), manifests.Snapshot(identifier, self.number, tuple(files)))
        variables = tuple(self.model.variables)
        made = manifests.Manifest(
            self.job, self.job, model.fingerprint(variables), model.layout(variables), int(values["global_step"]), 1,
            1e9 + self.number, b"ledger", 2, "global_step", variables, self.chain,
        )  # fmt: skip
        snapshots.commit(self.place, made, manifests.dumps(made), remove)
        self.manifests.append(made)
        self.states.append(dict(values))
        return made

    def _write_variable(self, writer, v, base, changed):
        value = self.model.values[v.name]
        if v.dtype != FLOAT or v.name == "local":
            writer.add_whole(v.name, v.dtype, value)
        elif base:
            for first in range(0, len(value), self.chunk):
                writer.add_range(v.name, v.dtype, first, value[first : first + self.chunk])
        elif changed:
            rows = np.arange(0, len(value))
            for begin in range(0, len(rows), 2 * self.chunk):
                some = rows[begin : begin + 2 * self.chunk]
                writer.add_rows(v.name, v.dtype, some, value[some])

    def flip(self, name, at=0.5) -> None:
        path = self.path / name
        data = bytearray(path.read_bytes())
        data[int(len(data) * at)] ^= 0x10
        path.write_bytes(data)

    def tear(self, name) -> None:
        path = self.path / name
        path.write_bytes(path.read_bytes()[:-20])

    def with_version(self, version: int) -> None:
        """The newest manifest says another version."""
        name = self.manifests[-1].name
        text = (self.path / name).read_text().replace('"version":1', f'"version":{version}')
        (self.path / name).write_text(text)


def changed(manifest: manifests.Manifest, **values) -> manifests.Manifest:
    return dataclasses.replace(manifest, **values)
