"""Gradients summed while the rest is computed, against all at once when all are there; on networks of some speeds.

    python -m benchmarks.buckets                                     # on this machine itself: a minute
    sudo python -m benchmarks.buckets --megabits 4000 1000 --models mlp   # between two network namespaces, Linux alone

Two processes make steps of Keras models (those of `benchmarks.fit_in_step`), as `fit` does it in a job without PS, but without
a job around: each with one bucket and with several, taking turns step by step. Where a speed is given the processes are in
two network namespaces, and what each sends goes through a token bucket (`tc tbf`) of so many Mbit/s. 0: by loopback.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.job import ROOT, end_on_signals, environment
from benchmarks.stock.cluster import free_addresses

KINDS = ("at once", "in buckets")
WARM = 3
LIMIT_SECONDS = 600.0
NAMES, NETWORK, PORT = ("deeprec-a", "deeprec-b"), "10.213.77", 7077


def member(arguments: argparse.Namespace) -> None:
    """One of both processes."""
    import numpy as np

    from benchmarks.fit_in_step import BATCH, SHAPES, build
    from deeprec_ext.allreduce import given as givens
    from deeprec_ext.allreduce.ahead import Ahead
    from deeprec_ext.allreduce.meeting import Generation, Listener
    from deeprec_ext.allreduce.ring import LostError
    from deeprec_ext.allreduce.summing import Summing
    from deeprec_ext.keras.entry import GENERATIONS
    from deeprec_ext.keras.in_step.home import Model
    from deeprec_ext.keras.in_step.model import InStep
    from deeprec_ext.proto import deeprec_ext_pb2 as pb
    from deeprec_ext.tf_private.imports import KERAS3_MODELS

    import tensorflow as tf  # isort: skip

    places = tuple((host, int(port)) for host, _, port in (one.rpartition(":") for one in arguments.addresses))
    rank = arguments.rank

    class One:
        """A generation for ever."""

        def after(self, number: int, trouble: str) -> Generation:
            if number >= 0:
                raise LostError(trouble)
            return Generation(0, rank, places, b"benchmark")

        def over(self, number: int) -> bool:
            return False

        def watch(self, told: Any) -> None:
            pass

        def take(self) -> list[Any]:
            return []

        def put(self, arrays: Any) -> None:
            pass

    class Bare:
        """As `elastic.member.member.Member`, without a job."""

        settings = pb.AgentSettings(rate_scaling="none")

        def __init__(self) -> None:
            self.summing, self.ahead = Summing(Listener(*places[rank]), One(), One()), Ahead()

        def anew(self) -> None:
            self.summing.anew()

        def begin(self, given: Any, weight: float, **how: Any) -> None:
            self.ahead.begin(lambda: self.summing.sum(given, weight, **how))

        def sum(self, given: Any, weight: float, *, last: bool, vote: bool, share: float, **how: Any) -> Any:
            return self.ahead.result() if self.ahead.busy else self.summing.sum(given, weight, vote, **how)

        def drop(self) -> None:
            if self.ahead.busy:
                raise SystemExit("a step has failed")

    bare, doors = Bare(), []
    generation = GENERATIONS[3 if tf.keras.Model.__module__ == KERAS3_MODELS else 2]
    spec = (tf.TensorSpec((None, *SHAPES[arguments.model])), tf.TensorSpec((None,), tf.int64))
    for kind in KINDS:
        if kind == "at once":
            whole, givens.BUCKET_BYTES = givens.BUCKET_BYTES, 1 << 40
        else:
            givens.BUCKET_BYTES = whole
        tf.keras.utils.set_random_seed(1)
        model = build(arguments.model)
        model.build((None, *SHAPES[arguments.model]))
        home = SimpleNamespace(state=Model(), member=bare, chief=False, refused=print)
        door = InStep(home, generation, SimpleNamespace(look=lambda *one: None))  # type: ignore[arg-type]
        door.records = BATCH // 2
        doors.append((kind, door, door.prepare(model, "train", spec, None), model))
    chance = np.random.default_rng(rank)
    batch = [chance.random((BATCH // 2, *SHAPES[arguments.model]), np.float32), chance.integers(10, size=BATCH // 2)]
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(arguments.steps + WARM):
        for kind, door, prepared, _ in doors:
            began = time.perf_counter()
            door.run(prepared, batch, train=True)
            if number >= WARM:
                times[kind].append(time.perf_counter() - began)
    buckets = [len(door.course.starts) for _, door, _, _ in doors if door.course is not None]
    differ = max(
        float(np.max(np.abs(one - other))) for one, other in zip(*(model.get_weights() for *_, model in doors))
    )
    said = {
        "times": times,
        "buckets": buckets,
        "differ": differ,
        "sum": float(sum(one.sum() for one in model.get_weights())),
    }
    Path(arguments.out).write_text(json.dumps(said))


@contextlib.contextmanager
def network(megabits: float) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Addresses of two processes, and what each command begins with."""
    if not megabits:
        yield free_addresses(2), [[], []]
        return

    def ip(*words: str, inside: str = "") -> None:
        subprocess.run(
            [*(["ip", "netns", "exec", inside] if inside else []), *words], check=True, capture_output=True, text=True
        )

    try:
        for name in NAMES:
            ip("ip", "netns", "add", name)
        ip(
            "ip",
            "link",
            "add",
            NAMES[0],
            "netns",
            NAMES[0],
            "type",
            "veth",
            "peer",
            "name",
            NAMES[1],
            "netns",
            NAMES[1],
        )
        for last, name in enumerate(NAMES, 1):
            ip("ip", "addr", "add", f"{NETWORK}.{last}/24", "dev", name, inside=name)
            ip("ip", "link", "set", name, "up", inside=name)
            bucket = ("rate", f"{megabits}mbit", "burst", "256kb", "latency", "100ms")
            ip("tc", "qdisc", "add", "dev", name, "root", "tbf", *bucket, inside=name)
        yield [f"{NETWORK}.{last}:{PORT}" for last in (1, 2)], [["ip", "netns", "exec", name] for name in NAMES]
    except subprocess.CalledProcessError as error:
        raise SystemExit(
            f"{' '.join(error.cmd)}: {error.stderr.strip()}; a speed takes Linux, root, ip and tc"
        ) from None
    finally:
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def measured(model: str, megabits: float, steps: int, place: Path) -> dict[str, Any]:
    with network(megabits) as (addresses, begins):
        outs = [place / f"{rank}.json" for rank in range(2)]
        processes = [
            subprocess.Popen(
                [*begin, sys.executable, "-m", "benchmarks.buckets", "member", "--model", model, "--rank", str(rank),
                 "--addresses", *addresses, "--steps", str(steps), "--out", str(out)],
                cwd=ROOT, env=environment(PYTHONPATH=str(ROOT)),
            )
            for rank, (begin, out) in enumerate(zip(begins, outs))
        ]  # fmt: skip
        try:
            for one in processes:
                if one.wait(LIMIT_SECONDS):
                    raise SystemExit("a process has failed")
        finally:
            for one in processes:
                one.kill()
                one.wait()
        found = [json.loads(out.read_text()) for out in outs]
    if found[0]["sum"] != found[1]["sum"]:
        raise SystemExit("the weights of both are not alike")
    times = {kind: [max(pair) for pair in zip(*(one["times"][kind] for one in found))] for kind in KINDS}
    ratios = sorted(bucket / whole for whole, bucket in zip(*(times[kind] for kind in KINDS)))
    return {
        "model": model, "megabits": megabits, "steps": steps, "buckets": found[0]["buckets"],
        **{f"{kind} ms": 1e3 * statistics.median(times[kind]) for kind in KINDS},
        "ratio": statistics.median(ratios), "quartiles": (ratios[steps // 4], ratios[3 * steps // 4]),
        "load": os.getloadavg()[0],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("member",), help=argparse.SUPPRESS)
    parser.add_argument("--models", nargs="+", default=["cnn", "mlp"], choices=("cnn", "mlp"))
    parser.add_argument("--megabits", type=float, nargs="+", default=[0.0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    for hidden in ("--model", "--out"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--addresses", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.what:
        member(arguments)
        return
    end_on_signals()
    import tempfile

    rows = []
    for model in arguments.models:
        for megabits in arguments.megabits:
            with tempfile.TemporaryDirectory() as place:
                rows.append(row := measured(model, megabits, arguments.steps, Path(place)))
            low, high = row["quartiles"]
            if not arguments.json:
                print(
                    f"{model}, {f'{megabits:g} Mbit/s' if megabits else 'loopback'}: at once {row['at once ms']:.1f} ms, in "
                    f"{row['buckets'][-1]} buckets {row['in buckets ms']:.1f} ms, ÷ {row['ratio']:.3f} ({low:.3f}–{high:.3f}); "
                    f"load {row['load']:.1f}", flush=True,
                )  # fmt: skip
    if arguments.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
