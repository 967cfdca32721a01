"""Large variables cut over slots: how much of a model the fullest PS has, and what a step costs, with and without.

    python -m benchmarks.cutting                          # shares and step times, about twelve minutes
    python -m benchmarks.cutting --part share             # shares alone
    python -m benchmarks.cutting --part step --ps 2       # step times with two PS
    python -m benchmarks.cutting --part checkpoint        # memory while the last checkpoint is written
    python -m benchmarks.cutting --part tables            # step times of a model with many tables of one size

Canned Estimators that nobody partitions (`tests/behaviour/scripts/canned.py`): census wide & deep on 2 PS, and a
`DNNClassifier` with one embedding table of 192 MB on 4 PS; Adagrad doubles both. Step times are those of the chief alone with a
table of 64 MB, jobs with and without taking turns: the median of the medians, all of which are told. A job is measured when all
its slots have their backups. The checkpoint is the last one, of a table of 256 MB and as much of Adagrad on 3 PS: what each
process had before, and its highest resident memory until it ended; of the chief also that before it evaluates the checkpoint.
The many tables are those of the DeepFM of the benchmarks, 1 GB with accumulators, chief and one worker: `cut=auto` ÷ `cut=off`,
two jobs taking turns, without backups.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.job import LIMIT_SECONDS, Job, end_on_signals, running, say
from benchmarks.stock.cluster import ROOT
from benchmarks.taking_turns import Kind, in_pairs
from deeprec_ext.proto import deeprec_ext_pb2 as pb

SCRIPT = str(ROOT / "tests" / "behaviour" / "scripts" / "canned.py")
MODES = ("auto", "off")
SETTLE_SECONDS = 2.0
MODELS = {"census": (("--model", "census"), 2), "dnn": (("--model", "dnn", "--megabytes", "192"), 4)}
"""Arguments of the script, and number of PS, of each share."""


def steady(job: Job) -> pb.StatusReply:
    """Until training goes on and every slot has its backup."""

    def ready() -> pb.StatusReply | None:
        status = job.status()
        if status is None or not status.live or not sum(role.bytes for role in status.roles):
            return None
        return status if status.backup.peer and not status.backup.unprotected_slots else None

    status = job.until(ready, "backups of all slots")
    assert status is not None
    return status


def share(model: str, mode: str, directory: str) -> dict[str, Any]:
    """Bytes of each PS, the fullest first."""
    words, ps = MODELS[model]
    command = [SCRIPT, *words, "--directory", directory]
    with running(command, ps=ps, workers=0, flags=["--setting", f"cut={mode}"], label="cutting") as job:
        status = steady(job)
    found = (role.bytes for role in status.roles if role.role == pb.PS and role.state == "running")
    sizes = sorted(found, reverse=True)
    return {"model": model, "cut": mode, "ps": ps, "bytes": sizes, "share_of_the_fullest": sizes[0] / sum(sizes)}


def step_seconds(ps: int, mode: str, words: Sequence[str], seconds: float, directory: str) -> float:
    """The chief's median step in so many seconds of one job."""
    command = [SCRIPT, "--model", "dnn", *words, "--directory", directory]
    with running(command, ps=ps, workers=0, flags=["--setting", f"cut={mode}"], label="cutting") as job:
        steady(job)
        begin = time.time() + SETTLE_SECONDS
        job.until(lambda: time.time() > begin + seconds, "the end of the measurement", seconds + 60)
        (Path(directory) / "model" / "stop").touch()
        job.process.wait(LIMIT_SECONDS)
    ends = [float(line) for line in (Path(directory) / "model" / "times-chief-0.txt").read_text().split()]
    inside = [end for end in ends if begin <= end <= begin + seconds]
    return statistics.median(later - earlier for earlier, later in pairwise(inside))


def compare(ps: int, words: Sequence[str], seconds: float, rounds: int) -> dict[str, Any]:
    """Jobs with and without take turns."""
    found: dict[str, list[float]] = {mode: [] for mode in MODES}
    for number in range(rounds):
        for mode in MODES if number % 2 == 0 else MODES[::-1]:
            with tempfile.TemporaryDirectory(prefix="cutting-") as directory:
                found[mode].append(step_seconds(ps, mode, words, seconds, directory))
            say(f"{ps} PS, cut={mode}: {found[mode][-1] * 1000:.2f} ms a step")
    medians = {mode: statistics.median(times) for mode, times in found.items()}
    return {"ps": ps, "step_seconds": found, "median": medians, "cut_to_whole": medians["auto"] / medians["off"]}


def checkpoint(ps: int, words: Sequence[str], mode: str, directory: str) -> dict[str, Any]:
    """Bytes by role: of its variables, resident before the last checkpoint, at most until the end."""
    command = [SCRIPT, "--model", "dnn", *words, "--directory", directory]
    with running(command, ps=ps, workers=0, flags=["--setting", f"cut={mode}"], label="cutting") as job:
        status = steady(job)
        time.sleep(SETTLE_SECONDS)  # rows of all parts have been updated: from now on a read is a copy
        roles = [role for role in status.roles if role.state == "running" and (role.bytes or role.name == "chief-0")]
        found = {
            role.name: {"variables": role.bytes, "before": _memory(role.pid, "VmRSS"), "highest": 0} for role in roles
        }
        for role in roles:
            Path(f"/proc/{role.pid}/clear_refs").write_text("5")  # the highest from now on
        (Path(directory) / "model" / "stop").touch()
        evaluates = job.workdir / "logs" / "chief-0.log"
        deadline = time.monotonic() + LIMIT_SECONDS
        while job.process.poll() is None and time.monotonic() < deadline:
            for role in roles:
                found[role.name]["highest"] = max(found[role.name]["highest"], _memory(role.pid, "VmHWM"))
            if "before_evaluation" not in found["chief-0"] and "evaluating the final" in evaluates.read_text():
                found["chief-0"]["before_evaluation"] = found["chief-0"]["highest"]
            time.sleep(0.02)
    return {"cut": mode, "ps": ps, "roles": found}


def tables(ps: int, pairs: int, seconds: float) -> dict[str, Any]:
    """Step times cut ÷ whole."""
    script = str(ROOT / "benchmarks" / "stock" / "train.py")
    command = [script, "--state", "1GB", "--batch", "512", "--steps", str(10**9)]
    kinds = {mode: Kind(command, ("--setting", f"cut={mode}", "--setting", "peer_backup=off")) for mode in MODES}
    found = in_pairs(kinds, seconds, pairs, ps)
    del found["costs"]
    return found


def _memory(pid: int, line: str) -> int:
    """0: the process has ended."""
    try:
        words = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(one.split()[1]) << 10 for one in words.splitlines() if one.startswith(line)), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--part", nargs="+", choices=("share", "step", "checkpoint", "tables"), default=["share", "step"]
    )
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), default=list(MODELS), help="of the shares")
    parser.add_argument("--ps", nargs="+", type=int, default=[1, 2, 4], help="of the step times (default: 1 2 4)")
    parser.add_argument("--megabytes", type=int, default=64, help="of the table of the step times (default: 64)")
    parser.add_argument("--batch", type=int, default=512, help="records in a step (default: 512)")
    parser.add_argument("--seconds", type=float, default=8.0, help="that are measured of each job (default: 8)")
    parser.add_argument("--rounds", type=int, default=5, help="jobs of each kind (default: 5)")
    arguments = parser.parse_args()
    end_on_signals()
    result: dict[str, Any] = {}
    if "share" in arguments.part:
        result["share"] = []
        for model in arguments.models:
            for mode in MODES:
                with tempfile.TemporaryDirectory(prefix="cutting-") as directory:
                    result["share"].append(share(model, mode, directory))
                say(f"{model}, cut={mode}: the fullest PS has {result['share'][-1]['share_of_the_fullest']:.1%}")
    if "step" in arguments.part:
        words = ("--megabytes", str(arguments.megabytes), "--batch", str(arguments.batch))
        result["step"] = [compare(ps, words, arguments.seconds, arguments.rounds) for ps in arguments.ps]
    if "checkpoint" in arguments.part:
        with tempfile.TemporaryDirectory(prefix="cutting-") as directory:
            result["checkpoint"] = checkpoint(3, ("--megabytes", "256"), "auto", directory)
    if "tables" in arguments.part:
        result["tables"] = tables(arguments.ps[0], arguments.rounds, arguments.seconds)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
