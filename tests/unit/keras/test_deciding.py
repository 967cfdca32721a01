"""What all processes decide, draw and see alike around a `fit`, though each runs the whole script."""

from __future__ import annotations

import json
import random
import threading

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.aimaster.ledger.ends import Ends
from deeprec_ext.elastic.agent import alike
from deeprec_ext.elastic.agent.alike import Alike
from deeprec_ext.keras import entry
from deeprec_ext.keras.leased import epochs, fitting
from deeprec_ext.keras.leased.epochs import Epochs
from deeprec_ext.keras.milestones import Milestones
from tests.unit.keras import models

keras = tf.keras
X, Y = np.ones((64, 20), "float32"), np.ones((64, 1), "float32")


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A run directory, and a script that does not tell processes apart."""
    monkeypatch.setattr(entry.env, "workdir", lambda: str(tmp_path))
    monkeypatch.setattr(entry, "is_aware", lambda: False)
    return tmp_path


@pytest.fixture
def chance():
    """As in a process of a job; makes others. What was drawn before goes on afterwards."""
    before = random.getstate(), np.random.get_state()

    def made(job="a-job"):
        one = Alike()
        one.begin(np.random, job)
        return one

    yield made
    random.setstate(before[0])
    np.random.set_state(before[1])


def drawn():
    return random.random(), np.random.random()


def test_within_a_fit_each_process_draws_its_own_and_afterwards_all_go_on_alike(chance):
    told = {}
    for place, drawing in (("", 1), ("worker 0", 3), ("worker 1", 0)):
        one = chance()
        told[place] = first, within, after = [drawn()], [], []
        for number in range(2):
            with one.apart(place):
                within += [drawn() for _ in range(drawing)][:1]
                with one.together(f"epoch {number}"):
                    after.append(drawn())
                with one.apart(place):  # a fit in a callback of it
                    pass
            after.append(drawn())
        assert first == told[""][0]
    assert told[""][2] == told["worker 0"][2] == told["worker 1"][2]
    assert len({*told[""][1], *told["worker 0"][1]}) == 4


def test_the_first_fit_of_the_chief_draws_what_it_would_draw_alone(chance):
    chance()
    plain = [drawn(), drawn()]
    with chance().apart(""):
        assert [drawn(), drawn()] == plain


def test_batches_of_the_scripts_own_are_drawn_by_each_process_for_itself(chance):
    chance()
    plain = drawn()
    chance().end("")
    assert drawn() == plain
    one = chance()
    one.end("worker 0")
    assert (own := drawn()) != plain
    one.end("worker 0")
    with one.apart("worker 0"):
        assert drawn() != own


def test_other_scripts_are_left_alone():
    one = Alike()
    random.seed(1)
    with one.apart("worker 0"), one.together("epoch 0"):
        one.end("worker 0")
        assert random.random() == random.Random(1).random()


class Shuffled(keras.utils.Sequence):
    """As tutorials have it: shuffles its rows when an epoch ends, and draws something for each batch."""

    def __init__(self, noise=True, batches=8):
        super().__init__()
        self.noise, self.order, self.orders = noise, np.arange(batches), []

    def __len__(self):
        return len(self.order)

    def __getitem__(self, place):
        noise = np.random.random() if self.noise else 0.0
        return np.full((1, 20), noise, "float32"), np.full((1, 1), self.order[place], "float32")

    def on_epoch_end(self):
        np.random.shuffle(self.order)
        self.orders.append(self.order.tolist())


@pytest.mark.parametrize("noise", [True, False])
def test_a_sequence_that_shuffles_itself_has_one_order_in_all_processes(elastic, chance, monkeypatch, noise):
    other, x = chance(), Shuffled(noise)
    with other.apart("worker 0"):  # which makes other batches, and so draws other numbers
        for epoch in range(3):
            drawn()
            with other.together(f"ends steps of fit 1 {epoch}"):
                x.on_epoch_end()
    one = chance()
    monkeypatch.setattr(fitting, "ALIKE", one)
    monkeypatch.setattr(epochs, "ALIKE", one)
    elastic()
    model = models.dense()
    model.compile("sgd", "mse")
    model.fit(here := Shuffled(noise), epochs=3, verbose=0)
    assert here.orders == x.orders and here.orders[0] != here.orders[1]


def test_the_batches_of_the_next_epoch_are_made_once_it_has_begun():
    class Source:
        name, epoch, complete, ended = "steps", 0, 0, False

    of = Epochs(type("Home", (), {"generation": 0, "chief": True})(), None, Source(), lambda: iter(()), None)
    of._begin_fit = of._until = lambda *_: None
    given, seen = iter([(0, "a"), (0, "b"), (1, "c"), (2, "d")]), []

    def numbers():
        for Source.epoch, one in given:
            yield one

    thread = threading.Thread(target=lambda: [seen.append(one) for one in of.in_turn(numbers())], daemon=True)

    def reads(count):
        for _ in range(200):
            if len(seen) >= count:
                break
            thread.join(0.02)
        return list(seen)

    thread.start()
    thread.join(0.2)
    assert seen == []
    of.begin(0)
    assert reads(2) == ["a", "b"]
    thread.join(0.2)
    assert seen == ["a", "b"]
    of.begin(1)
    assert reads(3) == ["a", "b", "c"]
    of.close()
    thread.join(10)
    assert not thread.is_alive() and seen == ["a", "b", "c"]


class Measures(keras.callbacks.Callback):
    """By itself, as sklearn's metrics are."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def on_epoch_end(self, epoch, logs=None):
        logs["val_auc"] = self.value
        logs.update(loss=self.value)


@pytest.mark.parametrize("chief", [True, False])
def test_what_a_callback_measures_is_what_the_chiefs_has_measured(elastic, chief):
    door = elastic(chief=chief)
    ends = door.trainer.ended.of["fit 1"] = Ends()
    ends.begun = True
    if not chief:
        ends.came_to = [json.dumps({"logs": {"loss": 1.0, "val_auc": 0.5}, "stop": False})]
    model = models.dense()
    model.compile("sgd", "mse")
    history = model.fit(X, Y, callbacks=[Measures(0.25)], verbose=0).history
    if chief:
        assert json.loads(ends.came_to[0])["logs"] == {"loss": 0.25, "val_auc": 0.25}
    assert history["val_auc"] == [0.25 if chief else 0.5] and history["loss"] == [0.25 if chief else 1.0]


class Patient(keras.callbacks.Callback):
    """Measures by itself, and loses patience."""

    def __init__(self):
        super().__init__()
        self.measured, self.begun = [], []

    def on_epoch_begin(self, epoch, logs=None):
        self.model.evaluate(X, Y, verbose=0)
        self.begun.append(epoch)

    def on_epoch_end(self, epoch, logs=None):
        self.measured.append((epoch, self.model.predict(X[:2], verbose=0)))
        self.model.stop_training = True


class Stops(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = True


@pytest.mark.parametrize("chief", [True, False])
def test_callbacks_that_measure_have_no_part_in_epochs_that_are_over_and_stop_nothing(elastic, chief):
    door = elastic(chief=chief)
    ends = door.trainer.ended.of["fit 1"] = Ends()
    ends.begun = True
    ends.came_to = [json.dumps({"logs": {"loss": 1.0}, "stop": False})] * (2 if chief else 3)
    model = models.dense()
    model.compile("sgd", "mse")
    patient = Patient()
    history = model.fit(X, Y, epochs=5 if chief else 3, callbacks=[patient, Stops()], verbose=0)
    assert history.epoch == [0, 1, 2] and [epoch for epoch, _ in patient.measured] == ([2] if chief else [])
    assert patient.begun[-1:] == ([2] if chief else [])


@pytest.mark.parametrize("chief", [True, False])
def test_between_two_fits_the_chief_evaluates_for_all(elastic, shared, chief):
    other = Milestones(shared, True, threading.Event())
    door = elastic(chief=chief)
    if not chief:
        ends = door.trainer.ended.of["fit 1"] = Ends()
        ends.came_to = [json.dumps({"logs": {"loss": 1.0}, "stop": False})]
        other.begins()
        other.ends()
        other.measured(lambda: [7.0, 8.0], True)
    model = models.dense()
    model.compile("sgd", "mse", metrics=["mae"])
    before = model.evaluate(X, Y, verbose=0)  # each by itself: nothing is trained
    model.fit(X, Y, verbose=0)
    found = model.evaluate(X, Y, verbose=0)
    if chief:
        assert found != before and json.loads((shared / "done-by-script").read_text())["results"] == {"1.1.1": found}
    else:
        assert found == [7.0, 8.0]


class Pruned(Exception):
    pass


def test_a_worker_that_waits_for_figures_hears_that_the_chief_has_left_the_fit():
    home = type("Home", (), {"generation": 0, "chief": False, "leaving": threading.Event()})()
    of = Epochs(home, None, None, lambda: iter(()), None)

    def left():
        raise Pruned

    of.left = left
    for wait in (lambda: of._agree(None, {}), lambda: of._until(None, lambda reply: True), of._look):
        of._source = type("Source", (), {"failure": ""})()
        with pytest.raises(Pruned):
            wait()


@pytest.mark.parametrize("chief", [True, False])
def test_what_is_saved_before_the_first_fit_is_the_chiefs(elastic, shared, chief):
    path = str(shared / "first.weights.h5")
    other = Milestones(shared, True, threading.Event())
    elastic(chief=chief)
    model = models.dense()
    if not chief:
        other.saved(f"{model.name} {path}")
    model.save_weights(path)
    assert (shared / "first.weights.h5").exists() == chief


@pytest.mark.parametrize("there", [True, False])
def test_a_chief_that_begins_again_leaves_a_file_that_is_there(elastic, shared, there):
    path = shared / "first.weights.h5"
    model = models.dense()
    Milestones(shared, True, threading.Event()).saved(f"{model.name} {path}")
    if there:
        path.write_text("what the other has saved")
    elastic()
    model.save_weights(str(path))
    assert (path.read_bytes() == b"what the other has saved") == there


def test_batches_that_a_callback_trains_are_its_own(elastic):
    """Not those of the epoch, which wait for the step."""

    class Replays(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            self.model.train_on_batch(np.zeros((2, 20), "float32"), np.full((2, 1), -3.0, "float32"))

    elastic()
    model = keras.Sequential(
        [keras.layers.Input((20,)), keras.layers.Dense(1, use_bias=True, kernel_initializer="zeros")]
    )
    model.compile(keras.optimizers.SGD(1.0), lambda truth, predicted: predicted + 0 * truth)
    model.fit(X, Y, batch_size=32, callbacks=[Replays()], verbose=0)
    kernel, bias = model.get_weights()
    assert bias.tolist() == [-4.0] and kernel[0].tolist() == [-2.0]


def test_the_module_that_is_waited_for_is_that_of_the_generator():
    assert np.random.__name__ == alike.MODULE
