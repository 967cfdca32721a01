"""Which variables lie on which slot: the same in every process, and an optimizer's state beside its weight."""

from __future__ import annotations

import pytest
import tensorflow as tf

from deeprec_ext.keras import ownership
from deeprec_ext.keras.optimizers import optimizers
from deeprec_ext.tf_private import keras_classes
from tests.unit.keras import models

keras, generation = tf.keras, models.generation
nothing = ownership.Known((), (), ())
READ, ADDED, SET = (ownership.Written(*words, False) for words in ((False, False), (True, False), (True, True)))


def built(make, optimizer):
    keras.backend.clear_session()
    model = make()
    model.compile(optimizer, "mse", metrics=["mae"])
    model.optimizer.build(model.trainable_variables)
    if models.KERAS == 3:  # as `fit` does
        model.optimizer.built = True
    return model


def placed(model, slots):
    made = ownership.Slots(slots)
    made.weights(generation.weights(model))
    made.state(generation.optimizer_variables(model), lambda one: ())
    return {
        ownership.plain_name(one): made.known(one)
        for one in (*generation.weights(model), *generation.optimizer_variables(model))
    }


def owner_of(name, weights):
    """Of `Adam/m/dense/kernel`, or Keras 3's `adam/dense_kernel_momentum`."""
    if not name.lower().startswith("adam/"):
        return ""
    words = name.split("/", 2)[2] if models.KERAS == 2 else name.split("/", 1)[1].rpartition("_")[0]
    return next(
        (
            one
            for one in weights
            if one
            in (
                words,
                words.replace("_kernel", "/kernel").replace("_bias", "/bias").replace("_embeddings", "/embeddings"),
            )
        ),
        "",
    )


def test_state_lies_beside_its_weight():
    found = placed(built(models.wide_deep, keras.optimizers.Adam()), 4)
    for name, slot in found.items():
        if owner := owner_of(name, found):
            assert slot == found[owner], name
    assert len({found[f"table_{number}/embeddings"] for number in range(3)}) == 3, "the large ones apart"


@pytest.mark.skipif(models.KERAS == 2, reason="optimizers of Keras 2 keep no lists")
@pytest.mark.parametrize("optimizer", ["adagrad", "ftrl", "adam", "rmsprop"])
def test_state_without_a_name_of_its_own_lies_beside_its_weight_too(optimizer):
    """Each accumulator of Adagrad is called `adagrad/accumulator` before Keras 3.10."""
    model = built(models.wide_deep, optimizer)
    found, pairs = placed(model, 4), list(keras_classes.kept_of(model.optimizer))
    assert len(pairs) >= len(model.trainable_variables)
    names = [ownership.plain_name(keras_classes.value(one)) for pair in pairs for one in pair]
    assert all(found[kept] == found[weight] for kept, weight in zip(names[::2], names[1::2])), found
    assert len(set(names[::2])) == len(pairs)


def test_processes_that_have_built_the_same_model_agree():
    assert placed(built(models.wide_deep, "adam"), 3) == placed(built(models.wide_deep, "adam"), 3)


def test_evaluating_first_changes_no_place():
    model = built(models.wide_deep, "adagrad")
    first = ownership.Slots(4)
    first.weights(generation.weights(model))
    whole = placed(model, 4)
    assert all(whole[ownership.plain_name(one)] == first.known(one) for one in generation.weights(model))


def test_metrics_are_no_weights():
    model = built(models.batch_norm, "sgd")
    names = [ownership.name(one) for one in generation.weights(model)]
    assert len(names) == 8 and not any("mean_absolute" in name or name.startswith("total") for name in names)
    metric = keras.metrics.AUC()
    variables = metric.variables if models.KERAS == 2 else [one.value for one in metric.variables]
    assert all(ownership.is_local(one, nothing, ADDED) for one in variables)


def test_a_process_owns_what_is_neither_a_weight_nor_an_optimizers():
    rate, table = tf.Variable(0.1, trainable=False), tf.Variable([[0.1]], trainable=False)
    assert all(ownership.is_local(one, nothing, written) for one in (rate, table) for written in (READ, ADDED, SET))
    own, number = tf.Variable([[0.1]]), tf.Variable(0.1)
    assert not ownership.is_local(own, nothing, ADDED), "trained, although the model does not list it"
    assert ownership.is_local(own, nothing, SET), "the state of a recurrent layer"
    assert not ownership.is_local(own, nothing, READ) and ownership.is_local(number, nothing, READ)


def test_a_learning_rate_is_the_processes_own_and_a_count_of_steps_is_not():
    rate, count = tf.Variable(0.1, trainable=False), tf.Variable(0, trainable=False)
    known = ownership.Known((), {ownership.key(rate), ownership.key(count)}, ())
    assert ownership.is_local(rate, known, READ) and not ownership.is_local(count, known, ADDED)


def test_a_frozen_weight_is_a_weight_and_a_random_generator_of_a_layer_is_none():
    frozen, generator = tf.Variable(0.1, trainable=False), tf.Variable([1, 2, 3], trainable=False)
    known = ownership.Known({ownership.key(frozen), ownership.key(generator)}, (), ())
    assert not ownership.is_local(frozen, known, READ)
    assert ownership.is_local(generator, known, ownership.Written(True, False, True))


def test_several_optimizers_of_a_model_are_found():
    class Gan(keras.Model):
        def compile(self, one, other):
            super().compile()
            self.one, self.others = one, {"more": [other]}

    model = Gan()
    model.compile(keras.optimizers.Adam(), keras.optimizers.SGD())
    assert len(optimizers(model)) == 3, "Keras gives each model one of its own"
