"""Whether PS live under the memory that is computed before the first variable exists: real jobs, each held to it by its cgroup.

    python -m benchmarks.zoo.held                        # 12 jobs that are not among the 78, a quarter of an hour
    python -m benchmarks.zoo.held --each 4 --json F      # so many of every family; one line a job in F

The history is that of the zoo (`runs.jsonl`); the jobs are drawn by another seed, so that they have chosen neither what was
learnt nor the reserve on top of it. `deeprec-ext estimate` says what a PS of each should request, as it does for a pod, and
the job runs with that (`--ps-memory`). Needs root, for cgroups. Told is what the fullest PS took of its limit, and whether the
kernel ended one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.job import end_on_signals, environment, running, say
from benchmarks.zoo.cases import EACH, FAMILIES, Case, family_cases
from benchmarks.zoo.run import FILE, SCRIPT, START_SECONDS, read
from deeprec_ext.autoscaler.history.finished import finished_job
from deeprec_ext.autoscaler.history.history import Finished, History
from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.decoding import built

ESTIMATE_SECONDS = 300.0
SIZES = ((1, 1), (2, 1), (3, 1))
"""(PS, workers), in turn."""
SECONDS = 40.0
"""That a job trains; what its PS take grows little after its first steps."""


def fresh(each: int) -> Iterator[Case]:
    """So many of every family, evenly from small tables to large ones."""
    for family in FAMILIES:
        drawn = sorted(list(family_cases(family, Random(f"held {family}")))[:EACH], key=lambda case: case.state_bytes)
        for number in range(each):
            case = drawn[(2 * number + 1) * EACH // (2 * each)]
            ps, workers = SIZES[(number + FAMILIES.index(family)) % len(SIZES)]
            yield replace(case, name=f"held-{case.name}", ps=ps, workers=workers)


def requested(case: Case, history: Path) -> int:
    """Bytes of each PS. Raises RuntimeError."""
    command = [
        sys.executable, "-m", "deeprec_ext.cli.main", "estimate", "--json", "--history", str(history),
        "--min-ps", str(case.ps), "--max-ps", str(case.ps), "--min-workers", str(case.workers),
        "--max-workers", str(case.workers), "--", sys.executable, str(SCRIPT), *case.flags,
    ]  # fmt: skip
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=ESTIMATE_SECONDS)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-500:])
    return int(json.loads(done.stdout)["start"]["requests"]["ps_memory_bytes"])


def held(case: Case, history: Path) -> dict[str, Any]:
    """Raises RuntimeError."""
    limit = requested(case, history)
    began = time.time()
    flags = ("--ps-memory", f"{limit // 1024}KiB")
    with running([str(SCRIPT), *case.flags], ps=case.ps, workers=case.workers, flags=flags, label="held") as job:
        job.until(job.is_steady, "training of all", START_SECONDS, every=0.5)
        until = time.time() + SECONDS
        job.until(lambda: time.time() > until, "the end of the measurement", 2 * SECONDS, every=0.5)
    found = finished_job(
        job.workdir, script="zoo", status="stopped", seconds=time.time() - began, finished=time.time(),
        requested=Size(case.ps, case.workers, ps_memory_bytes=limit),
    )  # fmt: skip
    failures = job.summary()["failures"]
    return {
        "case": case.name, "flags": case.flags, "ps": case.ps, "limit": limit,
        "used": found.ps_memory_bytes if found is not None else 0,
        "killed": [one["role"] for one in failures if one["cause"].startswith("oom")], "failures": len(failures),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=2, help="jobs of every family (default 2)")
    parser.add_argument("--json", type=Path, help="adds one line a job")
    arguments = parser.parse_args()
    end_on_signals()
    rows: list[dict[str, Any]] = []
    failed = 0
    with tempfile.TemporaryDirectory(prefix="held-") as place:
        path = Path(place) / "history.db"
        known = History(path)
        for line in read(FILE):
            known.add(built(Finished, line["job"], newer=True, measured=True))
        known.close()
        todo = list(fresh(arguments.each))
        for number, case in enumerate(todo, 1):
            say(f"{number}/{len(todo)} {case.name}: {' '.join(case.flags)}")
            try:
                row = held(case, path)
            except RuntimeError as error:
                failed += 1
                say(f"{case.name} failed: {error}")
                continue
            rows.append(row)
            say(
                f"{case.name}: {row['ps']} PS held to {row['limit'] / 1e6:.0f} MB, used {row['used'] / 1e6:.0f}; "
                f"killed: {', '.join(row['killed']) or 'none'}"
            )
            if arguments.json:
                with arguments.json.open("a") as out:
                    out.write(json.dumps(row) + "\n")
    print(json.dumps({
        "jobs": len(rows), "failed": failed, "killed": sum(bool(row["killed"]) for row in rows),
        "used_of_limit": sorted(round(row["used"] / row["limit"], 3) for row in rows),
    }))  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
