"""When it is looked at whether what steps train is on the PS."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from deeprec_ext.elastic.agent.agent import Identity
from deeprec_ext.elastic.trainer.noticing import AGAIN_SECONDS, LOOK_SECONDS, Noticing
from deeprec_ext.elastic.trainer.trainer import Trainer
from deeprec_ext.graph import GraphIndex


class Slow:
    """A script whose steps take their time; `recurs`: its training loop has begun."""

    def __init__(self) -> None:
        self.now, self.recurs = 100.0, True
        self.sent: list[object] = []
        self.noticing = Noticing(self.sent.append, lambda: self.now)
        self.graph = tf.Graph()
        with self.graph.as_default():
            weights = tf.compat.v1.get_variable("weights", [4], use_resource=True)
            self.train = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(weights)).name

    def trains(self):
        return (GraphIndex(self.graph.as_graph_def()), {self.train}) if self.recurs else None

    def looks(self, steps: int) -> bool:
        due = self.noticing.due(steps)
        if due:
            self.noticing.look([SimpleNamespace(trains=self.trains, graph=self.graph)])
        return due


def test_fast_steps_are_looked_at_twice() -> None:
    script = Slow()
    looked = [steps for steps in range(200) if script.looks(steps) or script.looks(steps)]
    assert looked == [3, 50] and len(script.sent) == 1
    script.now += 1000
    assert not script.looks(200)


def test_slow_steps_are_looked_at_within_a_minute_of_the_first() -> None:
    script = Slow()
    assert not script.looks(0)
    script.now += 500  # until the first step, which compiles
    assert not script.looks(1)
    script.now += LOOK_SECONDS - 0.1
    assert not script.looks(1)
    script.now += 0.2
    assert script.looks(1) and [message.notice.code for message in script.sent] == ["no-variable-on-ps"]
    script.now += 1000
    assert not script.looks(2), "it has been looked at"
    assert script.looks(3) and script.looks(50)


def test_it_is_looked_at_again_until_there_is_a_training_loop_to_look_at() -> None:
    script = Slow()
    script.recurs = False
    script.looks(1)
    script.now += LOOK_SECONDS
    assert script.looks(1) and not script.looks(1) and not script.sent
    script.now += AGAIN_SECONDS
    script.recurs = True
    assert script.looks(1) and script.sent
    script.now += AGAIN_SECONDS
    assert not script.looks(2)


def test_a_trainer_looks_between_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPREC_EXT_ROLE", "chief")
    monkeypatch.setenv("DEEPREC_EXT_NAME", "chief-0")
    trainer = Trainer(Identity.of_this_process("127.0.0.1:1"), ("chief", 0), "grpc://127.0.0.1:1")
    now, looked = [100.0], []
    trainer.noticing = Noticing(lambda message: None, lambda: now[0])
    monkeypatch.setattr(trainer.noticing, "look", lambda sessions: looked.append(now[0]))
    monkeypatch.setattr(trainer._builder, "put", lambda job: job())
    trainer.beat()
    trainer.clock.completed(1)
    trainer.beat()
    now[0] += LOOK_SECONDS
    trainer.beat()
    assert looked == [100.0 + LOOK_SECONDS]
