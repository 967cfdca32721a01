"""What the documents' `deeprec-ext` commands need decides where they are run for real: here, with a job, or with a cluster.

Those of a job are in `tests/behaviour/test_documents.py`, those of a cluster in `tests/cluster` and, with a server that is
played, in `tests/unit/cli/cluster`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deeprec_ext.cli.main import main
from deeprec_ext.launch.pool.membership import Membership
from deeprec_ext.launch.pool.places import PoolDirectory
from tests.docs.reading import ROOT, CommandLine, blocks, command_lines
from tests.unit.launch.test_pool import an_entry

OURS = [line for line in command_lines() if line.words[0] == "deeprec-ext"]
STARTS = [line for line in OURS if line.words[1] == "run"]
OF_A_JOB = [line for line in OURS if {"runs/my-run", "backups/my-model"} & set(line.words)]
OF_A_CLUSTER = [line for line in OURS if "-n" in line.words or line.words[1] == "submit"]
ALONE = [
    line for line in OURS if line.words[1] == "doctor" or line.words[1:3] in (("plan", "--policy"), ("plan", "--"))
]
HISTORY = [line for line in OURS if line.words[1] in ("jobs", "history") and "-n" not in line.words]
SIMULATED = [line for line in OURS if line.words[1] == "simulate"]
OPERATORS = [line for line in OURS if line.words[1] == "operator"]
ESTIMATED = [line for line in OURS if line.words[1] == "estimate"]
QUEUES = [line for line in OURS if line.words[1] == "queue" and "-n" not in line.words]
DEFINED = [line for line in OURS if line.words[1] in ("train", "evaluate", "predict")]

TRAINS = """
import json, os
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
server = tf.train.Server(config["cluster"], task["type"], task["index"])
with tf.device(tf.train.replica_device_setter(cluster=config["cluster"])):
    table = tf.get_variable("table", [1000, 16], use_resource=True)
    loss = tf.reduce_sum(tf.nn.embedding_lookup(table, tf.range(8)) ** 2)
    train = tf.train.AdagradOptimizer(0.1).minimize(loss, tf.train.get_or_create_global_step())
hooks = [tf.train.StopAtStepHook(10)]
with tf.train.MonitoredTrainingSession(server.target, task["type"] == "chief", hooks=hooks) as session:
    while not session.should_stop():
        session.run(train)
print("it has trained")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with what a reader has: a script, the events of README's comment, the examples."""
    (tmp_path / "train.py").write_text("print('trains')\n")
    (tmp_path / "kill.yaml").write_text("- {at_step: 500, kill: ps-1}\n")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return tmp_path


def test_every_command_is_run_somewhere():
    known = [*STARTS, *OF_A_JOB, *OF_A_CLUSTER, *ALONE, *HISTORY, *SIMULATED, *ESTIMATED, *DEFINED, *QUEUES, *OPERATORS]
    assert {str(line) for line in OURS} == {str(line) for line in known}


@pytest.mark.parametrize("line", OPERATORS, ids=str)
def test_every_operator_asks_for_its_cluster(line: CommandLine, here: Path, capsys: pytest.CaptureFixture[str]):
    assert main(list(line.words[1:])) == 2, "there is none here"
    assert "no Kubernetes cluster is configured" in capsys.readouterr().err


@pytest.mark.parametrize("line", STARTS, ids=str)
def test_every_run_would_start(line: CommandLine, here: Path, capsys: pytest.CaptureFixture[str]):
    """Everything but the processes: flags, limits, events, the script, the backup's directory."""
    first = line.words.index("--")
    assert main([*line.words[1:first], "--dry-run", "--json", *line.words[first:]]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert {"aimaster", "chief-0"} <= set(plan["roles"])
    assert ("ps-0" in plan["roles"]) == ("allreduce" not in line.words)


@pytest.mark.parametrize("line", ALONE, ids=str)
def test_what_needs_no_job_runs(line: CommandLine, here: Path, capsys: pytest.CaptureFixture[str]):
    assert main(line.words[1:]) == 0
    assert capsys.readouterr().out.strip()


def test_what_is_estimated_is_not_trained(here: Path, capfd: pytest.CaptureFixture[str]):
    (here / "train.py").write_text(TRAINS)
    (line,) = ESTIMATED
    assert main(line.words[1:]) == 0
    told = capfd.readouterr().out
    assert "memory of the fullest PS" in told and "it has trained" not in told


def test_a_history_of_one_s_own(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """In the guide's order, but for the service itself: tests/unit/history has it with these flags."""
    monkeypatch.setenv("XDG_DATA_HOME", str(here))
    lines = list(dict.fromkeys(line.words[1:] for line in HISTORY))
    served = [words for words in lines if "--database" in words]
    assert len(served) == 1 and {"--certs", "--http"} < set(served[0])
    for words in lines:
        if words not in served:
            assert main(list(words)) == 0, words
    assert "no job has ended yet" in capsys.readouterr().out
    assert {path.name for path in (here / "ads-certs").iterdir()} == {"ca.pem", "aimaster.pem", "aimaster-key.pem"}


def test_a_pool_is_shown(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def sleep(seconds: float) -> None:
        raise KeyboardInterrupt  # who watches ends it

    monkeypatch.setenv("XDG_STATE_HOME", str(here))
    monkeypatch.setattr(time, "sleep", sleep)
    member = Membership(PoolDirectory.of("ads"), an_entry("/runs/my-run", now=time.time()))
    member.join(5.0)
    member.turn()
    (here / "record.jsonl").write_bytes(PoolDirectory.of("ads").record.read_bytes())
    assert QUEUES
    for words in dict.fromkeys(line.words[1:] for line in QUEUES):
        assert main(list(words)) == (130 if "--watch" in words else 0), words
        told = capsys.readouterr().out
        changes = "my-run: priority 0 → 500, weight 1 → 2" in told or "pool ads: 5 → 6 cores" in told
        shows = "pool ads: 5 of 5 cores in use, 1 job" in told or "written: " in told
        assert changes or shows or "1 of 1 decisions come out the same" in told, words
    member.leave()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_model_s_module_is_trained_evaluated_and_predicts(here: Path, capfd: pytest.CaptureFixture[str]):
    """In the page's order; what starts a job, in one process instead, and what makes a TFJob as far as a file goes."""
    pytest.importorskip("tensorflow")
    made = [sys.executable, "examples/model_def/clicks.py", "--data", "data", "--records", "600"]
    subprocess.run(made, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True, timeout=120)
    for words in dict.fromkeys(line.words[1:] for line in DEFINED):
        there = words[0] == "evaluate" or {"--local", "--submit", "--dry-run"} & set(words)
        assert main([*words, *([] if there else ["--local"])]) == 0, words
        told = capfd.readouterr().out
        assert ("-aimaster" if "--submit" in words else "auc" if words[0] == "evaluate" else "") in told, (words, told)
    assert len((here / "predictions" / "part-00000-000000000000-0000050.jsonl").read_text().splitlines()) == 50


@pytest.mark.slow
def test_the_shipped_trace_is_simulated(here: Path, capsys: pytest.CaptureFixture[str]):
    shipped = {line.words[1:] for line in SIMULATED if not line.words[2].endswith(".yaml")}
    assert shipped == {("simulate", "steady")}
    assert main(["simulate", "steady", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)


def test_the_job_of_the_guide_is_one_that_can_be_submitted(here: Path, capsys: pytest.CaptureFixture[str]):
    found = [one for one in blocks(ROOT / "docs" / "kubernetes.md", "yaml") if "kind: TFJob" in one]
    assert len(found) == 2  # one has no PS
    for block, line in [(block, line) for block in found for line in OF_A_CLUSTER]:
        (here / "job.yaml").write_text(block)
        if line.words[1] == "submit":
            words = [word for word in line.words[1:] if word not in ("--wait", "--dry-run")]
            assert main([*words, "--dry-run"]) == 0, line
            assert "-aimaster" in capsys.readouterr().out, line
