"""Batches and what they are made of, and how an error is told."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from deeprec_ext.data.readers.base import Columns
from deeprec_ext.errors import DeepRecError


@dataclass(frozen=True)
class Part:
    """Records of a batch that are of one lease."""

    lease: int
    done: int  # of the shard's order, once they are trained
    records: int
    skipped: tuple[int, ...] = ()  # places before `done`, behind the part before: damaged, and not among the records
    epoch: int = 0

    @property
    def first(self) -> int:
        """Of the shard's order: where the part begins."""
        return self.done - self.records - len(self.skipped)

    def places(self) -> np.ndarray:
        """In the shard's order, of its records."""
        return np.setdiff1d(np.arange(self.first, self.done), self.skipped, assume_unique=True)


@dataclass(frozen=True)
class Batch:
    elements: Columns
    parts: tuple[Part, ...]
    records: int


@dataclass(frozen=True, eq=False)
class Ticket:
    """Batches given to one run."""

    number: int
    batches: int
    finished_before: int


@dataclass
class Partial:
    """A batch that is not full yet."""

    columns: list[Columns] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    records: int = 0


def said(error: Exception) -> str:
    """Our own errors and those of the file system speak for themselves."""
    return str(error) if isinstance(error, (OSError, DeepRecError)) else f"{type(error).__name__}: {error}"
