"""Does a model that changes its size and loses a PS learn as well as in one process?

    python -m benchmarks.convergence --data DIRECTORY           # with adult.data and adult.test; about half an hour
    python -m benchmarks.convergence --models deepfm,xdeepfm --seeds 1 --draw docs/convergence.svg

Each model and seed twice, from the same first values over the same records as often: by stock Keras in one process, and under
`deeprec-ext run` on 2 PS, where trainers go 1 → 4 → 2 and a PS is killed (SIGKILL) between, each at a share of the steps. A job
that was over before all of that had happened does not count: it is an error. AUC is that of records that nobody has trained,
after the last epoch, exact.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.job import Job, end_on_signals, environment, running, say
from benchmarks.stock.cluster import ROOT

SCRIPT = ROOT / "benchmarks" / "stock" / "learn.py"
MODELS = {
    "census": ("--batch", "64", "--rate", "0.02", "--epochs", "16"),
    "deepfm": ("--records", "500000", "--epochs", "4"),
    "xdeepfm": ("--records", "500000", "--epochs", "4"),
}
UP, KILL, DOWN = 0.1, 0.45, 0.6
"""Shares of the steps at which workers come, a PS is killed, workers go."""

WORSE_AT_MOST = 0.002
LIMIT_SECONDS = 1200.0
WIDTH, HEIGHT, MARGIN = 300, 200, 42


def plain(words: Sequence[str]) -> None:
    subprocess.run(
        [sys.executable, *words], env=environment(), check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_SECONDS
    )


def elastic(words: Sequence[str], steps: int, settings: Sequence[str]) -> dict[str, Any]:
    """While it trains so many steps."""
    flags = ["--max-workers", "3", *(word for one in settings for word in ("--setting", one))]
    with running(words, ps=2, workers=0, flags=flags, label="convergence") as job:

        def at(share: float) -> None:
            job.until(
                lambda: (status := job.status()) is not None and status.step >= share * steps,
                f"{share:.0%}",
                LIMIT_SECONDS,
            )

        def change(**size: int) -> None:
            number = job.ask(**size)
            ended = job.until(
                lambda: [one for one in job.events("scaling_ended") if one["scaling"] == number],
                "the end of the change", LIMIT_SECONDS, every=0.5,
            )  # fmt: skip
            say(f"{size}: {ended[-1].get('outcome', ended[-1])}")

        at(UP)
        change(workers=3)
        at(KILL)
        _protected(job)
        job.send("ps-1", signal.SIGKILL)
        at(DOWN)
        change(workers=1)
        code = job.process.wait(LIMIT_SECONDS)
        if code:
            raise RuntimeError(f"the job has failed with {code}; see {job.base}")
        summary = job.summary()
    outcomes = [one["outcome"] for one in summary["scaling"] if one["kind"] != "replace"]
    recovered = [one["recovered_by"] for one in summary["failures"]]
    if outcomes != ["committed", "committed"] or recovered != ["promotion"]:
        raise RuntimeError(f"not what was to be measured: changes {outcomes}, losses {recovered}; see {job.base}")
    return {"repeated": summary["data"]["repeated"], "seconds": summary["seconds"]}


def _protected(job: Job) -> None:
    def safe() -> bool:
        status = job.status()
        return status is not None and status.backup.peer and not status.backup.unprotected_slots

    job.until(safe, "backups of all slots", LIMIT_SECONDS)


def measure(model: str, seed: int, data: Path | None, settings: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="convergence-") as place:
        found: dict[str, Any] = {"model": model, "seed": seed}
        for kind in ("plain", "elastic"):
            out = Path(place) / f"{kind}.json"
            words = [str(SCRIPT), "--model", model, "--seed", str(seed), "--out", str(out), *MODELS[model]]
            words += ["--data", str(data)] if data is not None else []
            began = time.time()
            told = plain(words) if kind == "plain" else elastic(words, found["plain"]["steps"], settings)
            found[kind] = {**json.loads(out.read_text()), "seconds": time.time() - began, **(told or {})}
            say(f"{model}, seed {seed}, {kind}: AUC {found[kind]['auc']:.5f} after {found[kind]['seconds']:.0f} s")
    found["difference"] = found["elastic"]["auc"] - found["plain"]["auc"]
    return found


# ------------------------------------------------------------------------------------------------ what is shown


def table(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """By model: means over seeds, the worst difference, and how far seeds are apart by themselves."""
    found = {}
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        plains = [row["plain"]["auc"] for row in own]
        found[model] = {
            "plain": statistics.fmean(plains), "elastic": statistics.fmean(row["elastic"]["auc"] for row in own),
            "worst": min(row["difference"] for row in own), "mean": statistics.fmean(row["difference"] for row in own),
            "spread_of_seeds": max(plains) - min(plains), "seeds": len(own),
            "reached": all(row["difference"] >= -WORSE_AT_MOST for row in own),
        }  # fmt: skip
    return found


def draw(rows: Sequence[dict[str, Any]]) -> str:
    """AUC after each epoch, a panel for each model: one line for each seed and kind."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    parts = [
        panel([row for row in rows if row["model"] == model], model, number) for number, model in enumerate(models)
    ]
    size = f'width="{len(models) * WIDTH}" height="{HEIGHT + 30}"'
    key = (
        f'<text x="{MARGIN}" y="{HEIGHT + 20}" fill="#1f5fa8">stock Keras, one process</text>'
        f'<text x="{MARGIN + 170}" y="{HEIGHT + 20}" fill="#c2571a">elastic: 1 → 4 → 2 trainers, a PS killed</text>'
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect {size} fill="white"/>', *parts, key, "</svg>", ""])


def panel(rows: Sequence[dict[str, Any]], model: str, number: int) -> str:
    curves = [row[kind]["curve"] for row in rows for kind in ("plain", "elastic")]
    low, high = min(map(min, curves)), max(map(max, curves))
    span, left = max(1e-6, high - low), number * WIDTH

    def line(curve: Sequence[float], color: str) -> str:
        wide = (WIDTH - MARGIN - 14) / max(1, len(curve) - 1)
        points = " ".join(
            f"{left + MARGIN + index * wide:.1f},{HEIGHT - 24 - (value - low) / span * (HEIGHT - 60):.1f}"
            for index, value in enumerate(curve)
        )
        return f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.6" opacity="0.8"/>'

    lines = [
        line(row[kind]["curve"], color)
        for kind, color in (("plain", "#1f5fa8"), ("elastic", "#c2571a"))
        for row in rows
    ]
    labels = (
        f'<text x="{left + MARGIN}" y="18" font-weight="bold">{escape(model)}</text>'
        f'<text x="{left + MARGIN - 4}" y="{HEIGHT - 22}" text-anchor="end">{low:.3f}</text>'
        f'<text x="{left + MARGIN - 4}" y="40" text-anchor="end">{high:.3f}</text>'
        f'<text x="{left + MARGIN}" y="{HEIGHT - 8}">AUC after epoch 1 to {len(curves[0])}</text>'
    )
    return "\n".join([*lines, labels])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="of: %(default)s")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--setting", action="append", default=[], metavar="KEY=VALUE", help="of the elastic job")
    parser.add_argument("--data", type=Path, help="directory with adult.data and adult.test (UCI), for the census")
    parser.add_argument("--json", type=Path, metavar="FILE", help="rows; those that are in it are not measured again")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="the picture (SVG)")
    arguments = parser.parse_args()
    models = arguments.models.split(",")
    if "census" in models and arguments.data is None:
        parser.error("census: --data DIRECTORY with adult.data and adult.test; or --models deepfm,xdeepfm")
    end_on_signals()
    path: Path | None = arguments.json
    rows: list[dict[str, Any]] = json.loads(path.read_text()) if path is not None and path.exists() else []
    known = {(row["model"], row["seed"]) for row in rows}
    for seed in range(1, arguments.seeds + 1):
        for model in models:
            if (model, seed) not in known:
                rows.append(measure(model, seed, arguments.data, arguments.setting))
                if path is not None:
                    path.with_suffix(".new").write_text(json.dumps(rows))
                    os.replace(path.with_suffix(".new"), path)
    if arguments.draw is not None:
        arguments.draw.write_text(draw(rows))
    print(json.dumps(table(rows), indent=2))


if __name__ == "__main__":
    main()
