"""Sums over all workers: our ring beside TensorFlow's collectives (ring over gRPC), taking turns in the same processes.

    python -m benchmarks.ring                               # 2, 3 and 4 members; 4 and 100 MB: two minutes
    python -m benchmarks.ring --members 2 --megabytes 100

Each member is a process; numbers are float32. A pair is one sum of each kind, one after the other, and the slowest member of a
pair counts. Processor time is of all members.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.stock.cluster import free_addresses
from deeprec_ext.allreduce.meeting import Listener, Waiting, join

WARM = 3
LIMIT_SECONDS = 300.0


def _collective(rank: int, there: Sequence[str]) -> Any:
    """A function from array to array."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    v1 = tf.compat.v1
    config = v1.ConfigProto()
    config.experimental.collective_group_leader = "/job:worker/replica:0/task:0"
    server = v1.train.Server({"worker": list(there)}, job_name="worker", task_index=rank, config=config)
    with tf.Graph().as_default() as graph, tf.device(f"/job:worker/task:{rank}/device:CPU:0"):
        value = v1.placeholder(tf.float32, [None])
        summed = tf.raw_ops.CollectiveReduce(
            input=value, group_size=len(there), group_key=1, instance_key=1, merge_op="Add", final_op="Id",
            subdiv_offsets=[0],
        )  # fmt: skip
        session = v1.Session(server.target, graph=graph, config=config)
    return session.make_callable(summed, [value])


def member(rank: int, count: int, there: Sequence[str], pairs: int, sizes: Sequence[int], pipe: Connection) -> None:
    listener = Listener()
    pipe.send(("127.0.0.1", listener.port))
    ring = join(listener, 1, rank, pipe.recv(), b"", Waiting(lambda: False, LIMIT_SECONDS, "the ring"))
    collective, found = _collective(rank, there), []
    for size in sizes:
        given = np.full(size, rank + 1, np.float32)
        for number in range(pairs + WARM):
            row = []
            for kind in ("ring", "collective") if number % 2 else ("collective", "ring"):
                ring.gather(b"")  # all begin together
                began, used = time.perf_counter(), time.process_time()
                if kind == "ring":
                    summed = given.copy()
                    ring.sum(summed)
                else:
                    summed = collective(given)
                row.append((kind, time.perf_counter() - began, time.process_time() - used))
                if not summed[0] == summed[-1] == count * (count + 1) / 2:
                    raise AssertionError(f"{kind}: {summed[0]}, {summed[-1]}")
            if number >= WARM:
                found.append((size, sorted(row)))
    pipe.send(found)
    pipe.recv()


def measured(count: int, pairs: int, sizes: Sequence[int]) -> list[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    there = free_addresses(count)
    pipes = [context.Pipe() for _ in range(count)]
    members = [
        context.Process(target=member, args=(rank, count, there, pairs, sizes, theirs), daemon=True)
        for rank, (_, theirs) in enumerate(pipes)
    ]
    for one in members:
        one.start()
    ours = [pipe for pipe, _ in pipes]

    def heard() -> list[Any]:
        for pipe in ours:
            if not pipe.poll(LIMIT_SECONDS):
                raise SystemExit("a member says nothing")
        return [pipe.recv() for pipe in ours]

    where = heard()
    for pipe in ours:
        pipe.send(where)
    of_members = heard()
    for pipe in ours:
        pipe.send("end")
    for one in members:
        one.join(20)
    rows = []
    for size in sizes:
        of_size = [[row for of, row in found if of == size] for found in of_members]
        times = {kind: [max(one[pair][place][1] for one in of_size) for pair in range(pairs)]
                 for place, kind in enumerate(("collective", "ring"))}  # fmt: skip
        used = {kind: statistics.median(sum(one[pair][place][2] for one in of_size) for pair in range(pairs))
                for place, kind in enumerate(("collective", "ring"))}  # fmt: skip
        ratios = sorted(ring / other for ring, other in zip(times["ring"], times["collective"]))
        rows.append({
            "members": count, "megabytes": size * 4 / 1e6, "pairs": pairs,
            **{f"{kind}_ms": 1e3 * statistics.median(of) for kind, of in times.items()},
            **{f"{kind}_cpu_ms": 1e3 * of for kind, of in used.items()},
            "ratio": statistics.median(ratios), "quartiles": (ratios[pairs // 4], ratios[3 * pairs // 4]),
        })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--megabytes", type=float, nargs="+", default=[4.0, 100.0])
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write the result to this file")
    arguments = parser.parse_args()
    sizes = [int(one * 1e6 / 4) for one in arguments.megabytes]
    rows = []
    for count in arguments.members:
        for row in measured(count, arguments.pairs, sizes):
            rows.append(row)
            low, high = row["quartiles"]
            print(
                f"{count} members, {row['megabytes']:g} MB: ring {row['ring_ms']:.1f} ms, collective "
                f"{row['collective_ms']:.1f} ms, ÷ {row['ratio']:.2f} ({low:.2f}–{high:.2f}); processor time of all "
                f"{row['ring_cpu_ms']:.0f} and {row['collective_cpu_ms']:.0f} ms", flush=True,
            )  # fmt: skip
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
