"""What is read off a graph: catalogue, refusals, batch size, whether a run needs a PS."""

import time

import pytest
import tensorflow as tf

from deeprec_ext import errors
from deeprec_ext.graph import Context, GraphIndex, batch_size, build_catalogue, check, rewrite
from deeprec_ext.proto.deeprec_ext_pb2 import Variable

v1 = tf.compat.v1


def model(setter, optimizer=None, fields=3, parts=1, rows=8192, dim=8):
    with tf.Graph().as_default() as graph, v1.device(setter):
        ids, labels = v1.placeholder(tf.int64, [None, fields], name="ids"), v1.placeholder(tf.float32, [None])
        cut = v1.fixed_size_partitioner(parts) if parts > 1 else None
        with v1.variable_scope("m", partitioner=cut):
            tables = [v1.get_variable(f"t{f}", [rows, dim]) for f in range(fields)]
        found = [v1.nn.embedding_lookup(t, ids[:, f], partition_strategy="div") for f, t in enumerate(tables)]
        with v1.variable_scope("dense"):
            kernel = v1.get_variable("kernel", [fields * dim, 1])
        logits = tf.matmul(tf.concat(found, 1), kernel)[:, 0]
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
        optimizer = optimizer or v1.train.AdagradOptimizer(0.1)
        step = optimizer.minimize(loss, v1.train.get_or_create_global_step())
        v1.global_variables_initializer()
    return graph.as_graph_def(), step.name


def test_tables_go_by_rows_and_small_or_dense_variables_whole(setter):
    graph_def, step = model(setter)
    catalogue = build_catalogue(graph_def, [step])
    by_name = {v.name: v for v in catalogue.variables}
    by_rows = {n for n, v in by_name.items() if v.update == Variable.ROWS}
    assert by_rows == {f"m/t{f}{s}" for f in range(3) for s in ("", "/Adagrad")}
    table = by_name["m/t1"]
    assert (table.bytes, list(table.shape), table.dtype) == (8192 * 8 * 4, [8192, 8], tf.float32.as_datatype_enum)
    assert table.bitmap == by_name["m/t1/Adagrad"].bitmap == "m/t1@dirty" and table.slot == by_name["m/t1/Adagrad"].slot
    assert by_name["global_step"].update == Variable.DENSE and by_name["global_step"].bytes == 8
    assert by_name["dense/kernel"].update == Variable.DENSE and not by_name["dense/kernel"].bitmap
    assert not catalogue.warnings and len({v.slot for v in catalogue.variables}) == 4


def test_a_large_variable_nobody_writes_goes_by_rows(setter):
    with tf.Graph().as_default() as graph, v1.device(setter):
        v1.get_variable("frozen", [8192, 8], trainable=False)
        v1.get_variable("on_worker_only", [4]).op._set_device("/job:worker/task:0")
    catalogue = build_catalogue(graph.as_graph_def(), [])
    assert [(v.name, v.update) for v in catalogue.variables] == [("frozen", Variable.ROWS)]


def test_adam_is_warned_about_by_table_bytes_and_remedy(setter):
    graph_def, step = model(setter, v1.train.AdamOptimizer(0.1))
    catalogue = build_catalogue(graph_def, [step])
    (warning,) = catalogue.warnings
    assert "m/t0" in warning and "0.3 MB" in warning and "Adagrad" in warning and "dense/kernel" not in warning


def test_an_unknown_shape_is_copied_whole_and_said(setter):
    with tf.Graph().as_default() as graph, v1.device(setter):
        v1.get_variable("grows", initializer=tf.zeros([8192, 8]), validate_shape=False, use_resource=False)
    catalogue = build_catalogue(graph.as_graph_def(), [])
    (variable,) = catalogue.variables
    assert (variable.update, variable.bytes, variable.reference) == (Variable.DENSE, 0, True)
    assert "grows" in catalogue.warnings[0]


def test_the_fingerprint_is_of_the_variables_and_not_of_the_graph(setter):
    graph_def, step = model(setter)
    same = build_catalogue(GraphIndex(graph_def), [step]).fingerprint
    graph_def.node.add(name="more", op="NoOp")
    assert build_catalogue(graph_def, [step]).fingerprint == same
    other, step = model(setter, dim=16)
    assert build_catalogue(other, [step]).fingerprint != same


def test_sync_replicas_is_refused_by_name(setter):
    optimizer = v1.train.SyncReplicasOptimizer(v1.train.GradientDescentOptimizer(0.1), 2)
    graph_def, _ = model(setter, optimizer)
    with pytest.raises(errors.RefusedError, match=r"SyncReplicasOptimizer.*train asynchronously"):
        check(graph_def)


@pytest.mark.parametrize(
    ("what", "make"),
    [
        ("queue", lambda: v1.FIFOQueue(3, tf.int32)),
        ("barrier", lambda: tf.raw_ops.Barrier(component_types=[tf.int32])),
        ("stack", lambda: tf.raw_ops.StackV2(max_size=3, elem_type=tf.int32)),
        ("mutable hash table", lambda: tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.int64)),
        ("accumulator", lambda: v1.ConditionalAccumulator(tf.float32, [1])),
        ("lookup table", lambda: tf.raw_ops.HashTableV2(key_dtype=tf.int64, value_dtype=tf.int64)),
    ],
)
def test_state_other_than_variables_is_refused_on_a_ps_only(what, make):
    for device, refused in (("/job:ps/task:1", True), ("/job:worker/task:0", False), ("", False)):
        with tf.Graph().as_default() as graph, v1.device(device):
            make()
        if refused:
            with pytest.raises(errors.RefusedError, match=f"{what}.*(place it|train)"):
                check(graph.as_graph_def())
        else:
            check(graph.as_graph_def())


@pytest.mark.parametrize("one_shot", [True, False])
@pytest.mark.parametrize(
    ("expected", "batched"),
    [
        (0, lambda d: d),
        (7, lambda d: d.batch(7, drop_remainder=True)),
        (8, lambda d: d.batch(8).prefetch(1)),
        (6, lambda d: d.batch(3).unbatch().batch(6).map(lambda x: x + 1)),
        (5, lambda d: d.batch(5, num_parallel_calls=2)),
        (9, lambda d: d.apply(tf.data.experimental.map_and_batch(lambda x: x, 9))),
        (4, lambda d: d.padded_batch(4)),
    ],
)
def test_batch_size_is_read_off_the_input(expected, batched, one_shot):
    with tf.Graph().as_default() as graph:
        data = batched(tf.data.Dataset.range(100))
        (v1.data.make_one_shot_iterator if one_shot else v1.data.make_initializable_iterator)(data).get_next()
    assert batch_size(graph.as_graph_def()) == expected


def test_batch_size_of_queue_input():
    with tf.Graph().as_default() as graph:
        v1.train.batch([tf.zeros([2])], 11)
    assert batch_size(graph.as_graph_def()) == 11


def test_timing_of_a_large_graph(setter, capsys):
    graph_def, step = model(setter, fields=26, parts=16, rows=32768)
    index = GraphIndex(graph_def)
    lines = [f"{len(graph_def.node)} nodes, {graph_def.ByteSize() / 1e6:.1f} MB"]

    def timed(name, call):
        start = time.perf_counter()
        result = call()
        lines.append(f"{name} {1e3 * (time.perf_counter() - start):.0f} ms")
        return result

    catalogue = timed("catalogue", lambda: build_catalogue(index, [step]))
    tracked = {v.name: v.bitmap for v in catalogue.variables if v.bitmap}
    assert len(tracked) == 2 * 26 * 16
    timed("rewrite", lambda: rewrite(graph_def, Context((0, 1, 0, 1), dedup="off")))
    result = timed("rewrite with marks", lambda: rewrite(graph_def, Context((0, 1, 0, 1), tracked, swaps=1)))
    timed("check", lambda: check(graph_def))
    with capsys.disabled():
        print("\n" + "; ".join(lines) + "; " + ", ".join(f"{r.name} {1e3 * r.seconds:.0f} ms" for r in result.reports))
