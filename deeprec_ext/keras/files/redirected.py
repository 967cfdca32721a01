"""Files that the script of a worker writes once it has called `fit`: below a directory of the worker's own.

All processes run the whole script, and would write the same plot, table or array over one another. What Python's `open` is
asked to write, and what is copied, goes into `workers/NAME` of the run directory instead, under its whole path, with a line;
what this process has written so it also reads, renames and removes there. What the worker has not written it neither renames
nor removes: the chief does, and makes directories. A script whose text names the variables that tell processes apart is left
alone: it knows of the others. So are temporary files, hidden ones of the user (caches), and what is no file. Keras's and
TensorFlow's own ways to save a model are `turns`.
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

from deeprec_ext.tf_private.wrapping import wrapper

log = logging.getLogger("deeprec_ext")

AWARE = ("TF_CONFIG", "DEEPREC_EXT_ROLE", "DEEPREC_EXT_INDEX")
"""Variables by which a script tells its process from others."""

TOLD_MAX = 20
"""Files that are named in the log."""

WAIT_SECONDS, LOOK_SECONDS = 30.0, 0.1
"""So long a worker waits until the chief has made a directory, or renamed a file: it is at the same place of the script."""

_NO_FILES = ("/dev/", "/proc/", "/sys/", "/run/")


class Redirected:
    """Of one worker.

    Args:
      place: the directory; it is made when it is wanted.
      fitted: whether the script has called `fit`.
    """

    def __init__(self, place: Path, fitted: Callable[[], bool]) -> None:
        self._place, self._fitted = os.path.abspath(place), fitted
        self._moved: dict[str, str] = {}
        self._told: set[str] = set()
        self._thread = threading.main_thread()
        self._inside = False

    def begin(self) -> Callable[[], None]:
        """Returns what undoes it."""
        around: dict[tuple[Any, str], Callable[..., Any]] = {
            (builtins, "open"): self._open, (io, "open"): self._open, (os, "replace"): self._rename,
            (os, "rename"): self._rename, (shutil, "move"): self._rename, (os, "remove"): self._remove,
            (os, "unlink"): self._remove, (os, "rmdir"): self._remove, (shutil, "rmtree"): self._remove_tree,
            (os, "mkdir"): self._make_directory, (shutil, "copyfile"): self._copy, (shutil, "copy"): self._copy,
            (shutil, "copy2"): self._copy, (shutil, "copytree"): self._copy_tree,
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
        if set(mode).isdisjoint("wax+"):
            return original(self._moved.get(path, file), mode, *args, **words)
        if os.path.exists(path) and not os.path.isfile(path) and path not in self._moved:
            return original(file, mode, *args, **words)
        return original(self._target(path, keeps="w" not in mode), mode, *args, **words)

    def _copy(self, original: Callable[..., Any], source: Any, target: Any, *args: Any, **words: Any) -> Any:
        before, after = self._path(source), self._path(target)
        given = self._moved.get(before, source) if before is not None else source
        if after is None:
            return original(given, target, *args, **words)
        if os.path.isdir(after):
            after = os.path.join(after, os.path.basename(os.fsdecode(source)))
        original(given, self._target(after, keeps=False), *args, **words)
        return target

    def _copy_tree(self, original: Callable[..., Any], source: Any, target: Any, *args: Any, **words: Any) -> Any:
        if (path := self._path(target)) is None:
            return original(source, target, *args, **words)
        with self._making(path) as own:
            shutil.rmtree(own, ignore_errors=True)
            original(source, own, *args, **words)
            for directory, _, names in os.walk(own):
                for name in names:
                    written = os.path.join(directory, name)
                    self._moved[os.path.join(path, os.path.relpath(written, own))] = written
        return target

    def _rename(self, original: Callable[..., Any], source: Any, target: Any, *args: Any, **words: Any) -> Any:
        before, after = self._path(source, words), self._path(target, words)
        if before is None or after is None:
            return original(source, target, *args, **words)
        if before in self._moved:
            result = original(self._moved[before], self._target(after, keeps=False), *args, **words)
            del self._moved[before]
            return target if result is not None else None
        if not (os.path.exists(before) or os.path.exists(after)):
            return original(source, target, *args, **words)  # as it fails
        self._leave(before, "renamed")
        self._wait(after)
        return target if original.__name__ == "move" else None

    def _remove(self, original: Callable[..., Any], file: Any, *args: Any, **words: Any) -> Any:
        path = self._path(file, words)
        if path is None:
            return original(file, *args, **words)
        if path in self._moved:
            return original(self._moved.pop(path), *args, **words)
        self._leave(path, "removed")
        return None

    def _remove_tree(self, original: Callable[..., Any], tree: Any, *args: Any, **words: Any) -> Any:
        path = self._path(tree, words)
        if path is None:
            return original(tree, *args, **words)
        self._leave(path, "removed")
        for one in [one for one in self._moved if one.startswith(os.path.join(path, ""))]:
            with self._making(one) as own:
                os.remove(own)
            del self._moved[one]
        return None

    def _make_directory(self, original: Callable[..., Any], file: Any, *args: Any, **words: Any) -> Any:
        path = self._path(file, words)
        if path is None:
            return original(file, *args, **words)
        return None if self._wait(path) else original(file, *args, **words)

    # -- inside

    def _path(self, file: Any, words: Any = None) -> str | None:
        """None: it is none of the script's, or nobody else's business."""
        if (
            self._inside
            or isinstance(file, int)
            or threading.current_thread() is not self._thread
            or not self._fitted()
            or any((words or {}).get(name) is not None for name in ("dir_fd", "src_dir_fd", "dst_dir_fd"))
        ):
            return None
        try:
            path = os.path.abspath(os.fsdecode(file))
        except TypeError:
            return None
        return None if self._is_left_alone(path) else path

    def _is_left_alone(self, path: str) -> bool:
        home = os.path.relpath(path, os.path.expanduser("~"))
        hidden = home.startswith(".") and not home.startswith("..")
        temporary = os.path.join(os.path.realpath(tempfile.gettempdir()), "")
        own = os.path.join(self._place, "")
        return hidden or path.startswith(own) or os.path.realpath(path).startswith((*_NO_FILES, temporary))

    def _leave(self, path: str, what: str) -> None:
        if path not in self._told and len(self._told) < TOLD_MAX and os.path.exists(path):
            self._told.add(path)
            log.info("%s is not %s here: all processes run the script, and the chief does", path, what)

    def _wait(self, path: str) -> bool:
        """Until the chief has made it; whether it has in time."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not (there := os.path.exists(path)) and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        return there

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
    elif not (exist_ok and os.path.isdir(path)):
        os.mkdir(path, mode)


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
