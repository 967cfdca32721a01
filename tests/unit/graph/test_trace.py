"""What a traced step tells, from metadata that TensorFlow recorded on a small cluster, and from made-up ones."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from deeprec_ext.graph import Context, GraphIndex, build_catalogue, read_trace, rewrite, role_by_view, sites
from deeprec_ext.graph.sites import Site
from deeprec_ext.graph.trace import NAME_MAX, OPS_MAX, union_seconds

v1 = tf.compat.v1
ROWS, DIM, BATCH = 1000, 4, 50
SLOTS = (0, 1, 0, 1)
IDS = np.arange(BATCH) % 20  # each of twenty rows at least twice
NAMES = {0: "ps-0", 1: "ps-1"}
ROLE = role_by_view("worker-3", NAMES)

OPTIMIZERS = {"adagrad": lambda: v1.train.AdagradOptimizer(0.1), "sgd": lambda: v1.train.GradientDescentOptimizer(0.1)}


def traced(cluster, optimizer="adagrad", use_resource=True, dedup="off", marks=False, batch=BATCH):
    """The trace of one step of a model with a hot table on slot 0, a second table on slot 1, a bias on slot 2."""
    with tf.Graph().as_default() as graph:
        with v1.device("/job:worker/task:0"):
            dataset = tf.data.Dataset.from_tensors(np.resize(IDS, batch).astype(np.int64)).repeat()
            iterator = v1.data.make_initializable_iterator(
                dataset, shared_name=f"it{optimizer}{use_resource}{dedup}{marks}"
            )
            ids = iterator.get_next()
        with v1.variable_scope(f"{optimizer}{use_resource}{dedup}{marks}", use_resource=use_resource):
            variables = []
            for slot, (name, shape) in enumerate([("hot", [ROWS, DIM]), ("cold", [ROWS, DIM]), ("bias", [DIM])]):
                with v1.device(f"/job:ps/task:{slot}"):
                    variables.append(v1.get_variable(name, shape, initializer=v1.ones_initializer()))
            hot, cold, bias = variables
            with v1.device("/job:ps/task:0"):
                rows = tf.gather(hot, ids, name="hot_rows")
            with v1.device("/job:ps/task:1"):
                some = tf.gather(cold, ids[:10], name="cold_rows")
            with v1.device("/job:worker/task:0"):
                loss = tf.reduce_sum((rows + bias) ** 2) + tf.reduce_sum(some**2)
            step = OPTIMIZERS[optimizer]().minimize(loss)
        init = tf.group(v1.global_variables_initializer(), iterator.initializer)
    user = graph.as_graph_def()
    for node in user.node:
        if not node.device:
            node.device = "/job:worker/task:0"
    tracked = {}
    if marks:
        tracked = {v.name: v.bitmap for v in build_catalogue(user, [step.name]).variables if v.bitmap} or {
            f"{optimizer}{use_resource}{dedup}{marks}/hot": "hot@dirty"
        }
        for bitmap in tracked.values():
            cluster.fill(bitmap, ROWS, False)
    rewritten = rewrite(user, Context(SLOTS, tracked, dedup=dedup, worker_device="/job:worker/task:0"))
    known = sites(GraphIndex(user), GraphIndex(rewritten.definition), [step.name])
    metadata, full = config_pb2.RunMetadata(), config_pb2.RunOptions(trace_level=config_pb2.RunOptions.FULL_TRACE)
    with cluster.open(rewritten.definition) as session:
        session.run(init.name)
        session.run(step.name)
        session.run(step.name, options=full, run_metadata=metadata)
    return read_trace(metadata, known, "worker-3", ROLE)


def slots(trace):
    return {use.slot: use for use in trace.slots}


@pytest.mark.parametrize("use_resource", [True, False])
@pytest.mark.parametrize("optimizer, written", [("adagrad", (20, 10)), ("sgd", (50, 10))])
def test_rows_and_seconds_of_each_slot(cluster, optimizer, written, use_resource):
    """Adagrad merges duplicate rows before it writes them; SGD writes each."""
    found = slots(traced(cluster, optimizer, use_resource))
    assert set(found) == {0, 1, 2}
    assert [found[slot].lookup_rows for slot in range(3)] == [50, 10, 0]
    assert (found[0].update_rows, found[1].update_rows) == written
    assert all(found[slot].lookup_seconds > 0 and found[slot].update_seconds > 0 for slot in (0, 1))
    row, tables = DIM * 4, 2 if optimizer == "adagrad" else 1  # with the accumulator
    assert found[0].bytes == 50 * row + written[0] * row * tables
    assert found[2].bytes == row + row * tables  # the bias: read, and written whole


def test_bytes_that_come_from_each_ps(cluster):
    trace = traced(cluster)
    edges = {(edge.source, edge.target): edge for edge in trace.edges}
    row = DIM * 4
    assert edges["ps-0", "worker-3"].bytes == BATCH * row + row  # rows of the hot table, and the bias
    assert edges["ps-1", "worker-3"].bytes == 10 * row
    assert all(edge.seconds > 0 and edge.tensors > 0 for edge in edges.values())


def test_devices_are_roles_and_waiting_for_input_is_no_work(cluster):
    trace = traced(cluster)
    devices = {device.role: device for device in trace.devices}
    assert set(devices) == {"ps-0", "ps-1", "worker-3"}
    assert all(0 < device.busy_seconds <= device.op_seconds + 1e-9 and device.ops for device in devices.values())
    assert trace.input_seconds > 0
    assert not [op for op in trace.ops if op.type == "IteratorGetNext"]
    assert trace.seconds > max(devices["worker-3"].busy_seconds, trace.input_seconds)


def test_the_heaviest_ops_have_name_type_role_and_slot(cluster):
    ops = {op.name.rpartition("/")[2]: op for op in traced(cluster).ops}
    assert (ops["hot_rows"].type, ops["hot_rows"].role, ops["hot_rows"].slot) == ("ResourceGather", "ps-0", 0)
    assert (ops["cold_rows"].role, ops["cold_rows"].slot) == ("ps-1", 1)
    assert any(op.slot == -1 and op.role == "worker-3" for op in ops.values())
    times = [op.seconds for op in traced(cluster).ops]
    assert times == sorted(times, reverse=True) and len(times) <= OPS_MAX


def test_unique_lookups_are_counted_where_they_are_made(cluster):
    trace = traced(cluster, dedup="on", batch=5 * BATCH)
    found = slots(trace)
    assert (found[0].lookup_rows, found[0].update_rows) == (20, 20)
    assert {op.role for op in trace.ops if op.name.endswith("hot_rows")} == {
        "ps-0",
        "worker-3",
    }  # looked up, and spread


def test_marks_cost_time_but_are_no_rows(cluster):
    found = slots(traced(cluster, marks=True))
    assert (found[0].lookup_rows, found[0].update_rows) == (50, 20)
    assert found[0].bytes == 50 * 16 + 20 * 16 * 2


# -- made up


def recorded(*devices):
    """(device, [(name, label, begin, end)]) each, in microseconds."""
    metadata = config_pb2.RunMetadata()
    for device, nodes in devices:
        stats = metadata.step_stats.dev_stats.add(device=device)
        for name, label, begin, end in nodes:
            stats.node_stats.add(
                node_name=name, timeline_label=label, all_start_micros=begin, op_end_rel_micros=end - begin
            )
    return metadata


WORKER, PS = "/job:worker/replica:0/task:0/device:CPU:0", "/job:ps/replica:0/task:{}/device:CPU:0"


def test_the_time_of_a_step_is_told_by_its_own_clock():
    metadata = recorded(
        (WORKER, [("a", "a = Add(x, y)", 1000, 3000)]), (PS.format(0), [("b", "b = Add()", 9_000_000, 9_500_000)])
    )
    assert read_trace(metadata, {}, "worker-3", ROLE).seconds == pytest.approx(0.002)


def test_what_a_gpu_records_twice_counts_once():
    gpu = "/job:worker/replica:0/task:0/device:GPU:0"
    ops = [("a", "a = MatMul(x, y)", 0, 1000)]
    trace = read_trace(recorded((gpu, ops), (gpu + "/stream:all", ops), (gpu + "/memcpy", ops)), {}, "worker-3", ROLE)
    assert [(device.role, device.ops) for device in trace.devices] == [("worker-3", 1)]


def test_an_op_that_runs_often_is_one_op():
    metadata = recorded((WORKER, [("loop", "loop = Add()", 1000 * n, 1000 * n + 100) for n in range(5)]))
    (op,) = read_trace(metadata, {}, "worker-3", ROLE).ops
    assert op.seconds == pytest.approx(0.0005)


def test_a_ps_that_the_view_does_not_know_keeps_its_device():
    (device,) = read_trace(recorded((PS.format(9), [("a", "", 0, 1)])), {}, "worker-3", ROLE).devices
    assert device.role == "/job:ps/task:9"


def test_labels_that_say_nothing_are_left_out():
    metadata = recorded(
        (WORKER, [("RecvTensor", "nonsense", 0, 10), ("a", "no equals sign", 0, 10), ("x" * 900, "", 0, 10)])
    )
    trace = read_trace(metadata, {}, "worker-3", ROLE)
    assert not trace.edges and {op.type for op in trace.ops} == {""}
    assert max(len(op.name) for op in trace.ops) == NAME_MAX


def test_rows_of_a_write_whose_indices_the_trace_lacks_are_not_guessed():
    known = {"w": Site("w", 2, "update", indices=(("gone", 0),), row_bytes=16)}
    (use,) = read_trace(recorded((PS.format(1), [("w", "w = ScatterAdd()", 0, 10)])), known, "worker-3", ROLE).slots
    assert (use.slot, use.update_rows, use.bytes) == (2, 0, 0) and use.update_seconds > 0


def test_nothing_recorded_is_an_empty_trace():
    trace = read_trace(config_pb2.RunMetadata(), {}, "worker-3", ROLE)
    assert (trace.seconds, len(trace.devices), len(trace.slots)) == (0.0, 0, 0)


@pytest.mark.parametrize("spans, seconds", [
    ([], 0), ([(0, 10)], 10), ([(0, 10), (5, 20)], 20), ([(5, 20), (0, 10), (30, 40)], 30), ([(0, 10), (2, 3)], 10),
    ([(7, 7)], 0),
])  # fmt: skip
def test_the_union_of_spans(spans, seconds):
    assert union_seconds([(begin * 10**9, end * 10**9) for begin, end in spans]) == seconds
