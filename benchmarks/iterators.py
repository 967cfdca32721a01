"""How long TensorFlow takes to make an iterator anew, with and without its autotuning: what a trainer waits for after a loss.

    python -m benchmarks.iterators                       # about five minutes, most of them asleep

Stock TensorFlow in one process, nothing of ours: iterators are read for a while, then made anew one after the other, which
ends the ones before. The thread that tunes an iterator may miss that it is to end, and sleeps on: for as long as it has slept
before, doubling, up to a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

SLOW_SECONDS = 1.0


def measure(autotuned: bool, iterators: int, rounds: int, seconds: float) -> list[float]:
    """Seconds of each time that an iterator was made anew."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default():
        dataset = tf.data.Dataset.from_generator(
            lambda: iter(range(2**60)), output_signature=tf.TensorSpec([], tf.int64)
        )
        dataset = dataset.map(lambda number: number + 1, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
        options = tf.data.Options()
        options.autotune.enabled = autotuned
        made = [v1.data.make_initializable_iterator(dataset.with_options(options)) for _ in range(iterators)]
        numbers = [iterator.get_next() for iterator in made]
        found = []
        session = v1.Session()
        session.run([iterator.initializer for iterator in made])
        for _ in range(rounds):
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                session.run(numbers)
                time.sleep(0.02)
            for iterator in made:
                began = time.monotonic()
                session.run(iterator.initializer)
                found.append(time.monotonic() - began)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterators", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3, help="how often each is made anew")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long they are read before each round, at least")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = {}
    for autotuned in (True, False):
        found = measure(autotuned, options.iterators, options.rounds, options.seconds)
        name = "autotuned" if autotuned else "not autotuned"
        result[name] = {"median": statistics.median(found), "longest": max(found), "all": found}
        if not options.json:
            slow = sum(one > SLOW_SECONDS for one in found)
            print(
                f"{name:14}  made anew {len(found)} times: median {statistics.median(found):.2f} s, longest "
                f"{max(found):.1f} s, {slow} over {SLOW_SECONDS:g} s", flush=True,
            )  # fmt: skip
    if options.json:
        print(json.dumps(result, indent=2))
    sys.stdout.flush()
    os._exit(0)  # closing the sessions would wait for the iterators once more


if __name__ == "__main__":
    sys.exit(main())
