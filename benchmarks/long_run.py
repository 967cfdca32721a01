"""Hours of steady training with a change every minute: does anything grow, does anything get slower?

    python -m benchmarks.long_run --minutes 120 --every 60 --json long.json
    python -m benchmarks.long_run --analyse long.jsonl          # of a run that was interrupted

A real `deeprec-ext run` of a small model held to a pace (benchmarks/steady.py), with peer and disk backups, the data ledger
and the dashboard. Every minute one change: a PS or a worker more or less, rebalancing, another process for a PS or a worker.
Just before each change every process of the job is looked at (memory, threads, open files), and every file of the run. What
was seen is written down every minute, one JSON object a line (`--rows`).

Memory is what is the process's own (`Anonymous` of smaps_rollup): RSS also counts pages of files, which the kernel takes back
when it likes. Slopes are Theil–Sen's, the median over all pairs of samples, after `--settle` minutes; the noise beside it is
the median distance of a sample from that line. The size of the job changes the memory of its trainers (a session for
the loss of each PS), so the slope is also taken among the samples of the most frequent size alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc
import psutil

from benchmarks import speed
from benchmarks.job import Job, end_on_signals, running, say
from benchmarks.long_figures import Row, analyse, table
from benchmarks.stock.cluster import ROOT
from deeprec_ext.proto import deeprec_ext_pb2 as pb

SCRIPT = str(ROOT / "benchmarks" / "steady.py")
PS, WORKERS = (2, 3), (1, 2)
"""Fewest and most."""
CHANGES = ("ps+", "ps-", "worker+", "worker-", "rebalance", "replace ps", "replace worker")
CHANGE_LIMIT_SECONDS = 300.0
STEADY_SECONDS = 20.0
"""Before a look in which steps are counted: then a change of a minute ago is long over."""


# --------------------------------------------------------------------------------------------------------- looking


def look_at(process: psutil.Process) -> Row | None:
    """Bytes, threads and open files of one process; None when it has ended meanwhile."""
    try:
        rollup = {}
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]:
            name, kilobytes, *_ = line.split()
            rollup[name.rstrip(":")] = int(kilobytes) * 1024
        return {
            "pid": process.pid, "rss": rollup["Rss"], "pss": rollup["Pss"], "own": rollup["Anonymous"],
            "threads": process.num_threads(), "fds": process.num_fds(), "cpu": sum(process.cpu_times()[:2]),
        }  # fmt: skip
    except (psutil.Error, OSError):
        return None


def processes(job: Job) -> dict[str, Row]:
    """By role and start: `ps-2 pid 123` is another process than `ps-2 pid 99`."""
    found = {}
    named = {job.process.pid: "launcher", job.pid("aimaster"): "aimaster"}
    status = job.status()
    for role in status.roles if status else ():
        if role.state == "running":
            named[role.pid] = role.name
    for process in job.everyone():
        if process.pid in named and (seen := look_at(process)):
            found[f"{named[process.pid]} pid {process.pid}"] = seen
    return found


def files(job: Job) -> dict[str, list[int]]:
    """Kind of file → [how many, bytes] of what the job has written; our own measurements are not among it."""
    kinds: dict[str, list[int]] = {}
    for path in job.workdir.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file():
                first = path.relative_to(job.workdir).parts[0]
                counted = kinds.setdefault(first, [0, 0])
                counted[0] += 1
                counted[1] += path.stat().st_size
    return kinds


def steps_of(job: Job, since: float, until: float) -> dict[str, list[float]]:
    """Trainer → seconds of its runs in that time. Reads only the ends of the files."""
    found = {}
    for path in sorted(job.recorded.glob("*.steps")):
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - 200_000))
            lines = [line.split() for line in file.read().splitlines(keepends=True)[1:] if line.endswith(b"\n")]
        inside = [float(words[2]) for words in lines if since <= float(words[0]) <= until]
        if inside:
            found[path.stem] = inside
    return found


def sample(job: Job, began: float, batch: int) -> Row:
    now = time.time()
    steps = steps_of(job, now - STEADY_SECONDS, now)
    runs = [seconds for one in steps.values() for seconds in one]
    status = job.status()
    return {
        "kind": "sample", "time": now, "minute": (now - began) / 60, "ps": job.ps, "workers": len(job.trainers) - 1,
        "step": status.step if status else None, "epoch": status.epoch if status else None,
        "processes": processes(job), "files": files(job),
        "examples_per_second": batch * len(runs) / STEADY_SECONDS,
        "run_seconds": statistics.median(runs) if runs else None,
        "run_p90_seconds": sorted(runs)[int(0.9 * len(runs))] if runs else None,
        "load": os.getloadavg()[0], "probe_seconds": statistics.median(speed.probe() for _ in range(21)),
    }  # fmt: skip


# -------------------------------------------------------------------------------------------------------- changing


def draw(dice: random.Random) -> Iterator[str]:
    """All kinds in turn, each round in another order."""
    while True:
        yield from dice.sample(CHANGES, len(CHANGES))


def request_of(kind: str, job: Job) -> pb.ScaleRequest | None:
    """None where the job is at its limit already."""
    workers = len(job.trainers) - 1
    if kind in ("ps+", "ps-"):
        wanted = job.ps + (1 if kind == "ps+" else -1)
        return pb.ScaleRequest(ps=wanted) if PS[0] <= wanted <= PS[1] else None
    if kind in ("worker+", "worker-"):
        wanted = workers + (1 if kind == "worker+" else -1)
        return pb.ScaleRequest(workers=wanted) if WORKERS[0] <= wanted <= WORKERS[1] else None
    if kind == "rebalance":
        return pb.ScaleRequest(rebalance=True)
    role = pb.PS if kind == "replace ps" else pb.WORKER
    status = job.until(job.status, "answer of the AIMaster")
    names = [one.name for one in status.roles if one.role == role and one.state == "running"]
    younger = sorted(names)[1:]  # the eldest lives all along
    return pb.ScaleRequest(replace=younger[-1]) if younger else None


def change(job: Job, kind: str, began: float) -> Row | None:
    """Done and over, as the AIMaster tells it."""
    request = request_of(kind, job)
    if request is None:
        return None
    assert job._stub is not None
    asked = time.time()
    reply = job._stub.Scale(request, timeout=30)
    row: Row = {"kind": "change", "time": asked, "minute": (asked - began) / 60, "change": kind}
    if not reply.scaling_id:
        return {**row, "outcome": reply.message}

    def ended() -> pb.ScalingStatus | None:
        status = job.status()
        return (
            next((one for one in status.scalings if one.id == reply.scaling_id and one.outcome), None)
            if status
            else None
        )

    record = job.until(ended, f"end of {kind}", CHANGE_LIMIT_SECONDS)
    assert record is not None
    status = job.until(job.status, "answer of the AIMaster")
    trainers = [one.name for one in status.roles if one.role in (pb.CHIEF, pb.WORKER) and one.state == "running"]
    if record.outcome == "committed":
        job.ps = request.ps if request.HasField("ps") else job.ps
        job.trainers = trainers
    return {
        **row, "id": reply.scaling_id, "outcome": record.outcome, "reason": record.reason, "seconds": record.seconds,
        "moved": record.bytes_moved,
    }  # fmt: skip


def paused(job: Job, done: Row) -> Row | None:
    """What the workers have told of that change since: they do so 20 steps after its commit."""
    status = job.status()
    for one in status.scalings if status else ():
        if one.id == done.get("id") and one.pause_seconds:
            return {"kind": "pause", "id": one.id, "change": done["change"], "pauses": list(one.pause_seconds)}
    return None


def measure(minutes: float, every: float, rows: Path, pace: float, extra: Sequence[str], seed: int) -> Path:
    """The run itself. Returns where the job has left its things."""
    command = [SCRIPT, "--pace", str(pace)]
    flags = ["--max-ps", str(PS[1]), "--max-workers", str(WORKERS[1]), "--dashboard", "0"]
    kinds, batch = draw(random.Random(seed)), 64
    with (
        tempfile.TemporaryDirectory(prefix="long-backup-") as backups,
        running(
            command,
            ps=PS[0],
            workers=WORKERS[0],
            flags=[*flags, "--backup", f"peer,disk={backups}", *extra],
            label="long",
        ) as job,
        open(rows, "a") as out,
    ):
        say(f"{job.base}; rows in {rows}")

        def write(row: Row) -> None:
            out.write(json.dumps(row) + "\n")
            out.flush()

        job.wait_steady()
        began = time.time()
        write({"kind": "start", "time": began, "every": every, "pace": pace, "base": str(job.base)})
        number, done = 0, None
        while time.time() - began < 60 * minutes:
            number += 1
            due = began + number * every
            while time.time() < due:
                job.until(lambda due=due: time.time() >= due, "the next minute", 2 * every + CHANGE_LIMIT_SECONDS, 0.25)
            seen = sample(job, began, batch)
            disk = sum(path.stat().st_size for path in Path(backups).rglob("*") if path.is_file())
            seen["files"]["(disk backup)"] = [sum(path.is_file() for path in Path(backups).rglob("*")), disk]
            write(seen)
            if done is not None and (told := paused(job, done)):
                write(told)
            done = None
            while done is None:
                try:
                    done = change(job, next(kinds), began)
                except grpc.RpcError as error:
                    done = {"kind": "change", "time": time.time(), "outcome": "no answer", "reason": str(error)}
            write(done)
            say(f"minute {seen['minute']:.1f}: {done.get('change')} {done['outcome']} in {done.get('seconds', 0):.1f} s, "
                f"{job.ps} PS, {len(job.trainers)} trainers, run {1000 * (seen['run_seconds'] or 0):.1f} ms")  # fmt: skip
        base = job.base
    return base


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--every", type=float, default=60.0, metavar="SECONDS", help="one change in each")
    parser.add_argument("--settle", type=float, default=15.0, metavar="MINUTES", help="that do not count for slopes")
    parser.add_argument("--pace", type=float, default=0.1, metavar="SECONDS", help="a step lasts at least so long")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the changes")
    parser.add_argument("--rows", type=Path, help="what is seen each minute (default: a temporary file)")
    parser.add_argument(
        "--flag", action="append", default=[], help="further words for deeprec-ext run: --flag=--setting=..."
    )
    parser.add_argument("--json", type=Path, help="write the result to this file")
    parser.add_argument("--analyse", type=Path, metavar="ROWS", help="run nothing, analyse rows of an earlier run")
    arguments = parser.parse_args()
    end_on_signals()
    rows = arguments.analyse or arguments.rows or Path(tempfile.mkdtemp(prefix="long-")) / "long.jsonl"
    try:
        if arguments.analyse is None:
            measure(arguments.minutes, arguments.every, rows, arguments.pace, arguments.flag, arguments.seed)
    finally:
        seen = read(rows) if rows.exists() else []
        if any(row["kind"] == "sample" for row in seen):
            result = analyse(seen, arguments.settle)
            if arguments.json:
                arguments.json.write_text(json.dumps(result, indent=2))
            print(table(result))
        else:
            print("nothing was seen", file=sys.stderr)


if __name__ == "__main__":
    main()
