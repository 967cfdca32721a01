"""Files of a dataset: patterns, sizes, bytes. `tf.io.gfile` for paths with a scheme (gs://, hdfs://), plain files else."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from deeprec_ext.data.errors import ChangedError
from deeprec_ext.errors import UsageError

BLOCK_BYTES = 8 << 20
"""How much is read at once when a file is scanned."""

LOCAL_BLOCK_BYTES = 256 << 10
"""The same for records that are read one after the other from a local file: stays in the processor's cache."""


def _gfile(path: str) -> Any:
    try:
        import tensorflow as tf
    except ImportError as error:
        raise UsageError(f"{path}: a path with a scheme is read by tf.io.gfile, and TensorFlow is missing") from error
    return tf.io.gfile


def _remote(path: str) -> bool:
    return "://" in path


def matching(patterns: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    """The files that the patterns match, each once, sorted within a pattern. Raises UsageError when a pattern matches none."""
    if isinstance(patterns, (str, os.PathLike)):
        patterns = [patterns]
    found: dict[str, None] = {}
    asked = [os.fspath(pattern) for pattern in patterns]
    for pattern in asked:
        if _remote(pattern):
            paths = _gfile(pattern).glob(pattern)
        elif glob.has_magic(pattern):
            paths = [path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)]
        else:
            paths = [pattern] if os.path.isfile(pattern) else []
        if not paths:
            raise UsageError(f"no file matches {pattern!r}: a dataset needs at least one file")
        found.update(dict.fromkeys(sorted(paths)))
    if not found:
        raise UsageError("the list of files is empty: a dataset needs at least one file")
    return list(found)


def size(path: str) -> int:
    """In bytes. Raises ChangedError when it has vanished."""
    try:
        if _remote(path):
            return int(_gfile(path).stat(path).length)
        return os.stat(path).st_size
    except FileNotFoundError as error:
        raise ChangedError(f"{path} has vanished") from error
    except Exception as error:
        if type(error).__name__ == "NotFoundError":  # TensorFlow's, for gfile
            raise ChangedError(f"{path} has vanished") from error
        raise


@contextmanager
def opened(path: str) -> Iterator[Any]:
    """The file, for `seek` and `read` of bytes. Raises ChangedError when it has vanished."""
    size(path)
    with _gfile(path).GFile(path, "rb") if _remote(path) else open(path, "rb") as file:
        yield file


def read_range(path: str, begin: int, end: int) -> bytes:
    """Bytes [begin, end). Raises ChangedError when the file is shorter by now, or gone."""
    with opened(path) as file:
        file.seek(begin)
        data = bytes(file.read(end - begin))
    if len(data) != end - begin:
        raise ChangedError(f"{path} has shrunk: {begin + len(data)} bytes, and {end} when its records were counted")
    return data


class Places:
    """Bytes of one file, wherever they are."""

    def __init__(self, path: str, file: Any, local: bool) -> None:
        self.path, self._file, self._local = path, file, local
        self.block_bytes = min(BLOCK_BYTES, LOCAL_BLOCK_BYTES) if local else BLOCK_BYTES
        """How much is best read at once."""

    def read(self, begin: int, size: int) -> bytes:
        """Fewer only at the end of the file."""
        if self._local:
            found = os.pread(self._file.fileno(), size, begin)
            while len(found) < size and (more := os.pread(self._file.fileno(), size - len(found), begin + len(found))):
                found += more
            return found
        self._file.seek(begin)
        return bytes(self._file.read(size))


@contextmanager
def places(path: str) -> Iterator[Places]:
    """Raises ChangedError when the file has vanished."""
    with opened(path) as file:
        yield Places(path, file, not _remote(path))


def blocks(path: str) -> Iterator[bytes]:
    """The file from the beginning, in large pieces."""
    with opened(path) as file:
        while block := bytes(file.read(BLOCK_BYTES)):
            yield block
