"""Weights of large tables stay in the file that a script loads them from until the PS want them.

What Keras gives to a variable is a dataset of HDF5, which lies in the file in one piece unless it is compressed. Who knows
where that begins reads rows of it without HDF5: out of an archive, and when Keras has closed the file. The script may delete
it; if it writes it anew before the rows were wanted, they are lost, which is said.
"""

from __future__ import annotations

import math
import os
import struct
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from deeprec_ext.errors import DeepRecError
from deeprec_ext.keras.files.rows import Rows
from deeprec_ext.tf_private import eager, keras_classes
from deeprec_ext.tf_private.wrapping import wrap_within

_HEADER_BYTES, _NAME_AND_EXTRA = 30, slice(26, 30)
"""Of a member of an archive, before its contents: where in it stands how long its name and an extra field are."""

_FLOAT_BYTES = 4


class _LeftInArchive(Exception):
    pass


class ChangedError(DeepRecError):
    """A file of weights was written anew."""


@contextmanager
def left_in_files(least_bytes: int) -> Iterator[None]:
    """Within, variables that are watched (`tf_private.eager.watch`) are offered `rows.Rows` for what is loaded into them.

    Args:
      least_bytes: what is smaller Keras reads as ever.
    """
    places = _Places()

    def rows_of(dataset: Any) -> Rows | None:
        size = math.prod(getattr(dataset, "shape", ())) * getattr(getattr(dataset, "dtype", None), "itemsize", 0)
        return _rows_of(dataset, places) if size >= least_bytes else None

    def note(original: Callable[..., Any], store: Any, *args: Any, **words: Any) -> None:
        original(store, *args, **words)
        if store.archive is not None and store.mode == "r":
            places.note(store.h5_file, store.archive, str(getattr(store, "path_or_io", None) or store.root_path))

    def entries(original: Callable[..., Any], store: Any, path: str) -> Any:
        found = original(store, path)
        return _Entries(found, rows_of) if found is not store and len(found) else found

    def entry(original: Callable[..., Any], store: Any, key: str) -> Any:
        rows = rows_of(keras_classes.dataset_of(store, key))
        return original(store, key) if rows is None else rows

    def assign(original: Callable[..., Any], variable: Any, value: Any) -> Any:
        watcher = eager.watcher_of(keras_classes.inside(variable))
        return value if watcher is not None and watcher.takes(value) else original(variable, value)

    def suffices(original: Callable[..., Any], model: Any) -> bool:
        if any(math.prod(one.shape) * _FLOAT_BYTES >= least_bytes for one in model.variables):
            raise _LeftInArchive  # else Keras 3 unpacks them beside it: a copy, from which rows would still be read
        return bool(original(model))

    with ExitStack() as undo:
        for module, name in keras_classes.askers_for_memory():
            wrap_within(undo, module, name, suffices)
        for store in keras_classes.stores():
            wrap_within(undo, store, "__init__", note)
            wrap_within(undo, store, "get", entries)
            if keras_classes.has_datasets(store):
                wrap_within(undo, store, "__getitem__", entry)
        for kind in keras_classes.kinds_of_variables():
            wrap_within(undo, kind, "assign", assign)
        yield


class _Entries:
    """What a store has of one layer, as Keras 2 gets it."""

    def __init__(self, group: Any, rows_of: Callable[[Any], Rows | None]) -> None:
        self._group, self._rows_of = group, rows_of

    def __getitem__(self, key: Any) -> Any:
        value = self._group[key]
        rows = self._rows_of(value)
        return value if rows is None else rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)

    def __len__(self) -> int:
        return len(self._group)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._group)

    def __contains__(self, key: Any) -> bool:
        return key in self._group


class _Places:
    """Where HDF5 files are."""

    def __init__(self) -> None:
        self._archives: list[tuple[Any, str, int]] = []

    def note(self, file: Any, archive: zipfile.ZipFile, name: str) -> None:
        """That a file is open which lies in an archive."""
        entry, path = archive.getinfo(name), archive.filename
        if isinstance(path, str) and entry.compress_type == zipfile.ZIP_STORED and os.path.isfile(path):
            with open(path, "rb") as raw:
                raw.seek(entry.header_offset)
                told = struct.unpack("<HH", raw.read(_HEADER_BYTES)[_NAME_AND_EXTRA])
            self._archives.append((file, path, entry.header_offset + _HEADER_BYTES + sum(told)))

    def of(self, file: Any) -> tuple[str, int] | None:
        """Path, and where in it the HDF5 file begins."""
        if file.driver != "fileobj":
            return os.fsdecode(file.filename), 0
        return next(((path, begin) for known, path, begin in self._archives if known == file), None)


def _rows_of(dataset: Any, places: _Places) -> Rows | None:
    """None: it cannot be read by rows."""
    h5py = sys.modules.get("h5py")
    if h5py is None or not isinstance(dataset, h5py.Dataset) or not dataset.shape:
        return None
    plain = dataset.dtype.kind in "fiub" and dataset.dtype.isnative and dataset.chunks is None
    if not plain or dataset.external or dataset.is_virtual or dataset.file.userblock_size:
        return None
    place, offset = places.of(dataset.file), dataset.id.get_offset()
    if place is None or offset is None or not os.path.isfile(place[0]):
        return None
    return Rows(dataset.shape, dataset.dtype, _Reader(place[0], place[1] + offset, dataset.shape, dataset.dtype))


class _Reader:
    """Reads rows of a dataset. The file stays open, so that it may be removed, until it is let go of; who wants rows again then
    finds it by its path, or not."""

    def __init__(self, path: str, offset: int, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._path, self._offset, self._shape, self._dtype = path, offset, shape, dtype
        self._row = dtype.itemsize * math.prod(shape[1:])
        self._lock = threading.Lock()
        self._file: Any = self._opened()
        self._before = _state(self._file)

    def __call__(self, begin: int, end: int) -> np.ndarray:
        values = np.empty((end - begin, *self._shape[1:]), self._dtype)
        left, place = values.reshape(-1).view(np.uint8).data, self._offset + begin * self._row
        with self._lock:
            if self._file is None:
                try:
                    self._file = self._opened()
                except OSError as error:
                    raise self._changed(f"cannot be read any more ({error.strerror})") from error
            while len(left) and (got := os.preadv(self._file.fileno(), [left], place)):
                left, place = left[got:], place + got
            if len(left) or _state(self._file) != self._before:
                raise self._changed("was written anew")
        return values

    def release(self) -> None:
        with self._lock:
            file, self._file = self._file, None
        if file is not None:
            file.close()

    def _opened(self) -> Any:
        return open(self._path, "rb", buffering=0)

    def _changed(self, how: str) -> ChangedError:
        return ChangedError(
            f"{self._path} {how} after weights were loaded from it, and before they were used: save to another file, or after "
            "the first `fit`"
        )


def _state(file: Any) -> tuple[int, int, int]:
    told = os.fstat(file.fileno())
    return told.st_ino, told.st_mtime_ns, told.st_size
