"""Where backups lie: a local directory, or anything that `tf.io.gfile` knows (TensorFlow is imported for that alone)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Protocol


class Directory(Protocol):
    """The files of one directory, by name. Errors are OSError, whatever lies beneath."""

    path: str

    def make(self) -> None:
        """Creates it, with its parents, where it is missing."""

    def exists(self) -> bool: ...

    def names(self) -> list[str]: ...

    def size(self, name: str) -> int: ...

    def read(self, name: str) -> bytes: ...

    def reading(self, name: str) -> Any:
        """A context: a file that can be read and sought."""

    def writing(self, name: str) -> Any:
        """A context: a new file; it is on the disk when the context ends without error."""

    def rename(self, old: str, new: str) -> None:
        """Replaces what is there."""

    def remove(self, name: str) -> None:
        """Nothing happens when there is no such file."""


def directory(path: str) -> Directory:
    if path.startswith("file://"):
        path = path.removeprefix("file://")
    return RemoteDirectory(path) if "://" in path else LocalDirectory(path)


class LocalDirectory:
    """On a file system of this machine."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)

    def _at(self, name: str) -> str:
        return os.path.join(self.path, name)

    def make(self) -> None:
        os.makedirs(self.path, exist_ok=True)

    def exists(self) -> bool:
        return os.path.isdir(self.path)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.path))

    def size(self, name: str) -> int:
        return os.stat(self._at(name)).st_size

    def read(self, name: str) -> bytes:
        with open(self._at(name), "rb") as file:
            return file.read()

    @contextmanager
    def reading(self, name: str) -> Iterator[BinaryIO]:
        with open(self._at(name), "rb") as file:
            yield file

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        with open(self._at(name), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def rename(self, old: str, new: str) -> None:
        os.replace(self._at(old), self._at(new))
        with suppress(OSError):  # some file systems cannot
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.remove(self._at(name))


class RemoteDirectory:
    """Through `tf.io.gfile`."""

    def __init__(self, path: str) -> None:
        import tensorflow as tf

        self.path = path.rstrip("/")
        self._gfile, self._errors = tf.io.gfile, tf.errors

    def _at(self, name: str) -> str:
        return f"{self.path}/{name}"

    @contextmanager
    def _as_os_errors(self) -> Iterator[None]:
        try:
            yield
        except self._errors.NotFoundError as error:
            raise FileNotFoundError(error.message) from error
        except self._errors.OpError as error:
            raise OSError(error.message) from error

    def make(self) -> None:
        with self._as_os_errors():
            self._gfile.makedirs(self.path)

    def exists(self) -> bool:
        with self._as_os_errors():
            return bool(self._gfile.isdir(self.path))

    def names(self) -> list[str]:
        with self._as_os_errors():
            return sorted(name.rstrip("/") for name in self._gfile.listdir(self.path))

    def size(self, name: str) -> int:
        with self._as_os_errors():
            return int(self._gfile.stat(self._at(name)).length)

    def read(self, name: str) -> bytes:
        with self._as_os_errors(), self._gfile.GFile(self._at(name), "rb") as file:
            return bytes(file.read())

    @contextmanager
    def reading(self, name: str) -> Iterator[Any]:
        with self._as_os_errors(), self._gfile.GFile(self._at(name), "rb") as file:
            yield file

    @contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        with self._as_os_errors(), self._gfile.GFile(self._at(name), "wb") as file:
            yield file

    def rename(self, old: str, new: str) -> None:
        with self._as_os_errors():
            self._gfile.rename(self._at(old), self._at(new), overwrite=True)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError), self._as_os_errors():
            self._gfile.remove(self._at(name))
