"""What can be wrong with a dataset."""

from __future__ import annotations

from deeprec_ext.errors import DeepRecError


class DataError(DeepRecError):
    """A dataset, a file or a shard cannot be used; the message names it."""


class ChangedError(DataError):
    """A file is not what it was: it shrank, grew or vanished since its records were counted, or holds other bytes."""


class DamagedError(ChangedError):
    """One record is not what was written (TensorFlow's DataLossError).

    Args:
      path: of the file; record: its number in the file, from 0; byte: where it begins.
      what: is wrong with it.
      line: on which it begins, from 1; 0: the file has no lines.
    """

    def __init__(self, path: str, record: int, byte: int, what: str, line: int = 0) -> None:
        place = f"at line {line}, byte {byte}" if line else f"at byte {byte}"
        super().__init__(f"{path}: record {record}, {place}, is damaged: {what} (--bad-records skip leaves such out)")
        self.path, self.record, self.byte, self.what, self.line = path, record, byte, what, line
