"""Into how many parts a variable is cut, and which variables are left as they are."""

import dataclasses

import pytest
import tensorflow as tf

from deeprec_ext.errors import RefusedError
from deeprec_ext.graph import GraphIndex, Partitioning, agree, divided_of, partition, saved_names, tell_cuts, told_cuts
from deeprec_ext.graph.partitioning.layout import in_parts, layout_of, sub_slice

v1 = tf.compat.v1
MB = 1 << 20
AUTO, ON = Partitioning(16), Partitioning(16, "on")


@pytest.mark.parametrize(
    ("partitioning", "megabytes", "divided", "parts"),
    [
        (AUTO, 1.9, False, 1), (AUTO, 2, False, 2), (AUTO, 4, False, 4), (AUTO, 192, False, 8), (AUTO, 640, False, 10),
        (AUTO, 4096, False, 16), (Partitioning(3), 192, False, 3),
        (Partitioning(1), 192, False, 1), (Partitioning(16, "off"), 192, False, 1),
        (AUTO, 2, True, 1), (AUTO, 64, True, 1), (AUTO, 65, True, 2), (AUTO, 192, True, 3), (AUTO, 200, True, 4),
        (ON, 1 / 8, False, 2), (ON, 1 / 9, False, 1), (ON, 1, False, 8), (ON, 64, True, 1), (ON, 65, True, 2),
    ],
)  # fmt: skip
def test_parts_follow_the_bytes_and_what_the_script_has_divided_stays_up_to_64_mb(
    partitioning, megabytes, divided, parts
):
    rows = int(megabytes * MB / 16 / 4)
    layout = layout_of((rows, 16), partitioning, divided)
    assert (layout.count if layout else 1) == parts
    if layout:
        assert sum(layout.size(part) for part in range(layout.count)) == rows
        assert all(layout.begin(part) + layout.size(part) <= rows for part in range(layout.count))


@pytest.mark.parametrize(
    ("slots", "megabytes", "of", "mode", "parts"),
    [
        (8, 10, 520, "auto", 1), (8, 20, 520, "auto", 2), (8, 40, 520, "auto", 4), (8, 100, 520, "auto", 7),
        (8, 10, 20, "auto", 8), (8, 1, 2, "auto", 1), (8, 6000, 12000, "auto", 8), (64, 6000, 12000, "auto", 64),
        (64, 6000, 26 * 12000, "auto", 5), (64, 10, 26 * 20, "auto", 5), (64, 10, 20, "auto", 8), (8, 10, 520, "on", 8),
    ],
)  # fmt: skip
def test_a_table_is_cut_only_as_far_as_slots_need_it_to_have_alike(slots, megabytes, of, mode, parts):
    layout = layout_of((megabytes * MB // 64, 16), Partitioning(slots, mode), False, of * MB)
    assert (layout.count if layout else 1) == parts
    if layout:
        assert in_parts(layout.dimensions, layout.count) == layout, "who is told the number comes to the same"


def test_a_part_of_a_part_is_saved_as_its_rows_of_the_whole():
    layout = layout_of((3 * MB, 16), AUTO, True)
    assert layout.count == 3
    slices = [sub_slice(f"{9 * MB} 16 {3 * MB},{3 * MB}:0,16", layout, part) for part in range(3)]
    assert slices == [f"{9 * MB} 16 {begin * MB},{MB}:0,16" for begin in (3, 4, 5)]
    with pytest.raises(ValueError, match="slice"):
        sub_slice("9 0,9", layout, 0)


OPTIMIZERS = {
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "adam": lambda: v1.train.AdamOptimizer(0.1),
    "keras_adam": lambda: tf.keras.optimizers.legacy.Adam(0.1),
}


def decided(setter, optimizer, partitioner, rows=1_000_000):
    """Which variables of a model with one table of 64 bytes a row are cut, and into how many parts."""
    with tf.Graph().as_default() as graph, v1.device(setter), v1.variable_scope("", use_resource=True):
        table = v1.get_variable("table", [rows, 16], partitioner=partitioner)
        loss = tf.reduce_sum(v1.nn.embedding_lookup(table, v1.placeholder(tf.int64, [None]), partition_strategy="div"))
        made = optimizer()
        if isinstance(made, v1.train.Optimizer):
            made.minimize(loss)
        else:
            parts = list(table) if partitioner else [table]
            made.apply_gradients(zip(tf.gradients(loss, parts), parts))
        index = GraphIndex(graph.as_graph_def())
        cuts = partition(index, Partitioning(4, divided=divided_of(saved_names(graph).names)))
    return {name: one.count for name, one in cuts.variables.items()}, cuts, index


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_a_script_has_partitioned_stays_with_its_slots(setter, name):
    whole, *_ = decided(setter, OPTIMIZERS[name], None)
    assert len(whole) >= 2 and set(whole.values()) == {4}
    parts, cuts, _ = decided(setter, OPTIMIZERS[name], v1.fixed_size_partitioner(4))
    assert parts == {} and not cuts.reports


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_part_beyond_64_mb_is_cut_with_its_slots_and_the_others_are_not(setter, name):
    found, *_ = decided(setter, OPTIMIZERS[name], v1.fixed_size_partitioner(2), 3_000_000)
    assert set(found.values()) == {2}
    of_parts = {part: [one for one in found if f"part_{part}" in one] for part in (0, 1)}
    assert len(of_parts[0]) == len(of_parts[1]) >= 2 and sum(map(len, of_parts.values())) == len(found)


def test_a_partitioner_that_has_left_a_table_in_one_piece_has_divided_nothing(setter):
    """As that of the canned Estimators of TensorFlow 1 does below 64 MB."""
    partitioner = v1.min_max_variable_partitioner(8, min_slice_size=128 << 20)
    found, cuts, _ = decided(setter, OPTIMIZERS["adagrad"], partitioner)
    assert set(found) == {"table/part_0", "table/part_0/Adagrad"} and set(found.values()) == {4}
    saved = cuts.saved({"table/part_0": ("table", "1000000 16 0,1000000:0,16")})
    assert saved["table/part_0/part_1@4"] == ("table", "1000000 16 250000,250000:0,16")


def many(setter, rows, partitioning):
    """Tables of so many rows of 64 bytes, with Adagrad: number of parts by name, what was done, and the graph's index."""
    with tf.Graph().as_default() as graph, v1.device(setter), v1.variable_scope("", use_resource=True):
        ids = v1.placeholder(tf.int64, [None])
        tables = [v1.get_variable(f"table{number}", [count, 16]) for number, count in enumerate(rows)]
        loss = sum(tf.reduce_sum(tf.nn.embedding_lookup(table, ids)) for table in tables)
        v1.train.AdagradOptimizer(0.1).minimize(loss)
        index = GraphIndex(graph.as_graph_def())
        cuts = partition(index, partitioning)
    return {name: one.count for name, one in cuts.variables.items()}, cuts, index


def test_many_tables_of_one_size_stay_whole_and_the_large_one_of_many_is_cut(setter):
    assert many(setter, [100_000] * 26, Partitioning(4))[0] == {}
    found, *_ = many(setter, [100_000] * 10 + [1_000_000], Partitioning(4))
    assert found == {"table10": 8 // 2, "table10/Adagrad": 8 // 2}, "in as many parts as there are slots"


def test_others_cut_what_the_chief_has_cut_into_as_many_parts_whatever_else_they_have(setter):
    """A graph for evaluation has no optimizer: by its own sizes it would cut otherwise."""
    rows = [100_000] * 20
    found, cuts, _ = many(setter, [*rows, 500_000], Partitioning(8))
    assert found == {"table20": 4, "table20/Adagrad": 4}
    told = told_cuts(tell_cuts(cuts))
    assert told == found
    assert many(setter, [20_000] * 20 + [500_000], Partitioning(8))[0]["table20"] == 8
    again, *_ = many(setter, [20_000] * 20 + [500_000], Partitioning(8, known=told))
    assert again == found
    assert many(setter, [*rows, 500_000], Partitioning(8, known={}))[0] == {}
    with pytest.raises(RefusedError, match="cannot"):
        many(setter, [*rows, 500_000], Partitioning(8, known={"table20": 4, "table20/Adagrad": 2}))


def test_what_was_decided_of_a_smaller_graph_stays(setter):
    _, before, _ = many(setter, [100_000, 100_000], Partitioning(8))
    assert before.counts["table0"] == before.counts["table1/Adagrad"] == 4
    grown, cuts, _ = many(setter, [100_000] * 40, Partitioning(8, before=before.counts))
    assert grown == {name: 4 for name in before.counts if before.counts[name] > 1}
    smaller = dataclasses.replace(Partitioning(8), before=cuts.counts)
    assert many(setter, [100_000] * 4, smaller)[0] == grown, "what was whole stays so"


def test_a_slot_of_an_optimizer_that_comes_later_is_cut_as_what_it_lies_beside(setter):
    found, *_ = many(setter, [100_000] * 40, Partitioning(8, before={"table0": 4, "table1": 1}))
    assert found == {"table0": 4, "table0/Adagrad": 4}


def test_what_is_cut_agrees_with_the_chief_or_does_not(setter):
    found, cuts, _ = many(setter, [100_000] * 20 + [500_000], Partitioning(8))
    assert agree(None, cuts) and agree(found, cuts) and agree(dict.fromkeys(found, 0), cuts)
    assert not agree({}, cuts) and not agree({**found, "table20": 8}, cuts) and not agree({**found, "table0": 2}, cuts)
    assert agree({**found, "of_another_graph": 2}, cuts)


def test_who_tells_no_number_has_cut_by_the_size_of_the_table_alone(setter):
    assert told_cuts(None) is None
    assert told_cuts(["table@8", "a/b@2", "old", "odd@x"]) == {"table": 8, "a/b": 2, "old": 0, "odd@x": 0}
    names = ["table1", "table1/Adagrad"]
    assert many(setter, [100_000] * 20, Partitioning(8, known=told_cuts(names)))[0] == dict.fromkeys(names, 4)
