"""What scaling costs, on the real thing: every process real, DeepFM with 26 fields, baselines in the same run.

    python -m benchmarks.scale_pause                 # everything, about half an hour on 2 cores
    python -m benchmarks.scale_pause --only pause,stock --repeat 1

Parts:
  pause     PS 1→2→4→3→1 with 256 MB of state, chief + 1 worker: pause per worker, bytes against the fewest possible
  graph     the same with every table cut in 8 (18 000 ops) ÷ with whole tables (2 700 ops)
  stock     the same by stop – checkpoint – restart of all processes on stock TensorFlow
  workers   workers 1→2→1: runs of the others that waited at the gate
  both      1 PS and no worker → 2 PS and 2 workers: in two scalings, one after the other, and in one, taking turns
  growth    PS 1→2→1 with 64 MB, 256 MB and 1 GB of state
  overhead  step time with all hooks and nothing happening ÷ stock, two whole clusters taking turns

A pause (`pause_seconds`) is, per worker, the longest gap between two steps from ACQUIRE to 20 steps after COMMIT, minus
the median step. `gate` is PAUSE to RELEASE, from the events: from the order to stand still until every trainer has gone on
and has closed its old session, which it does half a second later. So it is longer than anybody stands still; what each gap
consists of is told by the `pause` events.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.stock import steps
from benchmarks.stock.cluster import ROOT
from benchmarks.whole import against_stock
from deeprec_ext.aimaster.scaling.planning import slot_bytes
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.proto import deeprec_ext_pb2 as pb

SCRIPT = ROOT / "benchmarks" / "stock" / "train.py"
PATH = (1, 2, 4, 3, 1)
NEVER = 10**9
RUN_LIMIT_SECONDS = 1500.0


def _command(workdir: Path, state: str, parts: int, steps_wanted: int, *flags: str) -> list[str]:
    return [
        sys.executable, "-m", "deeprec_ext.cli.main", "run", "--workdir", str(workdir), "--quiet", *flags, "--",
        sys.executable, str(SCRIPT), "--state", state, "--parts", str(parts), "--steps", str(steps_wanted),
    ]  # fmt: skip


def _environment(**more: str) -> dict[str, str]:
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": "", **more}


def elastic(
    changes: Sequence[dict[str, int]],
    *,
    state: str,
    parts: int = 1,
    ps: int = 1,
    workers: int = 1,
    warm_steps: int = 200,
    await_steps: tuple[Path, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """One job that goes through the changes and is then stopped; what its summary and its store say.

    await_steps: a directory for the times of steps, and of whom steps are waited for before it is stopped.
    """
    workdir = Path(tempfile.mkdtemp(prefix="scale-")) / "run"
    events = workdir.parent / "events.yaml"
    events.write_text(yaml.safe_dump([{"at_step": warm_steps, "scale": change} for change in changes]))
    flags = ["--ps", str(ps), "--workers", str(workers), "--max-ps", "4", "--events", str(events)]
    times = {steps.DIRECTORY_VARIABLE: str(await_steps[0])} if await_steps is not None else {}
    with open(workdir.parent / "out.log", "ab") as out:
        process = subprocess.Popen(
            _command(workdir, state, parts, NEVER, *flags), env=_environment(**times), stdout=out, stderr=out,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            _until(lambda: _ended(workdir) >= len(changes), process, workdir)
            if await_steps is not None:
                directory, names = await_steps
                _until(lambda: all(steps.read(directory).get(name) for name in names), process, workdir)
            settle = time.monotonic() + 6  # 20 more steps of every worker
            _until(lambda: time.monotonic() > settle, process, workdir)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
    summary = json.loads((workdir / "summary.json").read_text())
    return {"summary": summary, "workdir": str(workdir), "gates": _gates(workdir)}


def _both(together: bool, state: str) -> dict[str, float]:
    """1 PS and no worker → 2 PS and 2 workers. Seconds from the first request until the scaling, or the last of them, has
    ended; and until the last of the new workers has completed a step."""
    recorded = Path(tempfile.mkdtemp(prefix="both-"))
    changes = [{"ps": 2, "workers": 2}] if together else [{"ps": 2}, {"workers": 2}]
    run = elastic(changes, state=state, workers=0, await_steps=(recorded, ["worker-0", "worker-1"]))
    told = _events(Path(run["workdir"]))
    asked = next(event["time"] for event in told if event["type"] == "scaling_queued")
    ended = [event for event in told if event["type"] == "scaling_ended"]
    assert all(event["outcome"] == "committed" for event in ended), ended
    seen = steps.read(recorded)
    return {
        "seconds": ended[-1]["time"] - asked,
        "all_train": max(seen[name][0].time for name in ("worker-0", "worker-1")) - asked,
        "pause": max(one["pause_seconds"]["max"] or 0.0 for one in run["summary"]["scaling"]),
    }


def _until(condition: Callable[[], bool], process: subprocess.Popen[bytes], workdir: Path) -> None:
    deadline = time.monotonic() + RUN_LIMIT_SECONDS
    while not condition():
        if process.poll() is not None:
            raise RuntimeError(f"deeprec-ext run ended with exit code {process.returncode}; see {workdir.parent}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"not done within {RUN_LIMIT_SECONDS:g} s; see {workdir}")
        time.sleep(0.2)


def _events(workdir: Path) -> list[dict[str, Any]]:
    path = workdir / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []


def _ended(workdir: Path) -> int:
    return sum(event["type"] == "scaling_ended" for event in _events(workdir))


def _gates(workdir: Path) -> list[float]:
    """Per PS change: seconds from PAUSE to RELEASE."""
    began: dict[Any, float] = {}
    gates = []
    for event in _events(workdir):
        if event["type"] == "scaling_state":
            if event["state"] == "PAUSE":
                began[event["scaling"]] = event["time"]
            elif event["state"] == "RELEASE" and event["scaling"] in began:
                gates.append(event["time"] - began.pop(event["scaling"]))
    return gates


def _pauses(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Over all changes of PS of all runs."""
    scalings = [s for run in runs for s in run["summary"]["scaling"] if s["role"] == "ps"]
    p50s = [s["pause_seconds"]["p50"] for s in scalings if s["outcome"] == "committed"]
    gates = [gate for run in runs for gate in run["gates"]]
    return {
        "changes": len(scalings),
        "committed": len(p50s),
        "p50": statistics.median(p50s),
        "worst": max(s["pause_seconds"]["max"] for s in scalings),
        "each": [round(p, 4) for p in p50s],
        "gate_p50": statistics.median(gates) if gates else None,
        "gate_max": max(gates) if gates else None,
    }


# ----------------------------------------------------------------------------------------------------------- bytes


def fewest_bytes(sizes: Sequence[int], old: Sequence[int], tasks: Sequence[int], heaviest: int) -> int:
    """Fewest bytes moved over ALL maps that use every PS and whose largest load is at most `heaviest`; by enumeration."""
    best = sum(sizes)
    for slot_map in itertools.product(tasks, repeat=len(sizes)):
        moved = sum(size for size, before, after in zip(sizes, old, slot_map) if before != after)
        if moved >= best or len(set(slot_map)) < len(tasks):
            continue
        loads = dict.fromkeys(tasks, 0)
        for size, task in zip(sizes, slot_map):
            loads[task] += size
        if max(loads.values()) <= heaviest:
            best = moved
    return best


def _bytes(run: dict[str, Any]) -> list[dict[str, Any]]:
    store = Store(Path(run["workdir"]) / "aimaster.db", read_only=True)
    try:
        catalogue = pb.Catalogue.FromString(store.blob("catalogue"))
        rows = []
        for scaling in store.scalings():
            if scaling.role != "ps" or scaling.outcome != "committed":
                continue
            sizes = slot_bytes(catalogue.variables, len(scaling.old_map))
            loads: dict[int, int] = {}
            for size, task in zip(sizes, scaling.new_map):
                loads[task] = loads.get(task, 0) + size
            tasks = sorted(set(scaling.new_map))
            fewest = fewest_bytes(sizes, scaling.old_map, tasks, max(loads.values()))
            rows.append(
                {
                    "from": scaling.from_count, "to": scaling.to_count, "first_copy": scaling.bytes_moved,
                    "fewest": fewest, "ratio": scaling.bytes_moved / fewest if fewest else 1.0,
                    "resent": scaling.bytes_resent,
                }
            )  # fmt: skip
        return rows
    finally:
        store.close()


# -------------------------------------------------------------------------------------------------------- overhead


def overhead(state: str, turns: int) -> dict[str, Any]:
    """Step time of a whole elastic job ÷ of a whole stock cluster, 2 PS and a chief + 1 worker each, taking turns."""
    found = against_stock([str(SCRIPT), "--state", state, "--steps", str(NEVER)], turns)
    return {**found, "ratio": found["elastic_step_seconds"] / found["stock_step_seconds"]}


# ------------------------------------------------------------------------------------------------------------ parts


def _to(counts: Sequence[int]) -> list[dict[str, int]]:
    return [{"ps": count} for count in counts]


def measure(only: Sequence[str], state: str, repeat: int, turns: int) -> dict[str, Any]:
    """The chosen parts, in an order in which what is compared lies close together in time."""
    result: dict[str, Any] = {}
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    runs: list[dict[str, Any]] = []
    if "pause" in only:
        for number in range(repeat):
            say(f"pause: {state}, PS {PATH}, run {number + 1} of {repeat}")
            runs.append(elastic(_to(PATH[1:]), state=state))
        result["pause"] = _pauses(runs)
        result["bytes"] = [row for run in runs for row in _bytes(run)]
    if "graph" in only:
        say("graph: tables cut in 8, then whole")
        large = _pauses([elastic(_to(PATH[1:]), state=state, parts=8)])
        small = _pauses([elastic(_to(PATH[1:]), state=state)])
        result["graph"] = {"18000 ops": large, "2700 ops": small, "ratio": large["p50"] / small["p50"],
                           "gate_ratio": large["gate_p50"] / small["gate_p50"]}  # fmt: skip
    if "stock" in only:
        from benchmarks.stock.run import measure as measure_stock

        say("stock: stop - checkpoint - restart")
        stock = measure_stock(PATH, state=state, workers=1, steps_each=150)
        result["stock"] = stock
        if "pause" in result:
            result["stock_over_elastic"] = stock["pause_seconds"]["p50"] / result["pause"]["p50"]
    if "workers" in only:
        say("workers: 1 -> 2 -> 1")
        run = elastic([{"workers": 2}, {"workers": 1}], state="64MB", ps=2)
        scalings = run["summary"]["scaling"]
        result["workers"] = {
            "outcomes": [s["outcome"] for s in scalings],
            "runs_that_waited_at_the_gate": sum(s.get("gate_waits", 0) for s in scalings),
        }
    if "both" in only:
        turns_of: dict[str, list[dict[str, float]]] = {"two scalings": [], "one": []}
        for number in range(repeat):
            for how, each in turns_of.items():
                each.append(_both(how == "one", "64MB"))
                say(f"both: {how}, {number + 1} of {repeat}: {each[-1]}")
        result["both"] = {
            how: {name: statistics.median(one[name] for one in each) for name in each[0]} | {"each": each}
            for how, each in turns_of.items()
        }
    if "growth" in only:
        growth = {}
        for size in ("64MB", "256MB", "1GB"):
            say(f"growth: {size}, PS 1 -> 2 -> 1")
            growth[size] = _pauses([elastic(_to([2, 1, 2, 1]), state=size)])
        result["growth"] = {**growth, "ratio": growth["1GB"]["p50"] / growth["64MB"]["p50"],
                            "gate_ratio": growth["1GB"]["gate_p50"] / growth["64MB"]["gate_p50"]}  # fmt: skip
    if "overhead" in only:
        say(f"overhead: two clusters taking {turns} turns each")
        result["overhead"] = overhead("64MB", turns)
    return result


def table(result: dict[str, Any]) -> str:
    """The measures of the issue, one a line."""
    rows: list[tuple[str, str, str]] = []
    if "pause" in result:
        p = result["pause"]
        rows.append(("pause of a PS change, p50", f"{p['p50']:.3f} s (worst {p['worst']:.3f})", "<= 0.3 s, aim 0.1"))
        rows.append(("  PAUSE to RELEASE", f"{p['gate_p50']:.3f} s (worst {p['gate_max']:.3f})", ""))
        worst = max(row["ratio"] for row in result["bytes"])
        resent = sum(row["resent"] for row in result["bytes"]) / max(1, sum(r["first_copy"] for r in result["bytes"]))
        rows.append(
            ("first-copy bytes / fewest, worst", f"{worst:.3f} (sent again: {resent:.1%})", "<= 1.05, aim 1.00")
        )
    if "graph" in result:
        g = result["graph"]
        rows.append(
            ("18 000 ops / 2 700 ops", f"{g['ratio']:.2f} (PAUSE to RELEASE {g['gate_ratio']:.2f})", "<= 1.5, aim 1.0")
        )
    if "stock_over_elastic" in result:
        rows.append(("stop-checkpoint-restart / elastic", f"{result['stock_over_elastic']:.0f}x", ">= 20x, aim 100x"))
    if "workers" in result:
        rows.append(("runs waiting in a worker change", str(result["workers"]["runs_that_waited_at_the_gate"]), "0"))
    for how, both in result.get("both", {}).items():
        row = f"{both['seconds']:.1f} s; all train after {both['all_train']:.1f} s"
        rows.append((f"1 PS 0 workers → 2 and 2, {how}", row, ""))
    if "overhead" in result:
        o = result["overhead"]
        rows.append(("step time / stock", f"{o['ratio']:.4f} (pairs {o['pairs']['median']:.4f})", "<= 1.01, aim 1.003"))
    if "growth" in result:
        g = result["growth"]
        rows.append(
            ("pause 1 GB / 64 MB", f"{g['ratio']:.2f} (PAUSE to RELEASE {g['gate_ratio']:.2f})", "<= 2, aim flat")
        )
    return "\n".join(f"{what:36} {got:38} {wanted}" for what, got, wanted in rows)


PARTS = ("pause", "stock", "graph", "workers", "both", "growth", "overhead")


def parts(text: str) -> list[str]:
    """`pause,stock` → the parts. Raises ArgumentTypeError."""
    if unknown := set(text.split(",")) - set(PARTS):
        raise argparse.ArgumentTypeError(f"no part called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return text.split(",")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=parts, default=PARTS, help=f"parts, of {', '.join(PARTS)}")
    parser.add_argument("--state", default="256MB", help="tables and accumulators of the pause, graph and stock parts")
    parser.add_argument("--repeat", type=int, default=3, help="runs of the parts pause (four changes each) and both")
    parser.add_argument("--turns", type=int, default=12, help="turns of each cluster in the overhead part")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    arguments = parser.parse_args()
    result = measure(arguments.only, arguments.state, arguments.repeat, arguments.turns)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))
    print(table(result))


if __name__ == "__main__":
    main()
