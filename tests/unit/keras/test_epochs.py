"""Epochs are the job's: their figures, who stops, and who comes late."""

from __future__ import annotations

import json
import logging
import re
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.aimaster.ledger.ends import Ends
from deeprec_ext.data import elastic_dataset, streams
from deeprec_ext.data.local import LocalLedger
from deeprec_ext.errors import RefusedError, UsageError
from deeprec_ext.keras.leased import figures, fitting
from deeprec_ext.keras.leased.arrays import rows_of
from deeprec_ext.units import once
from tests.unit.keras import models

keras = tf.keras
L = keras.layers
ROWS = 3 * models.BATCH


def compiled(optimizer="adagrad"):
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    model = keras.Sequential([L.Input((20,)), L.Dense(1, activation="sigmoid")])
    model.compile(optimizer, "binary_crossentropy", metrics=[keras.metrics.AUC(name="auc"), "mse"])
    return model


def clicks(seed, rows=ROWS):
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 20)).astype("float32")
    return x, (x[:, :1] > 0).astype("float32")


def seen_by_another(seed, rows):
    """Its metrics, of a model that is what ours is at the beginning."""
    model = compiled("sgd")
    model.optimizer.learning_rate = 0.0
    x, y = clicks(seed, rows)
    logs = model.fit(x, y, verbose=0, shuffle=False).history
    told = figures.seen(model, rows, {name: value[0] for name, value in logs.items()})
    return told, (x, y)


class Kept(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.epochs, self.batches, self.ended = [], [], None

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append((epoch, dict(logs)))

    def on_train_batch_end(self, batch, logs=None):
        self.batches.append(batch)

    def on_train_end(self, logs=None):
        self.ended = dict(logs)


def test_metrics_of_an_epoch_are_of_all_records_whoever_trained_them(elastic):
    told, (x2, y2) = seen_by_another(2, 5 * models.BATCH + 7)
    model = compiled("sgd")
    model.optimizer.learning_rate = 0.0
    x, y = clicks(1)
    expected = model.evaluate(np.concatenate([x, x2]), np.concatenate([y, y2]), return_dict=True, verbose=0)
    door, kept = elastic(), Kept()
    door.trainer.ended.others["fit 1", 0] = told
    history = model.fit(x, y, callbacks=[kept], verbose=0).history
    assert {name: value[0] for name, value in history.items()} == pytest.approx(expected, rel=1e-5)
    assert kept.ended == {name: value[0] for name, value in history.items()}
    [words] = door.trainer.ended.of["fit 1"].came_to
    assert json.loads(words) == {"logs": kept.ended, "stop": False}


def test_the_chief_validates_and_its_figures_are_everybodys(elastic, reported):
    door, kept = elastic(), Kept()
    x, y = clicks(1)
    model = compiled()
    model.fit(x, y, validation_data=clicks(2), epochs=2, callbacks=[kept], verbose=0)
    came_to = [json.loads(one)["logs"] for one in door.trainer.ended.of["fit 1"].came_to]
    assert came_to == [logs for _, logs in kept.epochs]
    assert "val_auc" in came_to[0] and came_to[0]["val_auc"] != came_to[0]["auc"]
    validated = [{name: value for name, value in one.items() if name.startswith("val_")} for one in came_to]
    assert [once(one) for one in reported] == validated, "the job's metrics have the names that fit has for them"
    assert [one["auc"] for one in reported] == [one["val_auc"] for one in came_to], "of the last evaluation"
    model.evaluate(*clicks(3), verbose=0)
    assert not any(name.startswith("val_") for name in reported[-1])


def words(loss, stop=False):
    return json.dumps({"logs": {"loss": loss, "val_loss": loss}, "stop": stop})


def test_a_process_that_comes_late_hears_of_the_past_and_trains_nothing_of_it(elastic, tmp_path):
    door, kept = elastic(), Kept()
    door.trainer.ended.of["fit 1"] = ends = Ends()
    ends.came_to = [words(3.0), words(2.0), words(2.5)]
    model, (x, y) = compiled(), clicks(1)
    plateau = keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1)
    saves = keras.callbacks.ModelCheckpoint(str(tmp_path / "epoch-{epoch}.keras"))
    rate = float(model.optimizer.learning_rate)
    history = model.fit(x, y, epochs=3, callbacks=[kept, plateau, saves], verbose=0)
    assert [logs["loss"] for _, logs in kept.epochs] == [3.0, 2.0, 2.5] == history.history["loss"]
    assert not kept.batches and not list(tmp_path.iterdir())
    assert float(model.optimizer.learning_rate) == rate / 2
    assert door.trains(model), "what others have trained is here to be evaluated, and saved"


@pytest.mark.parametrize("verbose", [1, 2])
def test_a_process_that_comes_late_to_input_of_unknown_length_shows_what_it_has_trained(
    elastic, host, monkeypatch, tmp_path, capsys, verbose
):
    monkeypatch.setattr(streams, "trainer", lambda: SimpleNamespace(inputs=host.inputs))
    (tmp_path / "lines").write_text("0.5\n" * 3 * models.BATCH)

    def parse(line):
        number = tf.strings.to_number(line)
        return tf.fill([20], number), tf.reshape(number, [1])

    dataset = tf.data.TextLineDataset(str(tmp_path / "lines")).map(parse).batch(models.BATCH)
    door, kept = elastic(), Kept()
    door.trainer.ended.of["fit 1"] = ends = Ends()
    ends.came_to = [words(3.0)]
    compiled().fit(dataset, epochs=3, callbacks=[kept], verbose=verbose)
    assert [epoch for epoch, _ in kept.epochs] == [0, 1, 2]
    shown = capsys.readouterr().out.split("Epoch ")[1:]
    ends_of_epochs = [re.split("[\r\n]", epoch.strip())[-1] for epoch in shown]
    assert ["loss: 3.0000" in line for line in ends_of_epochs] == [True, False, False]
    assert ["1/1" in line for line in ends_of_epochs] == [True, False, False], "each with its own batches"


@pytest.mark.parametrize("stop", [False, True])
def test_where_the_chief_stops_all_stop(elastic, stop):
    door, kept = elastic(chief=False), Kept()
    door.trainer.ended.of["fit 1"] = ends = Ends()
    ends.came_to = [words(3.0), words(2.0, stop), words(1.0), words(0.5)]
    compiled().fit(*clicks(1), epochs=4, callbacks=[kept], verbose=0)
    assert len(kept.epochs) == (2 if stop else 4)


def test_the_chief_tells_that_it_stops(elastic):
    door = elastic()
    stopping = keras.callbacks.EarlyStopping("loss", min_delta=100.0)
    history = compiled().fit(*clicks(1), epochs=9, callbacks=[stopping], verbose=0)
    told = [json.loads(one)["stop"] for one in door.trainer.ended.of["fit 1"].came_to]
    assert told == [False, True] and history.epoch == [0, 1]


def test_a_worker_waits_for_the_chiefs_figures_and_neither_validates_nor_writes(elastic, tmp_path, caplog):
    door, kept = elastic(chief=False), Kept()
    ended = door.trainer.ended
    ended.of["fit 1"] = ends = Ends()
    answer = ends.answer

    def chief_answers(who, request, *rest):
        if request.HasField("seen") and not ends.came_to:
            ends.came_to.append(words(7.0))
        return answer(who, request, *rest)

    ends.answer = chief_answers
    path = tmp_path / "model.keras"
    with caplog.at_level(logging.INFO):
        compiled().fit(
            *clicks(1), validation_data=clicks(2), verbose=0,
            callbacks=[kept, keras.callbacks.ModelCheckpoint(str(path)), keras.callbacks.CSVLogger(str(tmp_path / "log"))],
        )  # fmt: skip
    assert kept.epochs == [(0, {"loss": 7.0, "val_loss": 7.0})] and kept.batches == [0, 1, 2]
    assert not list(tmp_path.iterdir())
    assert "CSVLogger, ModelCheckpoint: the chief's alone" in caplog.text
    told = json.loads(next(one.seen for one in ended.asked if one.seen))
    assert told["records"] == ROWS and set(told["logs"]) == {"loss", "auc", "mse"}


def test_backup_and_restore_is_left_out_and_a_line_says_why(elastic, tmp_path, caplog):
    elastic()
    with caplog.at_level(logging.INFO):
        compiled().fit(*clicks(1), callbacks=[keras.callbacks.BackupAndRestore(str(tmp_path / "b"))], verbose=0)
    assert "BackupAndRestore: left out" in caplog.text and not list(tmp_path.iterdir())


def test_numbers_of_a_step_that_are_no_metrics_are_averaged_by_records():
    parts = [
        json.dumps({"records": records, "logs": {"loss": loss}, "shapes": [], "state": []}).encode()
        for records, loss in ((10, 1.0), (30, 2.0), (0, 99.0))
    ]
    model = keras.Sequential([L.Dense(1)])
    assert figures.of_job(model, parts) == {"loss": 1.75}
    assert figures.of_job(model, parts[2:]) == {}


GARBLED = [
    b"", b"[]", b"null", b"\xff", b"{}", b'{"records": "3", "logs": {}, "shapes": [], "state": []}',
    b'{"records": 3, "logs": {"loss": "high"}, "shapes": [], "state": []}',
    b'{"records": -3, "logs": {"loss": 1.0}, "shapes": [], "state": []}',
    b'{"records": 3, "logs": {"loss": 1.0}, "shapes": [[2]], "state": [[1.0]]}',
    b'{"records": 3, "logs": {"loss": 1.0}, "shapes": [["a"]], "state": [[1.0]]}',
]  # fmt: skip


@pytest.mark.parametrize("garbled", GARBLED)
def test_what_cannot_be_read_of_a_process_is_left_out(garbled, caplog):
    good = json.dumps({"records": 2, "logs": {"loss": 1.5}, "shapes": [], "state": []}).encode()
    with caplog.at_level(logging.WARNING):
        assert figures.of_job(SimpleNamespace(metrics=[]), [good, garbled]) == {"loss": 1.5}
    assert "cannot be read, and is left out" in caplog.text


class Classes(keras.metrics.Metric):
    """How many rows of each of two classes it has seen, in whole numbers."""

    def __init__(self):
        super().__init__(name="classes")
        self.rows = self.add_weight(name="rows", shape=(2,), initializer="zeros", dtype="int32")

    def update_state(self, y_true, y_pred, sample_weight=None):
        ones = tf.cast(tf.reduce_sum(tf.cast(y_true, tf.int32)), tf.int32)
        self.rows.assign_add(tf.stack([tf.size(y_true) - ones, ones]))

    def result(self):
        return tf.cast(tf.convert_to_tensor(self.rows), tf.float32)


def test_metrics_of_several_numbers_and_of_whole_ones_are_of_the_job(elastic):
    def with_classes():
        model = compiled("sgd")
        model.compile("sgd", "mse", metrics=[Classes()])
        return model

    (x, y), (x2, y2) = clicks(1), clicks(2, 70)
    other = with_classes()
    told = figures.seen(other, 70, {name: value[0] for name, value in other.fit(x2, y2, verbose=0).history.items()})
    model = with_classes()
    door, kept = elastic(), Kept()
    door.trainer.ended.others["fit 1", 0] = told
    model.fit(x, y, callbacks=[kept], verbose=0)
    both = np.concatenate([y, y2])
    np.testing.assert_array_equal(kept.epochs[0][1]["classes"], [(both == 0).sum(), (both == 1).sum()])
    [words] = door.trainer.ended.of["fit 1"].came_to
    assert json.loads(words)["logs"]["classes"] == kept.epochs[0][1]["classes"].tolist()


def test_a_worker_hears_of_metrics_of_several_numbers(elastic):
    door, kept = elastic(chief=False), Kept()
    door.trainer.ended.of["fit 1"] = ends = Ends()
    ends.came_to = [json.dumps({"logs": {"loss": 1.0, "classes": [3.0, 4.0]}, "stop": False})]
    compiled().fit(*clicks(1), callbacks=[kept], verbose=0)
    assert kept.epochs[0][1]["classes"].mean() == 3.5


def test_a_worker_keeps_no_weights_of_an_epoch(elastic):
    door = elastic(chief=False)
    door.trainer.ended.of["fit 1"] = ends = Ends()
    ends.came_to = [words(3.0), words(2.0)]
    stopping = keras.callbacks.EarlyStopping("loss", restore_best_weights=True)
    compiled().fit(*clicks(1), epochs=2, callbacks=[stopping], verbose=0)
    assert stopping.best_weights is None


def test_an_epoch_that_is_past_is_not_validated_again(elastic, caplog):
    door = elastic()
    door.trainer.ended.of["fit 1"] = ends = Ends()
    ends.came_to = [words(3.0), words(2.0)]
    validated = []

    class Validated(keras.callbacks.Callback):
        def on_test_begin(self, logs=None):
            validated.append(True)

    stopping = keras.callbacks.EarlyStopping("val_loss", restore_best_weights=True)
    compiled().fit(
        *clicks(1), epochs=3, validation_data=clicks(2), callbacks=[Validated(), stopping], verbose=0
    )  # fmt: skip
    assert len(validated) == 1
    assert caplog.text.count("the weights of the best epoch so far were with the process that ended") == 1


def test_a_process_that_leaves_the_job_ends_its_fit(elastic):
    door = elastic()

    class Leaves(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            door.trainer.leaving.set()

    kept = Kept()
    compiled().fit(*clicks(1), epochs=5, callbacks=[Leaves(), kept], verbose=0)
    assert kept.batches == [0] and len(kept.epochs) == 1
    assert door.trainer.ended.asked[-1].leaves


def test_what_a_process_has_seen_that_is_told_to_leave_in_a_step_is_in_the_figures(elastic):
    """The session stops it: no batch is asked for any more."""
    door = elastic(chief=False)

    class Leaves(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                door.trainer.leaving.set()

    compiled().fit(*clicks(1), epochs=5, callbacks=[Leaves()], verbose=0)
    last = door.trainer.ended.asked[-1]
    assert last.leaves and json.loads(last.seen)["records"] == 2 * 32


def test_who_is_told_to_leave_while_it_waits_for_the_last_figures_still_hears_them(elastic):
    """The chief says what the last epoch came to, its script ends, and the job with it: seen once, on a busy machine."""
    door, kept = elastic(chief=False), Kept()
    door.trainer.ended.of["fit 1"] = ends = Ends()
    answer = ends.answer

    def ends_at_once(who, request, *rest):
        reply = answer(who, request, *rest)
        if request.HasField("seen") and not ends.came_to:
            ends.came_to.append(words(7.0))
            door.trainer.leaving.set()
        return reply

    ends.answer = ends_at_once
    compiled().fit(*clicks(1), callbacks=[kept], verbose=0)
    assert [logs["loss"] for _, logs in kept.epochs] == [7.0]


def test_processes_with_other_numbers_of_rows_are_told_what_to_do(elastic, host):
    door = elastic()
    rows = rows_of(*clicks(1), None)
    ledger = LocalLedger(rows.plan(32, 1, True, 0).of_its_own("fit 1", 1).declaration)
    ledger._error = "dataset 'fit 1' was declared with 96 records and now with 90"
    host.agent.ledgers["fit 1"] = ledger
    with pytest.raises(UsageError, match="load the same arrays everywhere, or name the same files"):
        compiled().fit(*clicks(1), verbose=0)
    assert not door.trainer.ended.of["fit 1"].came_to


def test_an_elastic_dataset_is_read_once_an_epoch_of_fit(elastic, host, monkeypatch):
    monkeypatch.setattr(streams, "trainer", lambda: SimpleNamespace(inputs=host.inputs))
    door, kept = elastic(), Kept()
    x, y = clicks(1)
    read = elastic_dataset(ROWS, 32).map(lambda ids: (tf.gather(x, ids), tf.gather(y, ids))).prefetch(2)
    compiled().fit(read, epochs=3, class_weight={0: 1.0, 1: 2.0}, callbacks=[kept], verbose=0)
    assert kept.batches == [0, 1, 2] * 3 and len(door.trainer.ended.of["fit 1 train"].came_to) == 3
    told = [json.loads(one.seen)["records"] for one in door.trainer.ended.asked if one.seen]
    assert set(told) == {ROWS}


def test_a_stage_that_loses_the_order_is_refused(elastic, host, monkeypatch):
    monkeypatch.setattr(streams, "trainer", lambda: SimpleNamespace(inputs=host.inputs))
    elastic()
    read = elastic_dataset(ROWS, 32).map(lambda ids: (tf.zeros([tf.size(ids), 20]), tf.zeros([tf.size(ids), 1])))
    with pytest.raises(RefusedError, match="it makes batches itself"):
        compiled().fit(read.unbatch().batch(16), verbose=0)


@pytest.mark.parametrize(
    "words",
    [{}, {"validation_data": clicks(2)}, {"callbacks": ["EarlyStopping"]}, {"callbacks": ["LearningRateScheduler"]}],
)
def test_who_trains_a_pass_of_its_own_decides_by_itself_which_is_said(elastic, host, words):
    elastic()
    data = tf.data.Dataset.from_tensor_slices(clicks(1)).batch(32).take(-1)
    if "callbacks" in words:
        given = {"EarlyStopping": "loss", "LearningRateScheduler": lambda epoch: 0.1}
        words = {"callbacks": [getattr(keras.callbacks, name)(given[name]) for name in words["callbacks"]]}
    compiled().fit(data, verbose=0, **words)
    assert [code for code, *_ in host.notices] == ["own-pass", "own-decisions"][: 1 + bool(words)]
    compiled().fit(data, verbose=0, steps_per_epoch=3, **words)
    assert len(host.notices) == 1 + bool(words), "of steps that are divided the chief decides"


def test_batches_of_the_script_are_trained_by_each_process_which_is_said(elastic, host):
    elastic()
    model, (x, y) = compiled(), clicks(1)
    for _ in range(3):
        model.train_on_batch(x[:8], y[:8])
    assert [code for code, *_ in host.notices] == ["own-batches"]


def test_who_keeps_the_best_weights_of_a_large_model_is_told_what_that_takes(elastic, host, monkeypatch):
    elastic()
    keeps = keras.callbacks.EarlyStopping("loss", restore_best_weights=True)
    compiled().fit(*clicks(1), verbose=0, callbacks=[keeps])
    assert host.notices == []
    monkeypatch.setattr(fitting, "LARGE_BYTES", 50)
    compiled().fit(*clicks(1), verbose=0, callbacks=[keras.callbacks.EarlyStopping("loss")])
    assert host.notices == []
    model = compiled()
    model.some = tf.Variable(tf.zeros([3, 2]), shape=(None, 2), trainable=False)  # as layers of Keras 2 have it
    model.fit(*clicks(1), verbose=0, callbacks=[keeps])
    [(code, text, *_)] = host.notices
    assert code == "keeps-weights" and "takes all weights, " in text


def test_any_other_input_is_told_to_be_a_pass_of_each_process(elastic, caplog):
    elastic()
    with caplog.at_level(logging.INFO):
        compiled().fit(tf.data.Dataset.from_tensor_slices(clicks(1)).batch(32).take(-1), verbose=0)
    assert "each process trains a pass of its own" in caplog.text and "elastic_dataset" in caplog.text


def test_metrics_that_give_very_many_numbers_are_left_out_of_what_all_hear(caplog):
    """A message of an epoch has room for some thousands."""
    logs = {"loss": 1.0, **{name: [0.1] * size for name, size in (("one", 1000), ("two", 999), ("three", 998))}}
    assert set(figures.bounded(logs)) == {"loss", "two", "three"} and "one gives 1000 numbers" in caplog.text
    assert figures.bounded({"loss": 1.0}) == {"loss": 1.0}
    longest = {f"metric {number}": -np.finfo(np.float32).tiny.item() / 3 for number in range(figures.TOLD_MAX)}
    assert len(json.dumps({"logs": figures.bounded(longest), "stop": False})) < 1 << 17


def test_what_many_numbers_have_seen_is_packed():
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=[keras.metrics.AUC(num_thresholds=9000, name="auc")])
    x, y = np.linspace(0, 1, 64, dtype="float32").reshape(-1, 1), np.arange(64).reshape(-1, 1) % 2
    model.evaluate(x, y, verbose=0)
    told = figures.seen(model, 64, {"loss": 1.0, "auc": 0.5})
    assert len(told) < figures.PLAIN_BYTES_MAX and figures._read(told)["records"] == 64
    assert sum(len(one) for one in figures._read(told)["state"]) > 30_000
    assert figures._read(told[:-9]) is None


def test_a_chief_that_was_started_again_asks_until_it_knows_what_is_past(elastic):
    """An AIMaster that starts at the same time does not answer at once; today's model shall not be saved as an earlier one."""
    door, kept = elastic(), Kept()
    door.trainer.ended.of["fit 1"] = ends = Ends()
    ends.came_to, ends.begun = [words(7.0)], True
    answer, silent = door.trainer.inputs.end_of_epoch, [None, None]
    door.trainer.inputs.end_of_epoch = lambda request: silent.pop() if silent else answer(request)
    compiled().fit(*clicks(1), epochs=2, callbacks=[kept], verbose=0)
    assert not silent and kept.epochs[0][1]["loss"] == 7.0


def test_what_epochs_came_to_is_told_once_however_often_it_is_sent(elastic):
    """The request is sent again where no answer came: epochs that nobody has trained would be over."""
    door, kept = elastic(), Kept()
    door.trainer.ended.of["fit 1"] = ends = Ends()
    ends.came_to, ends.begun = [words(7.0)], True
    answer, sent = door.trainer.inputs.end_of_epoch, []

    def seldom(request):
        sent.append(len(request.came_to))
        return answer(request) if len(sent) % 3 in (1, 0) else None

    door.trainer.inputs.end_of_epoch = seldom
    compiled().fit(*clicks(1), epochs=3, callbacks=[kept], verbose=0)
    assert len(ends.came_to) == 3 and len(kept.epochs) == 3 and kept.epochs[1][1]["loss"] != 7.0
    assert max(sent) <= 3
