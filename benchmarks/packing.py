"""What packing gains: step time, processor time and requests of a step, with and without it, taking turns in one run.

    python -m benchmarks.packing                        # the two examples, batches of 128 and 512, two PS; some three minutes
    python -m benchmarks.packing --cut 1,8 --ps 1,2     # DeepFM's tables in eight parts as well, one PS too
    python -m benchmarks.packing --latency 0.5          # half a millisecond each way between trainer and PS; as root
    python -m benchmarks.packing --models small --optimizer adam --json
    python -m benchmarks.packing --prepare --models deepfm,wide_deep    # what it adds to preparing a session for a change
    python -m benchmarks.packing --joined 8 --models deepfm --batches 512    # tables in 8 parts by the script, joined and not
    python -m benchmarks.packing --marks --models small --batches 512 --rows 282000   # what marks cost a packed step: 1 GB

The models are those of `examples/deepfm_criteo` and `examples/census_wide_deep`, and a smaller DeepFM (`models.py`); the number
of records of a batch is not known to the graph, as it is with most input. The PS are processes of their own, over loopback. The
baseline is stock TensorFlow as one would write it by hand: no pass of ours has seen its graph. Stock and packed sessions work
on the same variables and take turns in blocks of steps. Told are medians of a step, and of each pair of blocks packed ÷ stock:
the median and the quartiles; of processor time too, of trainer and PS together (the kernel tells it in hundredths of a second).

With `--prepare` no step is made: a session is placed and its step compiled, as before a change, packed and not, taking turns.
Told are seconds, and processor seconds of trainer and PS together; `quick`: without TensorFlow's optimiser and not packed;
`once`: packed, and without an optimiser, from what that made of the run once for all views (`once_for_all_s`), as before a
change.

With `--joined` packed steps of three graphs take turns: with whole tables, with tables that the script has in so many parts,
and with these made one again. Told are the ratios to whole tables.

With `--marks` the baseline is the packed step, and what is told of is the same step with the marks of dirty rows, as backups
need them. Both are made by one process, on the same variables, so nothing else differs.

Loopback is where a message costs least. With `--latency`, trainer and PS are in network namespaces of their own, and packets go
through a process that keeps them (`latency.py`), which needs some of the processor too: that it does not count as a step's.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np
import psutil
import tensorflow as tf

from benchmarks import latency, models
from deeprec_ext.graph import (
    Context,
    GraphIndex,
    Packed,
    Partitioning,
    Run,
    join,
    pack,
    rewrite,
    saved_names,
    told_by,
    updates,
)
from deeprec_ext.graph.on_slots import OnSlots
from deeprec_ext.graph.writes import find_writes, variables_on_ps

v1 = tf.compat.v1
v1.logging.set_verbosity(v1.logging.ERROR)
WORKER, HERE = "/job:worker/task:0", "127.0.0.1"
BLOCK, POOL, WARM_STEPS, LEAST_PAIRS, SLOTS = 20, 8, 20, 10, 16
OPTIMIZERS = {
    "adagrad": lambda: v1.train.AdagradOptimizer(0.05), "sgd": lambda: v1.train.GradientDescentOptimizer(0.05),
    "ftrl": lambda: v1.train.FtrlOptimizer(0.05), "adam": lambda: v1.train.AdamOptimizer(0.001),
}  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- models


def example(name: str) -> Any:
    """The script of an example as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / name / "train.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made(draw: Callable[[Any], Any]) -> Any:
    """Arrays of POOL batches."""
    with tf.Graph().as_default(), v1.Session() as session:
        found = session.run([draw(tf.constant(number, tf.int64)) for number in range(POOL)])
    return tf.nest.map_structure(lambda *some: np.stack(some), *found)


def given(pool: Any) -> Any:
    """Batches of a pool, again and again: making them costs nothing."""
    with v1.device(WORKER):
        batch = v1.data.make_one_shot_iterator(tf.data.Dataset.from_tensor_slices(pool).repeat()).get_next()
        return tf.nest.map_structure(lambda one: v1.placeholder_with_default(one, [None, *one.shape[1:]]), batch)


def deepfm(arguments: argparse.Namespace, batch: int, parts: int) -> Callable[[], Any]:
    script = example("deepfm_criteo")
    pool = made(lambda number: script.generate(number, batch, 10_000, 2))
    parameters = {"rows": 10_000, "dim": 16, "parts": parts, "hidden": [256, 128], "learning_rate": 0.05}
    return lambda: script.model_fn(*given(pool), tf.estimator.ModeKeys.TRAIN, parameters).train_op


def census(arguments: argparse.Namespace, batch: int, parts: int) -> Callable[[], Any]:
    """Its tables are too small to be cut."""
    script = example("census_wide_deep")
    columns, labels = script.generate(POOL * batch, seed=1)
    columns = {name: column.astype(str) for name, column in columns.items()}
    vocabularies = {name: np.unique(columns[name]) for name in script.CATEGORIES}
    fields, crossings = (one.reshape(POOL, batch, -1) for one in script.encode(columns, vocabularies))
    pool = {"fields": fields, "crossings": crossings}, labels.reshape(POOL, batch)
    rows = [len(one) + 1 for one in (*vocabularies.values(), *script.BOUNDARIES.values())]
    parameters = {"rows": rows, "dim": 8, "hidden": [64, 32]}
    return lambda: script.model_fn(*given(pool), tf.estimator.ModeKeys.TRAIN, parameters).train_op


def small(arguments: argparse.Namespace, batch: int, parts: int) -> Callable[[], Any]:
    size = models.Size(batch=batch, parts=parts, hidden=tuple(arguments.hidden), rows=arguments.rows)
    pool = made(lambda number: models.make_batch(number, size))
    return lambda: models.build(*given(pool), size, OPTIMIZERS[arguments.optimizer]()).train


def wide_deep(arguments: argparse.Namespace, batch: int, parts: int) -> Callable[[], Any]:
    """Of real size, with input and partitions of its own; to be prepared, not to be run."""
    from benchmarks.real_graphs import wide_deep as script

    given = argparse.Namespace(
        batch=batch, buckets=10_000, dim=16, deep_parts=script.DEEP_PARTS, table_parts=script.TABLE_PARTS
    )

    def build() -> Any:
        features, clicked = script.read(given, 0)
        logits = script.logits_of(features, given)
        return script.train_op_of(
            tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=clicked, logits=logits))
        )

    return build


MODELS = {"deepfm": deepfm, "census": census, "small": small, "wide_deep": wide_deep}


def graph_of(build: Callable[[], Any], ps: int) -> tuple[tf.Graph, str, str]:
    """The graph, and the names of initialiser and step."""
    with tf.Graph().as_default() as graph, v1.device(v1.train.replica_device_setter(ps, worker_device=WORKER)):
        v1.train.get_or_create_global_step()
        with v1.variable_scope("", use_resource=True):
            train = build()
        return graph, v1.global_variables_initializer().name, train.name


# ------------------------------------------------------------------------------------------------------------ measuring


def cpu_seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


@dataclass
class Step:
    """One way of making a step."""

    make: Callable[[], Any]
    seconds: list[float] = field(default_factory=list)
    """Per step of a block, the median."""
    cpu_seconds: list[float] = field(default_factory=list)
    """Of all processes, per step of a block."""

    def block(self, processes: list[psutil.Process]) -> None:
        before, times = cpu_seconds(processes), []
        for _ in range(BLOCK):
            began = time.perf_counter()
            self.make()
            times.append(time.perf_counter() - began)
        self.seconds.append(statistics.median(times))
        self.cpu_seconds.append((cpu_seconds(processes) - before) / BLOCK)


def serve(host: str) -> None:
    """A parameter server on a free port; its address is the first line it prints."""
    server = v1.train.Server({"localhost": [f"{host}:0"]}, job_name="localhost", task_index=0)
    print(server.target.removeprefix("grpc://"), flush=True)
    sys.stdin.read()  # until the parent goes away
    os._exit(0)


@contextlib.contextmanager
def cluster(ps: int, far: Callable[[], None] | None) -> Iterator[tuple[str, v1.ConfigProto, list[psutil.Process]]]:
    """Target and configuration of sessions, and all processes.

    Args:
      far: moves a PS to the other side; None: there is none.
    """
    here, there = (latency.HERE, latency.THERE) if far is not None else (HERE, HERE)
    command = [sys.executable, "-m", "benchmarks.packing", "ps", there]
    made = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=far)
        for _ in range(ps)
    ]
    try:
        addresses = {number: process.stdout.readline().strip() for number, process in enumerate(made)}
        server = v1.train.Server({"localhost": [f"{here}:0"]}, job_name="localhost", task_index=0)
        spec = tf.train.ClusterSpec({"ps": addresses, "worker": {0: server.target.removeprefix("grpc://")}})
        config = v1.ConfigProto()
        config.cluster_def.CopyFrom(spec.as_cluster_def())
        config.experimental.share_session_state_in_clusterspec_propagation = True
        yield server.target, config, [psutil.Process(), *(psutil.Process(process.pid) for process in made)]
    finally:
        for process in made:
            process.kill()
            process.wait()


def opened(
    target: str, config: v1.ConfigProto, definition: v1.GraphDef, train: str
) -> tuple[v1.Session, Callable[[], Any]]:
    """A session, and what makes a step in it."""
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(definition, name="")
    session = v1.Session(target, graph=graph, config=config)
    return session, session.make_callable([graph.get_operation_by_name(train)])


def marked(definition: v1.GraphDef) -> dict[str, str]:
    """Variables that are written by rows, and their bitmaps: one for a table and its optimizer slots."""
    index = GraphIndex(definition)
    variables = variables_on_ps(index)
    found: dict[str, str] = {}
    for write in find_writes(index, variables):
        if write.by_rows:
            names = [variables[one].name for one in write.variables]
            found |= dict.fromkeys(names, f"{names[0]}@dirty")
    return found


def make_bitmaps(target: str, config: v1.ConfigProto, definition: v1.GraphDef) -> None:
    """Those that are in a placed graph."""
    with tf.Graph().as_default() as graph:
        made = []
        for node in definition.node:
            if node.op == "VarHandleOp" and node.name.endswith("__dirty"):
                shape = tf.TensorShape(node.attr["shape"].shape)
                with v1.device(node.device):
                    handle = tf.raw_ops.VarHandleOp(dtype=tf.bool, shape=shape, shared_name=node.attr["shared_name"].s)
                    made.append(tf.raw_ops.AssignVariableOp(resource=handle, value=tf.fill(shape, False)))
    with v1.Session(target, graph=graph, config=config) as session:
        session.run(made)


def measure(model: str, ps: int, batch: int, parts: int, arguments: argparse.Namespace, far: Any) -> dict[str, Any]:
    build = MODELS[model](arguments, batch, parts)
    graph, init, train = graph_of(build, ps)
    definition = graph.as_graph_def()
    placed = rewrite(definition, Context(tuple(range(ps)), dedup=arguments.dedup, worker_device=WORKER))
    packed: Packed = pack(placed.definition, Run((), (), (train,)), WORKER, arguments.pack, told_by(graph))
    base = definition
    if arguments.marks and packed.definition is not None:
        base = packed.definition
        tracked = marked(placed.definition)
        context = Context(tuple(range(ps)), dedup=arguments.dedup, worker_device=WORKER, tracked=tracked)
        placed = rewrite(definition, context)
        run = Run((), (), (train, *placed.marks.get(train, ())))
        packed = pack(placed.definition, run, WORKER, arguments.pack, told_by(graph))
    found: dict[str, Any] = {"model": model, "ps": ps, "batch": batch, "parts": parts, "packed": packed.report.detail}
    if packed.definition is None:
        return found
    with cluster(ps, far) as (target, config, processes):
        session, make = opened(target, config, definition, train)
        session.run(init)
        if arguments.marks:
            make_bitmaps(target, config, packed.definition)
            _, make = opened(target, config, base, train)
        starter, _ = opened(target, config, placed.definition, train)  # the named iterator lives in it
        for name in placed.initializers:
            starter.run(name)
        steps = {"stock": Step(make), "packed": Step(opened(target, config, packed.definition, train)[1])}
        for step in steps.values():
            for _ in range(WARM_STEPS):
                step.make()
        end, order = time.monotonic() + arguments.seconds, list(steps.values())
        while time.monotonic() < end or len(order[0].seconds) < LEAST_PAIRS:
            for step in order:
                step.block(processes)
            order.reverse()
    found["pairs"] = len(order[0].seconds)
    for name, step in steps.items():
        found[f"{name}_ms"] = round(1e3 * statistics.median(step.seconds), 2)
        found[f"{name}_cpu_ms"] = round(1e3 * statistics.median(step.cpu_seconds), 2)
    for name, unit in (("time", "seconds"), ("cpu", "cpu_seconds")):
        ratios = [
            mine / stock for mine, stock in zip(getattr(steps["packed"], unit), getattr(steps["stock"], unit)) if stock
        ]
        found[name] = [round(one, 3) for one in statistics.quantiles(ratios, n=4)]
    found["pass_ms"] = round(1e3 * packed.report.seconds, 1)
    return found


def joined(model: str, ps: int, batch: int, parts: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Packed steps of whole tables, of tables that the script has in parts, and of those which are joined, taking turns."""
    found: dict[str, Any] = {"model": model, "ps": ps, "batch": batch, "parts": parts}
    with cluster(ps, None) as (target, config, processes):
        steps: dict[str, Step] = {}
        for name, count in (("whole", 1), ("in_parts", parts), ("joined", parts)):
            graph, init, train = graph_of(MODELS[model](arguments, batch, count), ps)
            definition = graph.as_graph_def()
            if name == "joined":
                index, made = join(GraphIndex(definition), saved_names(graph).names, Partitioning(ps))
                found["join"], definition = made.report.detail if made.report else "nothing", index.definition
                found["join_ms"] = round(1e3 * made.report.seconds, 1) if made.report else 0.0
            context = Context(tuple(range(ps)), dedup=arguments.dedup, worker_device=WORKER)
            run, placed = Run((), (), (train,)), rewrite(definition, context)
            packed = pack(placed.definition, run, WORKER, arguments.pack, told_by(graph))
            found[f"{name}_packed"] = packed.report.detail
            if packed.definition is None:
                return found
            starter, _ = opened(target, config, placed.definition, train)
            for one in (init, *placed.initializers):
                starter.run(one)
            steps[name] = Step(opened(target, config, packed.definition, train)[1])
            for _ in range(WARM_STEPS):
                steps[name].make()
        end, order = time.monotonic() + arguments.seconds, list(steps.values())
        while time.monotonic() < end or len(order[0].seconds) < LEAST_PAIRS:
            for step in order:
                step.block(processes)
            order.reverse()
    for name, step in steps.items():
        found[f"{name}_ms"] = round(1e3 * statistics.median(step.seconds), 2)
        found[f"{name}_cpu_ms"] = round(1e3 * statistics.median(step.cpu_seconds), 2)
    for name in ("in_parts", "joined"):
        for kind, unit in (("time", "seconds"), ("cpu", "cpu_seconds")):
            both = zip(getattr(steps[name], unit), getattr(steps["whole"], unit))
            ratios = [mine / whole for mine, whole in both if whole]
            found[f"{name}_{kind}"] = [round(one, 3) for one in statistics.quantiles(ratios, n=4)]
    found["pairs"] = len(steps["whole"].seconds)
    return found


def prepare(model: str, ps: int, batch: int, parts: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """What it takes to prepare a session for another view, as `elastic/session/pool.py` does it."""
    from deeprec_ext.elastic.session.making import RunMaker
    from deeprec_ext.elastic.session.placed import PlacedSession, Signature

    graph, _, train = graph_of(MODELS[model](arguments, batch, parts), SLOTS)
    told_of, run = told_by(graph), Signature((), (), (train,))
    index, _ = join(
        GraphIndex(graph.as_graph_def()), saved_names(graph).names, Partitioning(SLOTS, arguments.partitions)
    )
    definition = index.definition
    exported = SimpleNamespace(index=index, updates=frozenset(updates(index, variables_on_ps(index))))
    given = Context(tuple(number % ps for number in range(SLOTS)), worker_device=WORKER, pack=arguments.pack)
    began = time.perf_counter()
    on_slots = OnSlots(definition, given)
    on_slots.optimised(Run(*run), v1.GraphOptions())
    found: dict[str, Any] = {
        "model": model, "ps": ps, "operations": len(definition.node),
        "once_for_all_s": round(time.perf_counter() - began, 2), "optimiser": on_slots.report.detail,
    }  # fmt: skip
    ways = {"plain": (False, None), "packed": (False, "off"), "quick": (True, None), "once": (True, "auto")}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    order = list(ways)
    with cluster(ps, None) as (target, config, processes):
        for number in range(arguments.prepared + 1):  # the first of each is not counted
            for name in order:
                quick, optimise = ways[name]
                before, began = cpu_seconds(processes), time.perf_counter()
                context = dataclasses.replace(given, swaps=number, optimise=optimise or "off")
                maker = None if optimise is None else RunMaker(
                    exported, context, on_slots, told_of, v1.GraphOptions()
                )  # fmt: skip
                placed = PlacedSession(
                    name, on_slots.of(context) if name == "once" else rewrite(definition, context), target, config,
                    threading.Event(), quick=quick, maker=maker, later=name == "once",
                )  # fmt: skip
                placed.callable(run)
                if number:
                    seconds[name].append(time.perf_counter() - began)
                    cpu[name].append(cpu_seconds(processes) - before)
                assert (placed.reports[-1].name == "packing") == (maker is not None)
                found["packed"] = placed.reports[-1].detail
                placed.close(timeout_seconds=60.0)
            order.reverse()
    for name in ways:
        found[f"{name}_s"] = round(statistics.median(seconds[name]), 2)
        found[f"{name}_cpu_s"] = round(statistics.median(cpu[name]), 2)
    for name in ("packed", "once"):
        for kind, values in (("time", seconds), ("cpu", cpu)):
            ratios = [mine / plain for mine, plain in zip(values[name], values["plain"])]
            found[f"{name}_{kind}"] = [round(one, 2) for one in statistics.quantiles(ratios, n=4)]
    return found


COLUMNS = (
    "model",
    "ps",
    "batch",
    "parts",
    "pairs",
    "stock_ms",
    "packed_ms",
    "stock_cpu_ms",
    "packed_cpu_ms",
    "pass_ms",
)


def told(row: dict[str, Any]) -> str:
    if "pairs" not in row:
        return "  ".join(str(row[column]) for column in COLUMNS[:4]) + f"  left alone: {row['packed']}"
    low, middle, high = row["time"]
    cpu_low, cpu_middle, cpu_high = row["cpu"]
    numbers = "  ".join(f"{row[column]!s:>13}" for column in COLUMNS)
    return f"{numbers}\n    time {middle} ({low} to {high}), processor {cpu_middle} ({cpu_low} to {cpu_high}); {row['packed']}"


def numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def main() -> None:
    global POOL
    if sys.argv[1:2] == ["ps"]:
        serve(sys.argv[2])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument(
        "--models", type=lambda text: text.split(","), default=["deepfm", "census"], help=", ".join(MODELS)
    )
    parser.add_argument("--batches", type=numbers, default=[128, 512])
    parser.add_argument("--ps", type=numbers, default=[2])
    parser.add_argument("--cut", type=numbers, default=[1], help="parts of each table; of DeepFM alone")
    parser.add_argument("--latency", type=float, default=0.0, help="milliseconds one way")
    parser.add_argument("--seconds", type=float, default=15.0, help="per setting, at least")
    parser.add_argument("--hidden", type=numbers, default=[64], help="widths of the dense layers of `small`")
    parser.add_argument("--rows", type=int, default=10_000, help="of each table of `small`")
    parser.add_argument("--marks", action="store_true", help="what marks of dirty rows add to a packed step")
    parser.add_argument("--pool", type=int, default=POOL, help="different batches, again and again")
    parser.add_argument("--optimizer", choices=sorted(OPTIMIZERS), default="adagrad", help="of `small`")
    parser.add_argument("--dedup", choices=["on", "auto", "off"], default="off")
    parser.add_argument("--pack", choices=["on", "auto"], default="auto")
    parser.add_argument(
        "--joined", type=int, metavar="N", help="measure tables that the script has in N parts, joined and not"
    )
    parser.add_argument("--prepare", action="store_true", help="measure the preparing of a session instead of steps")
    parser.add_argument(
        "--partitions", choices=["auto", "off"], default="auto", help="with --prepare: off: as the script has them"
    )
    parser.add_argument("--prepared", type=int, default=7, help="with --prepare: so many of each kind")
    arguments = parser.parse_args()
    POOL = arguments.pool
    if arguments.joined:
        for model in arguments.models:
            for ps in arguments.ps:
                for batch in arguments.batches:
                    print(json.dumps(joined(model, ps, batch, arguments.joined, arguments)), flush=True)
        os._exit(0)
    if arguments.prepare:
        for model in arguments.models:
            print(json.dumps(prepare(model, arguments.ps[0], arguments.batches[-1], 1, arguments)), flush=True)
        os._exit(0)
    with contextlib.ExitStack() as stack:
        far = stack.enter_context(latency.far_away(arguments.latency)) if arguments.latency else None
        trip = latency.round_trip(far) if far is not None else 0.0
        if not arguments.json:
            print(f"a byte there and back: {trip:.2f} ms" if far else "over loopback")
            print("  ".join(f"{column:>13}" for column in COLUMNS))
        rows = []
        for model in arguments.models:
            for parts in arguments.cut if model != "census" else [1]:
                for ps in arguments.ps:
                    for batch in arguments.batches:
                        rows.append(measure(model, ps, batch, parts, arguments, far))
                        if not arguments.json:
                            print(told(rows[-1]), flush=True)
        if arguments.json:
            print(json.dumps({"benchmark": "packing", "round_trip_ms": round(trip, 2), "settings": rows}))
        sys.stdout.flush()
    os._exit(0)  # servers cannot be stopped


if __name__ == "__main__":
    main()
