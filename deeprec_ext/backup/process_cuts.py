"""Cuts of one process's arrays: of a job without PS, in which every worker has the whole model.

A cut is one file, whole, and a chain of its own. Whoever has the lowest place among those who are there writes the next one, so
the directory is looked at before each: who wrote before may be gone. `container` of its variables says whose state it is (the
`fit` of a Keras script, `Kept`'s name of it); empty: a session's, whose names are those of its checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from deeprec_ext.backup import chains, dtypes, manifest, model, snapshots
from deeprec_ext.backup.blocks import FileWriter
from deeprec_ext.backup.errors import DamagedError, WrongBackupError
from deeprec_ext.backup.files import Directory
from deeprec_ext.backup.manifest import DataFile, Manifest, SavedVariable, Snapshot
from deeprec_ext.backup.merge import SlotState

CHUNK_BYTES = 16 << 20
"""About what one block holds."""


@dataclass(frozen=True)
class State:
    """What a process has after a step.

    Attributes:
      called: whose it is, see above; names: of the arrays, each once; one that begins with `_` is in no checkpoint, one with
        `__` not in what is kept, either: it is of the sums of that job.
      step: so many sums; ledger: position of the data ledger, not ahead of the arrays; time: Unix seconds.
    """

    called: str
    names: Sequence[str]
    arrays: Sequence[np.ndarray] = field(repr=False)
    step: int
    ledger: bytes
    time: float


def write(
    directory: Directory, state: State, *, job: str, job_id: str, writer: int, keep: int
) -> Manifest:  # fmt: skip
    """Writes the next cut, and removes what is not to be kept.

    Raises OSError, WrongBackupError where the directory holds another model of another job, NoCutError.

    Args:
      job, job_id: of the job; another one of the same name has another id.
      writer: a number that no other process has that may write at the same time.
      keep: so many cuts of this job.
    """
    directory.make()
    found = snapshots.look(directory, may_be_new=True)
    variables = tuple(
        SavedVariable(name, state.called, _number(one), one.shape, 0, False, "" if name.startswith("_") else name, "")
        for name, one in zip(state.names, state.arrays)
    )
    fingerprint = model.fingerprint(variables)
    for one in found.manifests:
        if one.fingerprint != fingerprint and one.job_id != job_id:
            raise WrongBackupError(
                f"{directory.path} holds backups of another model: cut {one.number} of job {one.job!r} is of model "
                f"{one.fingerprint} ({len(one.variables)} variables), this job trains model {fingerprint}; "
                "give another directory"
            )
    number = 1 + max((one.number for one in found.manifests), default=0)
    identifier = manifest.snapshot_id(number, writer, job_id)
    file = _write(directory, manifest.data_name(identifier, 0), identifier, variables, state.arrays)
    made = Manifest(
        job=job, job_id=job_id, fingerprint=fingerprint, layout=model.layout(variables), step=state.step, epoch=writer,
        time=state.time, ledger=state.ledger, slots=1, variables=variables,
        global_step="global_step" if not state.called and "global_step" in state.names else "",
        chain=(Snapshot(identifier, number, (file,)),),
    )  # fmt: skip
    cuts = [*map(chains.committed, found.manifests), chains.committed(made)]
    dropped = [one for one in found.uncommitted if one.endswith(f"-{job_id}") and one != identifier]
    snapshots.commit(directory, made, manifest.dumps(made), chains.removable(cuts, job_id, keep, dropped, made.slots))
    return made


def _number(array: np.ndarray) -> int:
    return dtypes.number_of(array.dtype.name)


def _write(
    directory: Directory, name: str, identifier: str, variables: Sequence[SavedVariable], arrays: Sequence[np.ndarray]
) -> DataFile:  # fmt: skip
    try:
        with directory.writing(name) as stream:
            writer = FileWriter(stream, identifier, 0)
            for variable, array in zip(variables, arrays):
                if not array.ndim or not array.size:
                    writer.add_whole(variable.name, variable.dtype, array)
                    continue
                rows = max(1, CHUNK_BYTES * len(array) // max(1, array.nbytes))
                for first in range(0, len(array), rows):
                    writer.add_range(variable.name, variable.dtype, first, array[first : first + rows])
            writer.finish()
    except BaseException:
        with suppress(OSError):
            directory.remove(name)
        raise
    return DataFile(name, writer.size, writer.crc32, 0, writer.rows, writer.raw_bytes, True)


def called(one: Manifest) -> str:
    """Whose state it is; empty: one that a checkpoint has, of a job with PS or of a session."""
    return one.variables[0].container if one.variables and one.slots == 1 else ""


def read(directory: Directory, one: Manifest) -> Iterator[np.ndarray]:
    """Its arrays, in the order in which they were written. Raises DamagedError."""
    with SlotState(directory, one, 0) as state:
        for variable in one.variables:
            kind = np.dtype(dtypes.name_of(variable.dtype))
            pieces = list(state.pieces(variable, kind))
            if not pieces:
                raise DamagedError(one.cut.files[0].name, "torn", f"{variable.name} is not in it")
            whole = pieces[0].values if pieces[0].whole else np.concatenate([piece.values for piece in pieces])
            yield np.asarray(whole, kind).reshape(variable.shape)
