"""Examples per second of `Model.fit`: under us, and with TensorFlow's own parameter servers (`tf.distribute`, Keras 2).

    python -m benchmarks.ps_strategy                  # three rounds, about ten minutes on two cores

The same model, batches, cores and number of processes that train: 2 PS and 2 trainers each. Stock has a coordinator besides,
which trains nothing; it is measured as it is by default and with many steps in one execution, as its guide recommends. They
take turns; the first epoch, or as many steps, does not count. Elasticity is on: marks, copies for the loss of a PS, figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.job import end_on_signals, running, say
from benchmarks.stock.cluster import ROOT, cluster

STOCK = ROOT / "benchmarks" / "stock"
PS, TRAINERS = 2, 2
WARM_STEPS = 400
LIMIT_SECONDS = 600.0


def elastic(words: Sequence[str], batch: int, steps: int, at_once: int) -> float:
    """Examples per second."""
    command = [str(STOCK / "fit.py"), *words, "--batch", str(batch), "--steps", str(10**9), "--at-once", str(at_once)]
    with running(command, ps=PS, workers=TRAINERS - 1, label="ps-strategy") as job:
        job.until(job.is_steady, "all to train, and copies of all slots")
        job.wait_steps(max(2, WARM_STEPS // TRAINERS // at_once), 0.0)
        began = time.time()
        seen = job.wait_steps(max(4, steps // TRAINERS // at_once), began)
        told = [[one for one in found if one.time > began] for found in seen.values()]
        return batch * sum((own[-1].step - own[0].step) / (own[-1].time - own[0].time) for own in told)


def stock(words: Sequence[str], batch: int, steps: int, at_once: int) -> float:
    """Examples per second, in the median epoch but for the first."""
    epoch = max(at_once, steps // 4)
    command = [sys.executable, str(STOCK / "ps_strategy.py"), *words, "--batch", str(batch), "--steps", str(epoch)]
    command += ["--epochs", "5", "--at-once", str(at_once)]
    with tempfile.TemporaryDirectory(prefix="ps-strategy-") as place:
        with cluster(PS, TRAINERS, command, Path(place), {}) as started:
            code = started.trainers["chief-0"].wait(LIMIT_SECONDS)
        log = (Path(place) / "chief-0.log").read_text(errors="replace")
    if code:
        raise RuntimeError(f"the coordinator has failed: {log[-3000:]}")
    epochs = [json.loads(line)["seconds"] for line in log.splitlines() if line.startswith('{"epoch"')]
    return batch * epoch / statistics.median(epochs[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--steps", type=int, default=1600, help="that are measured in each job, of all trainers together"
    )
    parser.add_argument("--state", default="16MB")
    parser.add_argument("--fields", type=int, default=26)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--at-once", type=int, default=50, help="steps in one execution of the recommended stock")
    arguments = parser.parse_args()
    end_on_signals()
    words = ["--state", arguments.state, "--fields", str(arguments.fields)]
    kinds: dict[str, Callable[[], float]] = {
        "elastic": lambda: elastic(words, arguments.batch, arguments.steps, 1),
        f"elastic, {arguments.at_once} at once": lambda: elastic(
            words, arguments.batch, arguments.steps, arguments.at_once
        ),
        "stock": lambda: stock(words, arguments.batch, arguments.steps, 1),
        f"stock, {arguments.at_once} at once": lambda: stock(
            words, arguments.batch, arguments.steps, arguments.at_once
        ),
    }
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(arguments.rounds):
        for kind, measure in kinds.items() if number % 2 == 0 else reversed(list(kinds.items())):
            rates[kind].append(measure())
            say(f"{kind}: {rates[kind][-1]:,.0f} examples/s")
    middle = {kind: statistics.median(found) for kind, found in rates.items()}
    at_once = f", {arguments.at_once} at once"
    ratios = {
        "as it is": middle["elastic"] / middle["stock"],
        at_once[2:]: middle[f"elastic{at_once}"] / middle[f"stock{at_once}"],
    }
    print(json.dumps({"examples_per_second": rates, "medians": middle, "elastic ÷ stock": ratios}, indent=2))


if __name__ == "__main__":
    main()
