"""`submit --estimate`: what a job's script declares here is in the TFJob that is made. Here the script is no TensorFlow."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from deeprec_ext.cli.main import main
from tests.unit.cli.cluster.server import ANNOTATION, Server
from tests.unit.cli.cluster.test_submit import a_job, file_of
from tests.unit.cli.usage import check_refused
from tests.unit.launch.test_estimating import DECLARES
from tfjob.model.kinds import TFJOBS, Manifest

LIMITS = {f"{ANNOTATION}max-ps": "4", f"{ANNOTATION}max-ps-memory": "3G", f"{ANNOTATION}autoscale": "true"}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(DECLARES)
    return path


def command(script: Path, tmp_path: Path, *words: str) -> str:
    return shlex.join([sys.executable, str(script), str(tmp_path), *words])


def templates(manifest: Manifest) -> dict[str, Any]:
    """The training container of each type."""
    specs = manifest["spec"]["tfReplicaSpecs"]
    return {key: spec["template"]["spec"]["containers"][0] for key, spec in specs.items()}


def named(**resources: Any) -> Manifest:
    """A job whose PS' template names these, and nothing else is named of any pod."""
    made: Manifest = json.loads(json.dumps(a_job(annotations=LIMITS)))  # a template of its own for each type
    for key, container in templates(made).items():
        container.pop("resources", None)
        if key == "PS" and resources:
            container["resources"] = resources
    return made


def test_what_is_declared_here_is_in_the_job_that_is_made(
    server: Server, script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--estimate", "--history", "off", "--script", command(script, tmp_path, "4e9")]
    assert main(["submit", file_of(named()), *words]) == 0
    made = server.api.objects["tfjobs", "ctr"]
    assert made["spec"]["tfReplicaSpecs"]["PS"]["replicas"] == 4
    found = templates(made)
    assert 2e9 < int(found["PS"]["resources"]["requests"]["memory"]) <= 3e9
    assert "resources" not in found["Chief"], "nobody knows what a trainer needs"
    text = made["metadata"]["annotations"][f"{ANNOTATION}estimate"]
    assert "variables need 4 PS" in text and "memory of the fullest PS" in text
    assert "is submitted" in capsys.readouterr().out and not (tmp_path / "trained").exists()


def test_what_a_template_names_stays_and_a_dry_run_shows_the_rest(
    server: Server, script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--estimate", "--history", "off", "--script", command(script, tmp_path, "4e9"), "--dry-run"]
    file = file_of(named(requests={"memory": "2900M"}))
    assert main(["submit", file, *words, "--json"]) == 0
    (plan,) = json.loads(capsys.readouterr().out)["jobs"]
    assert [pod["requests"] for pod in plan["pods"] if pod.get("role") == "ps-3"] == [{"memory": "2900M"}]
    assert "variables need 4 PS" in plan["estimate"]
    assert main(["submit", file, *words]) == 0
    assert "  estimate: 4 PS and " in capsys.readouterr().out
    assert not server.api.names(TFJOBS)


def test_a_job_without_an_estimate_is_submitted_unless_it_has_to_have_one(
    server: Server, script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = ["--history", "off", "--script", command(script, tmp_path, "4e9", "absent")]
    check_refused(["submit", file_of(named()), "--require-estimate", *broken], "before it has a graph", capsys)
    assert not server.api.names(TFJOBS)
    assert main(["submit", file_of(named()), "--estimate", *broken]) == 0
    told = capsys.readouterr().err
    assert (
        "note: TFJob ctr is not estimated, and goes as it is: the script declares no model: the script waits for"
        in told
    )
    made = server.api.objects["tfjobs", "ctr"]
    assert made["spec"]["tfReplicaSpecs"] == named()["spec"]["tfReplicaSpecs"]


def test_the_script_is_the_jobs_own_unless_another_is_named(
    server: Server, script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = named()
    for container in templates(job).values():
        container["command"] = ["sh", "-c", "exec " + command(script, tmp_path, "1e9")]
    assert main(["submit", file_of(job), "--estimate", "--require-estimate", "--history", "off", "--dry-run"]) == 0
    assert "estimate: 2 PS and 1 worker" in capsys.readouterr().out, "as written: no job like it is known"
    plain = a_job("plain", elastic=False)
    check_refused(["submit", file_of(plain), "--require-estimate"], "it is not elastic", capsys)
    check_refused(["submit", file_of(job, plain), "--estimate", "--script", "x"], "--script is of one job", capsys)
