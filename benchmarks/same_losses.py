"""Is a step of `fit` on PS the step that Keras does? Every Keras example, its first 100 losses, beside plain Keras.

    python -m benchmarks.same_losses                       # all of examples/keras_*, some minutes
    python -m benchmarks.same_losses keras_deepfm --json F

Each runs unchanged, with the same first values and the same records: in one process, and under `deeprec-ext run` with one PS.
Keras 3 compiles a step with XLA by itself, which adds in another order; a graph that is spread over PS cannot have it. So it
is compared with both: plain Keras without XLA, and as Keras trains by itself (Keras 2: the same).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.job import end_on_signals, environment, running, say
from benchmarks.stock.cluster import ROOT
from benchmarks.stock.hundred import BATCHES

SCRIPT = str(ROOT / "benchmarks" / "stock" / "hundred.py")
EXAMPLES = sorted(path.parent.name for path in (ROOT / "examples").glob("keras_*/train.py"))
NOT_THESE = ("keras_to_estimator",)
FLAGS = ("--steps", str(BATCHES + 10), "--epochs", "1", "--seed", "3")
MUST = 1e-5
LIMIT_SECONDS = 600.0


def losses(example: str, where: Path, kind: str) -> Sequence[float]:
    """Args: kind: "elastic", "plain", or "xla": as Keras 3 trains by itself."""
    out = where / f"{example}.{kind}.json"
    script = str(ROOT / "examples" / example / "train.py")
    words = [SCRIPT, str(out), "xla" if kind == "xla" else "plain", script, *FLAGS, "--model-dir", str(where)]
    if kind == "elastic":
        with running(words, ps=1, workers=0, label=example) as job:
            code = job.process.wait(LIMIT_SECONDS)
            if code:
                raise RuntimeError(f"{example}: the job has failed with {code}; see {job.base}")
    else:
        subprocess.run(
            [sys.executable, *words], env=environment(), check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_SECONDS
        )
    return json.loads(out.read_text())  # type: ignore[no-any-return]


def furthest(one: Sequence[float], other: Sequence[float]) -> float:
    """The largest relative difference."""
    assert len(one) == len(other) == BATCHES
    return max(abs(a - b) / max(abs(b), 1e-12) for a, b in zip(one, other))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", nargs="*", default=[one for one in EXAMPLES if one not in NOT_THESE])
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    end_on_signals()
    found: dict[str, Any] = {}
    for example in arguments.examples:
        with tempfile.TemporaryDirectory(prefix="same-losses-") as place:
            ours, plain, compiled = (losses(example, Path(place), kind) for kind in ("elastic", "plain", "xla"))
        one = {"furthest": furthest(ours, plain), "xla": furthest(ours, compiled), "itself": furthest(plain, compiled)}
        found[example] = {"first": plain[0], "last": plain[-1], **one}
        say(
            f"{example}: {plain[0]:.6f} → {plain[-1]:.6f}; at most {one['furthest']:.1e} from plain Keras, "
            f"{one['xla']:.1e} from Keras by itself, which is {one['itself']:.1e} from that"
        )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=2))
    worst = max(one["furthest"] for one in found.values())
    print(f"at most {worst:.1e} apart over {BATCHES} losses of {len(found)} examples (must: {MUST:.0e})")
    if worst > MUST:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
