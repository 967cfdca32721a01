"""`doctor` finds what is wrong, and says what to do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from deeprec_ext.cli import checks
from deeprec_ext.cli.main import main
from deeprec_ext.errors import UsageError
from deeprec_ext.gazer.cgroup import CgroupSample


@pytest.mark.parametrize("numbers", [(3, 8, 18), (3, 14, 0)])
def test_another_python_is_a_failure(monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, int, int]) -> None:
    version = type("Version", (tuple,), {})(numbers)
    monkeypatch.setattr(checks, "sys", SimpleNamespace(version_info=version, version="x (main)", executable="py"))
    found = checks.check_python()
    assert found.verdict == "fail" and "3.9 to 3.11" in found.remedy and "3.10 to 3.13" in found.remedy


@pytest.mark.parametrize(
    ("installed", "verdict"),
    [
        (None, "fail"), ("2.14.1", "fail"), ("2.15.1", "ok"), ("2.16.1", "ok"), ("2.21.0", "ok"), ("2.22.0rc1", "warn"),
        ("3.0", "warn"),
    ],
)  # fmt: skip
def test_tensorflow_has_to_be_there_and_one_that_was_tried(monkeypatch, installed: str | None, verdict: str) -> None:
    monkeypatch.setattr(checks, "version", lambda package: installed)
    found = checks.check_tensorflow()
    assert found.verdict == verdict and bool(found.remedy) == (verdict != "ok")
    assert ("no tf.estimator" in found.found) == (installed in ("2.16.1", "2.21.0"))


def test_what_is_tried_is_what_can_be_installed(root: Path) -> None:
    text = (root / "pyproject.toml").read_text()
    assert f'requires-python = ">=3.{checks.PYTHONS[0][1]},<3.{checks.PYTHONS[1][1] + 1}"' in text
    oldest, newest = checks.TENSORFLOWS
    assert f'"tensorflow>=2.{oldest[1]},<2.{oldest[1] + 1}"' in text
    assert f'"tensorflow>=2.{oldest[1] + 1},<2.{newest[1] + 1}"' in text


@pytest.mark.parametrize(
    ("code", "stdout", "stderr", "verdict", "said"),
    [
        (0, "\n", "", "ok", "all"),
        (0, "tensorflow.python.x.y\nSession._z\n", "", "fail", "tensorflow.python.x.y, Session._z"),
        (1, "", "Traceback\nImportError: broken\n", "fail", "ImportError: broken"),
    ],
)  # fmt: skip
def test_a_tensorflow_without_a_private_name_is_a_failure(monkeypatch, code, stdout, stderr, verdict, said) -> None:
    monkeypatch.setattr(checks, "version", lambda package: "2.15.1")
    monkeypatch.setattr(checks, "_python", lambda *_: SimpleNamespace(returncode=code, stdout=stdout, stderr=stderr))
    found = checks.check_private_names()
    assert found.verdict == verdict and said in found.found


@pytest.mark.parametrize(
    ("tensorflow", "protobuf", "wanted"),
    [
        ("2.15.1", "4.25.9", ""), ("2.15.1", "5.29.0", "<5"), ("2.17.0", "5.29.0", "<5"), ("2.18.1", "5.29.0", ""),
        ("2.19.1", "6.31.1", "<6"), ("2.20.0", "6.33.6", ""), ("2.20.0", "7.36.2", "<7"), ("2.21.0", "7.36.2", ""),
        (None, "7.36.2", ""),
    ],
)  # fmt: skip
def test_a_protobuf_that_is_too_new_for_tensorflow_is_a_warning(monkeypatch, tensorflow, protobuf, wanted) -> None:
    monkeypatch.setattr(checks, "_python", lambda *_: SimpleNamespace(returncode=0, stdout="", stderr=""))
    monkeypatch.setattr(checks, "version", {"tensorflow": tensorflow, "protobuf": protobuf}.get)
    found = checks.check_grpc()
    assert (found.verdict, f'"protobuf{wanted}"' in found.remedy) == (("warn", True) if wanted else ("ok", False))


@pytest.mark.parametrize("installed", [None, "2.15.1", "2.21.0"])
def test_an_estimator_script_is_told_where_tensorflow_has_none(
    monkeypatch, tmp_path: Path, installed: str | None
) -> None:
    monkeypatch.setattr(checks, "version", lambda package: installed)
    said = []
    for name, line in (("one.py", "tf.estimator.train_and_evaluate(a, b, c)"), ("two.py", "tf.compat.v1.Session()")):
        (tmp_path / name).write_text(f"import tensorflow as tf\n{line}\n")
        said.append(checks.without_estimator(["python", str(tmp_path / name)]))
    assert [bool(one) for one in said] == [installed == "2.21.0", False]
    assert installed != "2.21.0" or "ended with TensorFlow 2.15" in said[0]


def test_an_interpreter_of_scripts_without_tensorflow_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "resolve_command", lambda words: ["/other/python", *words[1:]])
    found = checks.check_script_python()
    assert found.verdict == "fail" and "/other/python has no tensorflow" in found.found


@pytest.mark.parametrize("check", ["private_names", "script_python", "grpc", "autoload"])
def test_a_python_that_is_slow_is_told_as_that(monkeypatch: pytest.MonkeyPatch, check: str) -> None:
    monkeypatch.setattr(checks, "version", lambda package: "2.15.1")
    monkeypatch.setattr(checks, "PYTHON_SECONDS", 1e-3)
    found = getattr(checks, f"check_{check}")()
    assert found.verdict == "warn" and "not looked at" in found.found and "again" in found.remedy


def test_a_script_that_cannot_be_started_is_one_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(words: list[str]) -> list[str]:
        raise UsageError("python: not found")

    monkeypatch.setattr(checks, "resolve_command", refuse)
    assert checks.check_script_python().verdict == "fail"


def test_little_memory_is_a_warning_with_what_a_job_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.Cgroup, "sample", lambda self: CgroupSample(memory_limit_bytes=1 << 30))
    monkeypatch.setattr(checks.Cgroup, "free_memory_bytes", lambda self: 1 << 30)
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
