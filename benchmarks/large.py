"""Many PS and many trainers on one machine, at small size: 64 slots, 2 → 4 → 8 → 16 PS and as many trainers, and back.

    python -m benchmarks.large                                # 32 processes at most: about 12 GB, a quarter of an hour
    python -m benchmarks.large --counts 2 4 8 --json large.json
    python -m benchmarks.control --agents 1000 --scalings 50  # the AIMaster alone, with a thousand simulated agents

One job (benchmarks/steady.py, held to a pace, so that its trainers leave processor time to each other) whose input is one
epoch of a dataset with a ledger. At every size: PS first, then trainers, then one PS is replaced, `--repeat` times: the
change whose pause is compared, since all sizes have it alike. At the end the trainers may hurry, the data ends, and
every record must have been trained once.

    gate    PAUSE to RELEASE, from the AIMaster's events: until every trainer goes on and has closed its old session, which
            it does half a second later
    pause   the longest run of a trainer around the change, minus its median run (what was slept away to keep the pace is
            not in it), the worst trainer
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.job import Job, end_on_signals, running, say
from benchmarks.long_run import look_at, steps_of
from benchmarks.stock import steps
from benchmarks.stock.cluster import ROOT
from deeprec_ext.proto import deeprec_ext_pb2 as pb

SCRIPT = str(ROOT / "benchmarks" / "steady.py")
SLOTS = 64
START_LIMIT_SECONDS, CHANGE_LIMIT_SECONDS, END_LIMIT_SECONDS = 600.0, 600.0, 900.0
AFTER_SECONDS = 5.0
"""After a change that still belong to it."""
TRIES = 3
"""For a change that is rolled back, as on a machine that has no processor time left; every try is in the result."""
Row = dict[str, Any]


def ask(job: Job, **wanted: Any) -> pb.ScalingStatus:
    """One change, done and over."""
    job.until(job.status, "answer of the AIMaster")
    assert job._stub is not None
    reply = job._stub.Scale(pb.ScaleRequest(**wanted), timeout=60)
    if not reply.scaling_id:
        raise RuntimeError(f"{wanted}: {reply.message}")

    def ended() -> pb.ScalingStatus | None:
        status = job.status(60)
        return (
            next((one for one in status.scalings if one.id == reply.scaling_id and one.outcome), None)
            if status
            else None
        )

    record = job.until(ended, f"end of {wanted}", CHANGE_LIMIT_SECONDS)
    assert record is not None
    status = job.until(job.status, "answer of the AIMaster")
    if record.outcome == "committed":
        job.ps = wanted.get("ps", job.ps)
    job.trainers = [one.name for one in status.roles if one.role in (pb.CHIEF, pb.WORKER) and one.state == "running"]
    return record


def gate_seconds(job: Job, scaling: int) -> float | None:
    """PAUSE to RELEASE."""
    times = {event["state"]: event["time"] for event in job.events("scaling_state") if event["scaling"] == scaling}
    return times["RELEASE"] - times["PAUSE"] if {"PAUSE", "RELEASE"} <= times.keys() else None


def change(job: Job, what: str, **wanted: Any) -> Row:
    began = time.time()
    before = statistics.median(run for runs in steps_of(job, began - 15, began).values() for run in runs)
    ps, trainers = job.ps, len(job.trainers)
    record = ask(job, **wanted)
    asked = time.time() - began
    after = time.time() + AFTER_SECONDS
    job.until(lambda: time.time() > after, "the seconds after it", 60)
    runs = steps_of(job, began, time.time())
    states = {event["state"]: event["time"] for event in job.events("scaling_state") if event["scaling"] == record.id}
    spans = list(states.items())
    row = {
        "change": what, "ps": ps, "trainers": trainers, "outcome": record.outcome, "reason": record.reason,
        "seconds": asked, "gate": gate_seconds(job, record.id), "pause": max(max(one) for one in runs.values()) - before,
        "median_run": before, "slots_moved": record.slots_moved, "bytes_moved": record.bytes_moved,
        "states": {a[0]: round(b[1] - a[1], 3) for a, b in zip(spans, spans[1:])},
    }  # fmt: skip
    say(f"{what}: {row['outcome']} in {asked:.1f} s, gate {row['gate'] or 0:.3f} s, worst run {row['pause']:.3f} s "
        f"({ps} PS, {trainers} trainers before; a run {before:.3f} s)")  # fmt: skip
    return row


def look(job: Job) -> Row:
    """Memory and processor time of everybody at this size."""
    status = job.until(job.status, "answer of the AIMaster")
    kinds = {role.pid: pb.Role.Name(role.role).lower() for role in status.roles if role.state == "running"}
    kinds[job.pid("aimaster")], kinds[job.process.pid] = "aimaster", "launcher"
    own: dict[str, list[Row]] = {}
    for process in job.everyone():
        if process.pid in kinds and (seen := look_at(process)):
            own.setdefault(kinds[process.pid].replace("chief", "trainer").replace("worker", "trainer"), []).append(seen)
    memory = {kind: round(statistics.median(one["own"] for one in each) / 1e6) for kind, each in own.items()}
    total = sum(one["pss"] for each in own.values() for one in each)
    loads: dict[int, int] = {}
    for task in status.slot_map:
        loads[task] = loads.get(task, 0) + 1
    return {
        "ps": job.ps, "trainers": len(job.trainers), "own_mb": memory, "all_pss_mb": round(total / 1e6),
        "threads": {kind: max(one["threads"] for one in each) for kind, each in own.items()},
        "fds": {kind: max(one["fds"] for one in each) for kind, each in own.items()},
        "slots_per_ps": [min(loads.values()), max(loads.values())],
    }  # fmt: skip


def grow_and_shrink(counts: Sequence[int], repeat: int, records: int, pace: float, settle: float) -> Row:
    """The whole of it: one job."""
    top, fewest = max(counts), counts[0]
    command = [SCRIPT, "--pace", str(pace), "--census", "0", "--batch", "16", "--state", "2000000", "--fields", "16",
               "--records", str(records), "--epochs", "1"]  # fmt: skip
    flags = ["--slots", str(SLOTS), "--max-ps", str(top), "--max-workers", str(top)]
    result: Row = {"counts": list(counts), "slots": SLOTS, "pace": pace, "changes": [], "sizes": []}
    began = time.time()
    with running(command, ps=fewest, workers=fewest - 1, flags=flags, label="large") as job:
        say(str(job.base))
        job.wait_steady(settle, START_LIMIT_SECONDS)
        result["start"] = time.time() - began
        order = [*counts, *list(counts)[-2::-1]]
        for number, count in enumerate(order):
            if number:
                for what in ("ps", "workers") if count > job.ps else ("workers", "ps"):
                    wanted = {"ps": count} if what == "ps" else {"workers": count - 1}
                    for _ in range(TRIES):
                        result["changes"].append(change(job, f"{what} -> {count}", **wanted))
                        job.wait_steady(settle, CHANGE_LIMIT_SECONDS)
                        if result["changes"][-1]["outcome"] == "committed":
                            break
                    else:
                        raise RuntimeError(
                            f"{what} -> {count} was rolled back {TRIES} times: {result['changes'][-1]['reason']}"
                        )
            result["sizes"].append(look(job))
            for _ in range(repeat if number < len(counts) else 0):
                result["changes"].append(change(job, "replace", replace=job.servers()[-1]))
                job.wait_steady(settle, CHANGE_LIMIT_SECONDS)
        (job.recorded / steps.HURRY).touch()
        ended = time.monotonic() + END_LIMIT_SECONDS
        while job.process.poll() is None and time.monotonic() < ended:
            time.sleep(0.5)
        result["exit_code"] = job.process.poll()
    summary = job.summary()
    result["status"], result["data"] = summary["status"], summary["data"]
    result["restarted"] = sum(one["restarted"] for one in summary["roles"].values())
    result["failures"] = summary["failures"]
    return result


def start(count: int, pace: float, settle: float) -> Row:
    """How long a job of that size needs until all of it is steady, and how long until the first step."""
    command = [SCRIPT, "--pace", str(pace), "--census", "0", "--batch", "16", "--state", "2000000", "--fields", "16"]
    flags = ["--slots", str(SLOTS), "--max-ps", str(count), "--max-workers", str(count)]
    began = time.time()
    with running(command, ps=count, workers=count - 1, flags=flags, label="large-start") as job:
        job.until(lambda: any(job.recorded.glob("*.steps")) and steps_of(job, began, time.time()), "a first step", 600)
        first = time.time() - began
        job.wait_steady(settle, START_LIMIT_SECONDS)
        return {"count": count, "first_step": first, "steady": time.time() - began, **look(job)}


def table(result: Row) -> str:
    lines = [f"{SLOTS} slots; started in {result['start']:.0f} s; ended {result['status']}, data {result['data']}, "
             f"{result['restarted']} restarts, {len(result['failures'])} failures"]  # fmt: skip
    for one in result["sizes"]:
        lines.append(f"{one['ps']:3} PS, {one['trainers']:3} trainers: own MB {one['own_mb']}, all {one['all_pss_mb']} MB, "
                     f"threads {one['threads']}, slots a PS {one['slots_per_ps']}")  # fmt: skip
    heads = ("outcome", 11), ("seconds", 9), ("gate s", 8), ("worst run s", 12), ("run s", 7)
    lines.append(f"{'change':14}{'PS':>4}{'trainers':>9}" + "".join(f"{head:>{width}}" for head, width in heads))
    for one in result["changes"]:
        gate = f"{one['gate']:.3f}" if one["gate"] is not None else "-"
        lines.append(f"{one['change']:14}{one['ps']:4}{one['trainers']:9}{one['outcome']:>11}{one['seconds']:9.1f}{gate:>8}"
                     f"{one['pause']:12.3f}{one['median_run']:7.3f}")  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[2, 4, 8, 16], help="PS, and trainers with the chief")
    parser.add_argument("--repeat", type=int, default=3, help="replacements at each size on the way up")
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--pace", type=float, default=0.5, metavar="SECONDS", help="a step lasts at least so long")
    parser.add_argument("--settle", type=float, default=8.0, metavar="SECONDS", help="of steady state before a change")
    parser.add_argument("--start", type=int, metavar="COUNT", help="only: how long a job of that size takes to start")
    parser.add_argument("--json", type=Path, help="write the result to this file")
    arguments = parser.parse_args()
    end_on_signals()
    say(f"{psutil.virtual_memory().available / 1e9:.1f} GB available")
    if arguments.start:
        result = start(arguments.start, arguments.pace, arguments.settle)
        print(json.dumps(result, indent=2))
    else:
        result = grow_and_shrink(
            arguments.counts, arguments.repeat, arguments.records, arguments.pace, arguments.settle
        )
        print(table(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
