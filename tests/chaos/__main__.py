"""Chaos for a while: kills, hangs and scalings by seeded schedules, and promises that must hold after every run.

    python -m tests.chaos --minutes 30              # seeds from the clock
    python -m tests.chaos --minutes 30 --seed 7     # seeds 7, 8, 9, ...
    python -m tests.chaos --seed 7 --runs 1         # seed 7 alone: replays a failure

First, runs without any event measure the spread of AUC. Exit code 1 when a promise was broken; the run is kept then.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.invariants import restores
from tests.chaos.run import check, run
from tests.chaos.schedule import Plan, plan

EPOCHS, EVENTS = 32, 8
RUN_SECONDS = 900.0
UNDISTURBED = 3


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def spread(base: Path, epochs: int) -> tuple[float, float]:
    """AUC of runs to which nothing happens, and as much again on both sides."""
    found = []
    for number in range(UNDISTURBED):
        calm = Plan(-1 - number, 2, 1, False, ())
        left = run(calm, base / f"calm{number}", epochs, RUN_SECONDS)
        broken = check(calm, left, epochs, None)
        if broken:
            raise SystemExit(f"a run without events broke promises: {'; '.join(broken)}; see {base}")
        found.append(float(left.summary["metrics"]["auc"]))
        say(f"undisturbed: AUC {found[-1]:.4f}")
    width = max(max(found) - min(found), 0.002)
    return min(found) - width, max(found) + width


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="no run begins after that")
    parser.add_argument("--seed", type=int, help="the first (default: from the clock)")
    parser.add_argument("--runs", type=int, help="at most so many")
    parser.add_argument("--events", type=int, default=EVENTS, help="in each run; part of what a seed means")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--auc", type=float, nargs=2, metavar=("LOW", "HIGH"), help="instead of undisturbed runs")
    parser.add_argument("--dry-run", action="store_true", help="print the schedules only")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else int(time.time()) % 1_000_000
    if arguments.dry_run:
        for number in range(seed, seed + (arguments.runs or 1)):
            print(plan(number, arguments.events).describe())
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    base = Path(tempfile.mkdtemp(prefix="chaos-"))
    deadline = time.monotonic() + 60 * arguments.minutes
    auc = tuple(arguments.auc) if arguments.auc else spread(base, arguments.epochs)
    failed: list[int] = []
    done = 0
    while time.monotonic() < deadline and (arguments.runs is None or done < arguments.runs):
        chosen = plan(seed, arguments.events)
        say(chosen.describe())
        began, directory = time.monotonic(), base / f"seed{seed}"
        left = run(chosen, directory, arguments.epochs, RUN_SECONDS, say)
        broken = check(chosen, left, arguments.epochs, auc)
        done += 1
        if broken:
            failed.append(seed)
            for line in broken:
                say(f"seed {seed}: BROKEN: {line}")
            say(f"seed {seed}: replay it with: python -m tests.chaos --runs 1 --seed {seed} --events {arguments.events} "
                f"--epochs {arguments.epochs}; what it left is in {directory}")  # fmt: skip
        else:
            data, auc_now = left.summary["data"], left.summary["metrics"]["auc"]
            say(
                f"seed {seed}: all promises kept in {time.monotonic() - began:.0f} s; AUC {auc_now:.4f}, repeated "
                f"{data['repeated']}, stale {data['stale']} of {data['records']}, restores {len(restores(left))}"
            )
            shutil.rmtree(directory)
        seed += 1
    say(f"{done} runs, {len(failed)} with broken promises{': seeds ' + ', '.join(map(str, failed)) if failed else ''}")
    if not failed:
        shutil.rmtree(base, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
