"""A snapshot as an ordinary TensorFlow checkpoint, which stock `Saver.restore` and `tf.train.load_checkpoint` read.

Values are written in several runs of `SaveV2`, each of bounded size, and merged afterwards, as a sharded Saver does. Parts
of a partitioned variable, and pieces of large ones, are saved as slices of the whole; a reader puts them together for any
partitioning. So it does not matter how many slots or PS the backup was made with.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from deeprec_ext.backup.errors import NoCutError, WrongBackupError
from deeprec_ext.backup.files import Directory
from deeprec_ext.backup.manifest import Manifest, SavedVariable
from deeprec_ext.backup.merge import Piece, SlotState
from deeprec_ext.backup.model import differences, part_of, saved_tensors, whole_shape
from deeprec_ext.errors import UsageError

SHARD_BYTES = 256 << 20
"""About what one run of SaveV2 holds in memory."""


@dataclass(frozen=True)
class Exported:
    """Where a checkpoint is, and what is in it."""

    prefix: str
    step: int
    tensors: int
    bytes: int
    left_out: tuple[str, ...]
    """Variables that a checkpoint of the model does not contain (local ones), or that were not initialised."""


def shape_and_slice(variable: SavedVariable, piece: Piece) -> str:
    """As `Saver` writes it; empty for a whole tensor."""
    if piece.whole or len(piece.values) == variable.shape[0]:
        return variable.slice
    part = part_of(variable) or tuple((0, size) for size in variable.shape)
    first, count = part[0][0] + piece.first, len(piece.values)
    spec = ":".join([f"{first},{count}", *(f"{begin},{size}" for begin, size in part[1:])])
    return " ".join([*map(str, whole_shape(variable)), spec])


class _Shards:
    """Collects tensors and writes them, about SHARD_BYTES at a time."""

    def __init__(self, prefix: str) -> None:
        self.prefix, self.total = prefix, 0
        self.written: list[str] = []
        self._clear()

    def _clear(self) -> None:
        self._bytes = 0
        self._entries: list[tuple[str, str, Any]] = []

    def add(self, variable: SavedVariable, piece: Piece) -> None:
        tensor = tf.constant(piece.values, tf.as_dtype(variable.dtype))
        self._entries.append((variable.saved_name, shape_and_slice(variable, piece), tensor))
        self._bytes += piece.values.nbytes
        self.total += piece.values.nbytes
        if self._bytes >= SHARD_BYTES:
            self._write()

    def _write(self) -> None:
        part = f"{self.prefix}.part{len(self.written):05d}"
        self.written.append(part)
        names, slices, tensors = zip(*self._entries)
        tf.raw_ops.SaveV2(
            prefix=tf.constant(part), tensor_names=tf.constant(names), shape_and_slices=tf.constant(slices),
            tensors=tensors,
        )  # fmt: skip
        self._clear()

    def finish(self) -> list[str]:
        if self._entries:
            self._write()
        return self.written


def export(directory: Directory, manifest: Manifest, prefix: str) -> Exported:
    """Writes the checkpoint `prefix`. Raises DamagedError, OSError; then nothing of it is left."""
    tf.io.gfile.makedirs(os.path.dirname(prefix) or ".")
    shards = _Shards(prefix)
    try:
        return _export(directory, manifest, shards)
    except BaseException:
        for part in shards.written:
            _remove(part)
        raise


def _export(directory: Directory, manifest: Manifest, shards: _Shards) -> Exported:
    left_out, step, tensors = [], manifest.step, set()
    for variable, pieces in _all(directory, manifest):
        found = False
        for piece in pieces:
            found = True
            if variable.name == manifest.global_step:
                step = int(piece.values)
            if variable.saved_name:
                shards.add(variable, piece)
        if found and variable.saved_name:
            tensors.add(variable.saved_name)
        else:
            left_out.append(variable.name)
    parts = shards.finish()
    if not parts:
        raise NoCutError(f"cut {manifest.number} holds no variable that a checkpoint would contain")
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=tf.constant(parts), destination_prefix=tf.constant(shards.prefix), delete_old_dirs=False
    )
    return Exported(shards.prefix, step, len(tensors), shards.total, tuple(left_out))


def _all(directory: Directory, manifest: Manifest) -> Iterator[tuple[SavedVariable, Any]]:
    slots: dict[int, list[SavedVariable]] = {}
    for variable in manifest.variables:
        slots.setdefault(variable.slot, []).append(variable)
    for slot, members in sorted(slots.items()):
        with SlotState(directory, manifest, slot) as state:
            for variable in members:
                yield variable, state.pieces(variable, tf.as_dtype(variable.dtype).as_numpy_dtype)


# ------------------------------------------------------------------------------------------ into a model directory


def check_model(manifest: Manifest, path: str, model_dir: str) -> None:
    """Raises WrongBackupError when the model directory has checkpoints of another model, naming both."""
    latest = tf.train.latest_checkpoint(model_dir)
    if latest is None:
        return
    reader = tf.train.load_checkpoint(latest)
    shapes, kinds = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    there = {name: (kinds[name].name, tuple(shape)) for name, shape in shapes.items()}
    ours = saved_tensors(manifest.variables)
    if there.keys() != ours.keys() or any(there[name] != ours[name] for name in ours):
        raise WrongBackupError(
            f"{path} (cut {manifest.number} of job {manifest.job!r}) and {model_dir} (checkpoint {latest}) are of "
            f"different models: {differences(ours, there)}"
        )


def restore(directory: Directory, manifest: Manifest, model_dir: str, *, force: bool = False) -> Exported:
    """Makes the snapshot the newest checkpoint of a model directory, with the ledger's position beside it.

    Training that starts there (`deeprec-ext run`, or stock TensorFlow) restores it; the number of PS and slots is free.
    Raises WrongBackupError, DamagedError, UsageError when the directory is ahead of the snapshot (unless `force`), OSError.
    """
    check_model(manifest, directory.path, model_dir)
    latest = tf.train.latest_checkpoint(model_dir)
    step = _step(latest)
    draft = os.path.join(model_dir, f"model.ckpt-restored-{manifest.number}")
    made = export(directory, manifest, draft)
    final = os.path.join(model_dir, f"model.ckpt-{made.step}")
    if step > made.step and not force:
        _remove(draft)
        raise UsageError(
            f"{model_dir} has a checkpoint of step {step}, the backup is of step {made.step}: add --force to go back to it"
        )
    for name in tf.io.gfile.glob(f"{final}.*"):
        tf.io.gfile.remove(name)
    for name in tf.io.gfile.glob(f"{draft}.*"):
        tf.io.gfile.rename(name, final + name[len(draft) :], overwrite=True)
    if manifest.ledger:
        with tf.io.gfile.GFile(f"{final}.ledger", "wb") as stream:
            stream.write(manifest.ledger)
    known = tf.train.get_checkpoint_state(model_dir)
    paths = known.all_model_checkpoint_paths if known else ()
    others = [path for path in paths if os.path.basename(path) != os.path.basename(final)]
    tf.compat.v1.train.update_checkpoint_state(model_dir, final, [*others, final])
    return Exported(final, made.step, made.tensors, made.bytes, made.left_out)


def _remove(prefix: str) -> None:
    for name in tf.io.gfile.glob(f"{prefix}.*"):
        tf.io.gfile.remove(name)


def _step(prefix: str | None) -> int:
    """Of the newest checkpoint in a directory, from its name; -1: none."""
    end = (prefix or "").rpartition("-")[2]
    return int(end) if end.isdigit() else -1
