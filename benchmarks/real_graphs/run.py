"""What a change and a loss of PS cost scripts of real size, and what stock TensorFlow pays for its own first runs.

    python -m benchmarks.real_graphs.run                               # both scripts, about ten minutes on 2 cores
    python -m benchmarks.real_graphs.run --only ranking --no-stock

Each script as a job of 1 PS, chief and 1 worker: PS 1→2, `kill -9` of a PS, PS 2→1. Of each change: how long it took, and each
trainer's longest gap between two steps from the request to 150 steps after the end (so that the chief's next summary is in it),
with the cause that the trainer itself told. Of the kill: seconds until every trainer has made a good step.

The baseline is the same script on stock TensorFlow, 1 PS, chief and 1 worker: its longest gaps once it trains. It compiles
each kind of step when it comes for the first time, the one with summaries and a checkpoint among them.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.failover import strike
from benchmarks.job import Job, end_on_signals, running, say
from benchmarks.stock import steps
from benchmarks.stock.cluster import ROOT, cluster

HERE = ROOT / "benchmarks" / "real_graphs"
SCRIPTS = {"ranking": HERE / "ranking.py", "wide_deep": HERE / "wide_deep.py"}
WARM_STEPS, AFTER_STEPS = 250, 150
GAPS_KEPT = 6
WHAT = ("1→2", "kill", "2→1")


def gaps(seen: list[steps.Step], begin: float, end: float) -> list[tuple[float, float]]:
    """(seconds, seconds after `begin` at which it ended) of the gaps that overlap [begin, end], longest first."""
    pairs = zip(seen, seen[1:])
    found = [(b.time - a.time, b.time - begin) for a, b in pairs if b.time >= begin and a.time <= end]
    return sorted(found, reverse=True)


def _after(job: Job, since: float) -> dict[str, list[steps.Step]]:
    """All steps, once the chief has made its next summary, and the others some steps."""
    return job.wait_steps(AFTER_STEPS, since)


def change(job: Job, ps: int) -> dict[str, Any]:
    """PS to that many: per trainer the longest gaps, and how long it took."""
    before = len(job.events("scaling_ended"))
    began = time.time()
    job.ask(ps=ps)
    job.ps = ps
    job.until(lambda: len(job.events("scaling_ended")) > before, f"the change to {ps} PS")
    ended = job.events("scaling_ended")[-1]
    seen = _after(job, ended["time"])
    until = max(times[-1].time for times in seen.values())
    states = [(e["state"], round(e["time"] - began, 2)) for e in job.events("scaling_state") if e["time"] >= began]
    found = {}
    for name in job.trainers:
        longest = gaps(seen[name], began, until)[:GAPS_KEPT]
        found[name] = {
            "gap": longest[0][0], "gaps": [(round(gap, 3), round(at, 2)) for gap, at in longest],
            "median": steps.median_step_seconds(seen[name], began - 10, began),
        }  # fmt: skip
    told = {event["role"]: {k: v for k, v in event.items() if k not in ("time", "type", "role")}
            for event in job.events("pause") if event["time"] >= began}  # fmt: skip
    return {
        "outcome": ended.get("outcome"), "seconds": ended["time"] - began, "states": states, "trainers": found, "told": told,
    }  # fmt: skip


def elastic(name: str, settle: float, flags: list[str], more: list[str], wanted: list[str]) -> dict[str, Any]:
    ps = 1 if "1→2" in wanted else 2
    with running([str(SCRIPTS[name]), *more], ps=ps, workers=1, flags=flags, label=f"real-{name}") as job:
        job.wait_steps(WARM_STEPS, 0.0)
        result: dict[str, Any] = {"workdir": str(job.workdir)}
        for what, act in (
            ("1→2", lambda: change(job, 2)), ("kill", lambda: strike(job, job.servers()[0], signal.SIGKILL)),
            ("2→1", lambda: change(job, 1)),
        ):  # fmt: skip
            if what not in wanted:
                continue
            job.wait_steady(settle)
            say(f"{name}: {what}")
            result[what] = act()
            say(f"{name}: {what}: {_line(result[what])}")
    return result


def _line(one: dict[str, Any]) -> str:
    if "trainers" in one:
        gaps = ", ".join(f"{name} {found['gap']:.2f} s" for name, found in one["trainers"].items())
        return f"{one['outcome']} in {one['seconds']:.1f} s; longest gap: {gaps}"
    return f"all train after {one['seconds']:.2f} s ({', '.join(f'{n} {s:.2f}' for n, s in one['workers'].items())})"


def stock(name: str, more: list[str]) -> dict[str, Any]:
    """Longest gap of each trainer from its first step on, and its usual step."""
    base = Path(tempfile.mkdtemp(prefix=f"real-stock-{name}-"))
    (base / "steps").mkdir()
    command = [sys.executable, str(SCRIPTS[name]), "--model-dir", str(base / "model"), *more]
    variables = {steps.DIRECTORY_VARIABLE: str(base / "steps"), "BENCHMARK_POLL_SECONDS": "0.5"}
    with cluster(1, 1, command, base / "logs", variables) as members:
        deadline = time.monotonic() + 300
        while True:
            seen = steps.read(base / "steps")
            if len(seen) == 2 and all(len(times) > WARM_STEPS for times in seen.values()):
                break
            if any(p.poll() is not None for p in members.trainers.values()) or time.monotonic() > deadline:
                raise RuntimeError(f"stock {name} did not train; see {base / 'logs'}")
            time.sleep(0.25)
    found: dict[str, Any] = {}
    for trainer, times in seen.items():
        each = [b.time - a.time for a, b in zip(times, times[1:])]
        found[trainer] = {
            "gap": max(each), "gaps": [round(gap, 3) for gap in sorted(each, reverse=True)[:GAPS_KEPT]],
            "median": statistics.median(each),
        }  # fmt: skip
    say(f"{name}, stock: longest gap " + ", ".join(f"{n} {one['gap']:.2f} s" for n, one in found.items()))
    return found


def rows(name: str, result: dict[str, Any]) -> list[str]:
    """Lines of a Markdown table."""
    lines = []
    own = result.get("stock", {})
    for trainer, one in own.items():
        lines.append(f"| {name} | stock's own first runs | {trainer} | {one['gap']:.2f} s | |")
    for what in ("1→2", "2→1"):
        for trainer, one in result.get(what, {}).get("trainers", {}).items():
            beyond = f", {max(0.0, one['gap'] - own[trainer]['gap']):.2f} s beyond stock's" if trainer in own else ""
            cause = result[what]["told"].get(trainer, {}).get("cause", "")
            lines.append(
                f"| {name} | PS {what}, {result[what]['seconds']:.1f} s | {trainer} | {one['gap']:.2f} s{beyond} | {cause} |"
            )
    if "kill" in result:
        each = ", ".join(f"{trainer} {seconds:.2f} s" for trainer, seconds in result["kill"]["workers"].items())
        lines.append(f"| {name} | kill → all train | all | {result['kill']['seconds']:.2f} s | {each} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=tuple(SCRIPTS), default=list(SCRIPTS))
    parser.add_argument(
        "--what", nargs="*", choices=WHAT, default=list(WHAT), help="default: all; none: stock TensorFlow alone"
    )
    parser.add_argument("--no-stock", action="store_true", help="without the baseline")
    parser.add_argument("--settle", type=float, default=5.0, help="steady seconds before each change and the kill")
    parser.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE", help="of the elastic jobs")
    parser.add_argument("--script", action="append", default=[], metavar="WORD", help="argument of the scripts")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    arguments = parser.parse_args()
    end_on_signals()
    flags = [word for setting in arguments.setting for word in ("--setting", setting)]
    result: dict[str, Any] = {}
    table = ["| script | what | role | longest gap | told cause |", "|---|---|---|---|---|"]
    for name in arguments.only:
        result[name] = {}
        if arguments.what:
            result[name] = elastic(name, arguments.settle, flags, arguments.script, arguments.what)
        if not arguments.no_stock:
            result[name]["stock"] = stock(name, arguments.script)
        table += rows(name, result[name])
        if arguments.json:
            arguments.json.write_text(json.dumps(result, indent=1))
    print("\n".join(table))


if __name__ == "__main__":
    main()
