"""Commands for a TFJob: in the AIMaster's pod where it runs, and what is said and done where it does not."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from deeprec_ext.cli.cluster import forwarding, kept
from deeprec_ext.cli.main import kubectl, main
from tests.unit.cli.cluster.server import ANNOTATION, DIRECTORY, STARTED, Answer, Server, aimaster, failure, pod, tfjob
from tests.unit.cli.usage import check_refused
from tfjob.model.kinds import CONFIG_MAPS, EVENTS, PODS, TFJOBS

N = ["-n", "team"]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "START_SECONDS", 0.0)


def a_job(server: Server, phase: str = "Running", **more: object) -> None:
    server.api.put(TFJOBS, tfjob(**more))  # type: ignore[arg-type]
    server.api.put(PODS, aimaster(phase))


def command(server: Server) -> list[str]:
    """What was run in the pod, after what starts it."""
    [words] = server.commands
    assert words[:3] == ["python", "-m", "deeprec_ext.cli.cluster.inside"]
    assert words[words.index("--directory") + 1] == DIRECTORY
    return words[words.index("--") + 1 :]


# ------------------------------------------------------------------------------------------------------ in the pod


@pytest.mark.parametrize(
    ("given", "there"),
    [
        (["status", "ctr"], ["status", DIRECTORY, "--sort=load"]),
        (["status", "ctr", "--sort", "name", "--rows", "3", "--json"],
         ["status", DIRECTORY, "--sort=name", "--rows=3", "--json"]),
        (["scale", "ctr", "--ps", "3", "--wait"], ["scale", DIRECTORY, "--ps=3", "--reason=by hand", "--wait"]),
        (["scale", "ctr", "--replace", "ps-1", "--dry-run", "--reason", "it is slow; really"],
         ["scale", DIRECTORY, "--replace=ps-1", "--reason=it is slow; really", "--dry-run"]),
        (["scale", "ctr", "--rebalance", "--json"], ["scale", DIRECTORY, "--rebalance", "--reason=by hand", "--json"]),
        (["scale", "ctr", "--hold"], ["scale", DIRECTORY, "--hold", "--reason=by hand"]),
        (["decisions", "ctr", "--changes"], ["decisions", DIRECTORY, "--changes"]),
        (["plan", "ctr", "--set", "gain_min=0.1"], ["plan", DIRECTORY, "--set=gain_min=0.1"]),
        (["graph", "ctr", "--slot", "0"], ["graph", DIRECTORY, "--slot=0"]),
        (["report", "ctr", "--markdown"], ["report", DIRECTORY, "--output", "-", "--markdown"]),
    ],
)  # fmt: skip
def test_a_command_runs_in_the_pod_of_the_aimaster(
    server: Server, capfdbinary: pytest.CaptureFixture[bytes], given: list[str], there: list[str]
) -> None:
    a_job(server)
    server.script = lambda words: Answer([(1, "PS 2 → 3\n".encode()), (2, b"careful\n")])
    assert main([given[0], *N, *given[1:]]) == 0
    assert command(server) == there
    assert capfdbinary.readouterr() == ("PS 2 → 3\n".encode(), b"careful\n")


@pytest.mark.parametrize("code", [1, 2, 130])
def test_its_exit_code_is_the_callers(server: Server, code: int) -> None:
    a_job(server)
    server.script = lambda words: Answer((), failure(code))
    assert main(["scale", *N, "ctr", "--ps", "3", "--wait"]) == code


def test_megabytes_come_through_whole(
    server: Server, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    a_job(server)
    parts = [bytes([65 + number % 26]) * 32_000 for number in range(150)]
    server.script = lambda words: Answer([(1, part) for part in parts])
    assert main(["report", *N, "ctr", "--output", str(tmp_path / "r.html")]) == 0
    assert (tmp_path / "r.html").read_bytes() == b"".join(parts)
    assert capfdbinary.readouterr().out.decode().strip() == str(tmp_path / "r.html")
    assert main(["report", *N, "ctr"]) == 0
    assert Path("ctr-report.html").stat().st_size == 150 * 32_000


def test_a_report_that_failed_is_not_written(server: Server) -> None:
    a_job(server)
    server.script = lambda words: Answer([(1, b"half a rep"), (2, b"no\n")], failure(1))
    assert main(["report", *N, "ctr"]) == 1
    assert not list(Path().iterdir())


def test_a_broken_connection_is_one_line(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    a_job(server)
    server.script = lambda words: Answer([(1, b"...\n")], None)
    assert main(["scale", *N, "ctr", "--ps", "3", "--wait"]) == 1
    assert "connection to pod ctr-aimaster broke before the command had ended" in capsys.readouterr().err


def test_a_container_that_cannot_run_it_says_why_and_status_what_else_is_known(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    a_job(server)
    status = {"status": "Failure", "message": "container not found", "reason": "InternalError", "code": 500}
    server.script = lambda words: Answer((), status)
    assert main(["scale", *N, "ctr", "--rebalance"]) == 1
    assert "exec in pod ctr-aimaster: container not found" in capsys.readouterr().err
    assert main(["status", *N, "ctr"]) == 0
    captured = capsys.readouterr()
    assert "exec in pod ctr-aimaster: container not found" in captured.err and "team/ctr  Running" in captured.out


def test_kubectl_deeprec_takes_the_namespace_of_the_kubeconfig(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    a_job(server)
    assert kubectl(["status", "ctr"]) == 0
    assert command(server)[0] == "status"
    assert kubectl(["status", "ctr", "--context", "nowhere"]) == 2
    assert "--context nowhere: the kubeconfig has here, plain" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        kubectl(["run", "--", "python", "train.py"])  # needs no cluster
    assert "kubectl deeprec: " in capsys.readouterr().err


def test_watching_goes_on_in_another_command_and_ends_with_the_summary(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from deeprec_ext.cli.cluster import status

    monkeypatch.setattr(status, "WATCH_PAUSE_SECONDS", 0.01)
    a_job(server)

    def script(words: list[str]) -> Answer:
        if len(server.commands) < 3:
            return Answer((), failure(forwarding.AGAIN))
        server.api.change(PODS, "ctr-aimaster", aimaster("Succeeded"))
        server.api.change(TFJOBS, "ctr", tfjob(condition="Succeeded"))
        return Answer()

    server.script = script
    assert main(["status", *N, "ctr", "--watch"]) == 0
    assert len(server.commands) == 3 and "--watch" in server.commands[0]
    assert "Succeeded" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------- no AIMaster to ask


def test_status_says_what_the_cluster_knows_while_the_aimaster_is_not_there(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    a_job(
        server, "Pending", condition="Created", annotations={f"{ANNOTATION}status": "starting: PS 0, workers 0, step 0"}
    )
    server.api.put(PODS, pod("ctr-ps-0"))
    event = {"metadata": {"name": "e"}, "involvedObject": {"name": "ctr"}, "reason": "Forbidden", "message": "no quota left",
             "lastTimestamp": STARTED}  # fmt: skip
    server.api.put(EVENTS, event)
    assert main(["status", *N, "ctr"]) == 0
    out = capsys.readouterr().out
    assert "team/ctr  Created  (elastic)" in out
    assert "the AIMaster does not run: Pending, ErrImagePull: no such image" in out
    assert "ctr-ps-0: Running on node-1" in out and "no quota left" in out and "last said: starting" in out
    assert main(["status", *N, "ctr", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["state"], found["elastic"], found["summary"]) == ("Created", True, None)
    assert not server.commands


SUMMARY = {"status": "failed", "reason": "the script raised", "steps": 1200, "seconds": 60.0, "metrics": {"auc": 0.91},
           "scaling": [], "failures": []}  # fmt: skip


def ended(server: Server, packed: Mapping[str, bytes] | None = None, **files: str) -> None:
    a_job(server, "Failed", condition="Failed")
    uid = server.api.objects["tfjobs", "ctr"]["metadata"]["uid"]
    metadata = {"name": "ctr-aimaster-state", "ownerReferences": [{"uid": uid}]}
    binary = {name: base64.b64encode(one).decode() for name, one in (packed or {}).items()}
    data = {"summary.json": json.dumps(SUMMARY), **files}
    server.api.put(CONFIG_MAPS, {"metadata": metadata, "data": data, "binaryData": binary})


def test_the_summary_of_an_ended_job_outlives_its_aimaster(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    ended(server)
    assert main(["status", *N, "ctr"]) == 0
    out = capsys.readouterr().out
    assert "Failed at" in out and "failed: the script raised; 1,200 steps in 1:00" in out and "auc 0.91" in out
    assert main(["status", *N, "ctr", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"] == SUMMARY


def test_the_summary_of_an_earlier_job_of_the_name_is_not_shown(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    ended(server)
    server.api.change(CONFIG_MAPS, "ctr-aimaster-state", {"metadata": {"ownerReferences": [{"uid": "of-another"}]}})
    assert main(["status", *N, "ctr"]) == 0
    assert "1,200 steps" not in capsys.readouterr().out


def test_report_and_decisions_of_an_ended_job_are_those_that_were_kept(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    from deeprec_ext.autoscaler.policy.decision import Decision, Size

    decision = json.loads(
        Decision(number=3, time=9.0, action="scale", size=Size(ps=3, workers=2), reason="faster").to_json()
    )
    outcome = {"number": 3, "outcome": "committed", "reason": "", "examples_per_second_after": 0.0}
    told = json.dumps([{"at": 1.0, "decision": decision, "outcome": outcome}])
    memory = {"role": "ps", "predicted": 1e9, "low": 8e8, "high": 1.3e9, "ground": "computed", "used": 1.1e9}
    damaged = [{**memory, "predicted": 0}, {"role": "job"}]
    estimator = {"ps_memory": [memory], "worker_memory": damaged, "ps_cpu": 3}
    left = json.dumps({**SUMMARY, "estimator": estimator})
    ended(server, **{"report.md": "# ctr\n", "decisions.json": told, "summary.json": left})
    assert main(["report", *N, "ctr", "--markdown"]) == 0
    assert capsys.readouterr().out == "# ctr\n"
    assert main(["report", *N, "ctr"]) == 0
    assert Path("ctr-report.md").read_text() == "# ctr\n"
    assert "kept as Markdown only" in capsys.readouterr().err
    assert main(["report", *N, "ctr", "--json"]) == 2
    assert main(["decisions", *N, "ctr"]) == 0
    out = capsys.readouterr().out
    assert "scale to 3 PS, 2 workers" in out and "faster" in out and "committed" in out
    before = "Estimated before the start:\n- memory of the fullest PS: 1.0 GB, 800 MB to 1.3 GB in nine of ten jobs; "
    assert out.endswith(before + "it was 1.1 GB, 10% more; computed\n"), "what is damaged is left out"
    assert main(["decisions", *N, "ctr", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["outcome"] == outcome


def test_the_report_of_an_ended_job_has_every_form(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    page, values = "<!DOCTYPE html>ä\n", '{"findings": []}\n'
    packed = {"report.html.gz": gzip.compress(page.encode()), "report.json.gz": gzip.compress(values.encode())}
    ended(server, {**packed, "state": b"s"}, **{"report.md": "# ctr\n"})
    assert main(["report", *N, "ctr"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "ctr-report.html\n" and not captured.err and Path("ctr-report.html").read_text() == page
    assert main(["report", *N, "ctr", "--output", "-"]) == 0
    assert capsys.readouterr().out == page
    assert main(["report", *N, "ctr", "--json"]) == 0
    assert capsys.readouterr().out == values
    assert main(["report", *N, "ctr", "--json", "--output", "r.json"]) == 0
    assert Path("r.json").read_text() == values
    assert main(["report", *N, "ctr", "--markdown"]) == 0
    assert capsys.readouterr().out.endswith("# ctr\n")


@pytest.mark.parametrize(
    "damaged",
    [b"", b"no gzip", gzip.compress(b"<p>")[:-9], gzip.compress(b"\xff")],
    ids=[
        "empty",
        "no gzip",
        "cut",
        "no text",
    ],  # what is compressed has the time in it, and with it another name each time
)
def test_a_damaged_report_is_not_shown_but_the_markdown(server: Server, damaged: bytes) -> None:
    ended(server, {"report.html.gz": damaged}, **{"report.md": "# ctr\n"})
    assert main(["report", *N, "ctr"]) == 0
    assert Path("ctr-report.md").read_text() == "# ctr\n" and not Path("ctr-report.html").exists()


def test_a_report_that_unpacks_to_more_than_any_is_not_unpacked(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "UNPACKED_BYTES_MAX", 1000)
    ended(server, {"report.html.gz": gzip.compress(bytes(1001))})
    check_refused(["report", *N, "ctr"], "state-volume", capsys)


@pytest.mark.parametrize(("words", "part"), [
    (["report", *N, "ctr"], "state-volume"), (["decisions", *N, "ctr"], "state-volume"),
    (["scale", *N, "ctr", "--ps", "3"], "has ended"), (["graph", *N, "ctr"], "has ended"),
])  # fmt: skip
def test_what_an_ended_job_has_not_left_is_told_with_what_to_do(
    server: Server, capsys: pytest.CaptureFixture[str], words: list[str], part: str
) -> None:
    ended(server)
    check_refused(words, part, capsys)


def test_a_job_without_an_operator_is_found_by_its_config_map(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.crd = False
    manifest = {"metadata": {"name": "ctr-tfjob"}, "data": {"tfjob.json": json.dumps(tfjob(condition=""))}}
    server.api.put(CONFIG_MAPS, manifest)
    server.api.put(PODS, aimaster())
    assert main(["scale", *N, "ctr", "--ps", "3"]) == 0
    server.api.change(PODS, "ctr-aimaster", aimaster("Pending"))
    assert main(["status", *N, "ctr"]) == 0
    assert "without an operator" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------ rights too narrow


def test_who_may_not_run_commands_scales_by_the_tfjob(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    a_job(server, PS=2, Worker=2)  # no chief: worker 0 is one
    server.api.forbidden = {("get", "pods/exec")}
    assert main(["scale", *N, "ctr", "--workers", "3"]) == 0
    captured = capsys.readouterr()
    assert "the TFJob is changed instead" in captured.err and "asked for 4 Worker" in captured.out
    assert server.api.objects["tfjobs", "ctr"]["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] == 4
    assert main(["scale", *N, "ctr", "--ps", "3", "--workers", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"way": "tfjob", "replicas": {"PS": 3, "Worker": 5}}
    specs = server.api.objects["tfjobs", "ctr"]["spec"]["tfReplicaSpecs"]
    assert (specs["PS"]["replicas"], specs["Worker"]["replicas"]) == (3, 5)
    assert main(["scale", *N, "ctr", "--hold", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"way": "tfjob", "hold": True}
    assert server.api.objects["tfjobs", "ctr"]["metadata"]["annotations"][f"{ANNOTATION}hold"] == "true"


def test_rights_on_tfjobs_alone_are_enough_to_scale(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    a_job(server)
    server.api.forbidden = {("get", "pods"), ("list", "pods")}
    assert main(["scale", *N, "ctr", "--ps", "3"]) == 0
    assert server.api.objects["tfjobs", "ctr"]["spec"]["tfReplicaSpecs"]["PS"]["replicas"] == 3
    server.api.put(TFJOBS, tfjob("plain", elastic=False))
    capsys.readouterr()
    check_refused(["scale", *N, "plain", "--ps", "3"], "is not elastic", capsys)


@pytest.mark.parametrize(
    ("size", "code", "text"), [(3, 0, "3 PS: committed"), (2, 1, "refused or rolled back (2 PS are")]
)
def test_waiting_for_the_tfjob_ends_when_the_aimaster_has_noted_what_runs(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, size: int, code: int, text: str
) -> None:
    from deeprec_ext.cli.cluster import scale

    a_job(server)
    server.api.forbidden = {("get", "pods/exec")}
    event = {"metadata": {"name": "e"}, "involvedObject": {"name": "ctr"}, "reason": "ScalingRefused",
             "message": "2 PS are enough", "lastTimestamp": STARTED}  # fmt: skip
    server.api.put(EVENTS, event)

    async def sleep(seconds: float) -> None:  # the AIMaster's turn
        note = json.dumps({"PS": size, "Worker": 1})
        patch = {"metadata": {"annotations": {f"{ANNOTATION}scaled-to": note}},
                 "spec": {"tfReplicaSpecs": {"PS": {"replicas": size}}}}  # fmt: skip
        server.api.change(TFJOBS, "ctr", patch)

    monkeypatch.setattr(scale.asyncio, "sleep", sleep)
    assert main(["scale", *N, "ctr", "--ps", "3", "--wait"]) == code
    assert text in capsys.readouterr().out


@pytest.mark.parametrize(("words", "part"), [
    (["--ps", "99"], "--ps 99: the annotations of TFJob ctr allow 1 to 4"),
    (["--rebalance"], "get and create on pods/exec"), (["--ps", "3", "--dry-run"], "get and create on pods/exec"),
])  # fmt: skip
def test_what_the_tfjob_cannot_say_names_the_right_that_is_missing(
    server: Server, capsys: pytest.CaptureFixture[str], words: list[str], part: str
) -> None:
    a_job(server)
    server.api.forbidden = {("get", "pods/exec")}
    assert main(["scale", *N, "ctr", *words]) == 2
    assert part in capsys.readouterr().err


def test_status_without_the_right_to_run_commands_is_what_the_cluster_knows(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    a_job(server)
    server.api.forbidden = {("get", "pods/exec"), ("list", "events"), ("get", "configmaps")}
    assert main(["status", *N, "ctr"]) == 0
    captured = capsys.readouterr()
    assert 'cannot get resource "pods/exec"' in captured.err and "command=" not in captured.err
    assert 'not seen: GET /api/v1/namespaces/team/events: User "aimaster" cannot list resource "events"' in captured.out
    server.api.forbidden.add(("get", "pods"))
    assert main(["status", *N, "ctr"]) == 0 and "ctr" in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(("words", "part"), [
    (["status", *N, "ctr"], "there is no TFJob ctr in namespace team"),
    (["scale", *N, "ctr", "--ps", "2"], "there is no TFJob ctr"), (["logs", *N, "ctr"], "there is no TFJob ctr"),
    (["status", *N, "Not_A_Name"], "is no name of a TFJob"), (["status", *N, "runs/x"], "is no name of a TFJob"),
    (["status", "ctr", "--context", "nowhere"], "nowhere"), (["status", "ctr", "--kubeconfig", "/none"], "/none"),
    (["plan", *N, "a", "b"], "only a running TFJob"), (["logs", "-n", "5", "."], "write --lines 5"),
])  # fmt: skip
def test_bad_usage_is_one_line(server: Server, capsys: pytest.CaptureFixture[str], words: list[str], part: str) -> None:
    check_refused(words, part, capsys)


def test_a_job_that_is_not_elastic_has_a_status_and_no_scaling(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.api.put(TFJOBS, tfjob(elastic=False))
    server.api.put(PODS, pod("ctr-worker-0"))
    assert main(["status", *N, "ctr"]) == 0
    assert "(not elastic)" in capsys.readouterr().out
    check_refused(["scale", *N, "ctr", "--ps", "3"], "is not elastic", capsys)
    server.api.change(TFJOBS, "ctr", tfjob(elastic=False, condition="Succeeded"))
    check_refused(["report", *N, "ctr"], "is not elastic", capsys)


def test_an_invalid_job_is_shown_with_what_is_wrong(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    job = tfjob(condition="Failed")
    job["spec"]["tfReplicaSpecs"]["PS"]["replicas"] = -1
    job["status"]["conditions"][0]["message"] = "spec.tfReplicaSpecs.PS.replicas: is -1"
    server.api.put(TFJOBS, job)
    assert main(["status", *N, "ctr"]) == 0
    assert "spec.tfReplicaSpecs.PS.replicas: is -1" in capsys.readouterr().out


def test_a_cluster_that_does_not_answer_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.unit.cli.cluster.server import kubeconfig

    (tmp_path / "k").write_text(json.dumps(kubeconfig("http://127.0.0.1:1", "team")))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "k"))
    assert main(["status", *N, "ctr"]) == 1
    assert "the Kubernetes API does not answer" in capsys.readouterr().err


def test_without_the_client_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from deeprec_ext.cli.cluster import target

    monkeypatch.setattr(target, "NEEDED", ("no_such_module",))
    check_refused(["status", *N, "ctr"], "pip install 'deeprec-ext[kubernetes]'", capsys)
