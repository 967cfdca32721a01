"""Which stages may follow an elastic dataset, and how it is found in a graph."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext import graph as passes  # noqa: E402
from deeprec_ext.data import elastic_dataset  # noqa: E402
from deeprec_ext.errors import RefusedError  # noqa: E402

v1 = tf.compat.v1


def feeds(make, one_shot=False):
    with tf.Graph().as_default() as graph:
        dataset = make()
        iterator = v1.data.make_one_shot_iterator if one_shot else v1.data.make_initializable_iterator
        iterator(dataset).get_next()
        definition = graph.as_graph_def()
        before = definition.SerializeToString(deterministic=True)
        found = passes.feeds(passes.GraphIndex(definition))
        assert definition.SerializeToString(deterministic=True) == before, "looking changes nothing"
        return found


def options(deterministic):
    chosen = tf.data.Options()
    chosen.deterministic = deterministic
    return chosen


def elastic(**more):
    return elastic_dataset(1000, 10, **more)


ORDERLY = {
    "nothing": lambda d: d,
    "map": lambda d: d.map(lambda ids: ids + 1),
    "parallel map": lambda d: d.map(lambda ids: ids + 1, num_parallel_calls=tf.data.AUTOTUNE),
    "prefetch": lambda d: d.map(lambda ids: ids + 1).prefetch(2).map(lambda ids: (ids, ids)).prefetch(tf.data.AUTOTUNE),
    "options": lambda d: d.map(lambda ids: ids, num_parallel_calls=2).with_options(options(True)),
}


@pytest.mark.parametrize("stages", ORDERLY.values(), ids=ORDERLY)
@pytest.mark.parametrize("one_shot", [False, True], ids=["initializable", "one-shot"])
def test_stages_that_keep_the_order_may_follow(stages, one_shot):
    (feed,) = feeds(lambda: stages(elastic(name="clicks, 2024")), one_shot).values()
    assert feed.source == "clicks, 2024" and bool(feed.makers) != one_shot


DISORDERLY = {
    "shuffle": (lambda d: d.shuffle(10), "ShuffleDataset.*shuffle=True"),
    "repeat": (lambda d: d.repeat(), "RepeatDataset.*epochs="),
    "batch": (lambda d: d.batch(2), "BatchDataset.*batch_size="),
    "unbatch": (lambda d: d.unbatch(), "UnbatchDataset.*batch_size="),
    "filter": (lambda d: d.filter(lambda ids: tf.size(ids) > 0), "FilterDataset.*weight 0"),
    "take": (lambda d: d.take(3), "TakeDataset.*max_steps"),
    "shard": (lambda d: d.shard(2, 0), "ShardDataset.*shared among"),
    "cache": (lambda d: d.cache(), "CacheDataset"),
    "flat_map": (lambda d: d.flat_map(tf.data.Dataset.from_tensors), "FlatMapDataset"),
    "interleave": (lambda d: d.interleave(tf.data.Dataset.from_tensors), "InterleaveDataset"),
    "zip": (lambda d: tf.data.Dataset.zip((d, tf.data.Dataset.range(3))), "ZipDataset"),
    "unordered map": (lambda d: d.map(lambda ids: ids, num_parallel_calls=2, deterministic=False), "deterministic"),
    "unordered options": (
        lambda d: d.map(lambda i: i, num_parallel_calls=2).with_options(options(False)),
        "deterministic",
    ),
    "hidden": (lambda d: d.map(lambda ids: ids).shuffle(5).prefetch(2), "ShuffleDataset"),
}


@pytest.mark.parametrize("stages, message", DISORDERLY.values(), ids=DISORDERLY)
@pytest.mark.parametrize("one_shot", [False, True], ids=["initializable", "one-shot"])
def test_stages_that_lose_the_order_are_refused_by_name_with_the_remedy(stages, message, one_shot):
    with pytest.raises(RefusedError, match=f"(?s){message}.*with_ids"):
        feeds(lambda: stages(elastic()), one_shot)


def test_a_source_inside_another_dataset_is_refused():
    with pytest.raises(RefusedError, match="inside another dataset"):
        feeds(lambda: tf.data.Dataset.range(3).flat_map(lambda _: elastic()))


def test_two_iterators_need_two_names():
    with tf.Graph().as_default() as graph:
        dataset = elastic()
        for _ in range(2):
            v1.data.make_initializable_iterator(dataset).get_next()
        with pytest.raises(RefusedError, match=r"two iterators.*name="):
            passes.feeds(passes.GraphIndex(graph.as_graph_def()))


def test_a_feedable_iterator_is_refused():
    with tf.Graph().as_default() as graph:
        iterator = v1.data.make_initializable_iterator(elastic())
        handle = v1.placeholder(tf.string)
        v1.data.Iterator.from_string_handle(handle, tf.int64).get_next()
        iterator.string_handle()
        with pytest.raises(RefusedError, match="feedable"):
            passes.feeds(passes.GraphIndex(graph.as_graph_def()))


def test_other_datasets_may_do_what_they_like():
    assert feeds(lambda: tf.data.Dataset.range(10).shuffle(3).repeat().batch(2)) == {}


def test_a_run_pulls_as_many_batches_as_it_has_get_nexts():
    with tf.Graph().as_default() as graph:
        iterator = v1.data.make_initializable_iterator(elastic())
        first, second = iterator.get_next(), iterator.get_next()
        both, other = tf.concat([first, second], 0), tf.constant(1)
        index = passes.GraphIndex(graph.as_graph_def())
        found = passes.feeds(index)
        for tensor, pulls in ((both, {"train": 2}), (first, {"train": 1}), (other, {})):
            assert passes.pulls(index, found, index.upstream([tensor.name])) == pulls


def test_the_batch_size_is_known():
    with tf.Graph().as_default() as graph:
        v1.data.make_initializable_iterator(elastic().map(lambda ids: ids)).get_next()
        assert passes.batch_size(graph.as_graph_def()) == 10
    with tf.Graph().as_default() as graph:
        v1.data.make_one_shot_iterator(elastic(with_ids=True).unbatch().batch(7)).get_next()
        assert passes.batch_size(graph.as_graph_def()) == 7


def test_the_dataset_gives_batches_whose_first_dimension_is_unknown(tmp_path):
    assert elastic().element_spec == tf.TensorSpec([None], tf.int64)
    (tmp_path / "a.txt").write_text("a\nb\nc\n")
    dataset = elastic_dataset(str(tmp_path / "a.txt"), 2, shuffle=False)
    assert dataset.element_spec == tf.TensorSpec([None], tf.string)
    assert [batch.tolist() for batch in dataset.as_numpy_iterator()] == [[b"a", b"b"], [b"c"]]
    assert len(list(dataset)) == 2, "outside a job each pass is a new one"
