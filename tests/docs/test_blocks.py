"""Every block of Python in the documents runs: outside of a job, as stock training, with stand-ins for what is the reader's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.reading import ROOT, blocks, name, pages

FOUND = [
    (f"{name(page)}, block {number}", block) for page in pages() for number, block in enumerate(blocks(page, "python"))
]


class Reader:
    """What a reader's script has: a model, its input, and how a line becomes features."""

    def __init__(self, tf: Any) -> None:
        self.trained: list[Any] = []
        self.names = {
            "tf": tf, "parse": lambda lines: {"line": lines}, "estimator": object(), "eval_spec": object(),
            "input_fn": lambda: tf.data.Dataset.range(8).batch(4),
        }  # fmt: skip

    def train_and_evaluate(self, *arguments: Any) -> None:
        self.trained.append(arguments)


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    tf = pytest.importorskip("tensorflow")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "part-0.csv").write_text("".join(f"1,{number}\n" for number in range(300)))
    monkeypatch.chdir(tmp_path)
    found = Reader(tf)
    monkeypatch.setattr(tf.estimator, "train_and_evaluate", found.train_and_evaluate)
    return found


@pytest.mark.parametrize("block", [block for _, block in FOUND], ids=[where for where, _ in FOUND])
def test_every_block_of_python_runs(reader: Reader, block: str):
    space = dict(reader.names)
    exec(compile(block, "<document>", "exec"), space)
    if "train_and_evaluate(" in block:
        ((estimator, train, evaluate),) = reader.trained
        assert (estimator, train, evaluate) == (space["estimator"], space["train"], space["eval_spec"])
        assert train.hooks
    elif "elastic_dataset(" in block:
        dataset = space["dataset"] if "dataset" in space else space["input_fn"]()
        records = sum(len(batch["line"]) for batch in dataset.as_numpy_iterator())
        assert records == 3 * 300


@pytest.mark.timeout(300)
def test_the_readme_s_first_example_is_a_whole_script_of_plain_keras(tmp_path: Path):
    pytest.importorskip("tensorflow")
    script = tmp_path / "train.py"
    script.write_text(blocks(ROOT / "README.md", "python")[0])
    assert "deeprec" not in script.read_text()
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("TF_CONFIG", "DEEPREC_", "PYTHON"))
    }
    done = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, env={**kept, "TF_CPP_MIN_LOG_LEVEL": "2"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert "Epoch 3/3" in done.stdout and (tmp_path / "clicks.keras").is_file()


def test_there_are_blocks_of_python():
    assert len(FOUND) > 4
