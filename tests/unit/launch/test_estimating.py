"""`deeprec-ext estimate`: a script runs until it has declared its model, and no further. Here the script is no TensorFlow."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

import psutil
import pytest

from deeprec_ext.cli import run
from deeprec_ext.cli.main import main
from deeprec_ext.errors import UsageError
from deeprec_ext.launch import estimating
from deeprec_ext.launch.estimating import declared
from deeprec_ext.launch.plan import RunPlan

ROOT = Path(__file__).resolve().parents[3]
DECLARES = """
import os, sys, time
from deeprec_ext import env
from deeprec_ext.proto import deeprec_ext_pb2 as pb, deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security.credentials import certificate_for, open_channel, server_name

open(sys.argv[1] + "/pid", "w").write(str(os.getpid()))
channel = open_channel(
    env.aimaster_address(), server_name("aimaster", env.job()), certificate_for(env.certificates(), env.role(), env.index()),
    env.certificates(),
)
size = int(float(sys.argv[2]))
table = [pb.Variable(name=f"t/{slot}", saved_name="t", slot=slot, update=pb.Variable.ROWS, bytes=size // env.slots(),
                     shape=[size // env.slots() // 64, 16]) for slot in range(env.slots())]
model = pb.Declaration(catalogue=pb.Catalogue(variables=table), batch_size=256, lookups_per_example=26, operations=900)
model.input.format = "tfrecord"
absent = len(sys.argv) > 3
request = pb.DeclareRequest(incarnation="me", declaration=None if absent else model)
request.why_not = "the script waits for its cluster before it has a graph" if absent else ""
assert rpc.AgentsStub(channel).Declare(request, timeout=10).heard
time.sleep(60)  # as one that waits for its first view
open(sys.argv[1] + "/trained", "w")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(DECLARES)
    return path


def plan_of(*words: str) -> RunPlan:
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    return run.make_plan(parser.parse_args(["--autoscale", "--history", "off", "--", sys.executable, *words]))


def test_the_model_is_heard_and_the_process_ended_before_it_trains(script: Path, tmp_path: Path) -> None:
    found = asyncio.run(declared(plan_of(str(script), str(tmp_path), "1e9"), 60))
    assert sum(one.bytes for one in found.catalogue.variables) == pytest.approx(1e9, rel=0.01)
    pid = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(pid) and not (tmp_path / "trained").exists()


@pytest.mark.parametrize(
    ("words", "writes"),
    [(("examples/monitored_session/train.py",), True), (("-m", "benchmarks.zoo.train", "--family", "mlp"), False)],
    ids=["MonitoredTrainingSession with a directory", "Estimator that saves nothing"],
)  # fmt: skip
def test_whether_checkpoints_are_written_is_declared(words: tuple[str, ...], writes: bool, monkeypatch) -> None:
    """By the hooks of the session: for one, PS copy their tables."""
    monkeypatch.chdir(ROOT)
    found = asyncio.run(declared(plan_of(*words), 120))
    assert found.catalogue.variables and found.no_checkpoints == (not writes)


def test_the_command_says_with_how_many_ps_and_what_they_use(script: Path, tmp_path: Path, capsys) -> None:
    words = [
        "--history",
        "off",
        "--max-ps",
        "4",
        "--max-ps-memory",
        "3GB",
        "--",
        sys.executable,
        str(script),
        str(tmp_path),
    ]
    assert main(["estimate", "--json", *words, "4e9"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["start"]["size"]["ps"] == 4 and found["model"]["lookups_per_step"] == 256 * 26
    (memory,) = found["ps_memory"]
    assert (
        memory["role"] == "ps" and 3e9 < memory["predicted"] < 4e9
    )  # a quarter, a copy of another, one to write, a process
    assert memory["low"] < memory["predicted"] < memory["high"]
    assert set(found["unknown"]) == {"worker_memory", "ps_cpu", "worker_cpu", "examples_per_second"}
    assert all(found[name] == [] for name in found["unknown"])


def test_for_people_it_says_the_same_in_words(script: Path, tmp_path: Path, capsys) -> None:
    assert main(["estimate", "--history", "off", "--", sys.executable, str(script), str(tmp_path), "1e9"]) == 0
    text = capsys.readouterr().out
    for words in ("256 examples a step", "26 rows looked up", "tfrecord", "memory of the fullest PS", "not known"):
        assert words in text


@pytest.mark.parametrize(
    "text, limit_seconds, words",
    [
        ("raise SystemExit('no data')", 60, "ended (exit code 1) before it had a model"),
        ("import time; time.sleep(60)", 1, "not come to its model within 1 s"),
    ],
    ids=["ends", "hangs"],
)
def test_a_script_without_a_model_is_an_error_in_one_line(
    tmp_path: Path, text: str, limit_seconds: float, words: str
) -> None:
    path = tmp_path / "train.py"
    path.write_text(text)
    with pytest.raises(UsageError, match=words.replace("(", r"\(").replace(")", r"\)")) as caught:
        asyncio.run(declared(plan_of(str(path)), limit_seconds))
    assert "\n" not in str(caught.value)


def test_who_waits_for_a_slow_script_is_told_how_long_and_what_it_does(
    tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimating, "TELL_SECONDS", 0.5)
    path = tmp_path / "train.py"
    path.write_text("import time; print('loading', flush=True); time.sleep(60)")
    assert main(["estimate", "--json", "--history", "off", "--limit", "4s", "--", sys.executable, str(path)]) == 2
    told = capsys.readouterr()
    waited = [line for line in told.err.splitlines() if "waiting for the script to declare its model" in line]
    assert 1 <= len(waited) <= 3, "each time after twice as long"
    assert json.loads(told.out) == {"error": "the script has not come to its model within 4 s: loading"}


def test_a_script_that_waits_for_its_cluster_first_declares_nothing(script: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="before it has a graph"):
        asyncio.run(declared(plan_of(str(script), str(tmp_path), "1e9", "absent"), 60))


@pytest.mark.parametrize(
    ("words", "answer"),
    [([], "deeprec-ext estimate -- python train.py"), (["--ps", "3", "--", "x"], "--min-ps and --max-ps say between what"),
     (["--workers", "3", "--", "x"], "--min-workers and --max-workers")],
)  # fmt: skip
def test_what_is_wrong_is_said_in_the_commands_own_words(words: list[str], answer: str, capsys) -> None:
    assert main(["estimate", *words]) == 2
    told = capsys.readouterr().err
    assert answer in told and "ext run" not in told and "ambiguous" not in told
