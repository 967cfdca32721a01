"""What a refresh of a peer backup costs, which is what the last copy of a change of PS costs as well: all as one message of
each type, and tensor by tensor, taking turns.

    python -m benchmarks.refresh                                # half a minute
    python -m benchmarks.refresh --dense 400 --dirty 100        # a model of many layers
    python -m benchmarks.refresh --dirty 16000                  # nearly everything has changed

Two PS, each a process of its own. One has tables with an accumulator each, marks of their own, and dense variables; the other
pulls what changed. Two movers of the same variables, of two readers, take turns. Told are medians, and the processor time of
both PS together (the kernel tells it in hundredths of a second, so it is the mean of all turns).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from unittest import mock

import numpy as np
import tensorflow as tf

from benchmarks.packing import cluster, cpu_seconds
from deeprec_ext.elastic.ps import migration
from deeprec_ext.elastic.ps.collector import make_bitmaps
from deeprec_ext.elastic.ps.migration import Mover
from deeprec_ext.elastic.ps.variables import Facts, Located, bitmap_of
from deeprec_ext.elastic.runtime.ops import Ops, Program
from deeprec_ext.elastic.runtime.parcels import Sent
from deeprec_ext.elastic.runtime.view import elastic_config
from deeprec_ext.proto import deeprec_ext_pb2 as pb

CHUNK_BYTES = 8 << 20
WARM = 5


def variables(arguments: argparse.Namespace) -> list[pb.Variable]:
    number = tf.float32.as_datatype_enum
    rows = [
        pb.Variable(
            name=f"t{table}{slot}", dtype=number, shape=[arguments.rows, arguments.dim], update=pb.Variable.ROWS,
            bitmap=f"t{table}@dirty", bytes=4 * arguments.rows * arguments.dim,
        )
        for table in range(arguments.tables)
        for slot in ("", "/Adagrad")
    ]  # fmt: skip
    dense = [
        pb.Variable(name=f"d{n}", dtype=number, shape=[64, 32], update=pb.Variable.DENSE, bytes=4 * 64 * 32)
        for n in range(arguments.dense)
    ]
    return rows + dense


def one_by_one(ops: Ops, sent: Sequence[Sent], source: str, target: str, numbers: str = "") -> list[str]:
    return [one.tensor for one in sent]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=26)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--dirty", type=int, default=512, help="rows of each table that changed since the last time")
    parser.add_argument("--dense", type=int, default=60, help="variables of 8 KB")
    parser.add_argument("--pairs", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    wanted = variables(arguments)
    with cluster(2, None) as (_, config, (_, *processes)):
        ps = {
            task: address for job in config.cluster_def.job if job.name == "ps" for task, address in job.tasks.items()
        }
        ops, program = Ops("make"), Program("grpc://" + ps[0], elastic_config(ps))
        program.run(ops, [Located(ops, Facts.from_proto(variable), 0).zeros() for variable in wanted])
        make_bitmaps("grpc://" + ps[0], 0, wanted)
        movers = {}
        for kind, reader in (("together", "peer"), ("one by one", "next")):
            moves = [pb.Move(variable=variable, source_task=0) for variable in wanted]
            mover = Mover("grpc://" + ps[1], 1, ps, moves, CHUNK_BYTES, reader=reader, suffix=f"@{reader}")
            with mock.patch.object(migration, "together", one_by_one if reader == "next" else migration.together):
                mover.arm(verify=False, tracked=True)
            mover.first()
            mover.refresh()
            movers[kind] = mover
        chance, ops, marks = np.random.default_rng(0), Ops("mark"), []
        for table in range(arguments.tables):
            bits = Located(ops, bitmap_of(Facts.from_proto(wanted[2 * table])), 0)
            rows = ops.constant(chance.choice(arguments.rows, arguments.dirty, replace=False), tf.int64, bits.device)
            marks.append(bits.scatter(rows, ops.constant(True, tf.bool, bits.device)))
        program.load(ops)
        mark = program.compile(targets=marks)
        seen: dict[str, list[float]] = {kind: [] for kind in movers}
        spent = dict.fromkeys(movers, 0.0)
        for turn in range(WARM + arguments.pairs):
            mark()
            for kind in sorted(movers, reverse=bool(turn % 2)):
                before, began = cpu_seconds(processes), time.perf_counter()
                sent = movers[kind].refresh()
                if turn >= WARM:
                    seen[kind].append(time.perf_counter() - began)
                    spent[kind] += cpu_seconds(processes) - before
    low, middle, high = statistics.quantiles([a / b for a, b in zip(seen["together"], seen["one by one"])], n=4)
    result = {
        "bytes": sent,
        "ms": {kind: 1e3 * statistics.median(times) for kind, times in seen.items()},
        "cpu_ms": {kind: 1e3 * seconds / arguments.pairs for kind, seconds in spent.items()},
        "ratio": middle, "quartiles": [low, high],
    }  # fmt: skip
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"{len(wanted)} variables, {sent / 1e6:.1f} MB a refresh")
    for kind in movers:
        print(f"{kind:>10}: {result['ms'][kind]:.1f} ms, processor time of both PS {result['cpu_ms'][kind]:.1f} ms")
    print(f"together ÷ one by one {middle:.2f} ({low:.2f}–{high:.2f})")


if __name__ == "__main__":
    main()
