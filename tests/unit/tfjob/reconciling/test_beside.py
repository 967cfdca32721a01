"""Beside Kubeflow: an annotated job has an AIMaster as long as it runs, and nothing else of it is ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.tfjob.world import ELASTIC, Cluster, manifest
from tfjob.model import names
from tfjob.reconciling import beside
from tfjob.reconciling.actions import Actions
from tfjob.reconciling.admission import admit
from tfjob.reconciling.elastic_end import FINISH_SECONDS
from tfjob.reconciling.observed import Observed

PREFIX = names.ANNOTATION_PREFIX


class Beside(Cluster):
    """Only the AIMaster is seen."""

    def decide(self) -> Actions:
        own = names.aimaster_name("mnist")
        pods = tuple(pod for name, pod in self.pods.items() if name == own)
        return beside.decide(Observed(self.manifest, pods, (), None, self.options), self.now)

    def condition(self, type_: str) -> None:
        """Kubeflow says it."""
        self.manifest["status"] = {
            "startTime": "2025-01-31T12:00:00Z", "completionTime": "2025-01-31T12:00:00Z",
            "conditions": [{"type": type_, "status": "True", "reason": f"TFJob{type_}", "message": ""}],
        }  # fmt: skip


def job(*, admitted: bool = True, **how: Any) -> Beside:
    written = manifest(annotations={**ELASTIC, **how.pop("annotations", {})}, **how)
    return Beside(admit(written, "ml", package_image="i:1").job if admitted else written)


def test_it_has_an_aimaster_and_nothing_is_written_of_the_job() -> None:
    it = job()
    before = json.dumps(it.manifest)
    actions = it.look()
    assert actions.aimaster is not None and (actions.aimaster.ps, actions.aimaster.workers) == (2, 1)
    assert not actions.writes and json.dumps(it.manifest) == before
    assert [event.reason for event in actions.events] == ["RestartPolicyChanged"]
    it.aimaster("Running")
    again = it.look()
    assert again.aimaster is not None and not again.events, "told once"


@pytest.mark.parametrize("how", [{"annotations": {PREFIX + "enabled": "false"}}, {"admitted": False}])
def test_an_ordinary_job_is_left_alone_and_one_that_was_missed_is_told_so(how: dict[str, Any]) -> None:
    actions = job(**how).look()
    assert actions.aimaster is None and not actions.writes
    assert [event.reason for event in actions.events] == (["NotElastic"] if how.get("admitted") is False else [])


def test_it_goes_with_a_suspension_and_comes_back() -> None:
    it = job()
    it.aimaster("Running")
    it.manifest["spec"].setdefault("runPolicy", {})["suspend"] = True
    assert [one.name for one in it.look().delete_pods] == ["mnist-aimaster"] and it.look().status is None
    it.manifest["spec"]["runPolicy"]["suspend"] = False
    assert it.look().aimaster is not None


def test_after_the_end_it_may_finish_and_does_not_outlive_the_job() -> None:
    it = job()
    it.aimaster("Running")
    it.condition("Succeeded")
    actions = it.look()
    assert not actions.writes and 0 < (actions.again_seconds or 0) <= FINISH_SECONDS
    it.pass_seconds(FINISH_SECONDS + 1)
    assert [one.name for one in it.look().delete_pods] == ["mnist-aimaster"]


def test_an_aimaster_that_has_ended_stays_for_its_log() -> None:
    it = job()
    it.aimaster("Succeeded")
    assert not it.look().writes
    it.condition("Failed")
    assert not it.look().writes


def test_one_that_was_lost_makes_way() -> None:
    it = job()
    it.aimaster("Failed", code=137)
    assert [one.name for one in it.look().delete_pods] == ["mnist-aimaster"]


def test_a_slip_of_the_pen_later_does_not_take_the_job_down() -> None:
    it = job()
    it.manifest["metadata"]["annotations"][PREFIX + "max-ps"] = "many"
    actions = it.look()
    assert not actions.writes and "max-ps" in actions.events[0].message
    it.manifest["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = -1
    assert it.look() == Actions()
