"""Files that the script of a worker writes once it has called `fit`, and those that are there when a process comes late: below
a directory of its own.

All processes run the whole script, and would write the same plot, table or array over one another. What Python's `open` is
asked to write, and what is copied, goes into `workers/NAME` of the run directory instead, under its whole path, with a line;
what this process has written so it also reads, renames and removes there. What the worker has not written it neither renames
nor removes: the chief does, and it alone makes directories. A script whose text names the variables that tell processes apart
is left alone: it knows of the others. So are temporary files, hidden ones of the user (caches), and what is no file. Keras's
and TensorFlow's own ways to save a model are `turns`.

Before `fit` each process writes what it then reads (tables, records), as all begin at once. Who comes late, or again, would
write over what others are reading: what is there by then it leaves alone.
"""

from __future__ import annotations

import builtins
import io
import logging
import os
import pathlib
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.tf_private.wrapping import wrapper

log = logging.getLogger("deeprec_ext")

AWARE = ("TF_CONFIG", "DEEPREC_EXT_ROLE", "DEEPREC_EXT_INDEX")
"""Variables by which a script tells its process from others."""

TOLD_MAX = 20
"""Files that are named in the log."""

WAIT_SECONDS, LOOK_SECONDS = 30.0, 0.1
"""So long a worker waits until the chief has made a directory, or renamed a file: it is at the same place of the script."""

_NO_FILES = ("/dev/", "/proc/", "/sys/", "/run/")

_OF_THE_USER_ALONE = 0o700
"""As `tempfile` makes directories, of a name that no other process has."""


class Redirected:
    """Of one worker.

    Args:
      place: the directory; it is made when it is wanted.
      fitted: whether the script has called `fit`.
      late: whether it has not, but that of the chief has.
      ours: what begins so is none of the script's.
    """

    def __init__(
        self, place: Path, fitted: Callable[[], bool], late: Callable[[], bool] = lambda: False, ours: tuple[str, ...] = ()
    ) -> None:  # fmt: skip
        self._place, self._fitted, self._late, self._ours = os.path.abspath(place), fitted, late, ours
        self._new: set[str] = set()  # was not there when this process came late
        # Asked for now: the first time Python tries whether it can write and remove a file there, under a lock.
        self._temporary = os.path.join(os.path.realpath(tempfile.gettempdir()), "")
        self._moved: dict[str, str] = {}
        self._told: set[str] = set()
        self._made: list[str] = []  # directories that nobody else has
        self._thread = threading.main_thread()
        self._inside = self._in_vain = False

    def begin(self) -> Callable[[], None]:
        """Returns what undoes it."""
        around: dict[tuple[Any, str], Callable[..., Any]] = {
            (builtins, "open"): self._open, (io, "open"): self._open, (os, "replace"): self._rename,
            (os, "rename"): self._rename, (shutil, "move"): self._rename, (os, "remove"): self._remove,
            (os, "unlink"): self._remove, (os, "rmdir"): self._remove, (shutil, "rmtree"): self._remove_tree,
            (os, "mkdir"): self._make_directory, (shutil, "copyfile"): self._copy, (shutil, "copy"): self._copy,
            (shutil, "copy2"): self._copy, (shutil, "copytree"): self._copy_tree, (np, "savetxt"): self._save_text,
            (tf.io.TFRecordWriter, "__init__"): self._write_records,
        }  # fmt: skip
        if sys.version_info < (3, 11):  # they keep the functions that there were when they were imported
            around.update({(pathlib.Path, name): of_path for name, of_path in _OF_PATHS.items()})
        before = {(owner, name): getattr(owner, name) for owner, name in around}
        for (owner, name), one in around.items():
            setattr(owner, name, wrapper(before[owner, name], one))

        def undo() -> None:
            for (owner, name), original in before.items():
                setattr(owner, name, original)

        return undo

    # -- what is called instead

    def _open(self, original: Callable[..., Any], file: Any, mode: Any = "r", *args: Any, **words: Any) -> Any:
        path = self._path(file)
        if path is None or not isinstance(mode, str):
            return original(file, mode, *args, **words)
        if set(mode).isdisjoint("wax+") or (not self._fitted() and set(mode).isdisjoint("wx")):  # a log goes on
            return original(self._moved.get(path, file), mode, *args, **words)
        if os.path.exists(path) and not os.path.isfile(path) and path not in self._moved:
            return original(file, mode, *args, **words)
        return original(self._target(path, keeps="w" not in mode), mode, *args, **words)

    def _save_text(self, original: Callable[..., Any], fname: Any, *args: Any, **words: Any) -> Any:
        """NumPy makes the file, and then looks whether it is there."""
        path = self._path(fname) if isinstance(fname, (str, os.PathLike)) else None
        return original(fname if path is None else self._target(path, keeps=False), *args, **words)

    def _write_records(self, original: Callable[..., Any], writer: Any, path: Any, *args: Any, **words: Any) -> None:
        found = self._path(path)
        original(writer, path if found is None else self._target(found, keeps=False), *args, **words)

    def _copy(self, original: Callable[..., Any], src: Any, dst: Any, *args: Any, **words: Any) -> Any:
        before, after = self._path(src), self._path(dst)
        given = self._moved.get(before, src) if before is not None else src
        if after is None:
            return original(given, dst, *args, **words)
        whole = dst
        if os.path.isdir(after):
            name = os.path.basename(os.fsdecode(src))
            after, whole = os.path.join(after, name), os.path.join(os.fsdecode(dst), name)
        original(given, self._target(after, keeps=False), *args, **words)
        return whole

    def _copy_tree(self, original: Callable[..., Any], src: Any, dst: Any, *args: Any, **words: Any) -> Any:
        if (path := self._path(dst)) is None:
            return original(src, dst, *args, **words)
        with self._making(path) as own:
            shutil.rmtree(own, ignore_errors=True)
            original(src, own, *args, **words)
        self._take_in(path, own)
        return dst

    def _rename(self, original: Callable[..., Any], src: Any, dst: Any, *args: Any, **words: Any) -> Any:
        before, after = self._path(src, words), self._path(dst, words)
        if before is not None and before in self._moved:
            own = self._moved.pop(before)
            result = original(own, self._target(after, keeps=False) if after is not None else dst, *args, **words)
            return dst if result is not None else None
        if before is None and after is None:
            return original(src, dst, *args, **words)
        if before is None and after is not None:  # what is temporary gets its name
            with self._making(after) as own:
                result = original(src, own, *args, **words)
            self._take_in(after, own)
            return dst if result is not None else None
        if not any(os.path.exists(one) for one in (before, after) if one is not None):
            return original(src, dst, *args, **words)  # as it fails
        self._leave(str(before), "renamed")
        if after is not None:
            self._wait(after)
        return dst if original.__name__ == "move" else None

    def _remove(self, original: Callable[..., Any], path: Any, *args: Any, **words: Any) -> Any:
        found = self._path(path, words)
        if found is None:
            return original(path, *args, **words)
        if found in self._moved:
            return original(self._moved.pop(found), *args, **words)
        self._leave(found, "removed")
        return None

    def _remove_tree(self, original: Callable[..., Any], path: Any, *args: Any, **words: Any) -> Any:
        found = self._path(path, words)
        if found is None:
            return original(path, *args, **words)
        self._leave(found, "removed")
        for one in [one for one in self._moved if one.startswith(os.path.join(found, ""))]:
            with self._making(one) as own:
                os.remove(own)
            del self._moved[one]
        return None

    def _make_directory(self, original: Callable[..., Any], path: Any, mode: int = 0o777, **words: Any) -> Any:
        found = self._path(path, words)
        if found is not None and mode != _OF_THE_USER_ALONE:
            if not self._wait(found):  # made here it would be in the way of a chief that comes to it later
                log.info("%s is not made here: the chief does, or has no need of it", found)
            return None
        result = original(path, mode, **words)
        if found is not None:
            self._made.append(os.path.join(found, ""))
        return result

    # -- inside

    def _path(self, file: Any, words: Any = None) -> str | None:
        """None: it is none of the script's, or nobody else's business."""
        if (
            self._inside
            or isinstance(file, int)
            or threading.current_thread() is not self._thread
            or not (self._fitted() or self._late())
            or any((words or {}).get(name) is not None for name in ("dir_fd", "src_dir_fd", "dst_dir_fd"))
        ):
            return None
        try:
            path = os.path.abspath(os.fsdecode(file))
        except TypeError:
            return None
        if self._is_left_alone(path) or (not self._fitted() and self._is_new(path)):
            return None
        return path

    def _is_new(self, path: str) -> bool:
        if path in self._moved:
            return False
        if path in self._new or any(path.startswith(os.path.join(one, "")) for one in self._new):
            return True
        if os.path.lexists(path):
            return False
        self._new.add(path)
        return True

    def _is_left_alone(self, path: str) -> bool:
        home = os.path.relpath(path, os.path.expanduser("~"))
        hidden = home.startswith(".") and not home.startswith("..")
        own = (os.path.join(self._place, ""), *self._made)
        return (
            hidden
            or path.startswith(self._ours)
            or os.path.join(path, "").startswith(own)
            or os.path.realpath(path).startswith((*_NO_FILES, self._temporary))
        )

    def _leave(self, path: str, what: str) -> None:
        if path not in self._told and len(self._told) < TOLD_MAX and os.path.exists(path):
            self._told.add(path)
            log.info("%s is not %s here: all processes run the script, and the chief does", path, what)

    def _wait(self, path: str) -> bool:
        """Until the chief has made it; whether it has in time. Once it has not the script goes another way in it."""
        deadline = time.monotonic() + (0.0 if self._in_vain else WAIT_SECONDS)
        while not (there := os.path.exists(path)) and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        self._in_vain = self._in_vain or not there
        return there

    def _take_in(self, path: str, own: str) -> None:
        """A file, or a directory of files, that has been written here."""
        if not os.path.isdir(own):
            self._moved[path] = own
            return
        for directory, _, names in os.walk(own):
            for name in names:
                written = os.path.join(directory, name)
                self._moved[os.path.join(path, os.path.relpath(written, own))] = written

    @contextmanager
    def _making(self, path: str) -> Iterator[str]:
        """The path here, below a directory that is made; files are what they are meanwhile."""
        own = self._moved.get(path) or os.path.join(self._place, path.lstrip(os.sep))
        self._inside = True
        try:
            os.makedirs(os.path.dirname(own), exist_ok=True)
            yield own
        finally:
            self._inside = False

    def _target(self, path: str, keeps: bool) -> str:
        if path in self._moved:
            return self._moved[path]
        with self._making(path) as own:
            if keeps and os.path.isfile(path):
                shutil.copyfile(path, own)
        self._moved[path] = own
        if len(self._moved) <= TOLD_MAX:
            log.info("%s is written to %s here: all processes run the script, and the chief writes the file", path, own)
        return own


def _open_path(
    original: Any, path: Path, mode: str = "r", buffering: int = -1, encoding: Any = None, errors: Any = None,
    newline: Any = None,
) -> Any:  # fmt: skip
    return open(path, mode, buffering, encoding, errors, newline)


def _unlink_path(original: Any, path: Path, missing_ok: bool = False) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        if not missing_ok:
            raise


def _rename_path(original: Any, path: Path, target: Any) -> Path:
    (os.replace if original.__name__ == "replace" else os.rename)(path, target)
    return path.__class__(target)


def _make_path(original: Any, path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
    if parents:
        os.makedirs(path, mode, exist_ok=exist_ok)
        return
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not (exist_ok and os.path.isdir(path)):
            raise


_OF_PATHS: dict[str, Callable[..., Any]] = {
    "open": _open_path, "unlink": _unlink_path, "rename": _rename_path, "replace": _rename_path, "mkdir": _make_path,
    "rmdir": lambda original, path: os.rmdir(path),
}  # fmt: skip


def is_aware() -> bool:
    """Whether the script's text names a variable that tells processes apart, or cannot be read."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        text = Path(path).read_text(errors="replace") if path else ""
    except OSError:
        return True
    return not text or any(name in text for name in AWARE)
