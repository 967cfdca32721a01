"""Scripts that call the chief by another name train as they are, and each process knows who it is.

The whole course (PS and workers change, a PS is killed) is `tests/compat`.
"""

from __future__ import annotations

import json

import pytest

from tests.behaviour.jobs import ROOT, RealJob

SCRIPTS = ROOT / "tests" / "compat" / "scripts"


def trained(job: RealJob, role: str) -> int:
    told = [line for line in job.log(role).splitlines() if line.startswith("steps of this process: ")]
    return int(told[-1].split()[-1]) if told else 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "layout", "others"),
    [
        pytest.param("folded_chief", "chief", [("chief-0", "'worker' 0"), ("worker-0", "'worker' 1")], id="folded"),
        pytest.param(
            "knows_master", "master", [("chief-0", "'master' 0"), ("worker-0", "'worker' 0")], id="master",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "hosts_in_flags", "workers", [("chief-0", "'worker' 0"), ("worker-0", "'worker' 1")], id="flags",
            marks=pytest.mark.long,
        ),
    ],
)  # fmt: skip
def test_each_process_trains_under_the_name_that_the_script_gives_it(begin, tmp_path, script, layout, others):
    slow = tmp_path / "slow"
    slow.touch()
    words = ("--steps", "200", "--model-dir", str(tmp_path / "model"), "--slow-while", str(slow))
    job = begin("--ps", "1", "--workers", "1", command=("python", str(SCRIPTS / f"{script}.py"), *words))

    def both_train() -> bool:
        status = job.status()
        roles = {role.name: role.heartbeat for role in status.roles} if status is not None else {}
        return all(name in roles and roles[name].training for name, _ in others)

    job.until(both_train, "steps of both")
    slow.unlink()
    assert job.end() == 0, job.output
    for name, called in others:
        assert f"the script calls this process {called}" in job.log(name)
        assert trained(job, name) > 0
    assert sum(trained(job, name) for name, _ in others) >= 200
    described = json.loads((job.directory / "job.json").read_text())
    assert described["layout"] == layout and "layout: " in job.output


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("layout", ["chief", "master"])
def test_an_evaluator_evaluates_whatever_the_chief_is_called(begin, tmp_path, layout):
    words = ("--steps", "1500", "--model-dir", str(tmp_path / "model"))
    job = begin(
        "--layout", layout, "--evaluator", "--ps", "1", "--workers", "1",
        command=("python", str(SCRIPTS / "wide_and_deep.py"), *words),
    )  # fmt: skip
    assert job.end(300) == 0, job.output
    assert "Saving dict for global step" in job.log("evaluator-0")
