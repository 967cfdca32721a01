"""Into how many parts a variable is cut, and which variables are left as they are."""

import pytest
import tensorflow as tf

from deeprec_ext.graph import GraphIndex, Partitioning, divided_of, partition, saved_names
from deeprec_ext.graph.partitioning.layout import layout_of, sub_slice

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
    assert parts == {} and cuts.report is None


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
