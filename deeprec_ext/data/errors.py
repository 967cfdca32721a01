"""What can be wrong with a dataset."""

from __future__ import annotations

from deeprec_ext.errors import DeepRecError


class DataError(DeepRecError):
    """A dataset, a file or a shard cannot be used; the message names it."""


class ChangedError(DataError):
    """A file is not what it was when its records were counted: it shrank, grew or vanished."""
