"""`fit` on parameter servers gives what plain Keras gives, batch by batch."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.unit.keras import models

keras = tf.keras
STEPS = 100


def fitted(make, optimizer, metrics=(), epochs=1, steps=STEPS, **words):
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model = make()
    model.compile(optimizer(0.01), "mse", metrics=list(metrics), **words)
    losses = models.Losses()
    model.fit(models.dataset(make, steps), epochs=epochs, callbacks=[losses], verbose=0)
    return model, losses.seen


o = keras.optimizers
MAKES = (models.dense, models.batch_norm, models.wide_deep, models.OwnStep)
CASES = [(make, optimizer) for make in MAKES for optimizer in (o.Adam, o.Adagrad, o.SGD, o.Ftrl)]
if models.KERAS == 2:
    CASES += [(models.OwnStep, o.legacy.Adagrad), (models.wide_deep, o.legacy.Adam), (models.wide_deep, o.legacy.Ftrl)]


@pytest.mark.parametrize(
    ("make", "optimizer"),
    CASES,
    ids=[f"{make.__name__} {'legacy.' * ('legacy' in one.__module__)}{one.__name__}" for make, one in CASES],
)
def test_losses_and_weights_are_those_of_plain_keras(elastic, make, optimizer):
    metrics = [] if make is models.OwnStep else ["mae"]
    plain, expected = fitted(make, optimizer, metrics)
    door = elastic()
    model, seen = fitted(make, optimizer, metrics)
    assert door.trains(model) and len(seen) == STEPS
    assert seen == expected
    for one, other in zip(plain.get_weights(), model.get_weights()):
        np.testing.assert_array_equal(one, other)
    assert int(model.optimizer.iterations) == STEPS


@pytest.mark.skipif(models.KERAS == 2, reason="Keras 2 compiles a step with XLA only where a script says so")
@pytest.mark.parametrize("make", [models.dense, models.wide_deep], ids=lambda make: make.__name__)
def test_xla_which_keras_3_takes_by_itself_rounds_otherwise_and_no_more(elastic, make, monkeypatch):
    monkeypatch.undo()
    plain, expected = fitted(make, o.Adam, jit_compile=True)
    assert plain.jit_compile
    elastic()
    _, seen = fitted(make, o.Adam, jit_compile=True)
    np.testing.assert_allclose([one["loss"] for one in seen], [one["loss"] for one in expected], rtol=1e-5)


def test_loops_within_a_step_are_as_in_plain_keras(elastic):
    _, expected = fitted(models.recurrent, o.Adam)
    elastic()
    _, seen = fitted(models.recurrent, o.Adam)
    np.testing.assert_allclose([one["loss"] for one in seen], [one["loss"] for one in expected], rtol=1e-6)


def test_several_steps_per_execution(elastic):
    _, expected = fitted(models.dense, o.Adam, steps_per_execution=4)
    elastic()
    _, seen = fitted(models.dense, o.Adam, steps_per_execution=4)
    assert len(seen) == STEPS / 4 and seen == expected


def test_epochs_begin_with_new_metrics_and_end_with_those_of_the_epoch(elastic):
    plain, expected = fitted(models.wide_deep, o.Adagrad, ["mae"], epochs=2, steps=8)
    elastic()
    model, seen = fitted(models.wide_deep, o.Adagrad, ["mae"], epochs=2, steps=8)
    assert seen == expected
    assert model.history.history == plain.history.history


def test_evaluation_and_prediction_are_on_the_ps_and_leave_the_model_alone(elastic, reported):
    auc = [keras.metrics.AUC(name="auc", from_logits=True)]
    plain, _ = fitted(models.wide_deep, o.Adagrad, auc)
    x, y = models.records(models.wide_deep, 5)
    expected = plain.evaluate(x, y > 0, return_dict=True, verbose=0), plain.predict(x, verbose=0)
    door = elastic()
    model, _ = fitted(models.wide_deep, o.Adagrad, [keras.metrics.AUC(name="auc", from_logits=True)])
    session = door._session
    found = model.evaluate(x, y > 0, return_dict=True, verbose=0), model.predict(x, verbose=0)
    assert found[0] == expected[0] and reported == [expected[0]]
    np.testing.assert_array_equal(found[1], expected[1])
    assert door._session is session, "no variable has come"


def test_a_model_that_has_not_trained_here_is_evaluated_by_keras(elastic):
    door = elastic()
    model = models.dense()
    model.compile("sgd", "mse")
    x, y = models.records(models.dense, 2)
    assert model.evaluate(x, y, verbose=0) > 0 and model.predict(x, verbose=0).shape == (len(x), 1)
    assert door._session is None and not door.steps.shared


def test_batches_one_by_one(elastic):
    def trained():
        keras.backend.clear_session()
        keras.utils.set_random_seed(1)
        model = models.dense()
        model.compile("adagrad", "mse")
        x, y = models.records(models.dense, 2)
        return [float(model.train_on_batch(x[:size], y[:size])) for size in (32, 32, 16, 48)] + [
            float(model.test_on_batch(x, y))
        ]

    expected = trained()
    door = elastic()
    assert trained() == expected
    traced = {one.name.split("/")[0] for one in door.steps.graph.get_operations()} & {
        "train",
        "train_1",
        "train_2",
        "train_3",
    }
    assert traced == {"train", "train_1"}, "one for batches of 32, one for all others"


def test_ps_may_change_between_two_steps(elastic, host, cluster):
    from tests.unit.elastic.cluster import move

    _, expected = fitted(models.wide_deep, o.Adagrad)
    door = elastic()
    one, two = cluster.view(0, 0, 0, 0), cluster.view(1, 0, 1, 1, epoch=2)
    host.set(one)

    class Moves(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 20:
                session = door._session.elastic
                move(cluster, session.catalogue(), one, two)
                session.pool.exchange(host.set(two))

    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model, losses = models.wide_deep(), models.Losses()
    model.compile(o.Adagrad(0.01), "mse")
    model.fit(models.dataset(models.wide_deep, STEPS), callbacks=[losses, Moves()], verbose=0)
    assert losses.seen == [{"loss": one["loss"]} for one in expected]


@pytest.mark.parametrize("lazy", ["off", "on"])
@pytest.mark.parametrize("optimizer", [o.Adam, o.Adagrad, o.SGD], ids=lambda one: one.__name__)
def test_what_crosses_in_a_captured_step_is_packed(elastic, host, cluster, optimizer, lazy):
    _, plain = fitted(models.wide_deep, optimizer, steps=10)
    host.lazy, host.pack = lazy, "on"
    host.set(cluster.view(0, 1, 0, 1))
    door = elastic()
    _, seen = fitted(models.wide_deep, optimizer, steps=10)
    changed = {one.name: one.changed for one in door._session.elastic.reports()}
    assert changed["packing"] >= 8
    assert seen[:1] == plain[:1] and (lazy == "on" or seen == plain)


def test_lazy_updates_make_adam_one_of_rows(elastic, host, cluster):
    _, plain = fitted(models.wide_deep, o.Adam, steps=10)
    host.lazy = "on"
    host.set(cluster.view(0, 1, 0, 1))
    door = elastic()
    _, seen = fitted(models.wide_deep, o.Adam, steps=10)
    assert seen[:1] == plain[:1] and seen != plain and seen[-1]["loss"] < max(one["loss"] for one in seen)
    tables = [one for one in door._session.elastic.catalogue().variables if one.shape[:1] == [2000]]
    assert len(tables) == 9 and all(one.bitmap for one in tables)
