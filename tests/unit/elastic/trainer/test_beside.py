"""An Estimator without a model directory gets one that all processes share; what would go on unseen is told."""

from __future__ import annotations

import tempfile
from types import SimpleNamespace

import pytest

from deeprec_ext.elastic.runtime.model_directory import share_model_directory
from deeprec_ext.elastic.trainer import process
from deeprec_ext.elastic.trainer.beside import keras3_imported
from deeprec_ext.elastic.trainer.noticing import Noticing
from deeprec_ext.errors import RefusedError


@pytest.fixture
def sent():
    return []


@pytest.fixture
def complete(sent):
    """TensorFlow's function, as patched; returns the directory it was given."""
    module = SimpleNamespace(
        maybe_overwrite_model_dir_and_session_config=lambda config, model_dir: model_dir or getattr(config, "model_dir", None),
        run_config=SimpleNamespace(RunConfig=lambda: SimpleNamespace(model_dir=None)),
    )  # fmt: skip
    share_model_directory(module, Noticing(sent.append))
    return module.maybe_overwrite_model_dir_and_session_config


@pytest.fixture(autouse=True)
def run(monkeypatch):
    monkeypatch.setenv("DEEPREC_EXT_WORKDIR", "/runs/mine")


def test_each_estimator_has_one_of_its_own_below_the_run_directory(complete, sent):
    assert complete(None, None) == "/runs/mine/model"
    assert complete(SimpleNamespace(model_dir=None), None) == "/runs/mine/model-2"
    [message] = sent
    assert message.notice.mended and "/runs/mine/model" in message.notice.text


def test_what_the_script_says_counts(complete, sent, tmp_path):
    assert complete(None, str(tmp_path)) == str(tmp_path)
    assert complete(SimpleNamespace(model_dir="/models/a"), None) == "/models/a"
    assert complete(None, None) == "/runs/mine/model", "the first that has none"
    assert [message.notice.mended for message in sent] == [True]


def test_in_a_pod_nothing_is_shared(complete, sent, monkeypatch):
    monkeypatch.delenv("DEEPREC_EXT_WORKDIR")
    assert complete(None, None) is None
    assert [(message.notice.mended, "model_dir=" in message.notice.remedy) for message in sent] == [(False, True)]


def test_a_temporary_directory_of_one_process_is_told(complete, sent):
    directory = tempfile.mkdtemp()
    assert complete(None, directory) == directory
    assert [(message.notice.code, message.notice.mended) for message in sent] == [("model-dir", False)]
    assert directory not in sent[0].notice.text, "the same of all processes"


def test_what_was_said_is_said_again_after_a_registration(sent):
    noticing = Noticing(sent.append)
    noticing.say("a", "text", "remedy")
    noticing.say("a", "text", "remedy")
    assert len(sent) == 1
    noticing.again()
    assert [message.notice.code for message in sent] == ["a", "a"]


def test_fit_of_keras_on_another_backend_is_refused_by_name_and_an_evaluators_is_not(monkeypatch):
    reasons = []
    for role in ("evaluator", "chief"):
        backend = SimpleNamespace(backend=lambda: "jax")
        module = SimpleNamespace(Model=type("Model", (), {"fit": lambda self: "history"}), backend=backend)
        trainer = SimpleNamespace(identity=SimpleNamespace(role=role), refused=reasons.append)
        monkeypatch.setattr(process, "trainer", lambda trainer=trainer: trainer)
        keras3_imported(module)
        if role == "evaluator":
            assert module.Model().fit() == "history"
            continue
        with pytest.raises(RefusedError, match=r"Keras runs on jax here.*KERAS_BACKEND=tensorflow"):
            module.Model().fit()
    assert len(reasons) == 1
