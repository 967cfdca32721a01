"""`train`, `evaluate`, `predict` and `--dry-run` in one process, as `deeprec-ext … --local` runs them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from deeprec_ext.errors import UsageError
from deeprec_ext.modeldef import predicting
from deeprec_ext.modeldef.__main__ import main
from deeprec_ext.modeldef.predicting import SUMMARY, checked
from deeprec_ext.modeldef.predicting import lines as json_lines
from tests.unit.modeldef.conftest import WHOLE


@pytest.fixture
def run(written, zoo, lines, tmp_path, capfd):
    """`run("train", …)`: (exit code, what was printed); the module is WHOLE unless another text is given."""
    names: dict[str, str] = {}

    def go(command: str, *flags: str, text: str = WHOLE, data: str = "") -> tuple[int, str, str]:
        name = names[text] = names.get(text) or written(text)
        words = [command, "--model-def", f"{name}.custom_model", "--model-zoo", zoo, "--data", data or lines, *flags]
        code = main(words)
        said = capfd.readouterr()
        return code, said.out, said.err

    return go


@pytest.fixture
def trained(run, tmp_path) -> str:
    code, out, err = run("train", "--epochs", "30", "--batch-size", "10", "--output", str(tmp_path / "model"), "--json")
    assert code == 0, err
    assert json.loads(out.splitlines()[-1])["loss"] < 1e-3, "2 x is learned"
    return str(tmp_path / "model")


def test_what_is_trained_is_evaluated_and_predicts(run, trained, tmp_path):
    code, out, _ = run("evaluate", "--weights", trained, "--json")
    assert code == 0
    figures = json.loads(out)
    assert figures["error"] < 0.05 and figures["loss"] < 1e-2
    output = tmp_path / "out"
    code, out, _ = run(
        "predict", "--weights", trained, "--output", str(output), "--shard-records", "20", "--batch-size", "8"
    )
    assert code == 0 and "100 records are predicted" in out
    parts = sorted(path.name for path in output.glob("part-*"))
    assert parts == [
        f"part-{file:05d}-{first:012d}-{count:07d}.jsonl"
        for file in (0, 1)
        for first, count in ((0, 20), (20, 20), (40, 10))
    ]
    values = [json.loads(line) for part in parts for line in (output / part).read_text().splitlines()]
    np.testing.assert_allclose(values, [2 * one / 100 for one in range(100)], atol=0.06)
    assert json.loads((output / SUMMARY).read_text())["records"] == 100


def test_training_goes_on_from_weights(run, trained):
    code, out, _ = run("train", "--weights", trained, "--epochs", "1", "--json")
    assert code == 0 and json.loads(out.splitlines()[-1])["loss"] < 1e-3


def test_validation_is_after_each_epoch(run, lines):
    code, out, _ = run("train", "--epochs", "3", "--validation-data", f"{lines}/part-1.txt", "--json")
    assert code == 0
    assert out.count("val_loss") == 4 and out.count("val_error") == 4, "three epochs, and the last figures"
    assert [f"epoch {one}/3: loss " in out for one in (1, 2, 3)] == [True] * 3


def test_a_callback_sees_one_training(run):
    text = (
        WHOLE
        + """
    class Told(tf.keras.callbacks.Callback):
        def on_train_begin(self, logs=None): print("begins")
        def on_epoch_end(self, epoch, logs=None): print("has", epoch, self.model.optimizer.learning_rate.numpy().round(3))
        def on_train_end(self, logs=None): print("ends")

    def callbacks():
        from deeprec_ext.modeldef import LearningRateScheduler
        return [Told(), LearningRateScheduler(lambda step: 0.1 if step < 11 else 0.01)]
    """
    )
    code, out, _ = run("train", "--epochs", "2", "--batch-size", "10", text=text)
    assert code == 0
    told = [line for line in out.splitlines() if line.split(" ")[0] in ("begins", "has", "ends")]
    assert told == ["begins", "has 0 0.1", "has 1 0.01", "ends"]


def test_feed_that_loses_records_of_a_prediction_is_refused(run, trained, tmp_path):
    text = WHOLE.replace("return numbers if", "return numbers.filter(lambda one: one < 0.7) if")
    code, _, err = run("predict", "--weights", trained, "--output", str(tmp_path / "out"), text=text)
    assert code == 2 and "it must give each record once, in order" in err


def test_an_output_of_other_data_is_not_mixed_with_this(run, trained, tmp_path, lines):
    flags = ("--weights", trained, "--output", str(tmp_path / "out"))
    assert run("predict", *flags)[0] == 0
    assert run("predict", *flags)[0] == 0, "the same once more"
    code, _, err = run("predict", *flags, data=f"{lines}/part-0.txt")
    assert code == 2 and "give another directory" in err


def test_a_processor_gets_all_predictions_and_needs_no_files(run, trained):
    text = (
        WHOLE
        + """
    class PredictionOutputsProcessor:
        def process(self, predictions, worker_id):
            print("got", len(predictions.numpy()), worker_id)
    """
    )
    code, out, _ = run("predict", "--weights", trained, "--batch-size", "40", text=text)
    assert code == 0
    assert sum(int(line.split()[1]) for line in out.splitlines() if line.startswith("got")) == 100
    assert {line.split()[2] for line in out.splitlines() if line.startswith("got")} == {"0"}


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_without_weights_nothing_is_evaluated_or_predicted(run, command):
    code, _, err = run(command)
    assert code == 2 and f"{command}: --weights names what" in err


def test_parts_that_do_not_fit_together_are_noticed():
    names = ["part-00000-000000000000-0000020.jsonl", "part-00000-000000000020-0000005.jsonl", SUMMARY, ".part-0"]
    assert checked([*names, "part-00001-000000000000-0000003.jsonl"]) == 28
    with pytest.raises(UsageError, match="begins at record 20, and what is before it ends at 0"):
        checked(names[1:])
    with pytest.raises(UsageError, match="begins at record 10, and what is before it ends at 20"):
        checked([names[0], "part-00000-000000000010-0000020.jsonl"])


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (np.array([[0.5], [1.0]]), ["0.5", "1.0"]),
        (np.array([[1, 2], [3, 4]]), ["[1, 2]", "[3, 4]"]),
        ({"b": np.array([1, 2]), "a": np.array([[0.5], [0.25]])}, ['{"a": 0.5, "b": 1}', '{"a": 0.25, "b": 2}']),
        ([np.array([1, 2]), np.array([b"x", b"y"], object)], ['[1, "x"]', '[2, "y"]']),
    ],
    ids=["numbers", "rows", "names", "several"],
)
def test_a_record_s_prediction_is_a_line(outputs, expected):
    assert [json.loads(line) for line in json_lines(outputs)] == [json.loads(line) for line in expected]


def files_of(directory: Path) -> set[Path]:
    return {path for path in directory.rglob("*") if path.is_file() and path.suffix != ".pyc"}


def test_a_dry_run_finds_nothing_wrong_and_writes_nothing(run, tmp_path, lines):
    code, out, _ = run("train", "--check")
    assert code == 0, out
    assert "read as lines" in out and "a batch in mode training: loss" in out and "missing" not in out
    assert {path.suffix for path in files_of(tmp_path)} == {".py", ".txt"}


@pytest.mark.parametrize(
    ("change", "flags", "what"),
    [
        (("def loss", "def los"), (), "has no loss: write `def loss(labels, predictions)`"),
        (("def optimizer", "def optimize"), (), "has no optimizer"),
        (("2.0 * number)", "2.0 * nothing)"), (), "feed on"),
        (("(number, 2.0 * number)", "number"), (), "feed gives no labels in mode training"),
        (("tf.square(labels - predictions[:, 0])", "tf.math.log(-1.0) * predictions"), (), "is no finite number"),
        (("Dense(1,", "Dense(no_number,"), (), "the model function raised NameError"),
        ((), ("--validation-data", "nowhere-*"), "no file matches 'nowhere-*'"),
    ],
    ids=["loss", "optimizer", "feed", "labels", "infinite", "model", "validation"],
)  # fmt: skip
def test_a_dry_run_says_what_is_missing(run, change, flags, what):
    text = WHOLE.replace(*change) if change else WHOLE
    code, out, _ = run("train", "--check", "--json", *flags, text=text)
    assert code == 2
    missing = json.loads(out.splitlines()[-1])["missing"]
    assert any(what in line for line in missing), missing


def test_the_summary_of_predictions_is_claimed_before_the_first(tmp_path):
    predicting._claim(str(tmp_path / "new"), {"files": []}, True)
    assert json.loads((Path(tmp_path) / "new" / SUMMARY).read_text()) == {"files": [], "complete": False}
