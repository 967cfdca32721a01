"""Step time of a whole elastic job ÷ that of a whole stock cluster of the same script, with all their processes, taking turns.

    python -m benchmarks.whole                                     # the two examples as a user runs them: eleven minutes
    python -m benchmarks.whole --examples census --turns 20
    python -m benchmarks.whole --flags=--backup=off --json

The script is run unchanged (`stock/recorded.py` only writes down when a step was completed), by `deeprec-ext run` and by stock
TensorFlow processes with an ordinary TF_CONFIG. All processes of one are stopped while it is the other's turn. Told are the
medians of a step, the mean of all trainers', and of each pair of turns elastic ÷ stock; of processor time as well, all
processes of each together.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.stock import steps
from benchmarks.stock.cluster import ROOT, cluster

TURN_SECONDS = 6.0
SETTLE_SECONDS = 1.5
"""Of each turn's beginning that does not count: caches and connections wake up."""

START_LIMIT_SECONDS = 300.0
STEADY_STEPS, STEADY_SECONDS = 100, 45.0
"""So many steps, and then so long: until sessions are made anew for what a job is protected by, and packed."""

NEVER = 10**9
EXAMPLES = {
    "deepfm-512": ["examples/deepfm_criteo/train.py", "--batch", "512", "--records", str(10**8)],
    "deepfm-128": ["examples/deepfm_criteo/train.py", "--batch", "128", "--records", str(10**8)],
    "census": ["examples/census_wide_deep/train.py", "--epochs", "10000"],
}


class Turns:
    """Two sets of processes, of which one runs.

    Args:
        roots: name → processes that, with all their children, are one side.
        recorded: name → directory with the steps of its trainers.
    """

    def __init__(self, roots: dict[str, list[int]], recorded: dict[str, Path], trainers: Sequence[str]) -> None:
        self._roots, self._recorded, self._trainers = roots, recorded, trainers
        self._windows: dict[str, list[tuple[float, float]]] = {name: [] for name in roots}
        self._cpu: dict[str, list[float]] = {name: [] for name in roots}

    def everyone(self, name: str) -> list[psutil.Process]:
        found = [psutil.Process(pid) for pid in self._roots[name]]
        return [one for root in found for one in (root, *root.children(recursive=True))]

    def send(self, name: str, number: signal.Signals) -> None:
        for one in self.everyone(name):
            one.send_signal(number)

    def wait_steps(self, name: str, job: subprocess.Popen[bytes]) -> None:
        """Until each trainer has made some. RuntimeError: it does not come to that."""
        deadline = time.monotonic() + START_LIMIT_SECONDS
        while True:
            seen = steps.read(self._recorded[name])
            if all(len(seen.get(trainer, ())) > STEADY_STEPS for trainer in self._trainers):
                return
            if job.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{name}: no {STEADY_STEPS} steps; see {self._recorded[name].parent}")
            time.sleep(0.2)

    def take(self, count: int) -> None:
        """So many turns of each, A B B A A B B A: a drift of the machine hits both."""
        names = list(self._roots)
        for name in names[1:]:
            self.send(name, signal.SIGSTOP)
        current = names[0]
        for turn in range(2 * count):
            wanted = names[(turn + turn // 2) % 2]
            if wanted != current:
                self.send(current, signal.SIGSTOP)
                self.send(wanted, signal.SIGCONT)
                current = wanted
            time.sleep(SETTLE_SECONDS)
            begin, before = time.time(), self._cpu_seconds(wanted)
            time.sleep(TURN_SECONDS - SETTLE_SECONDS)
            self._windows[wanted].append((begin, time.time()))
            self._cpu[wanted].append(self._cpu_seconds(wanted) - before)
        for name in names:
            self.send(name, signal.SIGCONT)

    def _cpu_seconds(self, name: str) -> float:
        return sum(sum(one.cpu_times()[:2]) for one in self.everyone(name))

    def result(self) -> dict[str, Any]:
        """Ratios of the first ÷ the second."""
        times: dict[str, list[float]] = {}
        cpu: dict[str, list[float]] = {}
        for name, spans in self._windows.items():
            seen = steps.read(self._recorded[name])
            times[name] = [
                statistics.mean(steps.median_step_seconds(seen[trainer], *span) for trainer in self._trainers)
                for span in spans
            ]
            made = [
                sum(begin <= one.time <= end for trainer in self._trainers for one in seen[trainer])
                for begin, end in spans
            ]
            cpu[name] = [seconds / count for seconds, count in zip(self._cpu[name], made)]
        first, second = self._windows
        return {
            **{f"{name}_step_seconds": statistics.median(times[name]) for name in times},
            **{f"{name}_cpu_seconds": statistics.median(cpu[name]) for name in cpu},
            "pairs": _quartiles([a / b for a, b in zip(times[first], times[second])]),
            "cpu_pairs": _quartiles([a / b for a, b in zip(cpu[first], cpu[second])]),
            "turns": len(times[first]),
        }


def _quartiles(values: Sequence[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return {"p25": low, "median": middle, "p75": high}


def against_stock(script: Sequence[str], turns: int, flags: Sequence[str] = (), ps: int = 2) -> dict[str, Any]:
    """A script and its arguments, with PS, a chief and one worker; `flags`: of `deeprec-ext run`."""
    base = Path(tempfile.mkdtemp(prefix="whole-"))
    recorded = {name: base / name for name in ("elastic", "stock")}
    for directory in recorded.values():
        directory.mkdir()
    limits = [f"--setting={name}=100000" for name in ("ps_heartbeat_limit_seconds", "worker_heartbeat_limit_seconds")]
    command = [
        sys.executable, "-m", "deeprec_ext.cli.main", "run", "--workdir", str(base / "run"), "--quiet", "--history", "off",
        "--ps", str(ps), "--workers", "1", *limits, *flags, "--", sys.executable, *script,
    ]  # fmt: skip
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    env = {
        **os.environ,
        "PYTHONPATH": paths,
        "CUDA_VISIBLE_DEVICES": "",
        steps.DIRECTORY_VARIABLE: str(recorded["elastic"]),
    }
    stock_env = {steps.DIRECTORY_VARIABLE: str(recorded["stock"]), "BENCHMARK_POLL_SECONDS": "0.5"}
    plain = [sys.executable, *script, "--model-dir", str(base / "model")]
    with open(base / "out.log", "ab") as out, cluster(ps, 1, plain, base / "logs", stock_env) as stock:
        job = subprocess.Popen(command, env=env, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        roots = {
            "elastic": [job.pid],
            "stock": [one.pid for one in (*stock.servers.values(), *stock.trainers.values())],
        }
        both = Turns(roots, recorded, ["chief-0", "worker-0"])
        try:
            for name in recorded:
                both.wait_steps(name, job)
            both.send("stock", signal.SIGSTOP)
            time.sleep(STEADY_SECONDS)
            both.take(turns)
        finally:
            for name in recorded:
                both.send(name, signal.SIGCONT)
            job.send_signal(signal.SIGINT)
            try:
                job.wait(60)
            except subprocess.TimeoutExpired:
                job.kill()
    found = both.result()
    shutil.rmtree(base, ignore_errors=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", default=",".join(EXAMPLES), help="some of them, with commas")
    parser.add_argument("--turns", type=int, default=10, help="of each")
    parser.add_argument("--ps", type=int, default=2)
    parser.add_argument("--flags", default="", help="of `deeprec-ext run`, in one word; without: as it is by default")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.examples.split(","):
        script = [str(ROOT / "benchmarks" / "stock" / "recorded.py"), *EXAMPLES[name], "--steps", str(NEVER)]
        rows.append(
            {"example": name, **against_stock(script, arguments.turns, shlex.split(arguments.flags), arguments.ps)}
        )
        if not arguments.json:
            print(_line(rows[-1]), flush=True)
    if arguments.json:
        print(json.dumps({"benchmark": "whole", "flags": arguments.flags, "examples": rows}))


def _line(row: dict[str, Any]) -> str:
    def part(unit: str, pairs: dict[str, float]) -> str:
        ours, theirs = (1e3 * row[f"{name}_{unit}_seconds"] for name in ("elastic", "stock"))
        return f"{ours:.1f} ÷ {theirs:.1f} ms: {pairs['median']:.3f} ({pairs['p25']:.2f} to {pairs['p75']:.2f})"

    return f"{row['example']}: step {part('step', row['pairs'])}; processor {part('cpu', row['cpu_pairs'])}"


if __name__ == "__main__":
    main()
