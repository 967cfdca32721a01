"""What the loss of a process costs, on the real thing: every process real, DeepFM with 26 fields, stock TensorFlow beside it.

    python -m benchmarks.failover                          # everything, about half an hour on 2 cores
    python -m benchmarks.failover --part kill stock --kills 4

Parts:
  kill      kill -9 of one PS after the other, 256 MB of state, chief + 1 worker: the kill → first good step of every worker
  stock     the same on stock TensorFlow: PS started again in place at once, checkpoint restored
  graph     as kill, with every table cut in 8 (18 000 ops)
  hang      SIGSTOP of a PS
  change    kill -9 of the fullest PS three seconds after a change of PS, without and with --autoscale
  input     as kill, of a job that reads an elastic dataset whose iterator has lived for a minute: the step that failed gets
            its batch again from an iterator made anew, and TensorFlow may take a minute to end the one before
  updates   updates lost, counted on every slot by the script itself (benchmarks/updates.py)
  aimaster  kill -9 of the AIMaster: gaps between steps around it, and the time until it is in control again

The trainers themselves write down when they complete a step. A worker's *first good step* after a kill is the end of the
longer of the first two gaps after it: the first may be a step whose replies were already on their way. One kill counts with
its slowest worker. Between two kills the job becomes steady again: all PS back, every slot protected.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import failover_figures as figures
from benchmarks import updates
from benchmarks.job import Job, end_on_signals, running, say
from benchmarks.stock import steps
from benchmarks.stock.cluster import ROOT, cluster

SCRIPT = str(ROOT / "benchmarks" / "stock" / "train.py")
READS = (str(ROOT / "benchmarks" / "steady.py"), "--pace", "0.02", "--census", "0", "--state", "16000000")
NEVER = str(10**9)

Part = Callable[[], dict[str, Any]]
WARM_STEPS = 100
GOOD_STEPS = 20
"""Of every trainer after a kill: then the failover is over and measured."""


CHANGED_SECONDS = 3.0
"""From the end of a change to the death of a PS."""


def first_good_step(times: Sequence[float], struck: float) -> float:
    """Seconds from the kill to the first good step. Needs a step before the kill and two after it."""
    before = max(time for time in times if time <= struck)
    first, second = sorted(time for time in times if time > struck)[:2]
    return (first if first - before >= second - first else second) - struck


def _firsts(seen: dict[str, list[steps.Step]], trainers: Sequence[str], struck: float) -> dict[str, float]:
    return {name: first_good_step([step.time for step in seen[name]], struck) for name in trainers}


def _steps_back(seen: dict[str, list[steps.Step]], trainers: Sequence[str], struck: float) -> int:
    """How far the global step went back at the kill."""
    before = max([step.step for step in seen[name] if step.time <= struck][-1] for name in trainers)
    return max(0, before - min(step.step for name in trainers for step in seen[name] if step.time > struck))


def _quantile(values: Sequence[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def _kills(each: list[dict[str, Any]]) -> dict[str, Any]:
    """`each`: one dictionary per kill with `seconds`, that of the slowest worker."""
    values = [one["seconds"] for one in each]
    return {
        "kills": len(values), "p50": statistics.median(values), "p90": _quantile(values, 0.9), "max": max(values),
        "each": each,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------------ elastic jobs


def strike(job: Job, name: str, number: signal.Signals) -> dict[str, Any]:
    """One PS gets the signal; what every worker and the AIMaster saw of it."""
    epoch = job.until(job.status, "status").epoch
    struck = job.send(name, number)
    seen = job.wait_steps(GOOD_STEPS, struck + 0.001)
    # A worker may complete steps before the loss reaches it, and the AIMaster's view comes before the steps go on.
    job.until(lambda: (status := job.status()) is not None and status.epoch > epoch, "another view")
    seen = job.wait_steps(GOOD_STEPS, time.time())
    workers = _firsts(seen, job.trainers, struck)
    return {
        "ps": name, "struck": struck, "seconds": max(workers.values()), "workers": workers,
        "detected": _first(job, struck, "failure"), "promoted": _first(job, struck, "promoted", "ps_replaced"),
        "steps_back": _steps_back(seen, job.trainers, struck),
    }  # fmt: skip


def _first(job: Job, since: float, *types: str) -> float | None:
    """Seconds from then to the first such event."""
    return next((event["time"] - since for event in job.events(*types) if event["time"] > since), None)


def strikes(
    label: str,
    number: signal.Signals,
    count: int,
    command: Sequence[str],
    *,
    ps: int,
    settle: float,
    flags: Sequence[str],
) -> dict[str, Any]:
    """One job whose PS are struck in turn."""
    with running(command, ps=ps, flags=flags, label=f"failover-{label}") as job:
        job.wait_steps(WARM_STEPS, 0.0)
        each: list[dict[str, Any]] = []
        for turn in range(count):
            job.wait_steady(settle)
            servers = job.servers()
            each.append(strike(job, servers[turn % len(servers)], number))
            say(f"{label}: {each[-1]['ps']}: {each[-1]['seconds']:.3f} s ({turn + 1} of {count})")
        job.wait_steady(1.0)
        workdir = str(job.workdir)
    summary = job.summary()
    failures = [{key: one[key] for key in ("role", "id", "cause", "detected_seconds", "recovered_seconds", "steps_lost")}
                for one in summary["failures"]]  # fmt: skip
    return {**_kills(each), "workdir": workdir, "failures": failures}


def after_changes(count: int, command: Sequence[str], *, flags: Sequence[str]) -> dict[str, Any]:
    """One job whose PS change from 2 to 3 and back, and whose fullest PS dies soon after each change."""
    with running(command, ps=2, flags=[*flags, "--max-ps", "4"], label="failover-change") as job:
        job.wait_steps(WARM_STEPS, 0.0)
        each: list[dict[str, Any]] = []
        for turn in range(count):
            job.wait_steady(4.0)
            before = len(job.events("scaling_ended"))
            job.ps = 5 - job.ps
            job.ask(ps=job.ps, reason="a change")
            job.until(lambda before=before: len(job.events("scaling_ended")) > before, "the change")
            assert job.events("scaling_ended")[-1]["outcome"] == "committed", job.events("scaling_ended")[-1]
            time.sleep(CHANGED_SECONDS)
            roles = [role for role in job.until(job.status, "status").roles if role.bytes]
            each.append(strike(job, max(roles, key=lambda role: role.bytes).name, signal.SIGKILL))
            say(f"change, {' '.join(flags) or 'no autoscaler'}: {each[-1]['seconds']:.3f} s ({turn + 1} of {count})")
    return _kills(each)


def stock(count: int, *, state: str, ps: int) -> dict[str, Any]:
    """Stock TensorFlow as kindly as can be: the PS comes again at once, workers look every 0.5 s (stock: 30 s)."""
    base = Path(tempfile.mkdtemp(prefix="failover-stock-"))
    (base / "steps").mkdir()
    command = [sys.executable, SCRIPT, "--state", state, "--steps", NEVER, "--model-dir", str(base / "model"),
               "--checkpoint-seconds", "60"]  # fmt: skip
    variables = {steps.DIRECTORY_VARIABLE: str(base / "steps"), "BENCHMARK_POLL_SECONDS": "0.5"}
    trainers = ["chief-0", "worker-0"]
    each = []
    with cluster(ps, 1, command, base / "logs", variables) as members:

        def wait(count: int, since: float) -> dict[str, list[steps.Step]]:
            deadline = time.monotonic() + 300
            while True:
                seen = steps.read(base / "steps")
                if all(sum(step.time > since for step in seen.get(name, ())) >= count for name in trainers):
                    return seen
                for name, process in members.trainers.items():
                    if process.poll() is not None:
                        raise RuntimeError(f"stock {name} ended with {process.returncode}; see {base / 'logs'}")
                if time.monotonic() > deadline:
                    raise RuntimeError(f"stock: no {count} steps within 300 s; see {base / 'logs'}")
                time.sleep(0.25)

        wait(WARM_STEPS, 0.0)
        for turn in range(count):
            wait(WARM_STEPS, time.time())
            name = f"ps-{turn % ps}"
            struck = members.respawn(name)
            wait(1, struck + 1.0)  # past steps that were under way
            seen = wait(2 * GOOD_STEPS, struck)
            workers = _firsts(seen, trainers, struck)
            each.append({"ps": name, "seconds": max(workers.values()), "workers": workers,
                         "steps_back": _steps_back(seen, trainers, struck)})  # fmt: skip
            say(
                f"stock: {name}: {each[-1]['seconds']:.2f} s, {each[-1]['steps_back']} steps back ({turn + 1} of {count})"
            )
    return {**_kills(each), "workdir": str(base)}


# ------------------------------------------------------------------------------------------------------ lost updates


def lost_updates(count: int, *, ps: int, interval: float) -> dict[str, Any]:
    """Per kill: updates lost on each slot, and how old the oldest of them was at the kill."""
    flags = ["--setting", f"peer_backup_seconds={interval:g}"]
    each = []
    with running([str(ROOT / "benchmarks" / "updates.py")], ps=ps, flags=flags, label="failover-updates") as job:
        job.wait_steps(WARM_STEPS, 0.0)
        for turn in range(count):
            job.wait_steady(2.0)
            # Anywhere in the backups' interval, but the same each time the benchmark is run.
            time.sleep(interval * (turn * 0.382 % 1.0))
            servers = job.servers()
            name = servers[turn % len(servers)]
            lost = set(job.role(name).slots)
            found = strike(job, name, signal.SIGKILL)
            each.append({**_missing(job, found["struck"], lost), "ps": name, "seconds": found["seconds"]})
            one = each[-1]
            say(f"updates: {name}: {one['lost_slots']} on its slots, oldest {one['oldest_seconds']:.2f} s; "
                f"{one['other_slots']} on others; {one['repeated']} twice ({turn + 1} of {count})")  # fmt: skip
        workdir = str(job.workdir)
    return {
        "interval_seconds": interval, "each": each, "workdir": workdir,
        "oldest_seconds": max(one["oldest_seconds"] for one in each),
        "lost_on_lost_slots": max(one["lost_slots"] for one in each),
        "lost_on_other_slots": sum(one["other_slots"] for one in each),
        "applied_twice": sum(one["repeated"] for one in each),
    }  # fmt: skip


def _missing(job: Job, struck: float, lost: set[int]) -> dict[str, Any]:
    """What each slot has lost since the kill, by the trainers' own counts."""
    placed = json.loads((job.recorded / updates.SLOTS_FILE).read_text())
    on_lost = on_others = repeated = 0
    oldest = 0.0
    for lines in updates.read(job.recorded).values():
        before = [line for line in lines if line.time <= struck]
        after = lines[-1]
        for kind in ("counters", "tables"):
            for number, slot in enumerate(placed[kind]):
                missing = after.done - getattr(after, kind)[number]
                missing -= before[-1].done - getattr(before[-1], kind)[number]
                if missing < 0:
                    repeated = max(repeated, -missing)
                elif slot in lost:
                    on_lost = max(on_lost, missing)
                    if missing:
                        oldest = max(oldest, struck - before[-min(missing, len(before))].time)
                else:
                    on_others = max(on_others, missing)
    return {"lost_slots": on_lost, "other_slots": on_others, "repeated": repeated, "oldest_seconds": oldest}


# ---------------------------------------------------------------------------------------------------------- AIMaster


def aimaster(count: int, *, state: str, ps: int) -> dict[str, Any]:
    """kill -9 of the AIMaster: does a step wait, and when is it in control again?"""
    each = []
    with running([SCRIPT, "--state", state, "--steps", NEVER], ps=ps, label="failover-aimaster") as job:
        job.wait_steps(WARM_STEPS, 0.0)
        for turn in range(count):
            job.wait_steady(3.0)
            calm = time.time()
            job.wait_steps(20, calm + 20.0)
            before = job.until(job.status, "status")
            waits = {role.name: role.heartbeat.gate_waits for role in before.roles}
            struck = job.send("aimaster", signal.SIGKILL)
            old = before.aimaster_incarnation
            job.until(partial(_in_control, job, old, struck), "an AIMaster in control", every=0.02)
            back = time.time() - struck
            window = back + 2.0
            seen = job.wait_steps(5, struck + window)
            after = job.until(job.status, "status")
            waited = sum(role.heartbeat.gate_waits - waits.get(role.name, 0) for role in after.roles)
            gaps = {
                name: _longest_gap([step.time for step in seen[name]], struck, struck + window) for name in job.trainers
            }
            undisturbed = [
                _longest_gap([step.time for step in seen[name]], begin, begin + window)
                for name in job.trainers
                for begin in _windows(calm, struck, window)
            ]
            each.append({"back": back, "gate_waits": waited, "gap": max(gaps.values()), "gaps": gaps, "window": window,
                         "undisturbed": undisturbed})  # fmt: skip
            say(f"aimaster: in control after {back:.2f} s; longest gap {max(gaps.values()):.3f} s, undisturbed "
                f"{max(undisturbed):.3f} s; {waited} runs waited at the gate ({turn + 1} of {count})")  # fmt: skip
        workdir = str(job.workdir)
    return {
        "back_p50": statistics.median(one["back"] for one in each), "back_max": max(one["back"] for one in each),
        "gate_waits": sum(one["gate_waits"] for one in each), "longest_gap": max(one["gap"] for one in each),
        "longest_gap_p50": statistics.median(one["gap"] for one in each),
        "undisturbed_gap_p50": statistics.median(gap for one in each for gap in one["undisturbed"]),
        "undisturbed_gap_max": max(gap for one in each for gap in one["undisturbed"]),
        "each": each, "workdir": workdir,
    }  # fmt: skip


def _in_control(job: Job, old: int, struck: float) -> bool:
    """Another AIMaster answers and has heard every process since the kill."""
    status = job.status(seconds=0.5)
    if status is None or status.aimaster_incarnation == old:
        return False
    since = time.time() - struck
    members = [role for role in status.roles if role.name != "aimaster"]
    return bool(members) and all(
        role.state == "running" and role.incarnation and role.heartbeat_age_seconds < since and role.heartbeat.epoch
        for role in members
    )


def _windows(begin: float, end: float, length: float) -> list[float]:
    return [begin + n * length for n in range(max(1, int((end - begin) / length)))]


def _longest_gap(times: Sequence[float], begin: float, end: float) -> float:
    """Of the gaps that overlap [begin, end]."""
    return max(
        (later - earlier for earlier, later in zip(times, times[1:]) if later >= begin and earlier <= end), default=0.0
    )


# ------------------------------------------------------------------------------------------------------------- parts


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """The chosen parts. One that fails is told, and the others are measured nevertheless."""
    state, ps, kills = arguments.state, arguments.ps, arguments.kills
    flags = [word for setting in arguments.setting for word in ("--setting", setting)]
    few = max(1, kills // 2)

    def struck(label: str, number: signal.Signals, count: int, command: Sequence[str], settle: float) -> Part:
        return lambda: strikes(label, number, count, command, ps=ps, settle=settle, flags=flags)

    script = [SCRIPT, "--state", state, "--steps", NEVER]
    parts: dict[str, Part] = {
        "kill": struck("kill", signal.SIGKILL, kills, script, 4.0),
        "stock": lambda: stock(max(2, kills // 2), state=state, ps=ps),
        "graph": struck("graph", signal.SIGKILL, few, [*script, "--parts", "8"], arguments.graph_settle),
        "hang": struck("hang", signal.SIGSTOP, few, script, 4.0),
        "change": lambda: {
            how: after_changes(few, script, flags=[*flags, *more])
            for how, more in (("without", ()), ("with --autoscale", ("--autoscale",)))
        },
        "input": struck("input", signal.SIGKILL, few, READS, arguments.input_settle),
        "updates": lambda: lost_updates(kills, ps=ps, interval=arguments.interval),
        "aimaster": lambda: aimaster(few, state=state, ps=ps),
    }
    result: dict[str, Any] = {"state": state, "ps": ps}
    for name in arguments.part:
        say(f"{name}: begins")
        try:
            result[name] = parts[name]()
        except (RuntimeError, StopIteration, ValueError) as error:
            say(f"{name}: not measured: {error}")
            result[name] = {"error": str(error)}
    return result


PARTS = ("kill", "stock", "graph", "hang", "change", "input", "updates", "aimaster")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS), help="default: all")
    parser.add_argument("--state", default="256MB", help="tables and accumulators of all parts but `updates`")
    parser.add_argument("--ps", type=int, default=2)
    parser.add_argument("--kills", type=int, default=8, help="of `kill` and `updates`; half as many in the other parts")
    parser.add_argument("--interval", type=float, default=5.0, help="of the peer backups in `updates`, seconds")
    parser.add_argument(
        "--graph-settle", type=float, default=60.0, help="seconds in which sessions are prepared in `graph`"
    )
    parser.add_argument("--input-settle", type=float, default=60.0, help="seconds that iterators live in `input`")
    parser.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE", help="of the elastic jobs")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    arguments = parser.parse_args()
    end_on_signals()
    result = measure(arguments)
    result["table"] = figures.rows(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))
    print(figures.table(result["table"]))
    return 1 if any("error" in result[name] for name in arguments.part) else 0


if __name__ == "__main__":
    sys.exit(main())
