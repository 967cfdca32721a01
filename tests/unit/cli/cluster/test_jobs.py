"""`jobs` of a cluster: asked in the pod of the history service. Here the service is real, and what is run in its pod is run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deeprec_ext.cli.cluster import jobs
from deeprec_ext.cli.main import kubectl, main
from tests.unit.cli.cluster.server import Answer, Server, failure
from tests.unit.cli.cluster.server import pod as pod_of
from tests.unit.history.jobs import job
from tests.unit.history.serving import ROOT, Serving, serving
from tests.unit.tfjob_manifests.building import MANIFESTS, kustomized
from tfjob.model.kinds import PODS, Manifest

PROGRAM = [sys.executable, "-m", "deeprec_ext.cli.main"]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Serving]:
    with serving(f"sqlite:///{tmp_path}/history.db", tmp_path) as found:
        yield found


def pod(words: list[str], phase: str = "Running") -> Manifest:
    """As the manifests make it, with this command."""
    made = pod_of("deeprec-ext-history-5c7", phase, container="history")
    template = kustomized(MANIFESTS / "components" / "history")["Deployment", "deeprec-ext-history"]["spec"]["template"]
    made["metadata"]["labels"] = template["metadata"]["labels"]
    made["spec"]["containers"] = [{**template["spec"]["containers"][0], "command": words[:-4], "args": words[-4:]}]
    return made


def really(command: list[str]) -> Answer:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, timeout=60, env=environment)
    return Answer(
        [(1, done.stdout), (2, done.stderr)], failure(done.returncode) if done.returncode else {"status": "Success"}
    )


@pytest.fixture
def cluster(server: Server, service: Serving, tmp_path: Path) -> Server:
    """Two namespaces with jobs."""
    for namespace in ("team", "ads"):
        writer = service.writer(namespace, tmp_path / namespace)
        for number in range(3):
            writer.add(f"u{number}", job(number, name=f"{namespace}-{number}", script="train" if number else "rank"))
    where = ["--certs", str(service.certificates), "--listen", f"127.0.0.1:{service.port}"]
    server.api.put(PODS, pod([*PROGRAM, "history", *where]))
    server.script = really
    return server


def named(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert kubectl(["jobs", "--json", *words]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return [one["name"] for one in found["jobs"]]


def test_the_jobs_of_the_kubeconfigs_namespace_are_shown(cluster: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert kubectl(["jobs"]) == 0
    text = capsys.readouterr().out
    assert "team-2" in text and "2 changes, saved 15:00" in text and "3 jobs, 1.5 core-hours used" in text
    assert "ads-" not in text


def test_another_namespace_all_of_them_one_script_and_pages(
    cluster: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert named(capsys, "-n", "ads") == ["ads-2", "ads-1", "ads-0"]
    assert sorted(named(capsys, "-A")) == ["ads-0", "ads-1", "ads-2", "team-0", "team-1", "team-2"]
    assert named(capsys, "--script", "rank") == ["team-0"]
    assert main(["jobs", "-n", "ads", "--limit", "2"]) == 0
    place = capsys.readouterr().out.partition("--before ")[2].strip()
    assert named(capsys, "-n", "ads", "--before", place) == ["ads-0"]


def test_the_history_of_an_operator_in_the_namespace_of_the_jobs_is_found_and_missing_rights_are_named(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    made = pod(["deeprec-ext", "history", "--certs", "x", "--listen", "y"])
    made["metadata"]["namespace"] = "ads"
    server.api.put(PODS, made)
    server.script = lambda command: Answer([(1, b'{"jobs": [], "next": ""}')])
    assert kubectl(["jobs", "-n", "ads"]) == 0
    assert server.commands[0][-1] == "--namespace=ads"
    server.api.forbidden.add(("list", "pods"))
    assert kubectl(["jobs", "-n", "ads"]) == 2
    error = capsys.readouterr().err
    assert "verb list on pods" in error and "--installed-in" in error and error.count("\n") == 1


def test_what_it_refuses_and_its_exit_code_are_the_callers(cluster: Server, capfd: pytest.CaptureFixture[str]) -> None:
    cluster.script = lambda command: really([*command, "--limit=5000"])
    assert kubectl(["jobs"]) == 2
    assert "between 1 and 100" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "match"),
    [(["--namespace", "a", "-A"], "exclude each other"), (["--limit", "0"], "between 1 and 100"),
     (["--installed-in", "x"], "has no history of jobs")],
)  # fmt: skip
def test_what_cannot_be_asked_is_bad_usage(
    server: Server, capsys: pytest.CaptureFixture[str], words: list[str], match: str
) -> None:
    assert kubectl(["jobs", *words]) == 2
    error = capsys.readouterr().err
    assert match in error and error.count("\n") == 1


@pytest.mark.parametrize("what", ["pending", "another program", "no rights", "nonsense", "too much"])
def test_one_line_says_why_the_history_cannot_be_asked(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    program = ["deeprec-ext", "serve" if what == "another program" else "history"]
    words = [*program, "--certs", "/etc/deeprec-ext/history", "--listen", "0.0.0.0:7443"]
    server.api.put(PODS, pod(words, "Pending" if what == "pending" else "Running"))
    server.script = lambda command: Answer([(1, b"<html>" * 99)])
    if what == "no rights":
        server.api.forbidden.add(("get", "pods/exec"))
    if what == "too much":
        monkeypatch.setattr(jobs, "ANSWER_BYTES_MAX", 100)
    assert kubectl(["jobs"]) == 2
    error = capsys.readouterr().err
    wanted = {
        "pending": "ErrImagePull", "another program": "does not run `deeprec-ext history",
        "no rights": "pods/exec in namespace", "nonsense": "does not answer as one", "too much": "more than 100 bytes",
    }  # fmt: skip
    assert wanted[what] in error and error.count("\n") == 1


def test_in_the_pod_of_the_manifests_the_administrators_certificate_is_used(server: Server) -> None:
    """And the service beside it, whatever its address is."""
    template = kustomized(MANIFESTS / "components" / "history")["Deployment", "deeprec-ext-history"]["spec"]["template"]
    made = pod(["deeprec-ext", "history", "--certs", "x", "--listen", "y"])
    made["spec"]["containers"] = template["spec"]["containers"]
    server.api.put(PODS, made)
    server.script = lambda command: Answer([(1, b'{"jobs": [], "next": ""}')])
    assert kubectl(["jobs"]) == 0
    assert server.commands == [
        ["deeprec-ext", "jobs", "--history", "https://127.0.0.1:7443", "--history-certs", "/etc/deeprec-ext/history",
         "--limit=20", "--json", "--namespace=team"]
    ]  # fmt: skip
