"""What a finalised graph declares, before anything of it has run: graphs that TensorFlow's own front doors have made."""

from __future__ import annotations

import math

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext.graph import GraphIndex, describe, saved_names  # noqa: E402
from deeprec_ext.proto.deeprec_ext_pb2 import Declaration, Variable  # noqa: E402

v1 = tf.compat.v1
SETTER = v1.train.replica_device_setter(4, worker_device="/job:chief/task:0")
ROWS, WIDTH, BATCH = 50_000, 16, 32


class Finished(Exception):
    """The graph is; it carries it."""


class _Stop(v1.train.SessionRunHook):
    """Ends the training when its graph is finished, before there is a session."""

    def begin(self) -> None:
        raise Finished(v1.get_default_graph())


def declared(graph) -> Declaration:
    return describe(graph, GraphIndex(graph.as_graph_def()), saved_names(graph))


def finished(train) -> Declaration:
    with pytest.raises(Finished) as caught:
        train()
    return declared(caught.value.args[0])


def monitored(optimizer, *, resource: bool = True, dataset=None):
    """A script around MonitoredTrainingSession: two look-ups of a table for an example, and a layer."""

    def train() -> None:
        with tf.Graph().as_default(), v1.device(SETTER), v1.variable_scope("", use_resource=resource):
            batches = dataset() if dataset else tf.data.Dataset.from_tensors(np.zeros([2], np.int64)).repeat()
            ids = v1.data.make_one_shot_iterator(batches.batch(BATCH, drop_remainder=True)).get_next()
            table = v1.get_variable("table", [ROWS, WIDTH])
            weights = v1.get_variable("weights", [WIDTH, 8])
            pooled = tf.reduce_sum(tf.nn.embedding_lookup(table, ids), 1)
            loss = tf.reduce_mean(tf.matmul(pooled, weights) ** 2)
            optimizer().minimize(loss, global_step=v1.train.get_or_create_global_step())
            with v1.train.MonitoredTrainingSession(hooks=[_Stop()]):
                pass

    return train


def of(declaration: Declaration, part: str) -> list[Variable]:
    return [one for one in declaration.catalogue.variables if part in one.name]


@pytest.mark.parametrize(
    "optimizer, slots, update",
    [
        (lambda: v1.train.GradientDescentOptimizer(0.1), 0, Variable.ROWS),
        (lambda: v1.train.AdagradOptimizer(0.1), 1, Variable.ROWS),
        (lambda: v1.train.FtrlOptimizer(0.1), 2, Variable.ROWS),
        (lambda: v1.train.AdamOptimizer(), 2, Variable.DENSE),
    ],
    ids=["sgd", "adagrad", "ftrl", "adam"],
)
@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_tables_their_optimizer_slots_and_how_they_are_updated(optimizer, slots, update, resource) -> None:
    declaration = finished(monitored(optimizer, resource=resource))
    tables = of(declaration, "table")
    assert len(tables) == 1 + slots
    assert {tuple(one.shape) for one in tables} == {(ROWS, WIDTH)}
    assert {one.update for one in tables} == {update}
    assert sum(one.bytes for one in tables) == (1 + slots) * ROWS * WIDTH * 4
    assert {one.dtype for one in tables} == {tf.float32.as_datatype_enum}
    assert of(declaration, "weights")[0].update == Variable.DENSE
    assert declaration.catalogue.global_step == "global_step"


def test_batch_lookups_and_work_are_read_off_the_graph() -> None:
    declaration = finished(monitored(lambda: v1.train.AdagradOptimizer(0.1)))
    assert declaration.batch_size == BATCH
    assert declaration.lookups_per_example == 2
    least = 3 * 2 * WIDTH * 8  # forward, and the gradients of both sides of the product
    assert least * 0.6 < declaration.flops_per_example < 10 * least
    assert declaration.operations > 50 and declaration.input.columns == 1
    assert declaration.input.bytes_per_example == 2 * 8 and declaration.input.format == "memory"


def test_what_it_computes_is_its_forward_pass_whatever_its_optimizer() -> None:
    kinds = {
        tuple(finished(monitored(optimizer)).computes)
        for optimizer in (
            lambda: v1.train.AdagradOptimizer(0.1),
            v1.train.AdamOptimizer,
            lambda: v1.train.FtrlOptimizer(0.1),
        )
    }
    [computes] = kinds
    assert {"MatMul", "Sum", "Square"} <= set(computes) or {"MatMul", "Sum", "Pow"} <= set(computes), computes
    assert not [one for one in computes if "Apply" in one or "Iterator" in one or "Gather" in one]


def test_an_initialiser_of_a_large_table_is_no_work_of_a_step() -> None:
    declaration = finished(monitored(lambda: v1.train.GradientDescentOptimizer(0.1)))
    assert declaration.flops_per_example * BATCH < ROWS * WIDTH


def test_the_input_is_files_of_a_format(tmp_path) -> None:
    for number in range(3):
        (tmp_path / f"part-{number}.tfrecord").write_bytes(b"x" * 1000)

    def dataset():
        files = v1.data.TFRecordDataset([str(tmp_path / f"part-{number}.tfrecord") for number in range(3)])
        return files.map(lambda record: tf.reshape(tf.strings.to_hash_bucket_fast([record, record], ROWS), [2]))

    read = finished(monitored(lambda: v1.train.AdagradOptimizer(0.1), dataset=dataset)).input
    assert (read.format, read.files, read.bytes) == ("tfrecord", 3, 3000)


def test_an_estimator_declares_as_a_session_does() -> None:
    columns = [
        tf.feature_column.embedding_column(tf.feature_column.categorical_column_with_identity("item", ROWS), WIDTH),
        tf.feature_column.numeric_column("age"),
    ]

    def records():
        features = {"item": np.zeros([64], np.int64), "age": np.zeros([64], np.float32)}
        return tf.data.Dataset.from_tensor_slices((features, np.zeros([64], np.int64))).repeat().batch(BATCH)

    def train() -> None:
        estimator = v1.estimator.DNNClassifier(
            [8], columns, optimizer=v1.train.AdagradOptimizer(0.1), config=tf.estimator.RunConfig(device_fn=SETTER)
        )
        estimator.train(records, steps=1, hooks=[_Stop()])

    declaration = finished(train)
    tables = [one for one in declaration.catalogue.variables if list(one.shape) == [ROWS, WIDTH]]
    assert len(tables) == 2 and {one.update for one in tables} == {Variable.ROWS}
    assert declaration.batch_size == BATCH and math.isclose(declaration.lookups_per_example, 1)
    assert declaration.input.columns == 3


def test_what_a_graph_does_not_tell_is_not_guessed() -> None:
    with tf.Graph().as_default() as graph, v1.device(SETTER):
        values = v1.placeholder(tf.float32, [None, 4])
        weights = v1.get_variable("weights", [4, 1])
        v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.matmul(values, weights)))
    declaration = declared(graph)
    assert (declaration.batch_size, declaration.lookups_per_example, declaration.flops_per_example) == (0, 0, 0)
    assert not declaration.input.format and not declaration.input.files
