"""Making the variables of some slots on this PS from a cut on disk. Used after a loss: several slots at once, few runs.

A slot's files are applied in order: the whole one, then the deltas. Nothing of a block is used before its checksum was
compared; an error leaves variables half-written, and whoever asked takes an earlier cut or gives up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.backup import blocks
from deeprec_ext.backup.errors import DamagedError, WrongBackupError
from deeprec_ext.backup.files import Directory
from deeprec_ext.backup.manifest import DataFile, Manifest
from deeprec_ext.elastic.ps.calling_off import still_wanted
from deeprec_ext.elastic.ps.variables import Facts, Located, local_program, ps_device
from deeprec_ext.elastic.runtime.ops import INT64, Ops
from deeprec_ext.graph.attributes import kind
from deeprec_ext.proto import deeprec_ext_pb2 as pb

SLOTS_AT_ONCE = 4
PACK_BYTES = 64 << 20
"""Values that are small or come in one block are assigned together, about so much in one run."""


def restore(
    target: str, own_task: int, directory: Directory, manifest: Manifest, variables: Sequence[pb.Variable],
    called_off: Callable[[], bool] = lambda: False,
) -> int:  # fmt: skip
    """Returns the bytes read. Raises DamagedError, WrongBackupError, OSError, CalledOffError once `called_off` says so."""
    known = {v.name: v for v in manifest.variables}
    unknown = sorted(v.name for v in variables if v.name not in known)
    if unknown:
        raise WrongBackupError(
            f"{directory.path}: cut {manifest.number} of job {manifest.job!r} has no variable {unknown[0]}"
            + (f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else "")
        )
    slots: dict[int, list[pb.Variable]] = {}
    for variable in variables:
        slots.setdefault(variable.slot, []).append(variable)
    needed = manifest.needed()
    with ThreadPoolExecutor(max(1, min(SLOTS_AT_ONCE, len(slots))), "deeprec-restore") as pool:
        jobs = [
            pool.submit(_restore_slot, target, own_task, directory, needed.get(slot, []), members, called_off)
            for slot, members in slots.items()
        ]
        return sum(job.result() for job in jobs)


def _restore_slot(
    target: str, own_task: int, directory: Directory, files: Sequence[DataFile], variables: Sequence[pb.Variable],
    called_off: Callable[[], bool],
) -> int:  # fmt: skip
    with contextlib.closing(_SlotRestore(target, own_task, variables, called_off)) as one:
        for file in files:
            one.apply(directory, file)
        return sum(file.bytes for file in files)


class _SlotRestore:
    """One session on this PS; ops are added and compiled when their variable comes."""

    def __init__(
        self, target: str, own_task: int, variables: Sequence[pb.Variable], called_off: Callable[[], bool]
    ) -> None:
        self._own, self._called_off = own_task, called_off
        self._facts = {v.name: Facts.from_proto(v) for v in variables}
        self._program = local_program(target, own_task)
        self._scatters: dict[str, Any] = {}
        self._packed: dict[str, np.ndarray] = {}
        self._count = 0

    def apply(self, directory: Directory, file: DataFile) -> None:
        with directory.reading(file.name) as stream:
            reader = blocks.FileReader(stream, file.name, file.bytes)
            if reader.slot != file.slot:
                raise DamagedError(file.name, "flipped", f"it is of slot {reader.slot}, not of slot {file.slot}")
            covered: dict[str, int] = {}
            for info in reader.blocks:
                if info.variable in self._facts:
                    self._check(file.name, info)
                    self._apply(reader.read(info), covered)
            self._flush()
            for name, rows in covered.items():
                if rows != self._facts[name].rows:
                    raise DamagedError(file.name, "torn", f"{rows} of {self._facts[name].rows} rows of {name}")

    def _check(self, file: str, info: blocks.BlockInfo) -> None:
        """A block must fit its variable before anything of it is allocated."""
        facts = self._facts[info.variable]
        wrong = info.dtype != facts.dtype.as_datatype_enum
        if info.kind != blocks.WHOLE:
            wrong |= info.shape[1:] != facts.shape[1:] or info.first < 0 or info.last >= facts.rows
        elif facts.shape:
            wrong |= info.shape != facts.shape
        if wrong:
            raise WrongBackupError(
                f"{file} has {info.variable} as {list(info.shape)} of type {info.dtype}, the job has {list(facts.shape)} "
                f"of {facts.dtype.name}: the backup is of another model"
            )

    def _apply(self, block: blocks.Block, covered: dict[str, int]) -> None:
        info = block.info
        facts = self._facts[info.variable]
        values = block.values(facts.dtype.as_numpy_dtype)
        if info.kind == blocks.WHOLE or (info.kind == blocks.RANGE and info.rows == facts.rows):
            self._packed[facts.name] = values
            if sum(one.nbytes for one in self._packed.values()) > PACK_BYTES:
                self._flush()
            return
        rows = block.rows
        if rows is None:
            if facts.name not in covered:
                covered[facts.name] = 0
                self._run_once([Located(ops := self._ops(), facts, self._own).zeros()], ops)
            covered[facts.name] += info.rows
            rows = np.arange(info.first, info.last + 1, dtype=np.int64)
        scatter = self._scatter(facts)
        still_wanted(self._called_off)
        scatter(rows, values)

    def _ops(self) -> Ops:
        self._count += 1
        return Ops(f"restore{self._count}_")

    def _run_once(
        self, targets: Sequence[str], ops: Ops, feeds: Sequence[str] = (), values: Sequence[Any] = ()
    ) -> None:
        self._program.load(ops)
        still_wanted(self._called_off)
        self._program.compile(targets=targets, feeds=feeds)(*values)

    def _placeholder(self, ops: Ops, dtype: tf.DType) -> str:
        return ops.add("Placeholder", device=ps_device(self._own), dtype=kind(dtype))

    def _flush(self) -> None:
        if self._packed:
            ops = self._ops()
            facts = [self._facts[name] for name in self._packed]
            feeds = [self._placeholder(ops, one.dtype) for one in facts]
            targets = [Located(ops, one, self._own).assign(feed) for one, feed in zip(facts, feeds)]
            self._run_once(targets, ops, feeds, list(self._packed.values()))
            self._packed = {}

    def _scatter(self, facts: Facts) -> Any:
        if facts.name not in self._scatters:
            ops = self._ops()
            rows = ops.add("Placeholder", device=ps_device(self._own), dtype=INT64)
            values = self._placeholder(ops, facts.dtype)
            target = Located(ops, facts, self._own).scatter(rows, values)
            self._program.load(ops)
            self._scatters[facts.name] = self._program.compile(targets=[target], feeds=[rows, values])
        return self._scatters[facts.name]

    def close(self) -> None:
        self._program.close()
