"""Where the launcher puts the run directory of a job."""

from __future__ import annotations

import time
from pathlib import Path

from deeprec_ext.aimaster.store.storefile import kept_copy
from deeprec_ext.errors import UsageError
from deeprec_ext.rundir import RunDirectory


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
