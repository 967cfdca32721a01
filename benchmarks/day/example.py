"""The two examples as jobs of a day: their sizes, one hard run of each, and what quiet runs of them learn."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.day.disk import small_disk
from benchmarks.day.reader import Reader
from benchmarks.day.strikes import PS_MAX, PS_MIN, WORKERS_MAX, WORKERS_MIN, Bursts, Day
from benchmarks.day.verdict import leftovers, promises
from benchmarks.job import Job, environment, running
from benchmarks.stock.cluster import ROOT
from deeprec_ext.launch.ports import free_port
from tests.chaos.invariants import Bounds, Left
from tests.chaos.run import end_rest, events, put_pace, steps

SCRIPT = Path(__file__).with_name("script.py")
BACKUP_SECONDS = 2.0
SETTINGS = {
    "peer_backup_seconds": BACKUP_SECONDS, "disk_backup_seconds": 4.0, "finish_grace_seconds": 60.0, "gazer_seconds": 1.0,
    "trace_seconds": 2.0, "trace_budget": 0.05, "ps_heartbeat_limit_seconds": 8.0,
}  # fmt: skip
"""Backups often, so that a minute without disk is many of them; findings from little; on busy cores no PS is taken for hung."""

UNACKNOWLEDGED_SECONDS = 27.0
"""A heartbeat, and until another AIMaster is there."""

SLOW = "worker-0"
FIRST_STEPS = 5
"""Of each trainer, before one is slowed: to start, it needs the processor as the others do."""

END_SECONDS = 300.0
HARDER = ((0.9, 50), (0.8, 5), (0.6, 2), (0.0, 1))
"""(share of the steps that are done, times the pace): in the end training nearly stands still until the day is over."""

QUIET_RUNS = 6
QUIET_WIDTH = 0.002
"""Runs in which nothing happens differ by less; as much again is allowed on both sides."""


@dataclass(frozen=True)
class Example:
    """How much of it is trained, and how slowly while there is something to come: a finite job must outlast its day."""

    name: str
    hot: str  # table
    batch: int  # records of the example
    epochs: int
    records: int  # of the ledger, in an epoch
    per_step: int  # of the ledger, in a step
    words: tuple[str, ...]
    pace_seconds: float  # a step takes at least so long
    disk_megabytes: int

    @property
    def steps(self) -> int:
        return self.epochs * self.records // self.per_step

    @property
    def command(self) -> list[str]:
        return [str(SCRIPT), self.name, "--batch", str(self.batch), "--epochs", str(self.epochs), *self.words]


EXAMPLES = {
    "census": Example(
        "census", "wide/age_x_education_x_occupation", 128, 14, 32768, 128, (), 0.2, 64
    ),
    "deepfm": Example(
        "deepfm", "C1/embedding", 128, 1, 1600, 1, ("--records", str(1600 * 128)), 0.25, 400
    ),
}  # fmt: skip


@dataclass
class Result:
    """Of one seed."""

    example: str
    seed: int
    order: list[str]
    seconds: float = 0.0
    auc: float = 0.0
    data: dict[str, int] = field(default_factory=dict)
    answers: int = 0  # of the dashboard
    story: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    directory: str = ""


class Brake:
    """Slows training while there are things to come, so that the records outlast them, also where the machine is very busy."""

    def __init__(self, job: Job, example: Example) -> None:
        self._job, self._example, self._over = job, example, threading.Event()
        (job.workdir / "chaos").mkdir(parents=True, exist_ok=True)
        put_pace(job.workdir, example.pace_seconds)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def let_go(self) -> None:
        self._over.set()
        self._thread.join()
        put_pace(self._job.workdir, 0.0)

    @property
    def done(self) -> float:
        return sum(len(one) for one in steps(self._job.workdir).values()) / self._example.steps

    def _run(self) -> None:
        while not self._over.wait(1.0):
            factor = next(factor for share, factor in HARDER if self.done >= share)
            put_pace(self._job.workdir, self._example.pace_seconds * factor)


@contextlib.contextmanager
def started(example: Example, flags: Sequence[str]) -> Iterator[Job]:
    """The example with two PS, a chief and a worker, and its brake on."""
    given = [word for name, value in SETTINGS.items() for word in ("--setting", f"{name}={value:g}")]
    with running(
        example.command, ps=PS_MIN, workers=WORKERS_MIN, flags=(*given, *flags), label=f"day-{example.name}"
    ) as job:
        yield job


def report(job: Job) -> dict:
    """What `deeprec-ext report --json` says."""
    words = [sys.executable, "-m", "deeprec_ext.cli.main", "report", str(job.workdir), "--json"]
    done = subprocess.run(words, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"deeprec-ext report: {done.stderr.strip()}")
    found: dict = json.loads(done.stdout)
    return found


def hard(example: Example, seed: int, auc: tuple[float, float], say: Callable[[str], None]) -> Result:
    """One hard day. What was missed is in the result; nothing of it runs afterwards."""
    began, port = time.monotonic(), free_port()
    disk_directory = Path(tempfile.mkdtemp(prefix="day-disk-")) / "backups"
    with small_disk(disk_directory, example.disk_megabytes) as disk:
        flags = [
            "--autoscale", "--dashboard", str(port), "--backup", f"peer,disk={disk.path}", "--min-ps", str(PS_MIN),
            "--max-ps", str(PS_MAX), "--min-workers", str(WORKERS_MIN), "--max-workers", str(WORKERS_MAX),
        ]  # fmt: skip
        with started(example, flags) as job:
            reader, brake = Reader(port), Brake(job, example)
            result, code = Result(example.name, seed, [], directory=str(job.base)), None
            slow = None
            try:
                job.until(lambda: sum(len(one) >= FIRST_STEPS for one in steps(job.workdir).values()) > WORKERS_MIN,
                          "steps of all trainers")  # fmt: skip
                slow = Bursts(job, SLOW)
                day = Day(job, disk, seed, say)
                result.order, result.story = day.order, day.told.story
                day.run()
                brake.let_go()
                code = job.process.wait(END_SECONDS)
            except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
                result.missed.append(str(error))
            finally:
                ended = time.time()
                if slow is not None:
                    slow.stop()
                brake.let_go()
                reader.stop()
                job.end()
                rest = end_rest(job.workdir)
            if not result.missed:
                left = Left(code, job.summary(), events(job.workdir), steps(job.workdir), [*rest, *leftovers(job.base)])
                bounds = Bounds(example.epochs * example.records, BACKUP_SECONDS, UNACKNOWLEDGED_SECONDS, auc)
                result.missed += promises(day.told, left, bounds, example.hot, SLOW, report(job))
                result.missed += reader.complaints(day.told.outages, ended)
                result.auc, result.data = left.summary["metrics"].get("auc", 0.0), left.summary["data"]
            result.answers = sum(reader.answers.values())
    shutil.rmtree(disk_directory.parent, ignore_errors=True)
    result.seconds = time.monotonic() - began
    return result


def quiet(example: Example, say: Callable[[str], None]) -> float:
    """AUC of a run to which nothing happens."""
    with started(example, ()) as job:
        (job.workdir / "chaos").mkdir(parents=True, exist_ok=True)
        code = job.process.wait(3 * END_SECONDS)
        if code:
            raise SystemExit(f"a quiet run of {example.name} ended with exit code {code}; see {job.base}")
        found = float(job.summary()["metrics"]["auc"])
    say(f"quiet {example.name}: AUC {found:.4f}")
    shutil.rmtree(job.base)
    return found


def spread(example: Example, cache: Path, say: Callable[[str], None]) -> tuple[float, float]:
    """AUC of quiet runs, and as much again on both sides; measured once for these sizes, and kept in a file."""
    known = json.loads(cache.read_text()) if cache.exists() else {}
    key = f"{' '.join(example.command[1:])}"
    found = known.get(key, [])
    while len(found) < QUIET_RUNS:
        found.append(quiet(example, say))
        known[key] = found
        cache.write_text(json.dumps(known, indent=2) + "\n")
    width = max(max(found) - min(found), QUIET_WIDTH)
    return min(found) - width, max(found) + width


def discard(directory: str) -> None:
    """After a good day."""
    if directory and os.path.basename(directory).startswith("day-"):
        shutil.rmtree(directory, ignore_errors=True)
