"""Faults at the writes of launcher, AIMaster and PS, by seed: full, read-only, I/O error, a damaged or deleted store.

    python -m benchmarks.faults --runs 100                # half a minute each on quiet cores
    python -m benchmarks.faults --runs 5 --seed 7 --json

Each run is a real job of two PS and two trainers that reads every record once. At a drawn moment (as it starts, while it
trains, as it ends), from a drawn write on, all writes of one kind of process below the run directory fail for some seconds,
through a layer in C that is loaded into every process (`fault_layer`; needs a C compiler). While it trains, in two runs of
three, a PS, a worker or the AIMaster is killed meanwhile, or a scaling is asked for.

Then the job must end well: it *stands still* when it does not within `LIMIT_SECONDS`, and records are *lost* when they are
in neither the model nor the report's own count. The directory of such a run is kept, and its number printed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import grpc

from benchmarks.fault_layer.control import Faults, ShimError, compile_shim
from benchmarks.job import Job, end_on_signals, running, say
from benchmarks.stock.cluster import ROOT

SCRIPT = str(ROOT / "benchmarks" / "fault_layer" / "script.py")
RECORDS, STEP_SECONDS, BEGUN = 80_000, 0.02, 1_500
WRITES_MAX = {"launcher": 30, "aimaster": 150, "ps": 20}
"""So many of its writes may succeed before the first fails; a few seconds of each."""

UNTIL_FIRST_SECONDS = 4.0
LIMIT_SECONDS = 150.0
STORE_KINDS = ("damaged", "deleted")


@dataclass(frozen=True)
class Fault:
    """What happens in one run."""

    kind: str  # full, read-only, io-error: of writes; damaged, deleted: of the AIMaster's store
    role: str  # whose writes
    moment: str  # start, training, end
    after: int  # so many writes still succeed
    seconds: float
    meanwhile: str  # kill NAME, scale, or nothing


@dataclass
class Result:
    fault: Fault
    failed_writes: int = 0
    seconds: float = 0.0
    stands_still: str = ""  # or ended badly: how
    lost: int = 0  # records
    repeated: int = 0
    stale: int = 0


def draw(seed: int, number: int) -> Fault:
    """The fault of a run; the same for the same numbers."""
    chance = random.Random(f"{seed} {number}")
    kind = chance.choice(("full", "full", "read-only", "io-error", *STORE_KINDS))
    role = "aimaster" if kind in STORE_KINDS else chance.choice(tuple(WRITES_MAX))
    moments = ("training",) if kind in STORE_KINDS else ("training", "training", "end", "start")
    moment = chance.choice(moments)
    if moment == "start" and role == "launcher":  # it refuses to begin: that is tested elsewhere
        moment = "training"
    meanwhile = chance.choice(("", "", "kill aimaster", "kill ps-1", "kill worker-0", "scale"))
    return Fault(
        kind, role, moment, chance.randrange(WRITES_MAX[role]), round(chance.uniform(1.0, 6.0), 1),
        meanwhile if moment == "training" else "",
    )  # fmt: skip


def trained(job: Job) -> int:
    status = job.status()
    return status.data[0].trained if status is not None and status.data else 0


def act(job: Job, what: str) -> None:
    if what.startswith("kill "):
        with contextlib.suppress(ProcessLookupError):
            job.send(what.removeprefix("kill "), signal.SIGKILL)
    elif what == "scale":
        with contextlib.suppress(grpc.RpcError):
            job.ask(ps=3)


def spoil(store: Path, kind: str, chance: random.Random) -> None:
    """Damages or deletes the store, under the hands of the AIMaster."""
    if kind == "deleted":
        for path in store.parent.glob(f"{store.name}*"):
            path.unlink()
        return
    for path in (store, store.with_name(store.name + "-wal")):
        with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
            size = max(1, path.stat().st_size)
            for _ in range(3):
                file.seek(chance.randrange(size))
                file.write(chance.randbytes(2000))


def play(job: Job, faults: Faults, fault: Fault, chance: random.Random) -> None:
    """Until the fault is over and all that is left is to train to the end."""
    store = job.workdir / "aimaster.db"
    if fault.moment != "start":
        job.until(lambda: trained(job) >= BEGUN, f"{BEGUN} records trained", LIMIT_SECONDS)
    if fault.moment == "end":
        (job.workdir / "hurry").touch()
    if fault.kind in STORE_KINDS:
        spoil(store, fault.kind, chance)
        time.sleep(chance.uniform(0.0, 1.0))
        act(job, fault.meanwhile)
        time.sleep(fault.seconds)
    else:
        if fault.moment == "start":
            job.until(lambda: (job.workdir / "job.json").exists(), "job.json", LIMIT_SECONDS, every=0.01)
        faults.begin(fault.kind, fault.role, fault.after)
        deadline = time.monotonic() + UNTIL_FIRST_SECONDS
        while not faults.failed and time.monotonic() < deadline and job.process.poll() is None:
            time.sleep(0.02)
        act(job, fault.meanwhile)
        time.sleep(fault.seconds)
        faults.end()
    if fault.moment == "start":
        job.until(lambda: trained(job) >= BEGUN, f"{BEGUN} records trained", LIMIT_SECONDS)
    with contextlib.suppress(FileNotFoundError):
        (job.workdir / "hurry").touch()


def count(job: Job, result: Result) -> None:
    """What became of the records: in the model, as stock TensorFlow reads it, against the report."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import numpy as np
    import tensorflow as tf

    table = tf.train.load_checkpoint(str(job.base / "model")).get_tensor("times")
    times = np.rint(table[:, 0]).astype(int)
    report: dict[str, Any] | None = job.summary()["data"]
    if report is None:
        raise RuntimeError("the summary has no figures of the data")
    result.repeated, result.stale = report["repeated"], report["stale"]
    missing, more = int((times < 1).sum()), int(np.maximum(0, times - 1).sum())
    untold = max(0, more - report["repeated"])
    result.lost = max(report["lost"], RECORDS - report["trained"], missing - report["stale"], 0) + untold


def run(seed: int, number: int, shim: Path) -> Result:
    fault, chance = draw(seed, number), random.Random(f"{seed} {number} play")
    result, began = Result(fault), time.monotonic()
    base = Path(tempfile.mkdtemp(prefix="faults-"))
    faults = Faults(base, base / "run", shim)
    flags = (
        "--setting", "peer_backup_seconds=0.5", "--setting", f"disk_backup={base / 'run' / 'backup'}",
        "--setting", "disk_backup_seconds=1",
    )  # fmt: skip
    try:
        with running(
            [SCRIPT, str(RECORDS), str(STEP_SECONDS)], flags=flags, variables=faults.variables, base=base
        ) as job:
            try:
                play(job, faults, fault, chance)
                if code := job.process.wait(LIMIT_SECONDS):
                    raise RuntimeError(f"ended with exit code {code}")
            finally:
                faults.end()
                result.failed_writes = faults.failed
            count(job, result)
            if result.lost:
                raise RuntimeError("records are lost")
    except subprocess.TimeoutExpired:
        result.stands_still = f"no end within {LIMIT_SECONDS:g} s; see {base}"
    except (RuntimeError, OSError, KeyError, ValueError) as error:
        if not result.lost:
            result.stands_still = f"{error}; see {base}"
    result.seconds = round(time.monotonic() - began, 1)
    return result


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """Counts, and every run that was not well."""
    return {
        "runs": len(results),
        "stand_still": sum(bool(one.stands_still) for one in results),
        "lost": sum(bool(one.lost) for one in results),
        "faults_that_hit": sum(bool(one.failed_writes) or one.fault.kind in STORE_KINDS for one in results),
        "failed_writes": sum(one.failed_writes for one in results),
        "repeated": sum(one.repeated for one in results),
        "kinds": dict(Counter(f"{one.fault.kind} {one.fault.role}" for one in results).most_common()),
        "bad": [asdict(one) for one in results if one.stands_still or one.lost],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.0, help="begin no run after so long; 0: no limit")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    end_on_signals()
    results: list[Result] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-shim-") as directory:
        try:
            shim = compile_shim(Path(directory))
        except ShimError as error:
            print(f"benchmarks.faults: {error}", file=sys.stderr)
            return 2
        for number in range(options.first, options.first + options.runs):
            if options.seconds and time.monotonic() - began > options.seconds:
                break
            result = run(options.seed, number, shim)
            results.append(result)
            bad = result.stands_still or (f"{result.lost} records lost" if result.lost else "")
            say(
                f"run {number}: {result.fault}, {result.failed_writes} writes failed, {result.seconds} s: {bad or 'well'}"
            )
    found = summary(results)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print(
            f"{found['runs']} runs, {found['faults_that_hit']} hit: {found['stand_still']} stand still, "
            f"{found['lost']} with a loss; {found['failed_writes']} writes failed, {found['repeated']} records repeated"
        )
    return 1 if found["bad"] else 0


if __name__ == "__main__":
    sys.exit(main())
