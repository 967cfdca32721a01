"""Tensors that travel as one of each type between two real TensorFlow servers of this process, by a real copy of variables."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.elastic.ps.collector import make_bitmaps
from deeprec_ext.elastic.ps.migration import Mover
from deeprec_ext.elastic.ps.variables import Facts, Located, bitmap_of, ps_device
from deeprec_ext.elastic.runtime import parcels
from deeprec_ext.elastic.runtime.ops import Ops, Program
from deeprec_ext.elastic.runtime.parcels import ALONE_BYTES, Sent, together
from deeprec_ext.elastic.runtime.view import elastic_config
from deeprec_ext.graph.attributes import kind
from deeprec_ext.graph.index import GraphIndex
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.elastic.cluster import LocalCluster

SMALL = (tf.float32, tf.float32, tf.float64, tf.int64, tf.int64, tf.int32, tf.int32, tf.bool, tf.bool, tf.bfloat16,
         tf.bfloat16, tf.float16, tf.float16, tf.uint8, tf.uint8, tf.string, tf.string, tf.complex64, tf.complex64)  # fmt: skip
SHAPES = ((), (1,), (3, 2), (0,), (0, 4), (2, 1, 3), (5, 0, 2))


@pytest.fixture(scope="module")
def cluster():
    return LocalCluster(2)


def crossing(ops):
    """(Device that makes it, tensor) of all that has to travel."""
    index = GraphIndex(ops.definition)
    return {
        (index.nodes[tensor.partition(":")[0]].device, tensor)
        for node in index.nodes.values()
        for tensor in index.inputs(node.name)
        if tensor[0] != "^" and index.nodes[tensor.partition(":")[0]].device != node.device
    }


def some(dtype, shape, number):
    values = np.arange(number, number + np.prod(shape, dtype=int)).reshape(shape)
    return values.astype("S").astype(object) if dtype == tf.string else (values % 250).astype(dtype.as_numpy_dtype)


def arrived(cluster, ops, names):
    there = ps_device(1)
    # Only what is used there travels.
    fetches = [ops.add("Identity", [name], there, T=tf_type) for name, tf_type in names]
    program = Program("grpc://" + cluster.ps[1], elastic_config(cluster.ps))
    program.load(ops)
    result = program.compile(fetches=fetches)()
    program.close()
    return result


def test_values_of_all_types_and_shapes_come_as_they_are_and_as_one_of_each_type(cluster):
    ops, sent, values = Ops(), [], []
    for number, (dtype, shape) in enumerate((dtype, shape) for dtype in SMALL for shape in SHAPES):
        values.append(some(dtype, shape, number))
        made = ops.constant(values[-1], dtype, ps_device(0))
        sent.append(Sent(made, dtype, shape))
    there = together(ops, sent, ps_device(0), ps_device(1))
    names = [(name, kind(one.dtype)) for name, one in zip(there, sent)]
    for value, result in zip(values, arrived(cluster, ops, names)):
        np.testing.assert_array_equal(np.asarray(result, value.dtype), value, strict=True)
    full = [one for one in sent if np.prod(one.shape)]
    together_types = {one.dtype for one in full} - {tf.string, tf.complex64}
    others = [one for one in sent if not np.prod(one.shape) or one.dtype in (tf.string, tf.complex64)]
    assert len(crossing(ops)) == len(together_types) + len(others)


def test_what_is_large_travels_by_itself(cluster):
    ops = Ops()
    shapes = [(ALONE_BYTES // 4,), (ALONE_BYTES // 4 + 1,), (2,)]
    sent = [Sent(ops.constant(np.ones(s, np.float32), tf.float32, ps_device(0)), tf.float32, s) for s in shapes]
    first, large, last = together(ops, sent, ps_device(0), ps_device(1))
    assert large == sent[1].tensor and first != sent[0].tensor and last != sent[2].tensor
    result = arrived(cluster, ops, [(name, kind(tf.float32)) for name in (first, large, last)])
    assert [value.shape for value in result] == shapes


@pytest.mark.parametrize("counts", [(3, 0, 1), (0, 0, 0), (1, 2, 3)])
def test_rows_of_which_nobody_knows_how_many_come_to_their_tables(cluster, counts):
    ops, here, dims = Ops(), ps_device(0), ((2,), (), (4, 3))
    values = [np.arange(1.0, 1 + n * np.prod(d, dtype=int)).reshape((n, *d)).astype("f") for n, d in zip(counts, dims)]
    numbers = ops.constant(counts, tf.int64, here)
    sent = [Sent(ops.constant(v, tf.float32, here), tf.float32, d, n) for n, (v, d) in enumerate(zip(values, dims))]
    there = together(ops, sent, here, ps_device(1), numbers)
    assert len({tensor for _, tensor in crossing(ops)}) == 2  # rows, and how many
    for value, result in zip(values, arrived(cluster, ops, [(name, kind(tf.float32)) for name in there])):
        assert np.array_equal(value, result)


@pytest.mark.parametrize("reference", [False, True], ids=["resource", "reference"])
def test_a_refresh_of_many_variables_is_exact(cluster, reference):
    """Tables of several types and widths with marks of their own, dense variables of several types and sizes."""
    generator = np.random.default_rng(0)
    tables = [
        pb.Variable(
            name=f"{reference}/t{n}", dtype=dtype.as_datatype_enum, shape=shape, update=pb.Variable.ROWS,
            bitmap=f"{reference}/m{n // 2}", reference=reference, bytes=dtype.size * math.prod(shape),
        )
        for n, (dtype, shape) in enumerate(
            [(tf.float32, [50, 4]), (tf.float32, [50, 1]), (tf.float32, [9, 8]), (tf.int64, [9]), (tf.float64, [30, 2, 2]),
             (tf.float32, [30, 5])]
        )
    ]  # fmt: skip
    dense = [
        pb.Variable(
            name=f"{reference}/d{n}", dtype=dtype.as_datatype_enum, shape=shape, update=pb.Variable.DENSE, reference=reference,
            bytes=dtype.size * math.prod(shape),
        )
        for n, (dtype, shape) in enumerate(
            [(tf.float32, [3, 2]), (tf.float32, [ALONE_BYTES]), (tf.int64, []), (tf.float32, []), (tf.int32, [2]),
             (tf.string, [2]), (tf.bool, [3]), (tf.bool, [1])]
        )
    ]  # fmt: skip
    grows = pb.Variable(
        name=f"{reference}/grows", dtype=tf.float32.as_datatype_enum, update=pb.Variable.DENSE, reference=reference
    )
    facts = [Facts.from_proto(variable) for variable in (*tables, *dense, grows)]
    program = Program("grpc://" + cluster.ps[0], elastic_config(cluster.ps))

    def write(some_facts, rows):
        """New values: of all rows, or of these of each table, which are marked."""
        ops, done = Ops(f"w{program.loads}_"), []
        for one in some_facts:
            located = Located(ops, one, 0)
            shape = (len(rows), *one.shape[1:]) if one.bitmap and rows is not None else one.shape
            grown = one.name.endswith("grows")
            shape = (int(generator.integers(1, 5)), 3) if grown else shape  # as `validate_shape=False` allows it
            value = ops.constant(some(one.dtype, shape, int(generator.integers(200))), one.dtype, located.device)
            if grown:  # nobody infers its shape
                unknown = tf.compat.v1.AttrValue(shape=tf.TensorShape(None).as_proto())
                value = ops.add(
                    "PlaceholderWithDefault", [value], located.device, dtype=kind(tf.float32), shape=unknown
                )
            if not one.bitmap or rows is None:
                done.append(located.assign(value))
                continue
            index = ops.constant(rows, tf.int64, located.device)
            true = ops.constant(True, tf.bool, located.device)
            done.append(Located(ops, bitmap_of(one), 0).scatter(index, true, (located.scatter(index, value),)))
        program.run(ops, done)

    def read(task, suffix=""):
        ops = Ops(f"r{program.loads}_")
        names = [Located(ops, Facts(one.name + suffix, *list(vars(one).values())[1:]), task).read() for one in facts]
        program.load(ops)
        return program.compile(fetches=names)()

    def same():
        for mine, other in zip(read(0), read(1, "@backup")):
            np.testing.assert_array_equal(mine, other)

    write(facts, None)
    make_bitmaps("grpc://" + cluster.ps[0], 0, tables)
    moves = [pb.Move(variable=variable, source_task=0) for variable in (*tables, *dense, grows)]
    mover = Mover("grpc://" + cluster.ps[1], 1, cluster.ps, moves, 1 << 20, reader="peer", suffix="@backup")
    try:
        mover.arm(verify=True, tracked=True)
        mover.first()
        mover.refresh()
        same()
        for rows in ([1, 5, 8], [], [0]):
            write(facts, rows)
            sent = mover.refresh()
            row_bytes = sum(one.row_bytes for one in facts if one.bitmap) + 3 * 4  # and its number, once a bitmap
            assert sent == mover.dense_bytes + len(rows) * row_bytes
            same()
        write(facts, [2, 3])
        assert mover.final() == (mover.dense_bytes, 2 * row_bytes)
        assert mover.verify() == len(facts)
        same()
    finally:
        mover.close()
        program.close()


def test_many_that_are_small_travel_in_several_parcels(cluster, monkeypatch):
    monkeypatch.setattr(parcels, "PARCEL_BYTES", 40)
    ops, here = Ops(), ps_device(0)
    values = [np.arange(n, n + 4, dtype=np.float32) for n in range(5)]  # of 16 bytes each
    sent = [Sent(ops.constant(value, tf.float32, here), tf.float32, (4,)) for value in values]
    there = together(ops, sent, here, ps_device(1))
    for value, result in zip(values, arrived(cluster, ops, [(name, kind(tf.float32)) for name in there])):
        assert np.array_equal(value, result)
    assert len(crossing(ops)) == 3  # two, two, and the last by itself
