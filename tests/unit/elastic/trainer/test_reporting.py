"""What a trainer tells of its variables."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from deeprec_ext.elastic.agent.declaring import Declaring
from deeprec_ext.elastic.trainer.reporting import Reporter
from deeprec_ext.graph import build_catalogue, catalogue

v1 = tf.compat.v1


def adam():
    """The catalogue of a table of 0.3 MB, as Adam trains it."""
    with tf.Graph().as_default() as graph, v1.device("/job:ps/task:0"):
        table = v1.get_variable("table", [10_000, 8], use_resource=True)
        loss = tf.reduce_sum(v1.nn.embedding_lookup(table, v1.placeholder(tf.int64, [None])))
        step = v1.train.AdamOptimizer(0.1).minimize(loss)
    return build_catalogue(graph.as_graph_def(), [step.name])


@pytest.mark.parametrize("large", [True, False])
def test_an_optimizer_that_writes_large_tables_whole_is_told_with_the_setting_once(monkeypatch, large):
    monkeypatch.setattr(catalogue, "SLOW_TABLE_BYTES", 900_000 if large else 1_000_000)  # of three copies
    found, told = adam(), []
    session = SimpleNamespace(catalogue=lambda: found, batch_size=lambda: 8, reports=list)
    agent = SimpleNamespace(send=lambda message: None)
    reporter = Reporter(
        agent,
        SimpleNamespace(),
        Declaring(agent.send, lambda: 1),
        lambda seconds: None,
        lambda *words: told.append(words),
    )
    for _ in range(2):
        reporter.variables([session])
    assert len(told) == large
    for text, remedy in told:
        assert "table" in text and text.endswith("1.0 MB are copied while training pauses")
        assert remedy.startswith("Use a lazy Adam or Adagrad, or run with --setting lazy=on")
