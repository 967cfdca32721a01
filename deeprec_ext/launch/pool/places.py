"""Where a pool lies, and what in it is believed: files of this user, small, that nobody else can write.

pool.json             how much there is to share
jobs/ID.json          a job, by its launcher (`entry.Entry`)
bids/ID.json          what its AIMaster says of it (`arbiter.observed.Bid`)
changes/ID.json       what a command has changed of it (`entry.Changes`)
allowances/ID.json    what it may have now (`arbiter.observed.Allowance`), by the leader, with its term
told/ID.json          the same for its AIMaster, by its own launcher, if the term was the pool's
decision.json         what the arbiter decided last, by the leader
leader.TERM.lock      held by who leads, with its pid; its time is of when it decided last. Of several the highest term counts
record.jsonl          each decision with what it was made from
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeprec_ext.errors import UsageError
from deeprec_ext.rundir import OWNER_ALONE
from deeprec_ext.wholefiles import write

FILE_BYTES_MAX = 256 << 10
"""Of one file. A bid of 64 sizes has some 8 kB."""

JOBS_MAX = 1000
"""Of one pool; others are not looked at."""

LOCK = re.compile(r"leader\.([0-9]{1,18})\.lock")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

_OTHERS = "{}: is another user's; a pool is of one user. Set XDG_STATE_HOME to a directory of yours"


def check_name(name: str) -> str:
    """Raises UsageError."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"--pool {name[:80]}: a name has letters, digits, '.', '_' and '-', at most 63, and begins with one"
        )
    return name


def pools_directory(environment: Mapping[str, str] | None = None) -> Path:
    """Of this user, below the directory of state (XDG base directories)."""
    base = (os.environ if environment is None else environment).get("XDG_STATE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state") / "deeprec-ext" / "pools"


def identifier(job: str) -> str:
    """Of a job by its run directory: a name of files that says which it is, and that no other has."""
    return f"{re.sub(r'[^A-Za-z0-9_-]', '-', Path(job).name)[:60]}-{hashlib.sha256(job.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class PoolDirectory:
    path: Path

    @classmethod
    def of(cls, name: str) -> PoolDirectory:
        """Raises UsageError for what is no name."""
        return cls(pools_directory() / check_name(name))

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def size(self) -> Path:
        return self.path / "pool.json"

    @property
    def decision(self) -> Path:
        return self.path / "decision.json"

    @property
    def record(self) -> Path:
        return self.path / "record.jsonl"

    def lock(self, term: int) -> Path:
        return self.path / f"leader.{term}.lock"

    def terms(self) -> list[int]:
        """Of leaders, the present one last."""
        try:
            return sorted(int(found[1]) for found in map(LOCK.fullmatch, os.listdir(self.path)) if found)
        except OSError:
            return []

    def term(self) -> int:
        """Of who leads, or led last; 0: nobody has."""
        return max(self.terms(), default=0)

    @property
    def joining(self) -> Path:
        """Held by who comes."""
        return self.path / "joining.lock"

    def job(self, job: str) -> Path:
        return self.path / "jobs" / f"{identifier(job)}.json"

    def bid(self, job: str) -> Path:
        return self.path / "bids" / f"{identifier(job)}.json"

    def allowance(self, job: str) -> Path:
        return self.path / "allowances" / f"{identifier(job)}.json"

    def told(self, job: str) -> Path:
        return self.path / "told" / f"{identifier(job)}.json"

    def changes(self, job: str) -> Path:
        return self.path / "changes" / f"{identifier(job)}.json"

    def check(self) -> None:
        """Raises UsageError where there is one that is no directory of this user, or that he may not read."""
        try:
            found = self.path.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                raise UsageError(_OTHERS.format(self.path))
            os.listdir(self.path)
            if (self.path / "jobs").exists():
                os.listdir(self.path / "jobs")
        except FileNotFoundError:
            return
        except OSError as error:
            raise UsageError(
                f"{self.path}: cannot be read ({error.strerror or error}); set XDG_STATE_HOME to a directory of yours"
            ) from None

    def make(self) -> None:
        """Raises UsageError where it cannot be made, or is somebody else's."""
        try:
            for one in (self.path, *(self.path / name for name in ("jobs", "bids", "changes", "allowances", "told"))):
                one.mkdir(mode=OWNER_ALONE, parents=True, exist_ok=True)
                found = one.lstat()
                if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                    raise UsageError(_OTHERS.format(one))
                one.chmod(OWNER_ALONE)
        except OSError as error:
            raise UsageError(
                f"{self.path}: cannot be made ({error.strerror or error}); set XDG_STATE_HOME to another"
            ) from None

    def jobs(self) -> list[str]:
        """The files of its jobs, by name."""
        try:
            names = sorted(name for name in os.listdir(self.path / "jobs") if name.endswith(".json") and name[0] != ".")
        except OSError:
            return []
        return names[:JOBS_MAX]

    def remove(self, job: str) -> None:
        """What there is of a job. Its own file goes last: who looks for what the dead have left finds it by that."""
        for path in (self.bid(job), self.changes(job), self.allowance(job), self.told(job), self.job(job)):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def trusted(path: Path) -> Any:
    """What is in a JSON file of this user; None: nothing that could be read, or be believed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_size > FILE_BYTES_MAX:
            return None
        try:
            return json.loads(file.read(FILE_BYTES_MAX + 1))
        except (OSError, ValueError, RecursionError):
            return None


def put(path: Path, values: Mapping[str, Any]) -> None:
    """Raises OSError."""
    write(path, json.dumps(values) + "\n", 0o600)
