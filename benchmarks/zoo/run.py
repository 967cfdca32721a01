"""Measures the zoo: a real `deeprec-ext run` for each case, one after the other, and what the history would keep of it.

    python -m benchmarks.zoo.run                        # all that are not in benchmarks/zoo/runs.jsonl yet: an hour
    python -m benchmarks.zoo.run --count 3              # three more of them
    python -m benchmarks.zoo.run --only deepfm-4 --file /tmp/one.jsonl

One line a run: the case, what is on each slot (`memory_model.Layout`), and the job as the history keeps it: features of the
model from the job itself, and what its processes used. Nothing is taken from the case. A run that is measured is never run
again; one that fails is named and leaves nothing, and the others go on. Nothing else may run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.job import Job, end_on_signals, running, say
from benchmarks.stock.cluster import ROOT
from benchmarks.zoo.cases import Case, cases
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.autoscaler.history.finished import SETTLE_SECONDS, finished_job
from deeprec_ext.autoscaler.model.memory_model import Layout
from deeprec_ext.proto import deeprec_ext_pb2 as pb

FILE = ROOT / "benchmarks" / "zoo" / "runs.jsonl"
SCRIPT = ROOT / "benchmarks" / "zoo" / "train.py"
MEASURED_SECONDS = 18.0
"""After the job has settled."""

START_SECONDS, LATEST_SECONDS = 150.0, 180.0
"""A run that trains no sooner has failed, with tables of 1.6 GB it takes a minute; none is longer than the second."""


def measure(case: Case, seconds: float) -> dict[str, Any]:
    """Raises RuntimeError."""
    began = time.time()
    with running([str(SCRIPT), *case.flags], ps=case.ps, workers=case.workers, label="zoo") as job:
        job.until(job.is_steady, "training of all", START_SECONDS, every=0.5)
        until = min(time.time() + SETTLE_SECONDS + seconds, began + LATEST_SECONDS)
        job.until(lambda: time.time() > until, "the end of the measurement", seconds + 2 * SETTLE_SECONDS, every=0.5)
    found = kept(job, case, time.time() - began)
    shutil.rmtree(job.base, ignore_errors=True)
    return found


def kept(job: Job, case: Case, seconds: float) -> dict[str, Any]:
    """Raises RuntimeError: the job says too little."""
    found = finished_job(
        job.workdir, script="zoo", status="stopped", seconds=seconds, finished=time.time(), name=case.name
    )
    if found is None or not found.windows:
        raise RuntimeError(f"it trained too little to be kept; see {job.base}")
    store = Store(job.workdir / "aimaster.db", read_only=True)
    try:
        catalogue, slots = pb.Catalogue.FromString(store.blob("catalogue")), int(store.get("slots", 0))
    finally:
        store.close()
    return {"case": asdict(case), "layout": asdict(Layout.of(catalogue, slots)), "job": asdict(found)}


def read(file: Path) -> list[dict[str, Any]]:
    """Lines that are whole: one may be torn by a kill."""
    found = []
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            say(f"a line of {file} is no JSON and is left out")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, default=FILE)
    parser.add_argument("--count", type=int, default=10**6, help="end after so many runs")
    parser.add_argument("--only", nargs="*", metavar="CASE")
    parser.add_argument("--seconds", type=float, default=MEASURED_SECONDS)
    arguments = parser.parse_args()
    end_on_signals()
    done = {line["case"]["name"] for line in read(arguments.file)}
    todo = [case for case in cases() if case.name not in done and (not arguments.only or case.name in arguments.only)]
    failed = []
    for number, case in enumerate(todo[: arguments.count], 1):
        say(f"{number}/{len(todo)} {case.name}: {' '.join(case.flags)}, {case.ps} PS, {case.workers} workers")
        try:
            line = measure(case, arguments.seconds)
        except RuntimeError as error:
            failed.append(case.name)
            say(f"{case.name} failed: {error}")
            continue
        with open(arguments.file, "a") as out:
            out.write(json.dumps(line, separators=(",", ":")) + "\n")
            out.flush()
            os.fsync(out.fileno())
        job = line["job"]
        say(
            f"{case.name}: {job['windows'][0]['examples_per_second']:.0f} examples/s, PS {job['ps_memory_bytes'] / 1e6:.0f} MB "
            f"({job['ps_computed_bytes'] / 1e6:.0f} computed), trainer {job['worker_memory_bytes'] / 1e6:.0f} MB"
        )
    if failed:
        say(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
