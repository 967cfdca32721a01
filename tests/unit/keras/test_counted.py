"""`steps_per_epoch`: the steps of an epoch are those of the job, whatever they are trained on."""

from __future__ import annotations

import json
import logging
import multiprocessing
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.data import elastic_dataset, streams
from deeprec_ext.keras.leased import fitting, sequences
from deeprec_ext.keras.leased.counted import plan_of_steps
from deeprec_ext.keras.leased.epochs import Epochs
from deeprec_ext.keras.leased.pipelines import followed
from deeprec_ext.keras.leased.sequences import content_of, turned
from tests.unit.keras import models

keras = tf.keras
L = keras.layers
ROWS, BATCH = 40, 8


@pytest.fixture
def lines(tmp_path):
    """Files of numbers."""
    found = []
    for number in range(2):
        path = tmp_path / f"part-{number}.txt"
        path.write_text("".join(f"{number * ROWS // 2 + at}\n" for at in range(ROWS // 2)))
        found.append(str(path))
    return found


@pytest.fixture
def door(elastic, host, monkeypatch):
    monkeypatch.setattr(streams, "trainer", lambda: SimpleNamespace(inputs=host.inputs))
    keras.backend.clear_session()
    return elastic()


class Counts(keras.Model):
    """Adds one to the row of each number that it is trained on."""

    def __init__(self):
        super().__init__()
        self.seen = self.add_weight(name="seen", shape=(ROWS, 1), initializer="zeros")

    def call(self, numbers):
        return tf.gather(tf.convert_to_tensor(self.seen), tf.cast(numbers, tf.int64))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, **_):
        return -tf.reduce_sum(y_pred)


class Kept(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.batches, self.epochs = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.batches.append(batch)

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(epoch)


def counts(x, per_execution=1, **words):
    """How often each number was trained, and what a callback saw."""
    model, kept = Counts(), Kept()
    model.compile(keras.optimizers.SGD(1.0), steps_per_execution=per_execution)
    model.fit(x, callbacks=[kept], verbose=0, **words)
    return np.asarray(model.get_weights()[0]).ravel().tolist(), kept


def numbers(line):
    return tf.strings.to_number(line, tf.int64)


def repeated(files):
    return tf.data.TextLineDataset(files).map(numbers).shuffle(ROWS).batch(BATCH).repeat().prefetch(1)


def repeated_before(files):
    return tf.data.TextLineDataset(files).repeat().map(numbers).batch(BATCH)


def test_steps_of_a_pipeline_without_end_are_counted_and_its_records_divided(door, lines, caplog):
    """Four epochs of five steps are four passes; of six epochs of three the last pass is not whole."""
    with caplog.at_level(logging.INFO):
        seen, kept = counts(repeated(lines), epochs=4, steps_per_epoch=5)
    assert seen == [4.0] * ROWS and kept.batches == [0, 1, 2, 3, 4] * 4 and kept.epochs == [0, 1, 2, 3]
    assert "by itself" not in caplog.text and "a pass of its own" not in caplog.text
    assert len(door.trainer.ended.of["steps of fit 1"].came_to) == 4
    seen, kept = counts(repeated(lines), epochs=6, steps_per_epoch=3)
    assert sum(seen) == 18 * BATCH and set(seen) == {3.0, 4.0} and len(kept.batches) == 18


def test_records_that_are_repeated_before_they_are_batched_go_on_from_pass_to_pass(door, lines):
    """While files are counted, a batch may have fewer records."""
    seen, kept = counts(repeated_before(lines), epochs=3, steps_per_epoch=4)
    assert len(kept.batches) == 12 and 11 * BATCH < sum(seen) <= 12 * BATCH and set(seen) <= {2.0, 3.0}


@pytest.mark.parametrize("given", [5, 5.0, np.ceil(4.2), np.int64(5)])
def test_the_number_of_steps_may_be_any_number(door, lines, given):
    assert counts(repeated(lines), steps_per_epoch=given)[0] == [1.0] * ROWS


def test_several_steps_per_execution_end_with_the_epoch(door, lines):
    seen, kept = counts(repeated(lines), per_execution=4, epochs=2, steps_per_epoch=5)
    assert seen == [2.0] * ROWS and len(kept.epochs) == 2


def test_a_pipeline_that_repeats_a_few_times_is_read_so_often_an_epoch(door, lines):
    dataset = tf.data.TextLineDataset(lines).map(numbers).repeat(3).batch(BATCH)
    assert followed(dataset).passes == 3 and followed(dataset.repeat(2)).passes == 6
    assert followed(dataset.repeat()).passes is None and followed(repeated(lines).repeat(2)).passes is None
    seen, kept = counts(dataset, epochs=2)
    assert seen == [6.0] * ROWS and kept.epochs == [0, 1]


def test_input_that_ends_before_its_steps_ends_the_training(door, lines, caplog):
    """Twelve steps of ten batches: as plain Keras, which trains all there is, and stops."""
    dataset = tf.data.TextLineDataset(lines).map(numbers).shuffle(ROWS).batch(BATCH).repeat(2)
    seen, kept = counts(dataset, epochs=4, steps_per_epoch=3)
    assert seen == [2.0] * ROWS and len(kept.batches) == 10 and kept.epochs == [0, 1, 2, 3]
    assert "the input of fit ran out of data" in caplog.text
    assert json.loads(door.trainer.ended.of["steps of fit 1"].came_to[-1])["stop"] is True


class Batches(keras.utils.Sequence):
    """Of numbers; its length is known."""

    def __init__(self, **words):
        super().__init__(**words)
        self.heard, self.given = [], []

    def __len__(self):
        return ROWS // BATCH

    def __getitem__(self, index):
        self.given.append(index)
        return np.arange(index * BATCH, (index + 1) * BATCH), np.zeros(BATCH)

    def on_epoch_begin(self):
        self.heard.append("begin")

    def on_epoch_end(self):
        self.heard.append("end")


OWN = {
    "a stage that is not followed": lambda: tf.data.Dataset.range(ROWS).take(ROWS).batch(BATCH),
    "batches that are kept": lambda: tf.data.Dataset.range(ROWS).map(lambda x: x).batch(BATCH).cache().shuffle(9),
}


@pytest.mark.parametrize("what", OWN)
def test_the_steps_of_an_input_of_known_length_are_those_of_the_job(door, host, what, caplog):
    """As with `steps_per_epoch`: so many in all, one end and one decision, whoever makes them."""
    with caplog.at_level(logging.INFO):
        seen, kept = counts(OWN[what](), epochs=3)
    assert seen == [3.0] * ROWS and kept.batches == [*range(ROWS // BATCH)] * 3 and kept.epochs == [0, 1, 2]
    assert len(door.trainer.ended.of["steps of fit 1"].came_to) == 3
    assert "each of which reads its input by itself" in caplog.text and not host.notices


SHARES = {
    "shard": lambda: tf.data.Dataset.range(2 * ROWS).shard(2, 0).map(lambda x: x // 2).batch(BATCH),
    "take(-1)": lambda: tf.data.Dataset.range(ROWS).batch(BATCH).take(-1),
    "no length": lambda: tf.data.Dataset.range(2 * ROWS).filter(lambda x: x < ROWS).batch(BATCH),
}


def test_a_range_without_end_has_no_length(door):
    """A callback stops it, as in plain Keras; more steps than the ledger counts would be refused."""
    endless = tf.data.Dataset.range(2**63 - 1).batch(BATCH)
    assert sequences.length_of(endless) is None and sequences.length_of(endless.take(3)) == 3


@pytest.mark.parametrize("what", SHARES)
def test_an_input_that_is_a_share_or_of_unknown_length_is_a_pass_of_each_process(door, host, what):
    assert counts(SHARES[what](), epochs=2)[0] == [2.0] * ROWS
    assert [code for code, *_ in host.notices] == ["own-pass"] and "steps of fit 1" not in door.trainer.ended.of


@pytest.mark.parametrize("steps", [None, ROWS // BATCH])
@pytest.mark.parametrize("shuffle", [True, False])
def test_batches_of_a_sequence_are_those_of_the_numbers_of_the_steps(door, shuffle, steps, caplog):
    given = Batches(**({"workers": 2} if models.KERAS == 3 else {}))
    with caplog.at_level(logging.INFO):
        seen, kept = counts(given, epochs=3, steps_per_epoch=steps, shuffle=shuffle, class_weight={0: 1.0})
    assert seen == [3.0] * ROWS and kept.epochs == [0, 1, 2] and "by itself" not in caplog.text
    assert [one for one in given.heard if one == "end"] == ["end"] * 3 and given.heard[-1] == "end"
    assert ("begin" in given.heard) == hasattr(keras.utils.Sequence, "on_epoch_begin")
    assert len(door.trainer.ended.of["steps of fit 1"].came_to) == 3
    if not shuffle:
        assert given.given[2:] == [*range(ROWS // BATCH)] * 3 or models.KERAS == 3, "two threads make them ahead"


def test_what_a_sequence_raises_is_raised(door):
    class Fails(Batches):
        def __getitem__(self, index):
            if index == 3:
                raise OSError("no such picture")
            return super().__getitem__(index)

    with pytest.raises(OSError, match="no such picture"):
        counts(Fails(), epochs=2)


NO_ARRAYS = [
    lambda x: (tf.sparse.from_dense(x[:, None]), x),
    lambda x: (tf.RaggedTensor.from_row_lengths(x, [4, 4]), x),
]


@pytest.mark.parametrize("batch", [*NO_ARRAYS, lambda x: (1, 2), lambda x: None])
def test_a_sequence_of_other_than_arrays_is_read_as_keras_reads_it(batch):
    assert fitting._of_first(batch(np.arange(BATCH))) is None


def test_batches_that_others_train_are_passed_by_where_all_have_the_same_order():
    epochs = Epochs(SimpleNamespace(generation=0), None, None, None, None, in_order=5)
    assert [epochs.in_vain([number]) for number in (0, 3, 4)] == [0, 2, 0]
    epochs._epoch = 1
    assert [epochs.in_vain([number]) for number in (2, 0, 3)] == [2, 0, 0], "one that was given back comes later"
    epochs._epoch = 3
    assert epochs.in_vain([0]) == 15 - 10
    late = Epochs(SimpleNamespace(generation=0), None, None, None, None, in_order=5)
    late._epoch = 7
    assert [late.in_vain([number]) for number in (1, 3)] == [1, 1], "nobody waits while it reads what is over"


ORDERS = {
    "none": (lambda x: x, True),
    "a seed": (lambda x: x.shuffle(ROWS, 3), True),
    "a small buffer": (lambda x: x.shuffle(ROWS - 1).map(lambda x: x), True),
    "of chance": (lambda x: x.shuffle(ROWS).map(lambda x: x), False),
    "of chance, repeated": (lambda x: x.shuffle(ROWS).repeat(), False),
    "a generator": (
        lambda x: tf.data.Dataset.from_generator(lambda: iter([1]), output_signature=x.element_spec),
        False,
    ),
    "a share": (lambda x: x.take(-1).prefetch(1), False),
}


@pytest.mark.parametrize("order", ORDERS)
def test_which_pipelines_are_in_the_same_order_everywhere(order):
    tf.random.set_seed(None)  # of a test before: with one, all processes draw the same
    make, same = ORDERS[order]
    assert fitting._in_one_order(make(tf.data.Dataset.range(ROWS))) == same


def test_arrays_go_on_where_the_last_epoch_has_ended(door):
    seen, kept = counts(np.arange(ROWS), epochs=5, steps_per_epoch=2, batch_size=4)
    assert seen == [1.0] * ROWS and kept.batches == [0, 1] * 5


def test_without_a_batch_size_arrays_are_cut_into_so_many_batches(door):
    seen, kept = counts(np.arange(ROWS), epochs=2, steps_per_epoch=4)
    assert seen == [2.0] * ROWS and kept.batches == [0, 1, 2, 3] * 2


def test_an_elastic_dataset_without_end_has_epochs_of_so_many_steps(door):
    seen, kept = counts(elastic_dataset(ROWS, BATCH, epochs=None), epochs=2, steps_per_epoch=5)
    assert seen == [2.0] * ROWS and kept.epochs == [0, 1]


def of_tensors(_):
    return tf.data.Dataset.range(ROWS).take(ROWS).batch(BATCH).repeat()


def generator(_):
    while True:
        for at in range(0, ROWS, BATCH):
            yield (np.arange(at, at + BATCH),)


class Sequence(keras.utils.Sequence):
    def __init__(self, _=None):
        super().__init__()

    def __len__(self):
        return ROWS // BATCH

    def __getitem__(self, place):
        return (np.arange(place * BATCH, (place + 1) * BATCH),)


@pytest.mark.parametrize("make", [of_tensors, generator, Sequence])
def test_of_any_other_input_each_process_reads_its_own_and_the_steps_are_divided(door, make, caplog):
    with caplog.at_level(logging.INFO):
        seen, kept = counts(make(None), epochs=2, steps_per_epoch=5)
    assert seen == [2.0] * ROWS and kept.batches == [0, 1, 2, 3, 4] * 2
    assert "the steps of fit are divided among the processes, each of which reads its input by itself" in caplog.text
    assert len(door.trainer.ended.of["steps of fit 1"].came_to) == 2


@pytest.mark.skipif(models.KERAS != 2, reason="Keras 3 begins it anew")
def test_an_own_input_that_ends_ends_the_training_here(door, caplog):
    seen, kept = counts(of_tensors(None).take(7), epochs=3, steps_per_epoch=5)
    assert sum(seen) == 7 * BATCH and kept.epochs == [0, 1]
    assert "the input of fit ran out of data" in caplog.text


class Numbered(Sequence):
    """Whose batches are their numbers."""

    def __init__(self, batches=10):
        super().__init__()
        self.batches, self.passes = batches, 0

    def __len__(self):
        return self.batches

    def __getitem__(self, place):
        return place

    def on_epoch_end(self):
        self.passes += 1


@pytest.mark.parametrize("without", ["None", "nothing"])
def test_an_input_without_end_is_begun_elsewhere_by_each_process(without):
    """Keras 3 reads a PyDataset of which no number of batches is known for ever."""

    class Endless:
        @property
        def num_batches(self):
            if without == "nothing":
                raise NotImplementedError
            return None

        def on_epoch_begin(self):
            pass

        def __getitem__(self, place):
            return place

    read = sequences._endless(Endless(), True, 7, None)
    assert [next(read)[0] for _ in range(4)] == [7, 8, 9, 10]


@pytest.mark.skipif(models.KERAS != 2, reason="Keras 3 takes it as a generator")
def test_what_a_pool_of_keras_reads_counts():
    x, _ = turned(Numbered(), {"shuffle": False, "class_weight": None}, 2)
    first, fork = x[0], multiprocessing.get_context("fork")
    for _ in range(2):
        child = fork.Process(target=lambda: [x[index] for index in range(3)])
        child.start()
        child.join(30)
        x.on_epoch_end()
    assert x[0] == (first + 6) % 10


@pytest.mark.parametrize("shuffle", [True, False])
def test_processes_begin_a_sequence_elsewhere_and_come_to_all_of_it(monkeypatch, shuffle):
    """Each makes three steps of an epoch of ten: what it reads is another part each time."""
    read = {}
    for number in range(4):
        monkeypatch.setattr(sequences.env, "index", lambda number=number: number)
        x = Numbered()
        of, weights = turned(x, {"shuffle": shuffle, "class_weight": None}, models.KERAS)
        assert weights is None
        if models.KERAS == 3:
            read[number] = [next(of)[0] for _ in range(20)]
            assert sorted(read[number][10:]) == list(range(10)) and x.passes == 1
        else:
            read[number] = []
            for _ in range(4):
                read[number] += [of[place] for place in range(3)]
                of.on_epoch_end()
            assert x.passes == 4 and len(of) == 10
        assert set(read[number][:10]) == set(range(10))
    assert len({tuple(one[:3]) for one in read.values()}) > 1


class Old:
    """What a PyDataset has in Keras 3 before 3.3."""

    passes = 0

    def __len__(self):
        return 4

    def __getitem__(self, place):
        return place

    def on_epoch_end(self):
        self.passes += 1


def test_a_sequence_of_an_older_keras_3_has_its_length_and_no_beginning(monkeypatch):
    monkeypatch.setattr(keras.utils, "Sequence", Old)
    x = Old()
    of, _ = turned(x, {"shuffle": False, "class_weight": None}, 3)
    read = [next(of)[0] for _ in range(9)]
    assert sorted(read[:4]) == [0, 1, 2, 3] and read[:4] == read[4:8] and x.passes == 2


@pytest.mark.parametrize("element", [lambda x, y: (x, y), lambda x, y: [x, y]])
def test_a_sequence_has_weights_of_classes_and_elements_of_any_kind(door, element):
    """With Keras 3 through a generator, for which Keras takes neither."""

    class Labelled(Numbered):
        def __getitem__(self, place):
            return element(np.full((BATCH, 1), place % 2, "float32"), np.full((BATCH, 1), place % 2, "int64"))

    model = keras.Sequential(
        [keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
    )
    model.compile(keras.optimizers.SGD(1.0), lambda truth, predicted: predicted)
    model.fit(Labelled(), steps_per_epoch=10, class_weight={0: 1.0, 1: 5.0}, verbose=0)
    assert model.get_weights()[0].item() == pytest.approx(-5 * 5.0)


@pytest.mark.skipif(models.KERAS != 3, reason="Keras 2 fails")
@pytest.mark.parametrize("steps", [None, 10])
def test_classes_beyond_those_that_have_weights_weigh_one_in_a_sequence(door, steps):
    class Labelled(Numbered):
        def __getitem__(self, place):
            return np.ones((BATCH, 1), "float32"), np.full((BATCH, 1), place % 4, "int64")

    def trained(**words):
        model = keras.Sequential(
            [keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
        )
        model.compile(keras.optimizers.SGD(1.0), lambda truth, predicted: predicted)
        model.fit(Labelled(), class_weight={1: 5.0}, steps_per_epoch=steps, verbose=0, **words)
        return model.get_weights()[0].item()

    numbers = [one % 4 for one in range(len(Labelled()))]
    assert -trained() == pytest.approx(sum(5.0 if one == 1 else 1.0 for one in numbers))


def test_a_sequence_that_shuffles_itself_is_another_one_in_each_process():
    """As many on keras.io do, without a seed."""

    class Shuffled(Batches):
        def __init__(self, seed):
            super().__init__()
            self.order = np.random.default_rng(seed).permutation(ROWS)

        def __getitem__(self, index):
            return self.order[index * BATCH : (index + 1) * BATCH], np.zeros(BATCH)

    def content(one):
        return content_of(*(one[0] for _ in range(2)))

    assert content(Shuffled(1)) == content(Shuffled(1)) != content(Shuffled(2))
    assert content_of([np.array(["a", "b"], object)], [np.array(["a", "b"], object)])
    assert content_of([np.zeros(3)], [np.ones(3)]) == "", "of chance"


def test_what_a_sequence_holds_is_told_to_the_ledger(door, monkeypatch):
    told = []
    monkeypatch.setattr(fitting, "plan_of_steps", lambda *words: told.append(words[-1]) or plan_of_steps(*words))
    model = Counts()
    model.compile(keras.optimizers.SGD(1.0))
    model.fit(Batches(), verbose=0)
    assert len(told) == 1 and len(told[0]) == 8


def test_who_comes_late_trains_what_is_left(elastic, host, monkeypatch, lines):
    """Of the second epoch; of the first it hears."""
    monkeypatch.setattr(streams, "trainer", lambda: SimpleNamespace(inputs=host.inputs))
    door = elastic(chief=False)
    from deeprec_ext.aimaster.ledger.ends import Ends

    door.trainer.ended.of["steps of fit 1"] = ends = Ends()
    ends.came_to = [
        json.dumps({"logs": {"loss": 7.0}, "stop": False}),
        json.dumps({"logs": {"loss": 5.0}, "stop": True}),
    ]
    keras.backend.clear_session()
    model, kept = Counts(), Kept()
    model.compile(keras.optimizers.SGD(1.0))
    history = model.fit(repeated(lines), epochs=3, steps_per_epoch=5, callbacks=[kept], verbose=0).history
    assert history["loss"] == [7.0, 5.0] and not kept.batches


@pytest.mark.parametrize("given", [-1, 0, True, "5"])
def test_what_is_no_number_of_steps_is_keras_affair(elastic, given, lines):
    keras.backend.clear_session()
    dataset = of_tensors(None).take(3)
    model = Counts()
    model.compile(keras.optimizers.SGD(1.0))

    def outcome():
        try:
            return list(model.fit(dataset, steps_per_epoch=given, verbose=0).history)
        except Exception as error:
            return type(error)

    plain = outcome()
    elastic()
    assert outcome() == plain


@pytest.mark.parametrize(("steps", "lease"), [(1, 1), (1000, 3), (10**6, 32)])
def test_leases_of_steps_are_short_where_an_epoch_is(steps, lease):
    made = plan_of_steps("s", steps, 3)
    assert made.declaration.shard_records == lease and made.declaration.in_turn and made.declaration.epochs == 3
    assert made.declaration.files[0].records == steps and made.declaration.steps


@pytest.mark.parametrize("make", [lambda: of_tensors(None).take(5), Sequence])
def test_an_input_that_has_as_many_batches_as_an_epoch_has_steps_begins_anew(door, make):
    """`steps_per_epoch=len(dataset)`: of each process's own input, whichever part of an epoch it has made."""
    seen, kept = counts(make(), epochs=3, steps_per_epoch=5)
    assert seen == [3.0] * ROWS and kept.epochs == [0, 1, 2]
    assert len(door.trainer.ended.of["steps of fit 1"].came_to) == 3
