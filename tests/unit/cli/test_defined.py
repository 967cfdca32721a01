"""`train`, `evaluate` and `predict`: what they run, and where."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from deeprec_ext.cli import defined, submitting, train
from deeprec_ext.cli import run as run_command
from deeprec_ext.cli import submit as submit_command
from deeprec_ext.cli.cluster.documents import check
from deeprec_ext.cli.main import build_parser, main
from deeprec_ext.errors import UsageError

MODEL = ["--model-def", "mnist.cnn.custom_model", "--data", "data"]


def parsed(*words: str) -> argparse.Namespace:
    return build_parser().parse_args(words)


@pytest.fixture
def ran(monkeypatch) -> list[list[str]]:
    """Commands that were run in a process of this machine."""
    found: list[list[str]] = []
    monkeypatch.setattr(defined, "run_here", lambda words: found.append(list(words)) or 0)
    return found


def test_train_is_run_as_a_script_with_its_flags(monkeypatch):
    seen: list[argparse.Namespace] = []
    monkeypatch.setattr(run_command, "run", lambda arguments: seen.append(arguments) or 7)
    flags = ["--epochs", "2", "--batch-size", "32", "--no-shuffle", "--feed", "dfeed", "--ps", "3", "--backup", "off"]
    assert main(["train", *MODEL, *flags]) == 7
    [one] = seen
    assert one.script == [
        "--", "python", "-m", "deeprec_ext.modeldef", "train", "--model-def=mnist.cnn.custom_model", "--data=data",
        "--batch-size=32", "--reader=auto", "--feed=dfeed", "--epochs=2", "--no-shuffle",
    ]  # fmt: skip
    assert (one.ps, one.backup, one.layout, one.label) == (3, "off", "chief", "train-cnn")


def test_predict_needs_one_ps(monkeypatch):
    seen: list[argparse.Namespace] = []
    monkeypatch.setattr(run_command, "run", lambda arguments: seen.append(arguments) or 0)
    main(["predict", *MODEL, "--weights", "out", "--output", "predictions", "--workers", "4"])
    assert (seen[0].ps, seen[0].workers) == (1, 4)
    assert "--weights=out" in seen[0].script and "--output=predictions" in seen[0].script


@pytest.mark.parametrize("command", ["train", "predict"])
def test_local_is_one_process_and_starts_no_job(ran, command):
    assert main([command, *MODEL, "--local"]) == 0
    assert ran == [["python", "-m", "deeprec_ext.modeldef", command, *("--model-def=mnist.cnn.custom_model", "--data=data"),
                    "--reader=auto"]]  # fmt: skip


def test_evaluate_is_one_process(ran):
    assert main(["evaluate", *MODEL, "--weights", "out", "--json"]) == 0
    assert ran[0][3:5] == ["evaluate", "--model-def=mnist.cnn.custom_model"] and ran[0][-1] == "--json"


def test_a_dry_run_tries_module_and_data_and_starts_nothing_where_something_is_missing(monkeypatch):
    monkeypatch.setattr(defined, "run_here", lambda words: 2 if "--check" in words else pytest.fail("trained"))
    monkeypatch.setattr(run_command, "run", lambda arguments: pytest.fail("a job was planned"))
    assert main(["train", *MODEL, "--dry-run"]) == 2


def test_a_dry_run_goes_on_to_the_plan_of_the_job(monkeypatch):
    seen: list[argparse.Namespace] = []
    monkeypatch.setattr(defined, "run_here", lambda words: 0)
    monkeypatch.setattr(run_command, "run", lambda arguments: seen.append(arguments) or 0)
    assert main(["train", *MODEL, "--dry-run"]) == 0
    assert seen[0].dry_run


def test_the_label_is_the_module_s_and_the_command_s():
    assert defined.label("train", parsed("train", *MODEL)) == "train-cnn"
    alone = parsed("predict", "--model-def", "zoo", "--data", "d")
    assert defined.label("predict", alone) == "predict-zoo"


def test_the_run_directory_and_the_history_have_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = parsed("train", *MODEL)
    arguments.script, arguments.label = ["--", "python", "-m", "deeprec_ext.modeldef", "train"], "train-cnn"
    arguments.layout = "chief"
    plan = run_command.make_plan(arguments)
    assert plan.script == "train-cnn" and plan.directory.path.name.startswith("train-cnn-")


def test_a_tfjob_that_can_be_submitted():
    flags = ("--image", "registry.example/zoo:1", "--output", "/data/out", "--mount", "data:/data", "--workers", "3",
             "--max-ps", "4", "--autoscale", "--objective", "cheapest")  # fmt: skip
    arguments = parsed("train", *MODEL, "--submit", *flags)
    made = submitting.manifest("train", defined.command("train", arguments, train.FLAGS), arguments)
    specs = made["spec"]["tfReplicaSpecs"]
    assert {kind: one["replicas"] for kind, one in specs.items()} == {"PS": 2, "Chief": 1, "Worker": 3}
    container = specs["Worker"]["template"]["spec"]["containers"][0]
    assert container["command"][:5] == [
        "python",
        "-m",
        "deeprec_ext.modeldef",
        "train",
        "--model-def=mnist.cnn.custom_model",
    ]
    assert container["volumeMounts"] == [{"name": "data-0", "mountPath": "/data"}]
    document = check(json.loads(json.dumps(made)), None, "default")
    assert document.elastic is not None and document.warnings == ()
    assert document.elastic.max_ps == 4
    assert dict(document.elastic.settings)["objective"] == "cheapest"
    assert document.job.name.startswith("train-cnn-")


def test_an_evaluation_is_a_job_of_one_pod_that_is_not_elastic():
    arguments = parsed("evaluate", *MODEL, "--submit", "--image", "i", "--name", "judge", "--weights", "/data/out")
    made = submitting.manifest("evaluate", defined.command("evaluate", arguments, ()), arguments)
    document = check(json.loads(json.dumps(made)), None, "default")
    assert document.elastic is None and list(made["spec"]["tfReplicaSpecs"]) == ["Chief"]
    assert document.job.name == "judge"


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        ((), "--submit needs --image"),
        (("--image", "i"), "--submit needs --output"),
        (("--image", "i", "--output", "o", "--mount", "data"), "--mount data: write CLAIM:/PATH"),
        (("--image", "i", "--output", "o", "--workdir", "w"), "--workdir is of this machine"),
    ],
)
def test_what_no_tfjob_can_have(flags, what):
    arguments = parsed("train", *MODEL, "--submit", *flags)
    with pytest.raises(UsageError, match=what):
        submitting.manifest("train", [], arguments)


def test_submit_goes_the_way_of_submit(monkeypatch):
    seen: list[dict] = []

    def submitted(arguments: argparse.Namespace) -> int:
        seen.append({**vars(arguments), "manifest": json.loads(Path(arguments.file).read_text())})
        return 3

    monkeypatch.setattr(submit_command, "run", submitted)
    words = ["train", *MODEL, "--submit", "--image", "i", "--output", "/o", "-n", "ads", "--dry-run"]
    assert main(words) == 3
    assert seen[0]["namespace"] == "ads" and seen[0]["dry_run"] and not seen[0]["no_operator"]
    assert seen[0]["manifest"]["kind"] == "TFJob"
    known = {action.dest for action in build_parser()._subparsers._group_actions[0].choices["submit"]._actions}
    assert known - {"help"} <= set(seen[0]), "what submit reads is there"


@pytest.mark.parametrize(
    "words", [["train", "--data", "d"], ["train", "--model-def", "m"], ["evaluate", "--epochs", "3"]]
)
def test_what_is_required_is_required(words, capsys):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
