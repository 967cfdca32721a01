"""The examples in plain Keras run unchanged through the course, and stock Keras loads what they have saved."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

import pytest

from tests.behaviour.jobs import ROOT
from tests.compat.unchanged import ESTIMATOR, FLAGS, SCRIPTS, disturb, stock

pytestmark = pytest.mark.usefixtures("own_keras")

EXAMPLES = ROOT / "examples"
LOADS = """
import importlib.util, os, sys
import numpy as np
spec = importlib.util.spec_from_file_location("train", sys.argv[1])
train = importlib.util.module_from_spec(spec)
spec.loader.exec_module(train)
keras = train.keras
if sys.argv[2].endswith(".keras"):
    model = keras.models.load_model(sys.argv[2])
else:
    model = train.Ratings()
    model(train.make_batch(0, 0)[0])
    model.load_weights(sys.argv[2])
assert not any(name.startswith("deeprec_ext") for name in sys.modules), "this is not stock Keras"
assert all(np.isfinite(value).all() for value in model.get_weights())
if hasattr(train, "make_digits"):
    model.compile(loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    results = model.evaluate(*train.make_digits(2000, 1), return_dict=True, verbose=0)
elif hasattr(train, "written"):
    test = train.written(os.path.dirname(sys.argv[2]), train.TEST_RECORDS, 0)
    results = model.evaluate(train.batches(test), return_dict=True, verbose=0)
else:
    if not sys.argv[2].endswith(".keras"):
        model.compile()
    results = model.evaluate(train.batches(0, 50), return_dict=True, verbose=0)
print("Keras", sys.modules[keras.Model.__module__.partition(".")[0]].__version__)
print("loaded " + ", ".join(f"{name} {value:.4f}" for name, value in sorted(results.items())))
"""


@dataclass(frozen=True)
class Example:
    """One of `examples/`: what it saves, its figure, and what that has to be better than."""

    name: str
    saved: str
    figure: str
    bound: float
    words: tuple[str, ...] = ()
    less: bool = False
    """The figure is an error."""

    def good(self, value: float) -> bool:
        return value < self.bound if self.less else value > self.bound


ALL = (
    Example("keras_deepfm", "deepfm.keras", "auc", 0.74),
    Example("keras_own_step", "own_step.weights.h5", "rmse", 0.8, less=True),
    Example("keras_xdeepfm", "xdeepfm.keras", "auc", 0.74),
    Example("keras_dcn_v2", "dcn.keras", "auc", 0.74),
    Example("keras_two_tower", "two_tower.keras", "top_10", 0.3),
    Example("keras_mnist_cnn", "mnist_cnn.keras", "accuracy", 0.9),
    Example("keras_wide_deep", "wide_deep.keras", "auc", 0.7),
    Example("keras_census", "census.keras", "auc", 0.88, words=("--epochs", "5")),
)
IN_EVERY_RUN = () if ESTIMATOR else ("keras_census",)
"""In CI, on the newest TensorFlow; all of them on both with `make compat` and `make compat-latest`."""

EACH = [pytest.param(one, id=one.name, marks=[] if one.name in IN_EVERY_RUN else [pytest.mark.long]) for one in ALL]


def figure_in(text: str, begin: str, name: str) -> float:
    [line] = re.findall(rf"^{begin} (.*)$", text, re.MULTILINE)
    return float(re.findall(rf"\b{name} ([0-9.]+)", line)[0])


def test_no_example_in_plain_keras_imports_this_project():
    assert {one.name for one in ALL} == {
        path.name for path in EXAMPLES.glob("keras_*") if path.name != "keras_to_estimator"
    }
    for one in ALL:
        tree = ast.parse((EXAMPLES / one.name / "train.py").read_text())
        imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
        imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not any("deeprec" in name for name in imported), one.name


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("example", EACH)
def test_it_trains_on_while_ps_and_workers_change_and_are_killed(begin, tmp_path, example):
    slow = tmp_path / "slow"
    slow.touch()
    script = str(EXAMPLES / example.name / "train.py")
    job = begin(*FLAGS, command=("python", str(SCRIPTS.parent / "slowly.py"), str(slow), script, *example.words))
    disturbed = disturb(job)
    slow.unlink()
    assert job.end(600) == 0, job.output
    summary = job.summary()
    assert [f"{one['role']}-{one['id']}" for one in summary["failures"]] == [disturbed.ps, "worker-1"], summary[
        "failures"
    ]
    assert summary["failures"][0]["recovered_by"] == "promotion", summary["failures"]
    assert {one["outcome"] for one in summary["scaling"]} == {"committed"}, summary["scaling"]
    assert "by itself" not in job.log("chief-0") and summary["data"]["lost"] == 0, "its records are divided"
    value = figure_in(job.log("chief-0"), "test", example.figure)
    assert example.good(value)
    told = stock(("-c", LOADS, script, str(job.directory / example.saved)), tmp_path)
    again = figure_in(told, "loaded", example.figure)
    assert example.good(again), f"{value} in the job, {again} of what it has saved"
    [keras] = re.findall(r"^Keras (.*)$", told, re.MULTILINE)
    print(
        f"{example.name}, Keras {keras}: {example.figure} {value}, of what was saved {again}, {summary['steps']} steps"
    )
