"""Leased batches through a user's feed: nothing runs ahead of the step, epochs end where the records do."""

from __future__ import annotations

import collections

import pytest
import tensorflow as tf

from deeprec_ext.data.errors import DataError
from deeprec_ext.modeldef import records, stream


def opened(data: str, epochs: int = 1, batch_size: int = 8, **words):
    source = records.source(data)
    made = stream.leased(source, batch_size, epochs, words.pop("shuffle", True), 3, words.pop("shard", 20), "train")
    feeder = stream.open_feeder(made)
    return stream.Epochs(feeder), made, source, feeder


def number(dataset, mode, metadata):
    return dataset.map(tf.strings.to_number)


def values(dataset) -> list[float]:
    return [round(float(value), 2) for batch in dataset.as_numpy_iterator() for value in batch]


def test_each_epoch_has_every_record_once_in_an_order_of_its_own(lines):
    epochs, made, source, feeder = opened(lines, epochs=3)
    dataset = stream.through_feed(epochs, made, source, number, "training", 8)
    seen = []
    while epochs.advance():
        assert epochs.epoch == len(seen)
        seen.append(values(dataset))
    feeder.close()
    assert [sorted(one) for one in seen] == [[round(one / 100, 2) for one in range(100)]] * 3 or sum(
        map(len, seen)
    ) == 300
    counted = collections.Counter(value for one in seen for value in one)
    assert set(counted.values()) == {3} and len(counted) == 100
    assert seen[0] != seen[1]


def test_the_next_batch_is_asked_for_when_the_one_before_is_done_with(lines):
    asked = []
    epochs, made, source, feeder = opened(lines)

    def given():
        for batch in epochs():
            asked.append(len(batch))
            yield batch

    assert epochs.advance()
    iterator = iter(stream.through_feed(given, made, source, number, "training", 8))
    for steps in range(1, 5):
        next(iterator)
        assert len(asked) == steps
        assert len(feeder._outstanding) > 0
        first = feeder._outstanding[0]
        assert feeder._given == 1, "the batch in the step is not acknowledged"
        assert first.records == asked[-1]
    feeder.close()


def test_feed_may_shuffle_filter_and_repeat(lines):
    epochs, made, source, feeder = opened(lines)

    def feed(dataset, mode):
        dataset = dataset.map(tf.strings.to_number).filter(lambda value: value < 0.5)
        return dataset.repeat(2).shuffle(100).prefetch(2)

    assert epochs.advance()
    seen = values(stream.through_feed(epochs, made, source, feed, "training", 8))
    feeder.close()
    assert sorted(seen) == sorted([one / 100 for one in range(50)] * 2)


def test_what_cannot_be_read_ends_the_stream_with_its_name(lines, tmp_path):
    epochs, _, _, feeder = opened(lines, shard=10)
    (tmp_path / "data" / "part-1.txt").write_text("shorter\n")
    with pytest.raises(DataError, match=r"part-1\.txt has shrunk"):
        while epochs.advance():
            for _ in epochs():
                pass
    assert "part-1.txt" in feeder.failure and feeder.exhausted
    feeder.close()


def test_the_first_records_are_there_to_try_things_with(lines):
    assert list(stream.first_records(records.source(lines), 3)) == [b"0.0", b"0.01", b"0.02"]
