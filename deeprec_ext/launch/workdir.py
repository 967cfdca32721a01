"""Where the launcher puts the run directory of a job."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from deeprec_ext.aimaster.store.storefile import kept_copy
from deeprec_ext.errors import UsageError
from deeprec_ext.rundir import OWNER_ALONE, RunDirectory


def default_directory(label: str, now: float | None = None) -> Path:
    """`runs/<script>-<date-time>` below the current directory; a number is added when it exists."""
    base = Path.cwd() / "runs" / f"{label}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}"
    path, number = base, 1
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path


def check_directory(path: Path, resume: bool) -> RunDirectory:
    """Raises UsageError when it holds a job and `--resume` is missing, or the other way round."""
    directory = RunDirectory(path.resolve())
    if path.exists() and not path.is_dir():
        raise UsageError(f"--workdir {path}: is a file; give a directory")
    if directory.store.exists() and not resume:
        raise UsageError(f"--workdir {path}: holds a job already; add --resume to go on with it, or choose another")
    if resume and not directory.store.exists() and not kept_copy(directory.store).exists():
        raise UsageError(
            f"--resume: there is no job in {path} (no aimaster.db); leave --resume out, or give its --workdir"
        )
    return directory


def make_directory(path: Path, option: str = "--workdir") -> list[Path]:
    """With those above it; which of them were made, the outermost first. Raises UsageError, with nothing left behind."""
    missing = [one for one in (*reversed(path.parents), path) if not one.exists()]
    made: list[Path] = []
    try:
        for one in missing:
            one.mkdir(mode=OWNER_ALONE, exist_ok=True)
            made.append(one)
    except OSError as error:
        _remove(made)
        raise UsageError(f"{option} {path}: cannot be made ({error.strerror}); choose another") from None
    return made


@contextlib.contextmanager
def writable(directory: RunDirectory) -> Iterator[None]:
    """Before anything runs a directory that cannot be written is bad usage."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"--workdir {directory.path}: cannot be written ({error.strerror or error}); free space there, or choose another"
        ) from error


def try_directory(directory: RunDirectory) -> None:
    """For a dry run: whether a run could begin in it; nothing of the trial is left. Raises UsageError."""
    made = make_directory(directory.path)
    trial = directory.path / f".deeprec-ext-{os.getpid()}"
    try:
        if directory.in_use():
            raise directory.taken()
        with writable(directory):
            trial.write_text("\n")
            trial.unlink()
    finally:
        _remove(made)


def try_file(path: Path, option: str) -> None:
    """Whether a file can be made there later; nothing of the trial is left. Raises UsageError."""
    made = make_directory(path.parent, option)
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(f"{option} {path}: cannot be written ({error.strerror or error}); choose another") from None
    finally:
        _remove(made)


class Unused:
    """A run directory in which nothing was started yet. At its `close` what was made for it goes, unless somebody has put
    something into it meanwhile; not once it is `used`."""

    def __init__(self, directory: RunDirectory, made: Sequence[Path]) -> None:
        self._directory, self._made = directory, made

    def used(self) -> None:
        self._made = ()

    def close(self) -> None:
        if self._directory.path in self._made:
            self._directory.unlock()
            _remove(self._made)


def _remove(made: Sequence[Path]) -> None:
    for one in reversed(made):
        with contextlib.suppress(OSError):  # somebody has put something into it meanwhile
            one.rmdir()
