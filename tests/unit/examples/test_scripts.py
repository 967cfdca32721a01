"""The examples run on stock TensorFlow alone, and learn something."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow


def train(root: Path, tmp_path: Path, *words: str) -> str:
    """Runs a script as a user does, without TF_CONFIG; its output."""
    ours = ("TF_CONFIG", "DEEPREC_EXT_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environment["PYTHONPATH"] = str(root)
    script = root / "examples" / words[0] / "train.py"
    command = [sys.executable, str(script), *words[1:], "--model-dir", str(tmp_path / "model")]
    result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def number(name: str, output: str) -> float:
    found = re.findall(rf"{name} (\d\.\d+)", output)
    assert found, output
    return float(found[-1])


def test_census_learns_the_planted_signal_and_says_so(root, tmp_path):
    output = train(root, tmp_path, "census_wide_deep", "--steps", "1000")
    assert "planted signal" in output
    assert number("auc", output) > 0.85


def test_census_reaches_its_auc_on_the_real_data(root, tmp_path, adult):
    assert number("auc", train(root, tmp_path, "census_wide_deep", "--data", str(adult), "--steps", "2000")) >= 0.90


def test_census_in_plain_keras_reaches_its_auc_on_the_real_data(root, tmp_path, adult):
    assert number("auc", train(root, tmp_path, "keras_census", "--data", str(adult), "--epochs", "2")) >= 0.90


def test_deepfm_learns_the_planted_signal(root, tmp_path):
    words = ("--steps", "400", "--rows-per-table", "1000", "--dim", "8", "--batch", "256")
    assert number("auc", train(root, tmp_path, "deepfm_criteo", *words)) > 0.6


def test_deepfm_with_its_tables_cut(root, tmp_path):
    words = ("--steps", "20", "--rows-per-table", "1000", "--dim", "4", "--parts", "3", "--batch", "64")
    assert "auc" in train(root, tmp_path, "deepfm_criteo", *words)


@pytest.mark.parametrize("variables", [(), ("--v1",)], ids=["resource", "reference"])
def test_the_monitored_session_learns(root, tmp_path, variables):
    assert number("accuracy", train(root, tmp_path, "monitored_session", "--steps", "1000", *variables)) > 0.75


def test_the_keras_model_learns(root, tmp_path):
    assert number("accuracy", train(root, tmp_path, "keras_to_estimator", "--steps", "1500")) > 0.7


def test_plain_keras_learns_and_saves(root, tmp_path):
    words = ("keras_wide_deep", "--epochs", "2", "--steps", "1000", "--seed", "1")
    assert number("auc", train(root, tmp_path, *words)) > 0.7
    assert (tmp_path / "model" / "wide_deep.keras").is_file()


@pytest.mark.parametrize(
    ("name", "words", "figure", "good", "saved"),
    [
        ("keras_deepfm", ("--epochs", "2", "--steps", "500"), "auc", lambda auc: auc > 0.68, "deepfm.keras"),
        ("keras_xdeepfm", ("--epochs", "2", "--steps", "500"), "auc", lambda auc: auc > 0.68, "xdeepfm.keras"),
        ("keras_dcn_v2", ("--epochs", "2", "--steps", "500"), "auc", lambda auc: auc > 0.68, "dcn.keras"),
        ("keras_two_tower", ("--epochs", "2", "--steps", "700"), "top_10", lambda share: share > 0.2, "two_tower.keras"),
        ("keras_mnist_cnn", ("--epochs", "2", "--steps", "100"), "accuracy", lambda share: share > 0.8, "mnist_cnn.keras"),
        ("keras_census", ("--epochs", "2", "--steps", "500"), "auc", lambda auc: auc > 0.88, "census.keras"),
        ("keras_own_step", ("--epochs", "2", "--steps", "500"), "rmse", lambda error: error < 0.75, "own_step.weights.h5"),
    ],
)  # fmt: skip
def test_keras_examples_learn_and_save(root, tmp_path, name, words, figure, good, saved):
    output = train(root, tmp_path, name, *words, "--seed", "1")
    assert good(number(rf"test.*\b{figure}", output)), output
    assert (tmp_path / "model" / saved).is_file()


def test_the_script_for_horovod_learns_alone(root, tmp_path):
    assert number("accuracy", train(root, tmp_path, "horovod_elastic", "--epochs", "6", "--steps", "240")) > 0.7
