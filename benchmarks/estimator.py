"""How well the AIMaster's estimates foretell what was not measured: throughput at other sizes, memory of the PS.

    python -m benchmarks.estimator                              # about fifty minutes
    python -m benchmarks.estimator --shapes wide --windows 14   # one model shape: eight
    python -m benchmarks.estimator --from windows.json          # the same windows once more, in seconds
    python -m benchmarks.estimator memory

Throughput. Real jobs of four model shapes are taken through a grid of PS, workers and CPU (benchmarks/sizes.py says what is
real: everything; roles are held to their CPU by cgroups, nothing sleeps). Then, from those windows alone:

- *held out*: the model is fitted to 5, 8 or 12 windows drawn at random, and compared with all the others: mean absolute
  relative error (MAPE) of examples per second, over 20 draws. Draws must hold two sizes at least.
- *extrapolation*: fitted to 8 windows with at most two workers, compared at six workers.

Throughput of a window is what it would have been had the machine been as fast as it usually is (benchmarks/speed.py); the
errors of ours without that are told too.

Each row has two baselines fitted to the same windows: `linear` (throughput per core of the trainers is what it was) and
`optimus` (step time linear in 1, 1/worker CPU, w/(p·PS CPU), w, p; non-negative least squares: Peng et al., EuroSys '18,
section 3.2, with CPU). The simulator's job model (`deeprec_ext/simulator/calibration.py`) is fitted to the same
windows, and its error told.

Memory. `deeprec_ext.autoscaler.model.memory_model` says from the variable catalogue what the fullest PS will need;
compared with the resident memory of the real process after a minute of training.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.job import end_on_signals, running, say
from benchmarks.sizes import SCRIPT, SHAPES, Measured, Shape, rig, sizes
from deeprec_ext.autoscaler.model.memory_model import Layout, for_count
from deeprec_ext.autoscaler.model.throughput import fit
from deeprec_ext.autoscaler.observe.observed import Size, Window
from deeprec_ext.simulator.calibration import fit_windows

COUNTS = (5, 8, 12)
DRAWS = 20
FEW_WORKERS, MANY_WORKERS, FEW_WINDOWS = 2, 6, 8
AT_LEAST = {5: 0.12, 8: 0.09, 12: 0.08}
AT_LEAST_FAR = 0.15
MEMORY_AT_LEAST = 0.10
WARM_SECONDS, LOOK_SECONDS = 45.0, 20.0
Predict = Callable[[Size], float]


# ------------------------------------------------------------------------------------------------------------ measuring


def measure_shape(shape: Shape, seed: int, count: int, seconds: float, keep: Callable[[Measured], None]) -> None:
    path = sizes(seed, count)
    with rig(shape) as job:
        for number, size in enumerate(path, 1):
            found = job.measure(size, seconds)
            keep(found)
            say(
                f"{shape.name} {number}/{len(path)}: {size.ps} PS at {size.ps_cpu:g}, {size.trainers} trainers at "
                f"{size.worker_cpu:g} cores: {found.examples_per_second:.0f} examples/s ({found.steps} steps in "
                f"{found.seconds:.0f} s; others on the machine used {found.others_cpu:.2f} cores)"
            )


def measure(arguments: argparse.Namespace) -> dict[str, list[Measured]]:
    """Windows by shape; also written after each, so that an interrupted run is not lost."""
    windows: dict[str, list[Measured]] = {}
    for number, name in enumerate(arguments.shapes):
        windows[name] = []

        def keep(one: Measured, mine: list[Measured] = windows[name]) -> None:
            mine.append(one)
            if arguments.save:
                arguments.save.write_text(json.dumps({k: [asdict(w) for w in v] for k, v in windows.items()}))

        measure_shape(SHAPES[name], arguments.seed + number, arguments.windows, arguments.seconds, keep)
    return windows


def restored(path: Path) -> dict[str, list[Measured]]:
    values = json.loads(path.read_text())
    return {k: [Measured(**{**one, "size": Size(**one["size"])}) for one in v] for k, v in values.items()}


def as_window(shape: Shape, one: Measured, slower: float = 1.0) -> Window:
    """As the autoscaler would have seen it, were each role on a host of its own: cgroups hold them to less than there is.

    Args:
        slower: how much slower than usual the machine was.
    """
    return Window(
        start=0.0, seconds=one.seconds, size=one.size, examples_per_second=one.examples_per_second * slower,
        examples_per_step=shape.batch, ps_busy_share=0.0, input_wait_share=0.0, trainer_cpu_cores=one.trainer_cpu,
        ps_cpu_cores=one.ps_cpu, ps_cpu_most_cores=one.ps_cpu_most, preparing=False, host_cores=0.0, others_cores=0.0,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ models


def ours(windows: Sequence[Window]) -> Predict:
    model = fit(windows)
    assert model is not None
    return model.predict


def linear(windows: Sequence[Window]) -> Predict:
    per_core = statistics.median(w.examples_per_second / (w.size.trainers * w.size.worker_cpu) for w in windows)
    return lambda size: per_core * size.trainers * size.worker_cpu


def optimus(windows: Sequence[Window]) -> Predict:
    import numpy as np
    from scipy.optimize import nnls

    def terms(size: Size) -> list[float]:
        return [1.0, 1 / size.worker_cpu, size.trainers / (size.ps * size.ps_cpu), float(size.trainers), float(size.ps)]

    batch = windows[0].examples_per_step
    seconds = np.array([w.size.trainers * batch / w.examples_per_second for w in windows])
    rows = np.array([terms(w.size) for w in windows])
    found, _ = nnls(rows / seconds[:, None], np.ones(len(windows)))
    return lambda size: size.trainers * batch / max(float(np.dot(terms(size), found)), 1e-9)


MODELS = {"ours": ours, "linear": linear, "optimus": optimus}


# ------------------------------------------------------------------------------------------------------------ errors


@dataclass(frozen=True)
class Errors:
    """Of the draws of one row: MAPE, and its 90th percentile."""

    median: float
    p90: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Errors:
        ordered = sorted(values)
        return cls(statistics.median(ordered), ordered[min(len(ordered) - 1, round(0.9 * (len(ordered) - 1)))])


def mape(predict: Predict, windows: Sequence[Window]) -> float:
    return statistics.fmean(abs(predict(w.size) / w.examples_per_second - 1) for w in windows)


def held_out(windows: Sequence[Window], count: int, seed: int) -> dict[str, Errors]:
    """Fitted to `count` windows, compared with the others, by model."""
    chance = random.Random(f"{seed} {count}")
    errors: dict[str, list[float]] = {name: [] for name in MODELS}
    for _ in range(DRAWS):
        drawn = chance.sample(list(windows), count)
        while len({(w.size.ps, w.size.workers) for w in drawn}) < 2:
            drawn = chance.sample(list(windows), count)
        others = [w for w in windows if w not in drawn]
        for name, model in MODELS.items():
            errors[name].append(mape(model(drawn), others))
    return {name: Errors.of(values) for name, values in errors.items()}


def far(windows: Sequence[Window], seed: int) -> dict[str, Errors]:
    """Fitted to few workers, compared at many."""
    chance = random.Random(f"{seed} far")
    few = [w for w in windows if w.size.workers <= FEW_WORKERS]
    many = [w for w in windows if w.size.workers >= MANY_WORKERS]
    errors: dict[str, list[float]] = {name: [] for name in MODELS}
    for _ in range(DRAWS):
        drawn = chance.sample(few, min(FEW_WINDOWS, len(few)))
        for name, model in MODELS.items():
            errors[name].append(mape(model(drawn), many))
    return {name: Errors.of(values) for name, values in errors.items()}


def assess(shape: Shape, measured: Sequence[Measured], seed: int) -> dict[str, Any]:
    speeds = [one.probe_seconds for one in measured]
    usual = statistics.median(speeds)
    windows = [as_window(shape, one, one.probe_seconds / usual if usual else 1.0) for one in measured]
    raw = [as_window(shape, one) for one in measured]
    rows = {
        str(count): {name: asdict(errors) for name, errors in held_out(windows, count, seed).items()}
        for count in COUNTS if count < len(windows)
    }  # fmt: skip
    simulated = fit_windows(windows)
    return {
        "windows": len(windows), "held_out": rows,
        "extrapolation": {name: asdict(errors) for name, errors in far(windows, seed).items()},
        "raw": {str(count): held_out(raw, count, seed)["ours"].median for count in COUNTS if count < len(windows)},
        "speed": [min(speeds) / usual, max(speeds) / usual] if usual else [],
        "simulator": {"mape": simulated.error, "mape_holdout": simulated.error_holdout},
    }  # fmt: skip


def throughput(arguments: argparse.Namespace) -> dict[str, Any]:
    windows = restored(arguments.restore) if arguments.restore else measure(arguments)
    found = {name: assess(SHAPES[name], measured, arguments.seed) for name, measured in windows.items()}
    middle = {
        key: statistics.median(one["held_out"][key]["ours"]["median"] for one in found.values())
        for key in map(str, COUNTS) if all(key in one["held_out"] for one in found.values())
    }  # fmt: skip
    middle["extrapolation"] = statistics.median(one["extrapolation"]["ours"]["median"] for one in found.values())
    return {"shapes": found, "median_of_shapes": middle}


# ------------------------------------------------------------------------------------------------------------ memory

MEMORY_CASES = (("16MB", 1), ("64MB", 2), ("256MB", 1), ("256MB", 2), ("1GB", 1), ("1GB", 2), ("1GB", 3))


def memory(arguments: argparse.Namespace) -> dict[str, Any]:
    cases = []
    for state, ps in MEMORY_CASES:
        command = [str(SCRIPT), "--state", state, "--batch", "512", "--steps", str(10**9)]
        with running(command, ps=ps, workers=0, label="memory") as job:
            job.wait_steady(2.0)
            time.sleep(WARM_SECONDS)
            until, highest = time.time() + LOOK_SECONDS, 0.0
            servers = [psutil.Process(job.pid(name)) for name in job.servers()]
            while time.time() < until:
                highest = max(highest, *(float(process.memory_info().rss) for process in servers))
                time.sleep(0.5)
            status = job.until(job.status, "answer of the AIMaster")
            estimated = for_count(Layout.of(job.graph(), status.slots), ps, backups=ps > 1)
        case = {
            "state": state, "ps": ps, "estimated": estimated.total, "measured": round(highest),
            "error": estimated.total / highest - 1, "parts": asdict(estimated),
        }  # fmt: skip
        say(
            f"{state} on {ps} PS: {estimated.total / 1e6:.0f} MB estimated, {highest / 1e6:.0f} measured ({case['error']:+.1%})"
        )
        cases.append(case)
    return {"cases": cases, "worst": max(abs(case["error"]) for case in cases)}


# ------------------------------------------------------------------------------------------------------------ telling


def told(result: dict[str, Any]) -> str:
    """Tables in Markdown."""
    lines = []
    if "shapes" in result:
        lines += ["| shape, fitted to | ours: median, p90 | optimus | linear |", "|---|---|---|---|"]
        for name, one in result["shapes"].items():
            rows = {f"{count} windows": errors for count, errors in one["held_out"].items()}
            rows[f"≤ {FEW_WORKERS} workers, told {MANY_WORKERS}"] = one["extrapolation"]
            for row, errors in rows.items():
                cells = (f"{errors[m]['median']:.1%}, {errors[m]['p90']:.1%}" for m in ("ours", "optimus", "linear"))
                lines.append(f"| {name}, {row} | " + " | ".join(cells) + " |")
        targets = {**{str(count): limit for count, limit in AT_LEAST.items()}, "extrapolation": AT_LEAST_FAR}
        lines.append("")
        for key, value in result["median_of_shapes"].items():
            what = "extrapolation" if key == "extrapolation" else f"{key} windows"
            lines.append(f"{what}: {value:.1%} in the median of the shapes (target {targets[key]:.0%})")
        for name, one in result["shapes"].items():
            if one["speed"]:
                errors = ", ".join(f"{error:.1%}" for error in one["raw"].values())
                slowest, fastest = one["speed"][1], 1 / one["speed"][0]
                lines.append(
                    f"{name}: the machine was up to {slowest:.2f} times slower and {fastest:.2f} times faster than usual; "
                    f"without allowing for that: {errors}"
                )
            simulated = one["simulator"]
            known, left_out = (f"{simulated[key]:.1%}" for key in ("mape", "mape_holdout"))
            lines.append(f"simulator's job model, {name}: error {known}, at sizes left out {left_out}")
    if "cases" in result:
        lines += ["| state | PS | estimated, MB | measured, MB | error |", "|---|---|---|---|---|"]
        for case in result["cases"]:
            megabytes = (f"{case[name] / 1e6:.0f}" for name in ("estimated", "measured"))
            lines.append(f"| {case['state']} | {case['ps']} | " + " | ".join(megabytes) + f" | {case['error']:+.1%} |")
        lines.append(f"worst: {result['worst']:.1%} (target {MEMORY_AT_LEAST:.0%})")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("throughput", "memory"), default="throughput")
    parser.add_argument("--shapes", nargs="+", choices=tuple(SHAPES), default=list(SHAPES))
    parser.add_argument("--windows", type=int, default=22, help="sizes to measure of each shape (default 22)")
    parser.add_argument("--seconds", type=float, default=12.0, help="length of a window at least (default 12)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the windows here, after each")
    parser.add_argument("--from", dest="restore", type=Path, metavar="FILE", help="do not measure: read windows")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here too")
    arguments = parser.parse_args()
    if arguments.windows <= max(COUNTS):
        parser.error(f"--windows {arguments.windows}: more than {max(COUNTS)}, so that some are left to compare with")
    end_on_signals()
    result = memory(arguments) if arguments.what == "memory" else throughput(arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1))
    print(told(result))


if __name__ == "__main__":
    sys.exit(main())
