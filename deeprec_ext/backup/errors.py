"""What can be wrong with a backup."""

from __future__ import annotations

from deeprec_ext.errors import DeepRecError, UsageError


class DamagedError(DeepRecError):
    """A file of a backup is torn, flipped or missing. `file` and `kind` say which and how."""

    def __init__(self, file: str, kind: str, detail: str) -> None:
        super().__init__(f"{file} is {kind}: {detail}")
        self.file, self.kind, self.detail = file, kind, detail


class WrongBackupError(UsageError):
    """Not a backup directory, or one of another model or version; the message names both."""


class NoCutError(DeepRecError):
    """No snapshot of the backup can be used; the message says what is wrong with the newest ones."""


class RemovedError(DeepRecError):
    """A running job has removed a snapshot while it was read."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"cut {number} was removed by its job while it was read (disk_backup_keep: how many chains stay)"
        )
