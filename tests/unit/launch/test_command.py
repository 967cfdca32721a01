from __future__ import annotations

import pytest

from deeprec_ext.errors import UsageError
from deeprec_ext.launch.command import resolve_command, script_of
from deeprec_ext.layout import job_label, script_name


def test_a_script_that_exists_is_found_with_its_arguments(tmp_path):
    script = tmp_path / "train.py"
    script.touch()
    command = resolve_command(["python", str(script), "--steps", "3"])
    assert command[0].startswith("/")
    assert command[1:] == (str(script), "--steps", "3")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "nothing to run"),
        (["python"], "without a script"),
        (["python", "/nowhere/train.py"], "/nowhere/train.py: no such script"),
        (["no-such-program"], "no such program"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_starts(words, part):
    with pytest.raises(UsageError, match=part):
        resolve_command(words)


def test_a_script_without_python_is_told_to_use_it(tmp_path):
    script = tmp_path / "train.py"
    script.touch()
    with pytest.raises(UsageError, match="write: deeprec-ext run -- python"):
        resolve_command([str(script)])


def test_options_of_python_are_skipped():
    assert script_of(["python", "-u", "-W", "ignore", "train.py", "x.py"]) == "train.py"
    assert script_of(["python", "-m", "trainer.main"]) is None


def test_the_run_directory_is_named_after_the_script():
    assert job_label(["python", "examples/wide deep/train.py"]) == "train"
    assert job_label(["python", "-m", "trainer.main"]) == "main"
    assert job_label(["./run it"]) == "run-it"


def test_jobs_of_a_script_are_told_by_its_directory_and_name(tmp_path):
    """Many are called `train.py`."""
    examples = tmp_path / "examples"
    assert script_name(["python", "examples/deepfm/train.py", "--x"], tmp_path) == "deepfm/train.py"
    assert script_name(["python", "train.py"], examples / "deepfm") == "deepfm/train.py"
    assert script_name(["python", "../census/train.py"], examples / "deepfm") == "census/train.py"
    assert (
        script_name(["python", "/app/train.py"]) == "app/train.py" and script_name(["python", "train.py"]) == "train.py"
    )
    assert script_name(["python", "-m", "trainer.main"], tmp_path) == "trainer.main"
    assert script_name(["./run it"], tmp_path) == "run it" and script_name(["python", "-c", "1"], tmp_path) == "python"
    assert len(script_name(["python", 300 * "x" + "\udcff.py"])) <= 200
