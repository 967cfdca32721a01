"""Files that the script of a worker writes once it has called `fit`: below a directory of the worker's own.

All processes run the whole script, and would write the same plot, table or array over one another. What Python's `open` is
asked to write goes into `workers/NAME` of the run directory instead, under its whole path, with a line; what this process has
written so it also reads, renames and removes there. A script whose text names the variables that tell processes apart is left
alone: it knows of the others. So are temporary files, hidden ones of the user (caches), and what is no file. Keras's and
TensorFlow's own ways to save a model are `turns`.
"""

from __future__ import annotations

import builtins
import io
import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deeprec_ext.tf_private.wrapping import wrapper

log = logging.getLogger("deeprec_ext")

AWARE = ("TF_CONFIG", "DEEPREC_EXT_ROLE", "DEEPREC_EXT_INDEX")
"""Variables by which a script tells its process from others."""

TOLD_MAX = 20
"""Files that are named in the log."""

_NO_FILES = ("/dev/", "/proc/", "/sys/", "/run/")


class Redirected:
    """Of one worker.

    Args:
      place: the directory; it is made when it is wanted.
      fitted: whether the script has called `fit`.
    """

    def __init__(self, place: Path, fitted: Callable[[], bool]) -> None:
        self._place, self._fitted = place, fitted
        self._moved: dict[str, str] = {}
        self._thread = threading.main_thread()
        self._inside = False

    def begin(self) -> Callable[[], None]:
        """Returns what undoes it."""
        around: dict[tuple[Any, str], Callable[..., Any]] = {
            (builtins, "open"): self._open, (io, "open"): self._open, (os, "replace"): self._rename,
            (os, "rename"): self._rename, (os, "remove"): self._remove, (os, "unlink"): self._remove,
        }  # fmt: skip
        before = {(owner, name): getattr(owner, name) for owner, name in around}
        for (owner, name), one in around.items():
            setattr(owner, name, wrapper(before[owner, name], one))

        def undo() -> None:
            for (owner, name), original in before.items():
                setattr(owner, name, original)

        return undo

    def _open(self, original: Callable[..., Any], file: Any, mode: Any = "r", *args: Any, **words: Any) -> Any:
        path = self._path(file)
        if path is None or not isinstance(mode, str):
            return original(file, mode, *args, **words)
        if set(mode).isdisjoint("wax+"):
            return original(self._moved.get(path, file), mode, *args, **words)
        if path not in self._moved and not self._is_to_move(path):
            return original(file, mode, *args, **words)
        return original(self._target(path, keeps="w" not in mode), mode, *args, **words)

    def _rename(self, original: Callable[..., Any], source: Any, target: Any, *args: Any, **words: Any) -> Any:
        before, after = self._path(source), self._path(target)
        if before is None or after is None or before not in self._moved:
            return original(source, target, *args, **words)
        result = original(self._moved[before], self._target(after, keeps=False), *args, **words)
        del self._moved[before]
        return result

    def _remove(self, original: Callable[..., Any], file: Any, *args: Any, **words: Any) -> Any:
        path = self._path(file)
        if path is None or path not in self._moved:
            return original(file, *args, **words)
        return original(self._moved.pop(path), *args, **words)

    def _path(self, file: Any) -> str | None:
        """None: it is none of the script's."""
        if (
            self._inside
            or isinstance(file, int)
            or threading.current_thread() is not self._thread
            or not self._fitted()
        ):
            return None
        try:
            return os.path.abspath(os.fsdecode(file))
        except TypeError:
            return None

    def _is_to_move(self, path: str) -> bool:
        hidden = os.path.relpath(path, os.path.expanduser("~")).startswith(".")
        inside_home = not os.path.relpath(path, os.path.expanduser("~")).startswith("..")
        left_alone = (*_NO_FILES, os.path.join(os.path.realpath(tempfile.gettempdir()), ""))
        if (hidden and inside_home) or os.path.realpath(path).startswith(left_alone):
            return False
        return not os.path.exists(path) or os.path.isfile(path)

    def _target(self, path: str, keeps: bool) -> str:
        found = self._moved.get(path)
        if found is not None:
            return found
        target = os.path.join(self._place, path.lstrip(os.sep))
        self._inside = True
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if keeps and os.path.isfile(path):
                shutil.copyfile(path, target)
        finally:
            self._inside = False
        self._moved[path] = target
        if len(self._moved) <= TOLD_MAX:
            log.info(
                "%s is written to %s here: all processes run the script, and the chief writes the file", path, target
            )
        return target


def is_aware() -> bool:
    """Whether the script's text names a variable that tells processes apart, or cannot be read."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        text = Path(path).read_text(errors="replace") if path else ""
    except OSError:
        return True
    return not text or any(name in text for name in AWARE)
