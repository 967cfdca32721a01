"""`queue` of a cluster: what its TFJobs say of themselves, whatever else may be seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deeprec_ext.arbiter.observed import Allowance, Bid, Count
from deeprec_ext.arbiter.wire import allowance_text, bid_text
from deeprec_ext.cli.main import main
from tests.unit.cli.cluster.server import Server
from tests.unit.tfjob.arbiting.clusters import pods_of, priority_class, tfjob
from tfjob.arbiting.problems import NO_RIGHTS
from tfjob.model.events import FORBIDDEN
from tfjob.model.kinds import EVENTS, PODS, PRIORITY_CLASSES, TFJOBS


@pytest.fixture
def cluster(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """One job that runs, one that waits, and one that has ended; no pool on this machine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    bid = Bid(5.0, Count(1, 2), Count(2, 6), (), training=True)
    runs = tfjob("runs", priority="gold", annotations={
        "worth": bid_text(bid), "allowance": allowance_text(Allowance("", True, 1, 2, 7.0, "there is room for two")),
    })  # fmt: skip
    waits = allowance_text(Allowance("", False, 0, 0, 8.0, "waits for 9 cores: 2 of 16 free"))
    ended = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    for one in (runs, tfjob("waits", annotations={"allowance": waits}), tfjob("ended", status=ended)):
        server.api.put(TFJOBS, one)
    for one in pods_of(runs, "n1", ps=1, workers=2):
        server.api.put(PODS, one)
    server.api.put(PRIORITY_CLASSES, priority_class("gold", 100))
    return server


def test_jobs_are_shown_with_what_they_may_have_and_why(cluster: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queue"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("all namespaces: 2 elastic jobs, 1 of them waiting\n")
    for words in ("ml/runs", "there is room for two", "ml/waits", "needs 9 cores: 2 of 16 free"):
        assert words in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80
    assert "ended" not in out


def test_of_one_namespace_it_says_which(cluster: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queue", "-n", "ml"]) == 0
    assert capsys.readouterr().out.startswith("namespace ml: 2 elastic jobs")


def test_programs_get_the_same_as_json(cluster: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queue", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["namespace"] is None and len(found["jobs"]) == 2
    assert "there is room for two" in json.dumps(found["jobs"])


def test_what_the_operator_does_without_is_said_once_for_a_namespace(
    cluster: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "the arbiter may see no nodes: the ResourceQuota of namespace ml is all the room"
    for number, (reason, message) in enumerate(
        [
            (NO_RIGHTS, text),
            (NO_RIGHTS, text),
            (FORBIDDEN, "the operator may not list pods"),
            ("Scaled", "to 3 workers"),
        ]
    ):
        metadata = {"name": f"e{number}", "namespace": "ml"}
        about = {"kind": "TFJob", "name": "runs"}
        cluster.api.put(EVENTS, {"metadata": metadata, "reason": reason, "message": message, "involvedObject": about})
    assert main(["queue"]) == 0
    out = capsys.readouterr().out
    assert out.count(f"ml: {text}") == 1 and "ml: the operator may not list pods" in out and "3 workers" not in out
    assert main(["queue", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lacks"] == [f"ml: {text}", "ml: the operator may not list pods"]
    cluster.api.forbidden.add(("list", "events"))
    assert main(["queue"]) == 0 and text not in capsys.readouterr().out


def test_whoever_may_see_less_is_shown_less(cluster: Server, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.api.forbidden |= {("list", "pods"), ("list", "priorityclasses"), ("list", "resourcequotas")}
    assert main(["queue"]) == 0
    assert "ml/waits" in capsys.readouterr().out
    cluster.api.forbidden.add(("list", "tfjobs"))
    assert main(["queue", "-n", "ml"]) == 1
    assert "list" in (said := capsys.readouterr().err) and "tfjobs" in said
