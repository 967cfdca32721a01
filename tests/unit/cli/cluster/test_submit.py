"""`submit`: everything is checked before anything is made; without an operator all of it is made, once."""

from __future__ import annotations

import copy
import io
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from deeprec_ext.cli.cluster import waiting
from deeprec_ext.cli.main import main
from deeprec_ext.options import read_specification
from tests.unit.cli.cluster.server import ANNOTATION, Server, aimaster, tfjob
from tests.unit.cli.usage import check_refused
from tfjob.model.kinds import CONFIG_MAPS, PODS, TFJOBS, Manifest


def a_job(name: str = "ctr", **more: Any) -> Manifest:
    made = tfjob(name, condition="", **more)
    del made["status"], made["metadata"]["namespace"]
    return made


def file_of(*manifests: Manifest) -> str:
    path = Path("job.yaml")
    path.write_text(yaml.safe_dump_all(manifests))
    return str(path)


def changed(path: str, value: Any, **more: Any) -> Manifest:
    """A job with another value at `a/b/c`; `None`: without it."""
    made = copy.deepcopy(a_job(**more))
    at: Any = made
    *way, last = path.split("|")
    for key in way:
        at = at[int(key)] if key.isdigit() else at[key]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return made


NO_OPERATOR = ["--no-operator", "--image", "deeprec-ext:1"]


def test_a_job_is_created_in_the_kubeconfigs_namespace(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", file_of(a_job())]) == 0
    assert server.api.names(TFJOBS) == ["ctr"]
    out = capsys.readouterr().out
    assert "TFJob team/ctr is submitted" in out and "next: deeprec-ext status -n team ctr" in out
    check_refused(["submit", file_of(a_job())], "TFJob ctr exists already in namespace team", capsys)


def test_a_job_that_is_not_elastic_is_told_the_annotation_that_makes_it_so(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["submit", file_of(a_job("plain", elastic=False), a_job())]) == 0
    told = capsys.readouterr().err.splitlines()
    assert told == [f'note: TFJob plain: is not elastic; the annotation {ANNOTATION}enabled: "true" makes it so']


def test_json_from_stdin_to_another_namespace(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(a_job(elastic=False))))
    assert main(["submit", "-", "-n", "other", "--json"]) == 0
    [made] = json.loads(capsys.readouterr().out)
    assert (made["namespace"], made["name"]) == ("other", "ctr") and made["uid"]


@pytest.mark.parametrize(("manifest", "part"), [
    (changed("kind", "PyTorchJob"), "kind 'PyTorchJob': only TFJobs"), (changed("apiVersion", "v1"), "apiVersion: is 'v1'"),
    (changed("metadata", None), "metadata: is required"), (changed("metadata|name", "A_B"), "metadata.name: 'A_B' is no"),
    (changed("metadata|namespace", "x"), "metadata.namespace: is 'x', and -n says team"),
    (changed("metadata|annotations|aimaster.deeprec.io/enabled", True), 'enabled]: is no text: write "true", in quotes'),
    (changed("metadata|annotations|aimaster.deeprec.io/max-ps", "many"), "max-ps]: is 'many'"),
    (changed("spec|tfReplicaSpecs|PS|replicas", -1), "spec.tfReplicaSpecs.PS.replicas: is -1"),
    (changed("spec|tfReplicaSpecs|PS|template|spec|containers|0|resources", {"limits": {"cpu": "x"}}), "PS.template.spec"),
    (changed("spec|tfReplicaSpecs", {}), "spec.tfReplicaSpecs: is required"),
    ({**a_job(), "spec": {"tfReplicaSpec": a_job()["spec"]["tfReplicaSpecs"]}},
     "Worker; is spec.tfReplicaSpec meant to be it?"),
])  # fmt: skip
def test_an_invalid_job_names_the_field_and_nothing_is_asked_of_the_server(
    server: Server, capsys: pytest.CaptureFixture[str], manifest: Manifest, part: str
) -> None:
    check_refused(["submit", file_of(manifest), "-n", "team"], part, capsys)
    assert not server.asked.is_set()


@pytest.mark.parametrize(("text", "part"), [
    ("", "there is no TFJob in it"), ("a: [", "job.yaml, line 2: no valid YAML"), ("- 1\n", "is no object"),
    ("hello", "is no object"),
])  # fmt: skip
def test_a_file_without_a_job_is_one_line(
    server: Server, capsys: pytest.CaptureFixture[str], text: str, part: str
) -> None:
    Path("job.yaml").write_text(text)
    check_refused(["submit", "job.yaml"], part, capsys)
    check_refused(["submit", "nowhere.yaml"], "nowhere.yaml: cannot be read", capsys)


@pytest.mark.parametrize(("text", "part"), [
    ("a: &a [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else '*a'] * 9)}]\n" for n in range(20)),
     "with its aliases written out this makes more than 8 MiB"),
    ("kind: TFJob\nspec: &a [*a]\n", "job.yaml, line 2: *a is a part of itself"),
    ("kind: TFJob\nspec: " + "[" * 100_000, "job.yaml, line 2: nested too deep"),
    ("kind: TFJob\nspec: {runPolicy: {backoffLimit: " + "9" * 9_000 + "}}", "line 2: no valid YAML: a number of 9,000 char"),
    ("kind: TFJob\nspec: 2001-99-99", "job.yaml, line 2: no valid YAML"),
    ("kind: List\nitems: 5", "`items` of a List is no list of objects"),
    ("#" * (2 << 20) + "\n", "job.yaml: is larger than 2048 KiB"),
])  # fmt: skip
def test_a_file_that_is_meant_to_harm_is_one_line(
    server: Server, capsys: pytest.CaptureFixture[str], text: str, part: str
) -> None:
    Path("job.yaml").write_text(text)
    check_refused(["submit", "job.yaml", "--dry-run"], part, capsys)
    Path("fine.yaml").write_text(json.dumps(a_job()))
    if "items" not in text:
        overlay = ["--no-operator", "--image", "i", "--aimaster-overlay", "job.yaml"]
        check_refused(["submit", "fine.yaml", *overlay, "--dry-run"], part.replace("job.yaml", "", 1), capsys)
    assert not server.asked.is_set()


def test_what_is_wrong_is_quoted_up_to_a_thousand_characters(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("job.yaml").write_text("kind: [" + "x, " * 100_000 + "]\n")
    assert main(["submit", "job.yaml"]) == 2
    said = capsys.readouterr().err
    assert "job.yaml: kind ['x', 'x'" in said and said.endswith("…\n") and len(said) < 1_100


def test_a_template_that_is_said_once_is_everybodys(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    job = a_job()
    template = job["spec"]["tfReplicaSpecs"]["PS"]["template"]
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"] = template  # PyYAML writes it as an alias
    assert "*id001" in Path(file_of(job)).read_text()
    assert main(["submit", "job.yaml"]) == 0
    made = server.api.objects["tfjobs", "ctr"]["spec"]["tfReplicaSpecs"]
    assert made["Worker"]["template"] == made["PS"]["template"] == template


def test_of_several_documents_all_are_checked_before_one_is_made(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = changed("spec|tfReplicaSpecs|PS|replicas", 0)
    check_refused(["submit", file_of(a_job("one"), bad)], "job.yaml, document 2 of 2: spec.tfReplicaSpecs.PS", capsys)
    check_refused(["submit", file_of(a_job("one"), a_job("one"))], "TFJob one is in it twice", capsys)
    server.api.put(TFJOBS, tfjob("two"))
    check_refused(["submit", file_of(a_job("one"), a_job("two"))], "TFJob two exists already", capsys)
    assert server.api.names(TFJOBS) == ["two"]
    assert main(["submit", file_of({"kind": "List", "items": [a_job("one"), a_job("three")]})]) == 0
    assert server.api.names(TFJOBS) == ["one", "three", "two"]


def test_what_is_not_known_is_a_warning_with_the_nearest_that_is(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = changed("spec|runPolicy", {"cleanPodPolice": "All"}, annotations={f"{ANNOTATION}max-pss": "4"})
    assert main(["submit", file_of(manifest)]) == 0
    err = capsys.readouterr().err
    assert "spec.runPolicy.cleanPodPolice is not known and does nothing; is cleanPodPolicy meant?" in err
    assert f"annotation {ANNOTATION}max-pss is not known and does nothing; is max-ps meant?" in err


@pytest.mark.parametrize("key", ["cleanPodPolicy", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"])
def test_a_key_of_tfjobs_before_v1_is_hinted_to_where_it_is_now(
    server: Server, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    assert main(["submit", file_of(changed(f"spec|{key}", 1))]) == 0
    assert f"spec.{key} is not known and does nothing; is spec.runPolicy.{key} meant?" in capsys.readouterr().err


@pytest.mark.parametrize("prefix", ["ctr-", "c" * 80])
def test_a_job_with_a_prefix_of_a_name_gets_one_as_the_server_would_make_it(
    server: Server, capsys: pytest.CaptureFixture[str], prefix: str
) -> None:
    made = a_job(elastic=False)
    del made["metadata"]["name"]
    made["metadata"]["generateName"] = prefix
    text = file_of(made)
    if len(prefix) > 60:
        check_refused(["submit", text], "metadata.name", capsys)  # the names of its pods would be too long
        return
    assert main(["submit", text]) == 0 == main(["submit", text])
    first, second = server.api.names(TFJOBS)
    assert first != second
    for name in (first, second):
        assert name.startswith(prefix) and len(name) == len(prefix) + 5
        assert "generateName" not in server.api.objects[TFJOBS.plural, name]["metadata"]


def test_a_controller_that_there_is_not_is_refused(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    check_refused(
        ["submit", file_of(changed("spec|runPolicy", {"managedBy": "me"}))], "managedBy: is 'me'; write", capsys
    )


def test_a_cluster_without_tfjobs_says_what_to_do(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.crd = False
    check_refused(
        ["submit", file_of(a_job())],
        "install the operator (docs/kubernetes.md, Install), or submit with --no-op",
        capsys,
    )


def test_rights_that_are_too_narrow_are_named(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.api.forbidden = {("create", "tfjobs")}
    assert main(["submit", file_of(a_job())]) == 1
    assert 'cannot create resource "tfjobs"' in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------------------- dry run


def test_a_dry_run_shows_what_would_be_made_and_asks_the_server(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {f"{ANNOTATION}autoscale": "true", f"{ANNOTATION}max-ps-memory": "4Gi"}
    assert (
        main(["submit", file_of(a_job(annotations=more), a_job("plain", elastic=False, Worker=2, PS=1)), "--dry-run"])
        == 0
    )
    out = capsys.readouterr().out
    assert "TFJob team/ctr: elastic, 2 PS (1 to 4), 1 worker beside the chief (0 to 4), 8 slots" in out
    assert "ctr-aimaster: (image of the operator)" in out and "ctr-ps-1: train:1, cpu 1, ps-1" in out
    assert "autoscale: fastest" in out and "max-ps-memory 4.3 GB" in out
    assert "plain-worker-1: train:1, cpu 1, task worker 1" in out and "plain-ps-0.team.svc:2222" in out
    assert out.endswith("the server accepts it\n")
    assert server.dry_runs == ["TFJob", "TFJob"] and not server.api.names(TFJOBS)


def test_a_dry_run_of_a_job_without_ps(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    job = changed("spec|tfReplicaSpecs|PS", None, annotations={f"{ANNOTATION}strategy": "allreduce"})
    assert main(["submit", file_of(job), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "TFJob team/ctr: elastic, in step, without PS, 1 worker beside the chief (0 to 4)\n" in out
    assert "ctr-worker-0" in out and "-ps-" not in out and "slots" not in out
    both = a_job(annotations={f"{ANNOTATION}strategy": "allreduce"})
    check_refused(
        ["submit", file_of(both), "--dry-run"], "such a job has no PS: leave out spec.tfReplicaSpecs.PS", capsys
    )


def test_a_dry_run_needs_no_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["submit", file_of(a_job()), "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [pod["name"] for pod in found["jobs"][0]["pods"]] == [
        "ctr-aimaster", "ctr-ps-0", "ctr-ps-1", "ctr-chief-0", "ctr-worker-0",
    ]  # fmt: skip
    assert "no server has checked it" in found["server"]
    wrong = changed("spec|tfReplicaSpecs|PS|template|spec|containers|0|command", "python a.py")
    part = 'PS.template.spec.containers[0].command: is \'python a.py\'; must be a list: write ["sh", "-c"'
    check_refused(["submit", file_of(wrong), "--dry-run"], part, capsys)
    check_refused(["submit", file_of(a_job())], "no Kubernetes cluster is configured", capsys)
    check_refused(
        ["submit", "nowhere.yaml"], "nowhere.yaml: cannot be read", capsys
    )  # what is wrong with the file comes first


def test_a_dry_run_that_the_server_refuses_fails(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.api.forbidden = {("create", "tfjobs")}
    assert main(["submit", file_of(a_job()), "--dry-run"]) == 1
    assert 'cannot create resource "tfjobs"' in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------------- no operator


def kinds(server: Server) -> list[str]:
    return sorted(plural for plural, _ in server.api.objects)


MADE = ["configmaps", "networkpolicies", "networkpolicies", "pods", "rolebindings", "roles", "secrets", "serviceaccounts",
        "services"]  # fmt: skip


def test_without_an_operator_all_that_the_aimaster_needs_is_made(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.crd = False
    assert main(["submit", file_of(a_job()), *NO_OPERATOR]) == 0
    assert kinds(server) == MADE
    config_map = server.api.objects["configmaps", "ctr-tfjob"]
    uid = config_map["metadata"]["uid"]
    assert json.loads(config_map["data"]["tfjob.json"])["metadata"]["name"] == "ctr"
    others = [one for (plural, _), one in server.api.objects.items() if plural != "configmaps"]
    assert {one["metadata"]["ownerReferences"][0]["uid"] for one in others} == {uid}
    [container] = server.api.objects["pods", "ctr-aimaster"]["spec"]["containers"]
    assert f"/var/lib/deeprec-ext/ctr-{uid[:8]}" in container["command"]
    assert not read_specification(container["env"][0]["value"]).operator
    assert container["image"] == "deeprec-ext:1"


def test_submitting_again_completes_what_is_there_and_changes_nothing(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["submit", file_of(a_job()), *NO_OPERATOR]
    assert main(words) == 0
    secret = copy.deepcopy(server.api.objects["secrets", "ctr-aimaster-certs"])
    server.api.vanish(PODS, "ctr-aimaster")
    assert main(words) == 0
    assert kinds(server) == MADE and server.api.objects["secrets", "ctr-aimaster-certs"] == secret
    server.api.change(PODS, "ctr-aimaster", {"status": {"phase": "Failed", "reason": "Evicted"}})
    lost = server.api.objects["pods", "ctr-aimaster"]["metadata"]["uid"]
    assert main(words) == 0
    assert server.api.objects["pods", "ctr-aimaster"]["metadata"]["uid"] != lost
    capsys.readouterr()
    check_refused(
        ["submit", file_of(a_job(PS=1, Chief=1)), *NO_OPERATOR], "exists already, with another manifest", capsys
    )


def test_a_job_that_has_ended_is_not_started_again(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["submit", file_of(a_job()), *NO_OPERATOR]
    assert main(words) == 0
    capsys.readouterr()
    uid = server.api.objects["configmaps", "ctr-tfjob"]["metadata"]["uid"]
    metadata = {"name": "ctr-aimaster-state", "ownerReferences": [{"uid": uid}]}
    server.api.put(CONFIG_MAPS, {"metadata": metadata, "data": {"summary.json": "{}"}})
    server.api.change(PODS, "ctr-aimaster", {"status": {"phase": "Succeeded"}})
    check_refused(words, "has ended: `kubectl delete configmap ctr-tfjob -n team`", capsys)


@pytest.mark.parametrize("plural", ["roles", "secrets", "pods"])
def test_half_a_job_is_removed_again(server: Server, capsys: pytest.CaptureFixture[str], plural: str) -> None:
    server.api.forbidden = {("create", plural)}
    assert main(["submit", file_of(a_job()), *NO_OPERATOR]) == 1
    assert f'cannot create resource "{plural}"' in capsys.readouterr().err
    assert server.api.names(CONFIG_MAPS) == []  # it owns the rest, which goes with it


def test_what_cannot_be_removed_again_is_told_after_the_reason(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.api.forbidden = {("create", "roles"), ("delete", "configmaps")}
    assert main(["submit", file_of(a_job()), *NO_OPERATOR]) == 1
    err = capsys.readouterr().err
    assert 'cannot create resource "roles"' in err.splitlines()[-1]
    assert "submit it again, or `kubectl delete configmap ctr-tfjob -n team`" in err


def test_network_policies_that_may_not_be_made_are_a_warning(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.api.forbidden = {("create", "networkpolicies")}
    assert main(["submit", file_of(a_job()), *NO_OPERATOR]) == 0
    assert "not protected by a NetworkPolicy" in capsys.readouterr().err
    assert kinds(server) == [one for one in MADE if one != "networkpolicies"]


def test_a_dry_run_without_an_operator_makes_nothing(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", file_of(a_job()), *NO_OPERATOR, "--dry-run"]) == 0
    assert "; without an operator" in capsys.readouterr().out
    assert not server.api.objects and "ConfigMap" in server.dry_runs and "Pod" not in server.dry_runs


@pytest.mark.parametrize(("words", "part"), [
    (["--no-operator"], "--no-operator needs --image"), (["--image", "x"], "--image goes with --no-operator"),
    ([*NO_OPERATOR, "--aimaster-overlay", "none.yaml"], "--aimaster-overlay none.yaml"),
])  # fmt: skip
def test_flags_that_contradict_each_other(
    server: Server, capsys: pytest.CaptureFixture[str], words: list[str], part: str
) -> None:
    check_refused(["submit", file_of(a_job()), *words], part, capsys)


def test_without_an_operator_a_job_has_to_be_elastic(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    check_refused(["submit", file_of(a_job(elastic=False)), *NO_OPERATOR], "has to be elastic", capsys)


# --------------------------------------------------------------------------------------------------------------- --wait


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.02)


def later(server: Server, *steps: Any) -> threading.Thread:
    """Each step once the job has been looked at again."""

    def run() -> None:
        while not {("tfjobs", "ctr"), ("pods", "ctr-aimaster")} & set(server.api.objects):
            threading.Event().wait(0.01)
        for step in steps:
            seen = len(server.api.calls)
            while len(server.api.calls) < seen + 8:
                threading.Event().wait(0.01)
            step()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize(("end", "code"), [("Succeeded", 0), ("Failed", 1)])
def test_waiting_tells_conditions_and_ends_with_the_job(
    server: Server, capsys: pytest.CaptureFixture[str], end: str, code: int
) -> None:
    line = {"metadata": {"annotations": {f"{ANNOTATION}status": "PS 2, workers 1, step 7"}}}
    thread = later(
        server, lambda: server.api.change(TFJOBS, "ctr", {**tfjob(condition="Running"), **line}),
        lambda: server.api.change(TFJOBS, "ctr", {"status": tfjob(condition=end)["status"]}),
    )  # fmt: skip
    assert main(["submit", file_of(a_job()), "--wait"]) == code
    thread.join(20)
    out = capsys.readouterr().out
    assert "Running: it is Running" in out and "PS 2, workers 1, step 7" in out and f"{end}: it is {end}" in out
    assert out.count("step 7") == 1


@pytest.mark.usefixtures("_quick")
def test_waiting_for_a_job_that_is_deleted_fails(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    later(server, lambda: server.api.vanish(TFJOBS, "ctr"))
    assert main(["submit", file_of(a_job()), "--wait"]) == 1
    assert "it has been deleted" in capsys.readouterr().out


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize(("phase", "code"), [("Succeeded", 0), ("Failed", 1)])
def test_waiting_without_an_operator_goes_by_the_aimaster(server: Server, phase: str, code: int) -> None:
    later(server, lambda: server.api.change(PODS, "ctr-aimaster", aimaster(phase)))
    assert main(["submit", file_of(a_job()), *NO_OPERATOR, "--wait", "--json"]) == code
