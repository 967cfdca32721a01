"""`doctor` finds what is wrong, and says what to do."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

from deeprec_ext.cli import checks
from deeprec_ext.cli.main import main
from deeprec_ext.errors import UsageError
from deeprec_ext.gazer.cgroup import CgroupSample


def test_another_python_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    version = type("Version", (tuple,), {})((3, 12, 1))
    monkeypatch.setattr(checks, "sys", SimpleNamespace(version_info=version, version="3.12.1 (main)", executable="py"))
    found = checks.check_python()
    assert found.verdict == "fail" and "3.9 to 3.11" in found.remedy


@pytest.mark.parametrize(("installed", "verdict"), [(None, "fail"), ("2.16.1", "fail"), ("2.15.1", "ok")])
def test_tensorflow_has_to_be_there_and_of_2_15(monkeypatch, installed: str | None, verdict: str) -> None:
    monkeypatch.setattr(checks, "version", lambda package: installed)
    found = checks.check_tensorflow()
    assert found.verdict == verdict and bool(found.remedy) == (verdict == "fail")


def test_an_interpreter_of_scripts_without_tensorflow_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "resolve_command", lambda words: ["/other/python", *words[1:]])
    found = checks.check_script_python()
    assert found.verdict == "fail" and "/other/python has no tensorflow" in found.found


def test_a_script_that_cannot_be_started_is_one_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(words: list[str]) -> list[str]:
        raise UsageError("python: not found")

    monkeypatch.setattr(checks, "resolve_command", refuse)
    assert checks.check_script_python().verdict == "fail"


def test_little_memory_is_a_warning_with_what_a_job_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.Cgroup, "sample", lambda self: CgroupSample(memory_limit_bytes=1 << 30))
    found = checks.check_memory()
    assert found.verdict == "warn" and "1.1 GB" in found.found and "2 PS" in found.remedy


def test_ports_that_cannot_be_had_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("forbidden")

    monkeypatch.setattr(checks.socket, "create_server", refuse)
    found = checks.check_ports()
    assert found.verdict == "fail" and "forbidden" in found.found and "loopback" in found.remedy


def test_a_proxy_in_the_way_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert checks.check_proxy().verdict == "warn"
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")
    assert checks.check_proxy().verdict == "ok"


def test_one_failure_is_exit_1_and_warnings_are_not(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    good, odd, bad = (checks.Finding(name, name, "x", "y") for name in ("ok", "warn", "fail"))
    monkeypatch.setattr(checks, "ALL", (lambda: good, lambda: odd))
    assert main(["doctor", "--json"]) == 0
    assert [one["verdict"] for one in json.loads(capsys.readouterr().out)] == ["ok", "warn"]
    monkeypatch.setattr(checks, "ALL", (lambda: good, lambda: bad))
    assert main(["doctor"]) == 1
    assert "fail  fail: x\n      → y" in capsys.readouterr().out


def test_the_python_of_this_test_is_one_that_can_run_a_job() -> None:
    assert checks.check_python().verdict == "ok", sys.version
