"""Runs one plan as a real job and looks at what is left of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import yaml

from tests.chaos.invariants import Bounds, Left, violations
from tests.chaos.schedule import Plan

ROOT = Path(__file__).resolve().parents[2]
CENSUS = Path(__file__).with_name("census.py")
CHILD = ROOT / "deeprec_ext" / "launch" / "roles" / "child.py"
RECORDS, BATCH = 32768, 128
BACKUP_SECONDS = 2.0
WORKER_LIMIT_SECONDS = 10.0
PACE_SECONDS = 0.03
EXIT_SECONDS = 10.0
SETTINGS = {
    "peer_backup_seconds": BACKUP_SECONDS, "worker_heartbeat_limit_seconds": WORKER_LIMIT_SECONDS, "restarts_max": 1000,
    "finish_grace_seconds": 60,
}  # fmt: skip


def command(plan: Plan, directory: Path, epochs: int) -> list[str]:
    """The launcher, which dies with this process."""
    flags = ["--ps", str(plan.ps), "--workers", str(plan.workers), "--max-ps", "4", "--max-workers", "4"]
    if plan.evaluator:
        flags.append("--evaluator")
    if plan.events:
        file = directory.with_name(f"{directory.name}.yaml")
        file.write_text(yaml.safe_dump(list(plan.events)))
        flags += ["--events", str(file)]
    for name, value in SETTINGS.items():
        flags += ["--setting", f"{name}={value:g}"]
    return [
        sys.executable, "-I", "-S", str(CHILD), str(os.getpid()),
        sys.executable, "-m", "deeprec_ext.cli.main", "run", "--workdir", str(directory), *flags, "--",
        sys.executable, str(CENSUS), "--epochs", str(epochs), "--batch", str(BATCH),
    ]  # fmt: skip


def run(
    plan: Plan, directory: Path, epochs: int, seconds: float, tell: Callable[[str], None] = lambda text: None
) -> Left:
    """One job in `directory` (made), ended after `seconds` at the latest; nothing of it runs afterwards."""
    (directory / "chaos").mkdir(parents=True)
    put_pace(directory, PACE_SECONDS if plan.events else 0.0)
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TF_CONFIG", "DEEPREC_"))}
    output = directory.with_name(f"{directory.name}.out")
    with output.open("wb") as out:
        process = subprocess.Popen(
            command(plan, directory, epochs), env={**kept, "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": ""},
            stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )  # fmt: skip
    try:
        code = _watch(process, plan, directory, output, epochs * RECORDS // BATCH, seconds, tell)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
        if process.poll() is None:
            process.kill()
            process.wait()
        left_behind = end_rest(directory)
    return Left(code, _json(directory / "summary.json"), events(directory), steps(directory), left_behind)


def _watch(
    process: subprocess.Popen[bytes], plan: Plan, directory: Path, output: Path, batches: int, seconds: float,
    tell: Callable[[str], None],
) -> int | None:  # fmt: skip
    """Its exit code, None when the time is up. Slows training while events are to come, and lets it go afterwards."""
    deadline, ended, braked = time.monotonic() + seconds, 0, bool(plan.events)
    while time.monotonic() < deadline:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(0.5)
        lines = [line for line in output.read_text(errors="replace").splitlines() if _is_end(line)]
        for line in lines[ended:]:
            tell(line)
        ended = len(lines)
        if braked:
            done = sum(len(of_process) for of_process in steps(directory).values()) / batches
            braked = ended < len(plan.events)
            put_pace(directory, PACE_SECONDS * (10 if done > 0.5 else 1) if braked else 0.0)
    return None


def _is_end(line: str) -> bool:
    """`event: kill ps-1 at step 200: recovered after 3.1 s`"""
    return "event: " in line and any(f": {end} after " in line for end in
                                     ("recovered", "committed", "rolled_back", "refused", "no-op"))  # fmt: skip


def put_pace(directory: Path, seconds: float) -> None:
    draft = directory / "chaos" / ".pace"
    draft.write_text(str(seconds))
    draft.rename(directory / "chaos" / "pace")


def _json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found


def events(directory: Path) -> list[dict[str, Any]]:
    found = []
    with contextlib.suppress(OSError):
        for line in (directory / "events.jsonl").read_text().splitlines():
            with contextlib.suppress(ValueError):  # torn by a kill, or being written
                found.append(json.loads(line))
    return found


def steps(directory: Path) -> dict[str, list[tuple[float, int, int]]]:
    found = {}
    for path in sorted((directory / "chaos").glob("*.steps")):
        words = [line.split() for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        found[path.stem] = [(float(time), int(step), int(size)) for time, step, size in words]
    return found


def processes_of(directory: Path) -> Iterator[psutil.Process]:
    """Processes of this run: they have its directory in their environment."""
    mark = f"DEEPREC_EXT_WORKDIR={directory}\0".encode()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, psutil.Error):
                if mark in Path(entry.path, "environ").read_bytes():
                    process = psutil.Process(int(entry.name))
                    if process.status() != psutil.STATUS_ZOMBIE:
                        yield process


def end_rest(directory: Path) -> list[str]:
    """Whatever is left some seconds after the launcher's end is named, and killed."""
    deadline = time.monotonic() + EXIT_SECONDS
    while (rest := list(processes_of(directory))) and time.monotonic() < deadline:
        time.sleep(0.1)
    named = []
    for process in rest:
        with contextlib.suppress(psutil.Error):
            named.append(f"{process.pid}: {' '.join(process.cmdline())[:120]}")
            process.kill()
    return named


def check(plan: Plan, left: Left, epochs: int, auc: tuple[float, float] | None) -> list[str]:
    """`violations` with the bounds of `SETTINGS`."""
    # An AIMaster that hangs is killed after 15 s; until another one runs, nothing is acknowledged.
    masters = 25.0 if plan.strikes("aimaster") else 0.0
    limit = max(WORKER_LIMIT_SECONDS, masters) if plan.strikes("worker", "chief") else masters
    return violations(plan, left, Bounds(epochs * RECORDS, BACKUP_SECONDS, 2.0 + limit, auc))
