"""`doctor` learns which private names a TensorFlow lacks, and all that are used are looked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from tensorflow.python.training import training_util

from deeprec_ext.tf_private import bare, missing

OF_EXECUTORS = {"_estimator", "_eval_spec", "_train_spec"}
"""Attributes of an executor of Estimator, which takes an Estimator to make; no later one will come."""


def test_this_tensorflow_has_all() -> None:
    assert missing.missing() == []


def test_what_has_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(training_util, "_get_or_create_global_step_read")
    monkeypatch.setitem(bare._SOURCES, "TensorShape", ("python.framework.moved", "TensorShape"))
    monkeypatch.setitem(missing._DEFINED, "tensorflow.python.gone", "anything")
    monkeypatch.setitem(missing._DEFINED, "no_such_package.python.module", "anything")
    monkeypatch.setitem(missing._KERAS, missing._generation_of_keras(), {"keras.src.moved": "Model"})
    made = [("Graph", missing.tf.Graph, "_c_graph _gone")]
    monkeypatch.setattr(missing, "_made", lambda: iter(made))
    assert missing.missing() == [
        "tensorflow.python.training.training_util._get_or_create_global_step_read", "tensorflow.python.gone",
        "keras.src.moved", "tensorflow.TensorShape", "Graph._gone",
    ]  # fmt: skip


def test_every_private_name_of_the_table_is_looked_for(root: Path) -> None:
    section = (
        (root / "docs/critiques.md").read_text().split("## Private parts of TensorFlow", 1)[1].split("\n## ", 1)[0]
    )
    rows = [row.split("|") for row in section.splitlines() if row.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(_\w+)`", row[2])} - OF_EXECUTORS
    looked_for = set(re.findall(r"\w+", Path(missing.__file__).read_text()))
    assert len(listed) > 30 and listed <= looked_for, listed - looked_for
