"""The value of each variable at one snapshot, in pieces of bounded size, from the base and the deltas that follow it.

The pieces are those of the last file in which the variable is whole. For each piece the later deltas are looked at, and of
those only the blocks that have rows of it are read; the last blocks read of each file are kept, since both go upwards.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from deeprec_ext.backup import dtypes
from deeprec_ext.backup.blocks import RANGE, ROWS, WHOLE, Block, BlockInfo, FileReader
from deeprec_ext.backup.errors import DamagedError
from deeprec_ext.backup.files import Directory
from deeprec_ext.backup.manifest import Manifest, SavedVariable

KEPT_BLOCKS = 2
"""Blocks of one file and variable in memory at once."""


@dataclass(frozen=True)
class Piece:
    """Rows `first` on of a variable; its whole value where `whole`."""

    first: int
    values: np.ndarray
    whole: bool


class _File:
    def __init__(self, reader: FileReader) -> None:
        self.reader = reader
        self.by_variable: dict[str, list[BlockInfo]] = {}
        for info in reader.blocks:
            self.by_variable.setdefault(info.variable, []).append(info)
        self._kept: OrderedDict[int, Block] = OrderedDict()

    def block(self, info: BlockInfo) -> Block:
        found = self._kept.get(info.offset)
        if found is None:
            found = self._kept[info.offset] = self.reader.read(info)
            while len(self._kept) > KEPT_BLOCKS:
                self._kept.popitem(last=False)
        return found


class SlotState:
    """The variables of one slot at a snapshot. A context: it holds its files open."""

    def __init__(self, directory: Directory, manifest: Manifest, slot: int) -> None:
        self._directory, self._needed = directory, manifest.needed().get(slot, [])
        self._stack = ExitStack()
        self._files: list[_File] = []

    def __enter__(self) -> SlotState:
        with ExitStack() as stack:
            for file in self._needed:
                try:
                    stream = stack.enter_context(self._directory.reading(file.name))
                except FileNotFoundError as error:
                    raise DamagedError(file.name, "missing", "the manifest names it") from error
                self._files.append(_File(FileReader(stream, file.name, file.bytes)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def pieces(self, variable: SavedVariable, dtype: Any) -> Iterator[Piece]:
        """In ascending order; nothing for a variable that was not initialised. Raises DamagedError.

        Args:
          dtype: NumPy's type of its values (not looked at for strings).
        """
        newest = None
        for number, file in enumerate(self._files):
            if any(info.kind in (RANGE, WHOLE) for info in file.by_variable.get(variable.name, ())):
                newest = number
        if newest is None:
            return
        base, deltas = self._files[newest], self._files[newest + 1 :]
        expected = 0
        for info in base.by_variable[variable.name]:
            self._check(base, info, variable)
            if info.kind == WHOLE:
                yield Piece(0, base.block(info).values(dtype), True)
                return
            if info.first != expected:
                raise DamagedError(base.reader.name, "flipped", f"rows {expected} to {info.first} of {variable.name}")
            expected = info.last + 1
            yield Piece(info.first, self._merged(base.block(info), deltas, variable, dtype), False)
        if expected != (variable.shape[0] if variable.shape else 0):
            raise DamagedError(base.reader.name, "torn", f"{expected} of {variable.shape[0]} rows of {variable.name}")

    def _merged(self, block: Block, deltas: list[_File], variable: SavedVariable, dtype: Any) -> np.ndarray:
        values, copied = block.values(dtype), False
        first, last = block.info.first, block.info.last
        for file in deltas:
            for info in file.by_variable.get(variable.name, ()):
                if info.kind != ROWS or info.last < first or info.first > last:
                    continue
                self._check(file, info, variable)
                delta = file.block(info)
                assert delta.rows is not None
                begin, end = np.searchsorted(delta.rows, [first, last + 1])
                if begin < end:
                    if not copied:
                        values, copied = values.copy(), True
                    values[delta.rows[begin:end] - first] = delta.values(dtype)[begin:end]
        return values

    def _check(self, file: _File, info: BlockInfo, variable: SavedVariable) -> None:
        fits = info.dtype == variable.dtype
        if info.kind != WHOLE:
            fits &= bool(variable.shape) and info.shape[1:] == variable.shape[1:]
            fits &= 0 <= info.first <= info.last < (variable.shape[0] if variable.shape else 0)
        if not fits:
            raise DamagedError(
                file.reader.name, "flipped",
                f"{variable.name} is {list(info.shape)} of {dtypes.name_of(info.dtype)} in it, "
                f"{variable.known_shape} of {dtypes.name_of(variable.dtype)} in the manifest",
            )  # fmt: skip
