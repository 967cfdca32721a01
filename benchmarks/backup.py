"""What backups cost: bytes against the rows that training touched, step time and processor time with them ÷ without.

    python -m benchmarks.backup                          # everything, about forty minutes on 2 cores
    python -m benchmarks.backup --part bytes --interval 5
    python -m benchmarks.backup --part peer --pairs 60

Parts:
  bytes   1 GB of tables and accumulators, Zipf 1.05 ids, chief + 1 worker, 2 PS, refreshed every 1, 5, 30 s. Bytes sent per
          refresh of all slots, against the rows touched since the last one × their size (value and accumulators). The rows
          touched are counted without the backups' help: the ids of batch n are a function of n (benchmarks/models.py), and
          the trainers write down when they completed which step.
  peer    step time and processor time with peer backups every 5 s ÷ without (benchmarks/taking_turns.py).
  disk    the same with a disk backup every 60 s, on this machine's disk.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.job import Job, end_on_signals, running, say
from benchmarks.stock import steps
from benchmarks.stock.cluster import ROOT
from benchmarks.taking_turns import Kind, in_pairs
from deeprec_ext.proto import deeprec_ext_pb2 as pb

SCRIPT = str(ROOT / "benchmarks" / "stock" / "train.py")
ZIPF = 1.05
BATCH = 512
FIELDS = 26
PEER_SECONDS, DISK_SECONDS = 5.0, 60.0
"""The settings' defaults."""
PAIRS = {"peer": 40, "disk": 10}


def _command(state: str) -> list[str]:
    return [SCRIPT, "--state", state, "--batch", str(BATCH), "--zipf", str(ZIPF), "--steps", str(10**9)]


# -------------------------------------------------------------------------------------------------------------- bytes


@dataclass(frozen=True)
class Seen:
    """The counters of BackupStatus at one moment."""

    time: float
    bytes: int
    refreshes: int


def watch(job: Job, holders: int, rounds: int, interval: float) -> list[Seen]:
    """One entry for the beginning and one per refresh of any holder, until each has refreshed `rounds` times."""
    found: list[Seen] = []

    def enough() -> bool:
        status = job.status()
        if status is None:
            return False
        now = Seen(time.time(), status.backup.bytes_sent, status.backup.refreshes)
        if not found or now.refreshes > found[-1].refreshes:
            found.append(now)
        return now.refreshes >= found[0].refreshes + rounds * holders

    job.until(enough, f"{rounds} refreshes", (rounds + 2) * (interval + 10.0), every=0.02)
    return found


def period(seen: Sequence[Seen], holders: int) -> float:
    """Seconds between two refreshes of the same holder: they come in turns."""
    gaps = [
        later.time - earlier.time
        for earlier in seen[1:]
        for later in seen
        if later.refreshes == earlier.refreshes + holders
    ]
    return statistics.median(gaps)


def sizes(catalogue: pb.Catalogue) -> tuple[dict[int, int], int, int]:
    """(field → bytes of a row of its tables with their accumulators, bytes of dense variables, bytes of everything)."""
    rows = dict.fromkeys(range(FIELDS), 0)
    dense = total = 0
    for variable in catalogue.variables:
        total += variable.bytes
        if variable.update == pb.Variable.ROWS and variable.name.startswith("field"):
            rows[int(variable.name[len("field") :].split("/")[0])] += variable.bytes // variable.shape[0]
        elif variable.update == pb.Variable.DENSE:
            dense += variable.bytes
    return rows, dense, total


def touched_bytes(
    recorded: dict[str, list[steps.Step]], bounds: Sequence[float], row_bytes: dict[int, int], state: str
) -> list[int]:
    """Per interval between two bounds: distinct rows of all tables that the trainers' steps in it used, × their bytes."""
    import numpy as np
    import tensorflow as tf

    from benchmarks import models

    size = models.size_of(state if state in models.STATE_BYTES else int(state), batch=BATCH, zipf=ZIPF)
    batches = {  # chief-0 has seed 0, worker-0 has 1
        name: tf.function(lambda number, seed=seed: models.make_batch(number, size, seed)[0])
        for seed, name in enumerate(sorted(recorded))
    }
    found = []
    for begin, end in zip(bounds, bounds[1:]):
        touched = np.zeros((size.fields, size.rows), bool)
        for name, batch_of in batches.items():
            for number, step in enumerate(recorded[name]):
                if begin < step.time <= end:
                    ids = batch_of(tf.constant(number, tf.int64)).numpy()
                    touched[np.arange(size.fields), ids] = True
        found.append(sum(int(count) * row_bytes[field] for field, count in enumerate(touched.sum(1))))
    return found


def sent(interval: float, state: str, ps: int, rounds: int) -> dict[str, Any]:
    """One job that is refreshed so often."""
    flags = ["--setting", "peer_backup=auto", "--setting", f"peer_backup_seconds={interval:g}"]
    with running(_command(state), ps=ps, flags=flags, label="backup-bytes") as job:
        job.wait_steps(100, 0.0)
        job.wait_steady(3.0)
        status = job.until(job.status, "status")
        if not status.backup.peer:
            raise RuntimeError("the job has no peer backups; is peer_backup off, or not yet there?")
        say(f"bytes: every {interval:g} s: every slot has its backup; watching {rounds} refreshes")
        seen = watch(job, ps, rounds, interval)
        row_bytes, dense, total = sizes(job.graph())
        recorded = job.wait_steps(1, time.time())
        workdir = str(job.workdir)
    # A holder's refreshes are `every` apart; rows touched in such a time do not depend on where it begins.
    every = period(seen, ps)
    number = max(1, int((seen[-1].time - seen[0].time) / every))
    bounds = [seen[0].time + turn * every for turn in range(number + 1)]
    touched = touched_bytes(recorded, bounds, row_bytes, state)
    steps_made = sum(bounds[0] < step.time <= bounds[-1] for of_one in recorded.values() for step in of_one)
    refreshes = (seen[-1].refreshes - seen[0].refreshes) / ps
    bytes_sent = seen[-1].bytes - seen[0].bytes
    return {
        "interval_seconds": interval, "refreshes": refreshes, "seconds": bounds[-1] - bounds[0],
        "period_seconds": every, "samples_per_refresh": steps_made * BATCH / number,
        "bytes_per_refresh": bytes_sent / refreshes, "touched_bytes_per_refresh": sum(touched) / len(touched),
        "dense_bytes": dense, "full_bytes": total,
        "ratio": bytes_sent / refreshes / (sum(touched) / len(touched)),
        "ratio_without_dense": (bytes_sent / refreshes - dense) / (sum(touched) / len(touched)),
        "full_over_sent": total * refreshes / bytes_sent, "full_over_touched": total * len(touched) / sum(touched),
        "workdir": workdir,
    }  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- parts


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {"state": arguments.state, "ps": arguments.ps, "zipf": ZIPF, "errors": []}
    if "bytes" in arguments.part:
        result["bytes"] = []
        for interval in arguments.interval:
            say(f"bytes: every {interval:g} s begins")
            rounds = max(3, min(20, int(arguments.seconds / interval)))
            try:
                result["bytes"].append(sent(interval, arguments.state, arguments.ps, rounds))
            except RuntimeError as error:
                say(f"bytes: not measured: {error}")
                result["errors"].append(str(error))
    peer = ("--setting", "peer_backup=auto", "--setting", f"peer_backup_seconds={PEER_SECONDS:g}")
    with tempfile.TemporaryDirectory(prefix="backup-disk-") as directory:
        disk = ("--backup", f"disk={directory}", "--setting", f"disk_backup_seconds={DISK_SECONDS:g}")
        for part, interval, flags in (("peer", PEER_SECONDS, peer), ("disk", DISK_SECONDS, disk)):
            if part not in arguments.part:
                continue
            pairs = arguments.pairs or PAIRS[part]
            say(f"{part}: begins, {pairs} pairs")
            try:
                command = _command(arguments.state)
                kinds = {"with": Kind(command, flags), "without": Kind(command, ("--setting", "peer_backup=off"))}
                result[part] = in_pairs(kinds, interval, pairs, arguments.ps)
            except RuntimeError as error:
                say(f"{part}: not measured: {error}")
                result["errors"].append(str(error))
    return result


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The measures of the issue."""
    found = []
    for one in result.get("bytes", ()):
        found.append({
            "measure": f"bytes sent ÷ rows touched × row size, every {one['interval_seconds']:g} s", "target": "≤ 1.1",
            "measured": f"{one['ratio']:.3f} ({one['bytes_per_refresh'] / 1e6:.1f} MB of {one['full_bytes'] / 1e6:.0f}; "
                        f"{one['samples_per_refresh']:.0f} samples)",
            "met": one["ratio"] <= 1.1,
        })  # fmt: skip
        found.append({
            "measure": "  a full copy ÷ bytes sent (touched rows allow)", "target": "",
            "measured": f"{one['full_over_sent']:.1f}× ({one['full_over_touched']:.1f}×)", "met": None,
        })  # fmt: skip
    for part, what in (("peer", "peer backups"), ("disk", "disk backups")):
        if part in result:
            one = result[part]
            step, cpu = one["step_ratio"], one["cpu_ratio"]
            target = "≤ 1.02" if part == "peer" else ""
            found.append({
                "measure": f"step time with {what} every {one['interval_seconds']:g} s ÷ without", "target": target,
                "measured": f"{step['median']:.4f} ({one['pairs']} pairs, quartiles {step['low']:.3f} to {step['high']:.3f})",
                "met": step["median"] <= 1.02 if target else None,
            })  # fmt: skip
            found.append({
                "measure": "  processor time per step, the same", "target": "",
                "measured": f"{cpu['median']:.4f} (quartiles {cpu['low']:.3f} to {cpu['high']:.3f})", "met": None,
            })  # fmt: skip
    return found


def main() -> int:
    from benchmarks.failover_figures import table

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=("bytes", "peer", "disk"), default=["bytes", "peer", "disk"])
    parser.add_argument(
        "--interval", nargs="+", type=float, default=[1.0, 5.0, 30.0], help="of the bytes part, seconds"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="about how long each interval is watched")
    parser.add_argument("--state", default="1GB", help="bytes of tables and accumulators")
    parser.add_argument("--ps", type=int, default=2)
    parser.add_argument("--pairs", type=int, help="of turns in the parts peer and disk")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    arguments = parser.parse_args()
    end_on_signals()
    result = measure(arguments)
    result["table"] = rows(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))
    print(table(result["table"]))
    return 1 if result["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
