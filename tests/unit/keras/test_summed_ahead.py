"""A step without PS whose gradients are summed as they become ready: the same step, and the same weights everywhere."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.allreduce import given as givens
from deeprec_ext.allreduce.ring import Ring
from deeprec_ext.keras.in_step.home import Model
from deeprec_ext.keras.in_step.model import InStep
from tests.unit.allreduce.members import DEADLINE, Coordinator, all_of, call
from tests.unit.elastic.member.ringed import announce, closed, ringed
from tests.unit.keras import models

keras = tf.keras
SPEC = (tf.TensorSpec((None, 20)), tf.TensorSpec((None, 1)))


class Broken(keras.layers.Layer):
    """Its gradient cannot be computed, once somebody says so."""

    fails = False

    def call(self, x):
        @tf.custom_gradient
        def same(x):
            def gradient(above):
                return tf.ensure_shape(tf.numpy_function(self.passed, [above], tf.float32), above.shape)

            return tf.identity(x), gradient

        return same(x)

    def passed(self, above):
        if self.fails:
            raise RuntimeError("no more memory")
        return above


def build(broken=False):
    L = keras.layers
    hidden = [L.Dense(64, activation="relu") for _ in range(3)]
    inside = [hidden[0], L.BatchNormalization(), *hidden[1:], L.Dense(1)]
    if broken:
        inside.insert(1, Broken())
    model = keras.Sequential([L.Input((20,)), *inside])
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
    return model


@pytest.fixture
def process(monkeypatch):
    """Makes the doors of two processes, in buckets of so many bytes."""
    coordinator, members = Coordinator(), []

    def make(bucket_bytes, broken=False, worker_batch_max=0):
        monkeypatch.setattr(givens, "BUCKET_BYTES", bucket_bytes)
        made = []
        for index in range(2):
            model, home = build(broken), SimpleNamespace(state=Model(), chief=not index, refused=print)
            home.member = ringed(monkeypatch, coordinator, index, home.state)
            home.member.settings.worker_batch_max = worker_batch_max
            members.append(home.member)
            door = InStep(home, models.generation, SimpleNamespace(look=lambda *one: None))
            made.append((door, door.prepare(model, "train", SPEC, None), model))
        announce(coordinator, members[-2:])
        all_of([door.enter for door, _, _ in made])
        return made

    yield make
    closed(coordinator, members)


def batch(seed, rows=8):
    chance = np.random.default_rng(seed)
    return [chance.normal(size=(rows, 20)).astype("float32"), chance.normal(size=(rows, 1)).astype("float32")]


def trained(two, steps):
    def run(place):
        door, prepared, _ = two[place]
        for step in range(steps):
            door.records = 8 + 8 * place
            door.run(prepared, batch((place, step), 8 + 8 * place), train=True)
            assert door.summed.counted and door.summed.weight == 24

    all_of([lambda: run(0), lambda: run(1)])
    weights = [model.get_weights() for _, _, model in two]
    for one, other in zip(*weights):
        np.testing.assert_array_equal(one, other)
    return weights[0]


def test_in_buckets_all_have_the_same_weights_and_those_that_one_sum_would_give(process, monkeypatch):
    rounds, ring_sum = [], Ring.sum

    def counted(self, buffer, **words):
        rounds.append(buffer.size)
        ring_sum(self, buffer, **words)

    monkeypatch.setattr(Ring, "sum", counted)
    whole = process(1 << 20)
    first = whole[0][2].get_weights()
    expected = trained(whole, 5)
    assert {len(door.course.starts) for door, _, _ in whole} == {1}
    cut = process(6000)
    for _, _, model in cut:
        model.set_weights(first)
    rounds.clear()
    found = trained(cut, 5)
    starts = cut[0][0].course.starts
    assert starts == cut[1][0].course.starts and len(starts) == 3
    assert sum(size > 4 + 2 for size in rounds) == 3 * 5 * 2, rounds
    assert not any(np.array_equal(one, other) for one, other in zip(first, found) if one.size > 64)
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_who_has_no_batch_sums_in_buckets_too(process):
    two = process(6000)
    a, b = two

    def alone():
        a[0].records = 8
        a[0].run(a[1], batch(1), train=True)

    for _ in range(3):
        all_of([alone, b[0].idle])
    for one, other in zip(a[2].get_weights(), b[2].get_weights()):
        np.testing.assert_array_equal(one, other)
    assert int(b[2].optimizer.iterations.numpy()) == 3


def test_a_step_that_fails_after_its_first_bucket_is_this_processs_own_affair(process):
    """The others are not left waiting for the rest of it, and the next step counts again."""
    two = process(6000, broken=True)
    trained(two, 2)
    (a, prepared_a, _), (b, prepared_b, model) = two
    a.records = b.records = 8
    (layer,) = (one for one in model.layers if isinstance(one, Broken))
    layer.fails = True
    other = call(lambda: a.run(prepared_a, batch(3), train=True))
    with pytest.raises(tf.errors.OpError, match="no more memory"):
        b.run(prepared_b, batch(4), train=True)
    assert b._given is None and not b._home.member._ahead.busy
    layer.fails = False
    coordinator = a._home.member._summing._generations._from
    announce(coordinator, [a._home.member, b._home.member])
    b.run(prepared_b, batch(4), train=True)
    other.join(DEADLINE)
    assert not other.is_alive() and a.summed.weight == b.summed.weight == 16
    for one, another in zip(two[0][2].get_weights(), model.get_weights()):
        np.testing.assert_array_equal(one, another)


def test_what_is_collected_is_summed_in_buckets_with_the_last_part(process):
    two = process(6000, worker_batch_max=4)

    def run(place):
        door, prepared, _ = two[place]
        for part in range(3):
            door.records, door.collects = 4, part < 2
            door.run(prepared, batch((place, part), 4), train=True)
            assert not door._home.member._ahead.busy
        assert door.summed.weight == 24 and door.summed.counted

    all_of([lambda: run(0), lambda: run(1)])
    for one, other in zip(two[0][2].get_weights(), two[1][2].get_weights()):
        np.testing.assert_array_equal(one, other)
