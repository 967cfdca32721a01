from __future__ import annotations

import pytest

from deeprec_ext.errors import UsageError
from deeprec_ext.launch.command import resolve_command, script_of
from deeprec_ext.layout import job_label


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
