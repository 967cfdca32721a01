"""Stories for the tests: made of few numbers, with everything a real run has.

`python -m tests.unit.gazer.report.stories` writes the golden files anew; look at the difference before you commit it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Union

from deeprec_ext.gazer.report.case import Case
from deeprec_ext.gazer.report.story import Event, Failure, Log, Placement, Request, Scaling, Story, Table, Traced
from deeprec_ext.gazer.series import Line
from deeprec_ext.proto import deeprec_ext_pb2 as pb

BEGAN = 1_000_000.0
EVERY = 2.0
SECONDS = 300.0

Value = Union[float, Callable[[float], float]]


def line(
    subject: str, metric: str, value: Value, start: float = 0.0, end: float = SECONDS, every: float = EVERY
) -> Line:
    """A sample each `every` seconds; the value may depend on the seconds since the start."""
    times = [start + every * (number + 1) for number in range(int((end - start) / every))]
    values = [value(time) if callable(value) else value for time in times]
    return Line(subject, metric, [BEGAN + time for time in times], values, list(values))


def lines(values: Mapping[str, Mapping[str, Value]], **times: float) -> tuple[Line, ...]:
    """subject → metric → value."""
    return tuple(
        line(subject, metric, value, **times) for subject, found in values.items() for metric, value in found.items()
    )


def trace(time: float, role: str = "worker-0", **parts: Any) -> Traced:
    """Seconds 0.1 unless told."""
    return Traced(
        BEGAN + time, role, pb.Trace(**{"seconds": 0.1, "usual_seconds": 0.1, "step": int(10 * time), **parts})
    )


def traces(count: int = 10, first: float = 20.0, every: float = 25.0, **parts: Any) -> tuple[Traced, ...]:
    return tuple(trace(first + every * number, **parts) for number in range(count))


TRAINERS = ("chief-0", "worker-0", "worker-1")


def steady(rates: Mapping[str, float] | None = None) -> dict[str, dict[str, Value]]:
    """Trainers with ten steps a second each, or as told."""
    found: dict[str, dict[str, Value]] = {}
    for name in TRAINERS:
        rate = (rates or {}).get(name, 10.0)
        found[name] = {"steps_per_second": rate, "examples_per_second": 512 * rate, "step_seconds": 1 / rate,
                       "step_p95_seconds": 1.3 / rate, "step_longest_seconds": 2 / rate, "gate_wait_share": 0.0,
                       "input_wait_share": 0.01, "cpu_cores": 0.4, "rss_bytes": 700e6}  # fmt: skip
    return found


def loaded(
    busy: Mapping[str, float], slots: Mapping[int, float], rows: Mapping[int, float] | None = None
) -> dict[str, Any]:
    """Values of PS and slots."""
    found: dict[str, Any] = {
        name: {"busy_share": value, "cpu_cores": value, "rss_bytes": 500e6} for name, value in busy.items()
    }
    for slot, load in slots.items():
        found[f"slot-{slot}"] = {"lookup_share": 0.6 * load, "update_share": 0.4 * load,
                                 "lookup_rows_per_second": (rows or slots)[slot] * 1000.0}  # fmt: skip
    return found


OWNERS = ("ps-0", "ps-1", "ps-0", "ps-1")
TABLES = {slot: (Table(f"C{slot + 1}/embedding", 640_000, 10_000, True), Table(f"C{slot + 1}/weight", 40_000, 10_000, True))
          for slot in range(4)}  # fmt: skip


def story(values: Mapping[str, Mapping[str, Value]] | None = None, **parts: Any) -> Story:
    """A run of five minutes that ended well; `values` replaces its series."""
    found = (
        values
        if values is not None
        else {**steady(), **loaded({"ps-0": 0.3, "ps-1": 0.3}, dict.fromkeys(range(4), 0.15))}
    )
    known: dict[str, Any] = {
        "job": "demo", "status": "succeeded", "began": BEGAN, "ended": BEGAN + SECONDS, "steps": 9000,
        "lines": lines(found), "placements": (Placement(BEGAN, OWNERS),), "tables": TABLES, "traces": traces(),
        "peer_backup": True, "events": (Event(BEGAN + 15, "peer_backups_complete", "", {"total_bytes": 3_000_000}),),
    }  # fmt: skip
    return Story(**{**known, **parts})


def case(values: Mapping[str, Mapping[str, Value]] | None = None, **parts: Any) -> Case:
    return Case(story(values, **parts))


def eventful() -> Story:
    """One with something in every section."""

    def speed(time: float) -> float:
        return 0.0 if time < 6 else 18.0 if time < 100 else 30.0 if time < 200 else 27.0

    job: dict[str, Value] = {
        "examples_per_second": lambda time: 512 * speed(time), "steps_per_second": speed,
        "ps": lambda time: 1.0 if time < 100 else 2.0, "workers": 3.0,
    }  # fmt: skip
    values = {
        **steady({"worker-1": 4.0}),
        **loaded({"ps-0": 0.5, "ps-1": 1.3}, {0: 0.2, 1: 1.1, 2: 0.3, 3: 0.2}),
        "job": job,
    }
    values["aimaster"] = {"cpu_cores": 0.02, "rss_bytes": 60e6}
    for name in ("ps-0", "ps-1"):
        values[name].update(
            memory_limit_bytes=4e9, working_set_bytes=lambda time: 5e8 + 1e5 * time, cpu_limit_cores=2.0
        )
    ops = [pb.OpTime(name="Adagrad/update_C2/embedding/ResourceSparseApplyAdagrad", type="ResourceSparseApplyAdagrad",
                     role="ps-1", seconds=0.021, slot=1),
           pb.OpTime(name="embedding_lookup_1", type="ResourceGather", role="ps-1", seconds=0.012, slot=1),
           pb.OpTime(name="layer0/MatMul", type="MatMul", role="worker-0", seconds=0.008, slot=-1)]  # fmt: skip
    edges = [pb.EdgeUse(source="ps-1", target="worker-0", bytes=3_300_000, tensors=14, seconds=0.015),
             pb.EdgeUse(source="worker-0", target="ps-1", bytes=3_400_000, tensors=15, seconds=0.012)]  # fmt: skip
    return story(
        values, directory="runs/demo", command=("python", "train.py", "--steps", "9000"), examples=4_608_000,
        versions={"python": "3.11.7", "deeprec-ext": "0.4.0", "tensorflow": "2.15.1"},
        limits={"ps": 1, "min_ps": 1, "max_ps": 4, "workers": 2, "min_workers": 0, "max_workers": 4, "slots": 4},
        settings=(("peer_backup_seconds", "2", "5.0"),), metrics={"auc": 0.7712, "loss": 0.4411, "global_step": 9000.0},
        requests={"ps": Request(2.0, 4e9)}, traces=traces(ops=ops, edges=edges), steps=9000,
        scalings=(
            Scaling("scale-up", "ps", BEGAN + 100, 4.2, "committed", "", 1, 2, (0.12, 0.18, 0.31), 52_000_000, 1_200_000, 2),
            Scaling("scale-up", "ps", BEGAN + 150, 30.0, "rolled_back", "ps-2 did not register within 25 s", 2, 3,
                    workers_from=1, workers_to=3),
        ),
        failures=(Failure("ps-1", "killed by signal 9", BEGAN + 200, 0.05, 0.31, "promotion", 0, 2.2, 1280),),
        data={"records": 1000, "trained": 990, "left": 10, "lost": 0, "repeated": 4, "stale": 1280, "set_aside": 0,
              "datasets": {"train": {"purpose": "train", "records": 1000, "trained": 990, "left": 10, "repeated": 4,
                                     "stale": 1280}}},
        disk_backup="backups/demo", disk_backup_seconds=60.0,
        events=(
            Event(BEGAN + 15, "peer_backups_complete", "", {"total_bytes": 3_000_000}),
            Event(BEGAN + 70, "disk_backup", "", {"bytes": 5_000_000, "seconds": 0.4}),
            Event(BEGAN + 130, "disk_backup", "", {"bytes": 900_000, "seconds": 0.2}),
            Event(BEGAN + 190, "disk_backup", "", {"bytes": 900_000, "seconds": 0.2}),
            Event(BEGAN + 250, "disk_backup", "", {"bytes": 800_000, "seconds": 0.2}),
            Event(BEGAN + 205, "warning", "ps-0", {"text": "a peer backup could not be refreshed: connection refused"}),
            Event(BEGAN + 206, "warning", "ps-0", {"text": "a peer backup could not be refreshed: connection refused"}),
        ),
        warnings=("the optimizer writes every row of these tables and slots in each step, as Adam does: big (6.4 MB); 6.4 MB "
                  "are copied while training pauses. Use a lazy Adam or Adagrad, which update only the rows looked up",),
        logs=(Log("ps-1", ("--- deeprec-ext: ps-1, start 1, pid 812, 2026-11-21 16:41:53 ---", "serving on 127.0.0.1:40001")),),
    )  # fmt: skip


GOLDEN = Path(__file__).with_name("golden")

if __name__ == "__main__":
    from deeprec_ext.gazer import report

    GOLDEN.mkdir(exist_ok=True)
    (GOLDEN / "report.md").write_text(report.to_markdown(eventful()))
    (GOLDEN / "report.json").write_text(report.to_json(eventful()))
