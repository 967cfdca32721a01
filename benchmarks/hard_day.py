"""The hard days together: everything that can go wrong with a job, in one run, again and again by seeds.

    python -m benchmarks.hard_day                                  # twenty seeds of both examples, about four hours
    python -m benchmarks.hard_day --example census --seeds 1 --first-seed 7      # seed 7 alone
    python -m benchmarks.hard_day --json hard_day.json             # results; quiet runs are kept beside it

One run: `--autoscale`, a dashboard that somebody reads all the while, peer and disk backups, a hot table, and a worker that
is stopped for two thirds of its time. In an order and at moments drawn from the seed: PS and workers are scaled up and down
by hand, a PS is killed during PREPARE, another one hangs after COMMIT, the AIMaster is killed in FINAL_COPY, and the disk
of the backups is full for a minute, whatever else happens in it. In the end the ledger balances, the AUC is within the
spread of quiet runs, nothing is left running, and the report tells what was done. Exit code 1 when a seed missed any of it;
its directory is kept then.

A full disk is a real one, a small tmpfs: mounting it needs root.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.day.example import EXAMPLES, Result, discard, hard, spread
from benchmarks.job import end_on_signals, say

SEEDS = 20
QUIET = "hard_day_quiet.json"


def line(one: Result) -> str:
    """Of the table."""
    data = one.data or {}
    ledger = f"lost {data['lost']}, repeated {data['repeated']}, stale {data['stale']}" if data else "no ledger"
    verdict = "good" if not one.missed else f"MISSED: {'; '.join(one.missed)}"
    return (
        f"{one.example:7} {one.seed:5}  {one.seconds:4.0f} s  {', '.join(one.order):62}  AUC {one.auc:.4f}  {ledger:42}  "
        f"{one.answers} answers of the dashboard  {verdict}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"of each example (default: {SEEDS})")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--example", choices=(*EXAMPLES, "both"), default="both")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all results there, after each seed")
    parser.add_argument("--keep", action="store_true", help="keep the directories of good runs, too")
    options = parser.parse_args()
    end_on_signals()
    chosen = EXAMPLES.values() if options.example == "both" else [EXAMPLES[options.example]]
    cache = options.json.with_name(QUIET) if options.json else Path(tempfile.gettempdir()) / QUIET
    bounds = {example.name: spread(example, cache, say) for example in chosen}
    results: list[Result] = []
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for example in chosen:
            say(f"{example.name}, seed {seed}")
            results.append(hard(example, seed, bounds[example.name], say))
            one = results[-1]
            say(line(one))
            if one.missed:
                say(f"what it left is in {one.directory}; again: python -m benchmarks.hard_day --example {example.name} "
                    f"--seeds 1 --first-seed {seed}")  # fmt: skip
            elif not options.keep:
                discard(one.directory)
            if options.json:
                options.json.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")
    missed = sum(bool(one.missed) for one in results)
    print("\n".join(map(line, results)))
    print(f"{len(results)} hard days, {missed} missed; AUC of quiet runs: "
          + ", ".join(f"{name} {low:.4f} to {high:.4f}" for name, (low, high) in bounds.items()))  # fmt: skip
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
