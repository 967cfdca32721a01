"""Only large tables are cut."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext import elastic_partitioner  # noqa: E402


@pytest.mark.parametrize(
    ("shape", "parts"),
    [([100, 8], [1, 1]), ([1_000_000, 64], [4, 1]), ([100_000_000, 64], [8, 1]), ([3, 100_000_000], [3, 1]), ([], [1])],
)
def test_parts_follow_the_bytes_up_to_the_number_of_slots(shape, parts):
    assert elastic_partitioner(max_parts=8)(shape=tf.TensorShape(shape), dtype=tf.float32) == parts


def test_it_works_in_a_variable_scope():
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.variable_scope("m", partitioner=elastic_partitioner(4, part_bytes=1000)):
        assert len(list(v1.get_variable("large", [1000, 2]))) == 4
        assert v1.get_variable("small", [10, 2]).shape == [10, 2]


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="positive"):
        elastic_partitioner(max_parts=0)
