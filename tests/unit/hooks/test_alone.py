"""Eager loops that train in each process of a job without PS alone."""

from __future__ import annotations

import pytest
import tensorflow as tf

from deeprec_ext import env
from deeprec_ext.hooks import alone
from deeprec_ext.hooks.alone import PATIENCE_SECONDS, REASON, STEPS, Watch


class Loop:
    """A script's own, whose process is looked at by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(env, "is_elastic_process", lambda: True)
        monkeypatch.setattr(alone, "LOOK_SECONDS", 3600.0)
        self.now, self.sums, self.refused = 0.0, False, []
        self.watch = Watch(lambda: self.sums, self.refused.append, lambda: self.now)
        self.weight = tf.Variable([1.0, 2.0])
        self.optimizer = tf.keras.optimizers.SGD(0.1)
        self.optimizer.build([self.weight])
        self.step = tf.function(self._step)

    def _step(self) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(self.weight**2)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, [self.weight]), [self.weight]))

    def trains(self, seconds: float) -> None:
        for _ in range(STEPS):
            self.step()
        self.watch.applies(self.optimizer)  # as the wrapped method says while it is traced
        self.now += seconds
        self.watch.look()


def test_a_loop_in_a_function_that_goes_on_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(monkeypatch)
    loop.trains(1.0)
    loop.trains(PATIENCE_SECONDS + 1)
    assert not loop.refused, "it is told first"
    loop.trains(PATIENCE_SECONDS + 1)
    assert loop.refused == [REASON] and loop.watch.over


def test_what_trains_a_little_before_it_sums_may_do_so(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(monkeypatch)
    loop.trains(1.0)
    loop.trains(PATIENCE_SECONDS + 1)
    for _ in range(5):  # it does something else now
        loop.now += PATIENCE_SECONDS
        loop.watch.look()
    assert not loop.refused
    loop.sums = True
    loop.trains(PATIENCE_SECONDS)
    assert not loop.refused and loop.watch.over
