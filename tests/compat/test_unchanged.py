"""Scripts that nobody wrote for this project run unchanged, while PS and workers come and go and some are killed."""

from __future__ import annotations

import ast

import pytest

from tests.compat.unchanged import (
    ALL,
    ESTIMATOR,
    FLAGS,
    SCRIPTS,
    Script,
    accuracy_in,
    check,
    counted_in,
    disturb,
    prepared,
    run_stock,
)  # fmt: skip

IN_EVERY_RUN = ("custom_model_fn" if ESTIMATOR else "old_style",)
"""In CI, which also goes on with stock TensorFlow from their checkpoints; all of them with `make compat`."""


def marks(script: Script, long: bool) -> list[pytest.MarkDecorator]:
    return [*([pytest.mark.long] if long else []), pytest.mark.skipif(bool(script.lacks), reason=script.lacks)]


ALONE = [pytest.param(script, id=script.name, marks=marks(script, True)) for script in ALL]
EACH = [pytest.param(script, id=script.name, marks=marks(script, script.name not in IN_EVERY_RUN)) for script in ALL]


def test_no_script_knows_of_this_project():
    paths = sorted(SCRIPTS.glob("*.py"))
    assert {script.name for script in ALL} < {path.stem for path in paths}
    for path in paths:
        text = path.read_text()
        assert "deeprec" not in text.lower(), path
        assert "elastic" not in text.lower(), path
        imported = {name.name.split(".")[0] for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import)
                    for name in node.names}  # fmt: skip
        assert "tensorflow" in imported and "tests" not in imported, path


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("script", ALONE)
def test_it_runs_with_stock_tensorflow_in_one_process(tmp_path, script):
    told = run_stock(script, tmp_path / "model", 400, *prepared(script, tmp_path))
    assert counted_in(told) == 400
    assert accuracy_in(told) > script.guess
    assert (tmp_path / "model" / "model.ckpt-400.index").is_file()


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("script", EACH)
def test_it_trains_on_while_ps_and_workers_change_and_are_killed(begin, tmp_path, script):
    more = prepared(script, tmp_path)
    slow = tmp_path / "slow"
    slow.touch()  # a step takes its time while this is there, so that the training does not end before the changes
    job = begin(*FLAGS, command=script.command(tmp_path / "run0" / "model", script.steps, *more, slow_while=slow))
    disturbed = disturb(job)
    slow.unlink()
    assert job.end(600) == 0, job.output
    check(script, job, script.steps, disturbed)
