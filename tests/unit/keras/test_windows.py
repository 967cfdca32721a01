"""Keras's variables show what is on the PS, and what is written into them holds for the model."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.unit.keras import models

keras = tf.keras


@pytest.fixture
def trained(elastic):
    """A model that has trained, and its process's door."""

    def make(make_model=models.dense, optimizer="adagrad", steps=4, callbacks=(), **words):
        door = elastic(**words)
        keras.backend.clear_session()
        keras.utils.set_random_seed(1)
        model = make_model()
        model.compile(optimizer, "mse")
        model.fit(models.dataset(make_model, steps), callbacks=list(callbacks), verbose=0)
        return model, door

    return make


def test_a_weight_is_brought_when_it_is_looked_at_and_not_before(trained):
    model, door = trained()
    asked = []
    read = door.windows._read
    door.windows._read = lambda variables: asked.append(len(variables)) or read(variables)
    kernel = model.layers[0].kernel
    first = kernel.numpy()
    assert asked == [8], "with all that is small: four weights and their accumulators"
    assert np.abs(model.get_weights()[0] - first).max() == 0 and asked == [8]
    model.fit(models.dataset(models.dense, 1), verbose=0)
    assert asked == [8] and np.abs(kernel.numpy() - first).max() > 0


def test_weights_that_are_set_are_those_of_the_next_step(trained):
    model, _ = trained()
    model.set_weights([np.zeros_like(one) for one in model.get_weights()])
    x, y = models.records(models.dense, 1)
    assert model.evaluate(x, y, verbose=0) == pytest.approx(float(np.mean(np.square(y))), rel=1e-5)
    model.layers[-1].bias.assign_add([1.0])
    np.testing.assert_array_equal(model.predict(x, verbose=0), np.ones_like(y))


def test_who_is_not_the_chief_sets_nothing(elastic, host):
    told = []
    door = elastic(chief=False)
    door._discarded = told.append
    model = models.dense()
    model.compile("adagrad", "mse")
    model.fit(models.dataset(models.dense, 2), verbose=0)
    before = model.get_weights()
    bias = model.layers[-1].bias
    bias.assign([100.0])
    x, _ = models.records(models.dense, 1)
    assert np.abs(model.predict(x, verbose=0)).max() < 50
    assert told == [[bias.path if models.KERAS == 3 else bias.name]]
    np.testing.assert_array_equal(model.get_weights()[-1], before[-1])


def test_who_is_not_the_chief_saves_nothing(elastic, tmp_path):
    elastic(chief=False)
    model = models.dense()
    model.compile("adagrad", "mse")
    model.save_weights(str(tmp_path / "before.weights.h5"))
    kept = keras.callbacks.ModelCheckpoint(str(tmp_path / "each.keras"))
    model.fit(models.dataset(models.dense, 2), callbacks=[kept], verbose=0)
    model.save(str(tmp_path / "after.keras"))
    model.save_weights(str(tmp_path / "after.weights.h5"))
    assert [one.name for one in tmp_path.iterdir()] == ["before.weights.h5"]


def test_a_learning_rate_that_a_callback_sets_holds_from_the_next_step_on(trained):
    class Stops(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                self.weights = self.model.get_weights()
                self.model.optimizer.learning_rate = 0.0

    stops = Stops()
    model, _ = trained(optimizer="sgd", callbacks=[stops])
    for one, other in zip(stops.weights, model.get_weights()):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("form", ["keras", "h5", "tf", "checkpoint", "weights"])
def test_what_is_saved_is_what_was_trained_and_plain_keras_loads_it(trained, tmp_path, form):
    if form == "tf" and models.KERAS == 3:
        pytest.skip("Keras 3 has `export` for it, and does not load what it exports")
    model, _ = trained(steps=6)
    x, _ = models.records(models.dense, 2)
    path = str(tmp_path / {"keras": "m.keras", "h5": "m.h5", "weights": "w.weights.h5"}.get(form, "m"))
    if form == "checkpoint":
        tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(path)
    elif form == "weights":
        model.save_weights(path)
    else:
        model.save(path)
    expected = model.predict(x, verbose=0)
    if form in ("checkpoint", "weights"):
        keras.backend.clear_session()
        other = models.dense()
        other.compile("adagrad", "mse")
        if form == "weights":
            other.load_weights(path)
        else:
            tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(path).expect_partial()
    else:
        of_h5 = (
            models.KERAS == 3 and form == "h5"
        )  # which does not load what it was compiled with: "mse" is no name there
        other = keras.models.load_model(path, compile=not of_h5)
        if form != "tf" and not of_h5:  # of which Keras 2 does not load a new optimizer's state
            assert int(other.optimizer.iterations) == 6
    np.testing.assert_array_equal(other.predict(x, verbose=0), expected)


def test_fit_goes_on_from_a_loaded_model(trained, tmp_path):
    model, _ = trained(steps=6)
    model.save(str(tmp_path / "m.keras"))
    one = keras.models.load_model(str(tmp_path / "m.keras"))
    one.fit(models.dataset(models.dense, 3), verbose=0)
    assert int(one.optimizer.iterations) == 9
    assert int(model.optimizer.iterations) == 6, "another model, on the same PS"
    model.fit(models.dataset(models.dense, 3), verbose=0)
    for a, b in zip(one.get_weights(), model.get_weights()):
        np.testing.assert_array_equal(a, b)


def test_weights_that_are_loaded_after_training_count(trained, tmp_path):
    model, _ = trained(steps=2)
    model.save_weights(str(tmp_path / "w.weights.h5"))
    kept = model.get_weights()
    model.fit(models.dataset(models.dense, 4), verbose=0)
    model.load_weights(str(tmp_path / "w.weights.h5"))
    x, _ = models.records(models.dense, 1)
    predicted = model.predict(x, verbose=0)
    other = models.dense()
    other.set_weights(kept)
    np.testing.assert_array_equal(other(x).numpy(), predicted)


def test_a_second_compile_begins_with_the_weights_as_they_are(trained):
    model, door = trained(steps=6)
    before = model.get_weights()
    model.compile(keras.optimizers.SGD(0.0), "mse")
    model.fit(models.dataset(models.dense, 3), verbose=0)
    for one, other in zip(before, model.get_weights()):
        np.testing.assert_array_equal(one, other)
    assert int(model.optimizer.iterations) == 3
    with door.steps.graph.as_default():
        assert int(door._session.run([door.steps.step.read_value()], {})[0]) == 9, "the job's steps"


def test_a_value_that_is_on_ps_that_this_process_has_left_is_no_other_value(trained):
    model, door = trained()
    door.close()
    with pytest.raises(RuntimeError, match="is on parameter servers"):
        model.get_weights()


def added(variable):
    """A function that adds to a variable, as one of the script's own: of Keras 3's variables, too."""

    @tf.function
    def add(number):
        variable.assign(tf.convert_to_tensor(variable) + number)

    return add


def test_a_function_of_the_scripts_own_reads_and_writes_what_is_on_the_ps(trained):
    model, _ = trained()
    bias, (x, _) = model.layers[-1].bias, models.records(models.dense, 1)
    read, add = tf.function(lambda: tf.convert_to_tensor(bias) + 0.0), added(bias)
    first = read().numpy()
    np.testing.assert_array_equal(first, model.get_weights()[-1])
    model.fit(models.dataset(models.dense, 2), verbose=0)
    later = read().numpy()
    assert later != first
    before = model.predict(x, verbose=0)
    tf.function(lambda: add(1.0))()
    add(2.0)
    np.testing.assert_allclose(read(), later + 3.0, rtol=1e-6)
    np.testing.assert_allclose(model.predict(x, verbose=0), before + 3.0, rtol=1e-4, atol=1e-5)


def test_a_function_that_was_traced_before_the_model_has_trained_writes_it_too(elastic):
    elastic()
    model, (x, _) = models.dense(), models.records(models.dense, 1)
    model.compile(keras.optimizers.SGD(0.01), "mse")
    add, rate = added(model.layers[-1].bias), added(model.optimizer.learning_rate)
    add(tf.constant(0.0))
    rate(tf.constant(0.0))
    model.fit(models.dataset(models.dense, 2), verbose=0)
    before = model.predict(x, verbose=0)
    add(tf.constant(1.0))
    np.testing.assert_allclose(model.predict(x, verbose=0), before + 1.0, rtol=1e-4, atol=1e-5)
    kept = model.get_weights()
    rate(tf.constant(-0.01))
    model.fit(models.dataset(models.dense, 2), verbose=0)
    for one, other in zip(kept, model.get_weights()):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_what_a_function_of_a_worker_writes_is_left_out(elastic):
    told = []
    door = elastic(chief=False)
    door._discarded = told.append
    model, (x, _) = models.dense(), models.records(models.dense, 1)
    model.compile("adagrad", "mse")
    model.fit(models.dataset(models.dense, 2), verbose=0)
    before = model.predict(x, verbose=0)
    added(model.layers[-1].bias)(100.0)
    np.testing.assert_array_equal(model.predict(x, verbose=0), before)
    assert len(told) == 1
