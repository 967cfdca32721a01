"""`run --dashboard`: whatever stands in the way of the web page is said before anything starts."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from deeprec_ext.aimaster.core import extras
from deeprec_ext.cli.main import main
from deeprec_ext.launch.job import describe
from deeprec_ext.launch.limits import Limits
from deeprec_ext.launch.plan import RunPlan, aimaster_command
from deeprec_ext.rundir import RunDirectory

RUN = ["--", "python", "train.py"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('hi')\n")


def refused(words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> str:
    """The one line that is said; nothing else happens."""
    before = sorted(tmp_path.iterdir())
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and captured.out == "" and sorted(tmp_path.iterdir()) == before
    return captured.err


def test_a_busy_port_is_a_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        assert f"--dashboard {port}: already in use" in refused(["run", "--dashboard", port, *RUN], capsys, tmp_path)


def test_a_port_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "1 to 65535" in refused(["run", "--dashboard", "70000", *RUN], capsys, tmp_path)


def test_missing_libraries_are_named_with_the_extra(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(extras.EXTRAS, "dashboard", ("no_such_library", "starlette"))
    line = refused(["run", "--dashboard", "0", *RUN], capsys, tmp_path)
    assert "no_such_library not installed" in line and "pip install 'deeprec-ext[dashboard]'" in line


def test_a_dry_run_shows_the_port(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--dry-run", "--json", "--dashboard", "0", *RUN]) == 0
    assert json.loads(capsys.readouterr().out)["dashboard_port"] == 0


def test_the_aimaster_is_told_where_to_serve_and_job_json_says_it(tmp_path: Path) -> None:
    limits = Limits(ps=1, workers=0, slots=8, min_ps=1, max_ps=4, min_workers=0, max_workers=4, evaluator=False)
    plan = RunPlan("j", ("python", "train.py"), limits, RunDirectory(tmp_path), dashboard_port=8080)
    command = aimaster_command(plan, "127.0.0.1:1", "127.0.0.1:2", http="127.0.0.1:8080")
    assert command.argv[command.argv.index("--http") + 1] == "127.0.0.1:8080"
    assert "--http" not in aimaster_command(plan, "127.0.0.1:1", "127.0.0.1:2").argv
    assert describe(plan, "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:8080")["dashboard"] == "http://127.0.0.1:8080/"
    assert describe(plan, "127.0.0.1:1", "127.0.0.1:2", None)["dashboard"] == ""
