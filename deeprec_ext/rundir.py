"""The run directory: where everything a job leaves behind lies, and how the other commands find the job in it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from deeprec_ext.errors import UsageError
from deeprec_ext.wholefiles import write_json

DONE_BY_SCRIPT = "done-by-script"
"""How far the chief's script has come (`keras.milestones`)."""

OWNER_ALONE = 0o700
_OTHERS = 0o077
_OURS = (
    "aimaster.db*", "events.jsonl*", "decisions.jsonl", "decisions.1.jsonl", "job.json", "summary.json", "report.html",
    "dashboard.html", ".launcher.lock",
)  # fmt: skip


@contextlib.contextmanager
def files_private() -> Iterator[int]:
    """Meanwhile nobody else can read what this process writes, and those that it starts; gives the umask from before.

    Logs, events and descriptions of a job tell what its script says, data included.
    """
    before = os.umask(_OTHERS)
    try:
        yield before
    finally:
        os.umask(before)


def former(events: Path) -> Path:
    """Where the full file of events before this one lies: there are two at the most."""
    return events.with_name(events.name + ".1")


@dataclass(frozen=True)
class RunDirectory:
    """Names of what lies in it (docs/user-guide.md, what a run leaves behind)."""

    path: Path

    @property
    def store(self) -> Path:
        return self.path / "aimaster.db"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    def begin_script_again(self) -> None:
        """Of a run that goes on: all scripts begin anew, and of what the last ones have come to what was measured stays."""
        path = self.path / DONE_BY_SCRIPT
        with contextlib.suppress(OSError, ValueError, AttributeError):
            known = json.loads(path.read_text())
            write_json(path, {"before": {**known.get("before", {}), **known.get("results", {})}})

    @property
    def certificates(self) -> Path:
        return self.path / "certs"

    @property
    def description(self) -> Path:
        return self.path / "job.json"

    @property
    def door(self) -> Path:
        """While the job runs with a web page: opens it with its token (`security.tokens`)."""
        return self.path / "dashboard.html"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def log(self, role: str) -> Path:
        """`logs/ps-0.log`, `logs/aimaster.log`."""
        return self.logs / f"{role}.log"

    @property
    def _lock(self) -> Path:
        return self.path / ".launcher.lock"

    def make(self) -> None:
        """Readable by its owner alone. Where other files lie in it, it may be a home: then only what is ours is shut."""
        self.path.mkdir(mode=OWNER_ALONE, parents=True, exist_ok=True)
        if not any(entry != self._lock for entry in self.path.iterdir()):
            self.path.chmod(OWNER_ALONE)
        for directory in (self.logs, self.certificates):
            directory.mkdir(mode=OWNER_ALONE, parents=True, exist_ok=True)
            directory.chmod(OWNER_ALONE)
        for pattern in _OURS:
            for file in self.path.glob(pattern):  # of a run that is resumed, or of an earlier version
                if file.is_file() and not file.is_symlink() and file.stat().st_uid == os.geteuid():
                    file.chmod(file.stat().st_mode & ~_OTHERS & 0o777)

    def lock(self) -> IO[str]:
        """Hold it while the job runs; the kernel drops it with the process. Raises UsageError when another run holds it."""
        file = self._lock.open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise self.taken() from None
        return file

    def unlock(self) -> None:
        """Of a run that never began: the lock's file goes, too, while it is held."""
        with contextlib.suppress(OSError):
            self._lock.unlink()

    def taken(self) -> UsageError:
        return UsageError(f"{self.path}: a job is running in it; wait for its end, or choose another --workdir")

    def in_use(self) -> bool:
        """Whether a launcher runs this job at the moment."""
        if not self._lock.exists():
            return False
        with self._lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def describe(self, values: Mapping[str, Any]) -> None:
        """Write job.json."""
        write_json(self.description, values)

    def read_description(self) -> dict[str, Any]:
        """job.json. Raises UsageError if this is no run directory."""
        try:
            values = json.loads(self.description.read_text())
        except FileNotFoundError:
            raise UsageError(
                f"{self.path}: no run directory (it has no job.json); give the one `deeprec-ext run` printed"
            ) from None
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.description}: cannot be read ({error}); give another run directory") from None
        if not isinstance(values, dict) or "aimaster" not in values or "job" not in values:
            raise UsageError(f"{self.description}: is not of this version of deeprec-ext; give another run directory")
        return values
