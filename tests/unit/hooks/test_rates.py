"""Learning rates that follow the number of workers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.elastic.agent.rate import Rate
from deeprec_ext.hooks.rates import scaled

v1 = tf.compat.v1


def settings(kind: str, steps: int = 4, base: int = 1):
    return SimpleNamespace(rate_scaling=kind, rate_warmup_steps=steps, rate_base=base)


def test_it_comes_to_the_number_of_workers_in_its_steps_and_down_at_once():
    rate = Rate(follows=True)
    assert [rate.after(4, settings("linear")) for _ in range(5)] == [2.0, 3.0, 4.0, 4.0, 4.0]
    assert rate.after(2, settings("linear")) == 2.0
    assert rate.after(4, settings("root")) == 2.0


def test_it_stays_where_steps_have_as_many_records_or_nothing_was_said():
    assert Rate().after(4, settings("linear")) == 1.0
    assert Rate(follows=True).after(4, settings("none")) == Rate(follows=True).after(4, settings("")) == 1.0


def test_with_as_many_workers_as_the_rate_is_meant_for_it_is_the_script_s():
    assert Rate(follows=True).after(4, settings("linear", base=4)) == 1.0
    assert [Rate(follows=True).after(8, settings("linear", 1, base)) for base in (2, 16)] == [4.0, 0.5]


def test_who_comes_later_has_the_rate_of_the_others():
    one, other = Rate(follows=True), Rate(follows=True)
    one.after(4, settings("linear"))
    other.put(one.take())
    assert other.after(4, settings("linear")) == one.after(4, settings("linear")) == 3.0


@pytest.mark.parametrize("kind", [v1.train.GradientDescentOptimizer, v1.train.AdamOptimizer], ids=["sgd", "adam"])
def test_an_update_times_three_is_that_of_three_times_the_rate(kind):
    def trained(times: float, rate: float) -> list[np.ndarray]:
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.get_variable("x", initializer=np.array([1.0, -2.0], np.float32))
            optimizer = kind(0.1 * rate)
            pairs = optimizer.compute_gradients(tf.reduce_sum(x**2))
            step = scaled([x], tf.constant(np.float32(times)), lambda: optimizer.apply_gradients(pairs))
            session.run(v1.global_variables_initializer())
            values = []
            for _ in range(3):
                session.run(step)
                values.append(session.run(x))
            return values

    np.testing.assert_allclose(trained(3.0, 1.0), trained(1.0, 3.0), rtol=1e-5)
    np.testing.assert_array_equal(trained(1.0, 1.0)[0] != np.array([1.0, -2.0]), [True, True])


def test_within_a_function_keras_s_optimizers_too():
    def trained(times: float, rate: float) -> np.ndarray:
        x = tf.Variable([1.0, -2.0])
        optimizer = tf.keras.optimizers.Adam(0.1 * rate)
        optimizer.build([x])

        @tf.function
        def step() -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(x**2)
            gradients = tape.gradient(loss, [x])
            scaled([x], tf.constant(times), lambda: optimizer.apply_gradients(zip(gradients, [x])))

        for _ in range(3):
            step()
        return x.numpy()

    np.testing.assert_allclose(trained(3.0, 1.0), trained(1.0, 3.0), rtol=1e-5)
