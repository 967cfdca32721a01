"""`queue` of a cluster: what its TFJobs say of themselves, whatever else may be seen."""

from __future__ import annotations

import argparse
import functools
import json

import pytest

from deeprec_ext.arbiter.observed import Allowance, Bid, Count
from deeprec_ext.cli.cluster import queue
from deeprec_ext.cli.cluster.target import Target
from tests.unit.cli.cluster.server import Server
from tests.unit.tfjob.arbiting.clusters import pods_of, priority_class, tfjob
from tfjob.api.client import ForbiddenError
from tfjob.model.arbitrated import written_allowance, written_bid
from tfjob.model.kinds import PODS, PRIORITY_CLASSES, TFJOBS


def asked(as_json: bool = False, namespace: str | None = None) -> int:
    arguments = argparse.Namespace(json=as_json, watch=False, namespace=namespace)
    return Target(namespace=namespace).run(functools.partial(queue.run, arguments))


@pytest.fixture
def cluster(server: Server) -> Server:
    """One job that runs, one that waits, and one that has ended."""
    bid = Bid(5.0, Count(1, 2), Count(2, 6), (), training=True)
    runs = tfjob("runs", priority="gold", annotations={
        "worth": written_bid(bid), "allowance": written_allowance(Allowance("", True, 1, 2, 7.0, "there is room for two")),
    })  # fmt: skip
    waits = written_allowance(Allowance("", False, 0, 0, 8.0, "waits for 9 cores: 2 of 16 free"))
    ended = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    for one in (runs, tfjob("waits", annotations={"allowance": waits}), tfjob("ended", status=ended)):
        server.api.put(TFJOBS, one)
    for one in pods_of(runs, "n1", ps=1, workers=2):
        server.api.put(PODS, one)
    server.api.put(PRIORITY_CLASSES, priority_class("gold", 100))
    return server


def test_jobs_are_shown_with_what_they_may_have_and_why(cluster: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked() == 0
    out = capsys.readouterr().out
    assert out.startswith("all namespaces: 2 elastic jobs, 1 of them waiting\n")
    for words in ("ml/runs", "there is room for two", "ml/waits", "waits for 9 cores: 2 of 16 free"):
        assert words in out
    assert "ended" not in out


def test_programs_get_the_same_as_json(cluster: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["namespace"] is None and len(found["jobs"]) == 2
    assert "there is room for two" in json.dumps(found["jobs"])


def test_whoever_may_see_less_is_shown_less(cluster: Server, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.api.forbidden |= {("list", "pods"), ("list", "priorityclasses"), ("list", "resourcequotas")}
    assert asked() == 0
    assert "ml/waits" in capsys.readouterr().out
    cluster.api.forbidden.add(("list", "tfjobs"))
    with pytest.raises(ForbiddenError, match="tfjobs"):
        asked()
