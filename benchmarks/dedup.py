"""What the dedup pass gains: step time and bytes, with and without it, interleaved in one run.

    python benchmarks/dedup.py [--json] [--dims 8,16,64] [--batches 512,2048] [--ps 2] [--seconds 6]

A DeepFM-like model (26 fields, a table of `dim` columns and one of one column per field, Adagrad) trains on parameter
servers in processes of their own, over loopback. For each setting two sessions, one on the stock graph and one on the graph
after the pass, take turns in blocks of five steps on the same variables. Bytes are what the loopback interface carried per
step (least of all blocks, since other processes use it too). Loopback is the hardest case for the pass: bytes are
cheapest there, and PS and worker share the cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import tensorflow as tf

from deeprec_ext.graph import Context, rewrite

v1 = tf.compat.v1
v1.logging.set_verbosity(v1.logging.ERROR)
FIELDS, ROWS, POOL, BLOCK = 26, 20_000, 8, 5
WORKER = "/job:worker/task:0"


def serve() -> None:
    """A parameter server on a free port; its address is the first line it prints."""
    server = v1.train.Server({"localhost": ["127.0.0.1:0"]}, job_name="localhost", task_index=0)
    print(server.target.removeprefix("grpc://"), flush=True)
    sys.stdin.read()  # until the parent goes away
    os._exit(0)


def zipf(exponent: float, size: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Ids 0..ROWS-1 with probability ~ 1 / rank**exponent (0: uniform), ranks scattered over the table."""
    weights = 1.0 / np.arange(1, ROWS + 1) ** exponent
    ranks = np.searchsorted(np.cumsum(weights) / weights.sum(), generator.random(size))
    return generator.permutation(ROWS)[np.minimum(ranks, ROWS - 1)].astype(np.int64)


def deepfm(scope: str, pool: np.ndarray, dim: int, optimizer: str, ps: int) -> tuple[v1.GraphDef, str, str]:
    """The graph on `ps` slots, fed from `pool` [batches, batch, FIELDS]; returns it and the names of initialiser and step."""
    with tf.Graph().as_default() as graph, v1.device(v1.train.replica_device_setter(ps, worker_device=WORKER)):
        step = v1.train.get_or_create_global_step()
        with v1.device(WORKER):
            ids = v1.data.make_one_shot_iterator(tf.data.Dataset.from_tensor_slices(pool).repeat()).get_next()
            labels = tf.cast(ids[:, 0] % 2, tf.float32)
        with v1.variable_scope(scope, use_resource=True):
            wide, deep = [], []
            for field in range(FIELDS):
                column = ids[:, field]
                wide.append(v1.nn.embedding_lookup(v1.get_variable(f"w{field}", [ROWS, 1]), column))
                deep.append(v1.nn.embedding_lookup(v1.get_variable(f"e{field}", [ROWS, dim]), column))
            stacked = tf.stack(deep, 1)
            square = tf.square(tf.reduce_sum(stacked, 1)) - tf.reduce_sum(tf.square(stacked), 1)
            hidden = v1.layers.dense(tf.reshape(stacked, [-1, FIELDS * dim]), 64, tf.nn.relu)
            logits = v1.layers.dense(hidden, 1)[:, 0] + 0.5 * tf.reduce_sum(square, 1) + tf.add_n(wide)[:, 0]
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
        make = {"adagrad": v1.train.AdagradOptimizer, "sgd": v1.train.GradientDescentOptimizer}[optimizer]
        train = make(0.01).minimize(loss, step)
        init = v1.global_variables_initializer()
    return graph.as_graph_def(), init.name, train.name


def loopback_bytes() -> int:
    """Bytes sent over the loopback interface since the start of the machine."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == "lo":
            return int(counters.split()[8])
    return 0


def stepper(
    target: str, config: v1.ConfigProto, definition: v1.GraphDef, train: str, first: list[str]
) -> Callable[[], None]:
    """A session of its own that has run `first`; calling the result makes one step."""
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(definition, name="")
    session = v1.Session(target, graph=graph, config=config)
    session.run(first)
    return session.make_callable([graph.get_operation_by_name(train)])


def measure(target: str, config, arguments, exponent: float, dim: int, batch: int, number: int) -> dict:
    """Both sessions in turn for some seconds; medians of step time, least of bytes."""
    scope = f"run{number}"
    generator = np.random.default_rng(number)
    pool = np.stack([zipf(exponent, (POOL, batch), generator) for _ in range(FIELDS)], -1)
    graph_def, init, train = deepfm(scope, pool, dim, arguments.optimizer, arguments.ps)
    slots = tuple(range(arguments.ps))
    rewritten = {d: rewrite(graph_def, Context(slots, dedup=d, resource_scope=scope)) for d in ("off", arguments.dedup)}
    steps = {}
    for name, result in rewritten.items():  # variables and the named iterator are shared: made by the first session
        first = [init, *result.initializers] if not steps else []
        steps[name] = stepper(target, config, result.definition, train, first)
    for step in steps.values():
        for _ in range(3):
            step()
    times: dict[str, list[float]] = {d: [] for d in steps}
    sent: dict[str, list[float]] = {d: [] for d in steps}
    end = time.monotonic() + arguments.seconds
    while time.monotonic() < end or len(times["off"]) < 4 * BLOCK:
        for name, step in steps.items():
            before = loopback_bytes()
            for _ in range(BLOCK):
                start = time.perf_counter()
                step()
                times[name].append(time.perf_counter() - start)
            sent[name].append((loopback_bytes() - before) / BLOCK)
    # Tables of this setting are not needed any more; a session of its own destroys them.
    names = {n.attr["shared_name"].s.decode(): n.device for n in graph_def.node if n.op == "VarHandleOp"}
    with tf.Graph().as_default() as last:
        drops = []
        for name, device in names.items():
            with v1.device(device):
                handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name=name)
                drops.append(tf.raw_ops.DestroyResourceOp(resource=handle))
    with v1.Session(target, graph=last, config=config) as session:
        session.run(drops)
    ours = arguments.dedup
    stock_seconds, our_seconds = np.median(times["off"]), np.median(times[ours])
    unique = float(np.mean([len(np.unique(pool[0, :, field])) / batch for field in range(FIELDS)]))
    return {
        "ids": f"zipf {exponent}" if exponent else "uniform",
        "dim": dim,
        "batch": batch,
        "optimizer": arguments.optimizer,
        "dedup": ours,
        "unique_share": round(unique, 3),
        "changed": {r.name: r.changed for r in rewritten[ours].reports}["dedup"],
        "steps": len(times["off"]),
        "stock_ms": round(1e3 * stock_seconds, 2),
        "dedup_ms": round(1e3 * our_seconds, 2),
        "time_ratio": round(our_seconds / stock_seconds, 3),
        "stock_mb": round(min(sent["off"]) / 1e6, 3),
        "dedup_mb": round(min(sent[ours]) / 1e6, 3),
        "bytes_ratio": round(min(sent[ours]) / max(1.0, min(sent["off"])), 3),
    }


COLUMNS = ("ids", "dim", "batch", "unique_share", "changed", "steps", "stock_ms", "dedup_ms", "time_ratio", "stock_mb",
           "dedup_mb", "bytes_ratio")  # fmt: skip


def main() -> None:
    if sys.argv[1:] == ["ps"]:
        serve()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--dims", default="8,16,64")
    parser.add_argument("--batches", default="512,2048")
    parser.add_argument("--exponents", default="1.05,0", help="of Zipf's law; 0 is uniform")
    parser.add_argument("--ps", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=6.0, help="per setting")
    parser.add_argument("--optimizer", choices=["adagrad", "sgd"], default="adagrad")
    parser.add_argument("--dedup", choices=["on", "auto"], default="auto")
    arguments = parser.parse_args()
    processes = [
        subprocess.Popen([sys.executable, __file__, "ps"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(arguments.ps)
    ]
    rows = []
    try:
        addresses = {number: process.stdout.readline().strip() for number, process in enumerate(processes)}
        server = v1.train.Server({"localhost": ["127.0.0.1:0"]}, job_name="localhost", task_index=0)
        cluster = tf.train.ClusterSpec({"ps": addresses, "worker": {0: server.target.removeprefix("grpc://")}})
        config = v1.ConfigProto()
        config.cluster_def.CopyFrom(cluster.as_cluster_def())
        config.experimental.share_session_state_in_clusterspec_propagation = True
        if not arguments.json:
            print("  ".join(f"{c:>12}" for c in COLUMNS))
        settings = [
            (float(e), int(d), int(b))
            for e in arguments.exponents.split(",")
            for d in arguments.dims.split(",")
            for b in arguments.batches.split(",")
        ]
        for number, (exponent, dim, batch) in enumerate(settings):
            rows.append(measure(server.target, config, arguments, exponent, dim, batch, number))
            if not arguments.json:
                print("  ".join(f"{rows[-1][c]!s:>12}" for c in COLUMNS), flush=True)
        if arguments.json:
            print(
                json.dumps({"benchmark": "dedup", "ps": arguments.ps, "fields": FIELDS, "rows": ROWS, "settings": rows})
            )
    finally:
        for process in processes:
            process.kill()
            process.wait()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
