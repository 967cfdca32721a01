"""An elastic job that may not run now: nothing of it is made, or what there is is kept first and then goes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.tfjob.world import ELASTIC, Cluster, manifest
from tfjob.model import names
from tfjob.model.conditions import condition
from tfjob.model.parked import Parked
from tfjob.model.spec import TFJob
from tfjob.reconciling.observed import Options
from tfjob.reconciling.parking import CUT_SECONDS, KEEPING_SECONDS

ARBITER = Options(arbiter_seconds=20.0)
PREFIX = "aimaster.deeprec.io/"
DISK = {f"{PREFIX}backup": "peer,disk=/backups"}


def allowed(runs: bool, ps: int = 0, workers: int = 0, why: str = "8 of 8 cores are used") -> str:
    return json.dumps({"runs": runs, "ps": ps, "workers": workers, "since": 1.0, "why": why})


def elastic(options: Options = ARBITER, **annotations: str) -> Cluster:
    said = {f"{PREFIX}{key.replace('_', '-')}": value for key, value in annotations.items()}
    return Cluster(
        manifest({"PS": 2, "Chief": 1, "Worker": 3}, annotations={**ELASTIC, **said}, run_policy={}), options
    )


def annotate(cluster: Cluster, key: str, value: str) -> None:
    cluster.manifest["metadata"]["annotations"][key] = value


def runs(cluster: Cluster) -> None:
    """Its AIMaster has begun, and its chief trains."""
    cluster.aimaster("Running")
    owner = [TFJob.parse(cluster.manifest).owner_reference]
    labels = names.replica_labels("mnist", "Chief", 0)
    metadata = {"name": "mnist-chief-0", "uid": "u-chief", "labels": labels, "ownerReferences": owner}
    cluster.pods["mnist-chief-0"] = {"metadata": metadata, "status": {"phase": "Running"}}
    cluster.settle()
    assert cluster.state == "Running"


def says(cluster: Cluster, kept: str = "kept: disk backup of step 1,200", why: str = "", again: float = 0.0) -> None:
    annotate(cluster, names.PARKED_ANNOTATION, Parked(kept, why, again).text())


def started() -> Cluster:
    cluster = elastic(backup="peer,disk=/backups")
    annotate(cluster, names.ALLOWANCE_ANNOTATION, allowed(True, 2, 3))
    cluster.settle()
    runs(cluster)
    return cluster


# ---------------------------------------------------------------------------------------------------- before it begins


def test_a_new_job_without_room_waits_and_says_why_and_begins_with_what_it_is_allowed() -> None:
    cluster = elastic()
    annotate(cluster, names.ALLOWANCE_ANNOTATION, allowed(False))
    cluster.settle()
    assert not cluster.aimaster_wanted and not cluster.pods and cluster.state == "Queued"
    assert cluster.last["message"] == "TFJob mnist waits for room: 8 of 8 cores are used."
    assert cluster.reasons() == ["TFJobQueued"] and "startTime" not in cluster.status
    cluster.pass_seconds(3600)
    annotate(cluster, names.ALLOWANCE_ANNOTATION, allowed(False, why="9 of 9 cores are used"))
    cluster.settle()
    assert "9 of 9 cores" in cluster.last["message"] and cluster.reasons() == ["TFJobQueued"], "no second Event"
    annotate(cluster, names.ALLOWANCE_ANNOTATION, allowed(True, 1, 2))
    actions = cluster.look()
    assert actions.aimaster is not None
    assert (actions.aimaster.first_ps, actions.aimaster.first_workers) == (1, 2)
    assert (actions.aimaster.ps, actions.aimaster.workers) == (2, 3), "what is written stays written"
    assert condition(cluster.status, "Queued") is None and "startTime" in cluster.status


def test_never_less_than_the_least_and_without_an_allowance_as_it_is_written() -> None:
    cluster = elastic(min_workers="2")
    annotate(cluster, names.ALLOWANCE_ANNOTATION, allowed(True, 0, 0))
    actions = cluster.look()
    assert actions.aimaster and (actions.aimaster.first_ps, actions.aimaster.first_workers) == (1, 2)
    annotate(cluster, names.ALLOWANCE_ANNOTATION, "{broken")
    cluster.pass_seconds(21)
    actions = cluster.look()
    assert actions.aimaster and (actions.aimaster.first_ps, actions.aimaster.first_workers) == (0, -1)


def test_an_arbiter_that_is_dead_holds_nobody() -> None:
    cluster = elastic()
    actions = cluster.look()
    assert cluster.state == "Queued" and not cluster.aimaster_wanted
    assert actions.again_seconds is not None and 19 <= actions.again_seconds <= 20
    cluster.pass_seconds(21)
    actions = cluster.look()
    assert actions.aimaster is not None and actions.aimaster.first_ps == 0, "as it is written"


def test_without_an_arbiter_what_it_once_wrote_counts_nothing() -> None:
    cluster = elastic(Options())
    annotate(cluster, names.ALLOWANCE_ANNOTATION, allowed(False))
    actions = cluster.look()
    assert actions.aimaster is not None and (actions.aimaster.first_ps, actions.aimaster.first_workers) == (0, -1)


def test_ordinary_jobs_are_none_of_the_arbiter_s() -> None:
    cluster = Cluster(manifest({"Worker": 1}, annotations={names.ALLOWANCE_ANNOTATION: allowed(False)}), ARBITER)
    cluster.settle()
    assert set(cluster.pods) == {"mnist-worker-0"}


def test_a_job_that_waits_for_longer_than_it_may_fails_with_what_it_waited_for() -> None:
    cluster = elastic(max_wait="10m")
    annotate(cluster, names.ALLOWANCE_ANNOTATION, allowed(False))
    cluster.settle()
    assert cluster.decide().again_seconds == 600
    cluster.pass_seconds(599)
    cluster.settle()
    assert cluster.state == "Queued"
    cluster.pass_seconds(1)
    cluster.settle()
    assert cluster.state == "Failed" and condition(cluster.status, "Queued") is None
    assert "(max-wait): 8 of 8 cores are used" in cluster.last["message"]


# ---------------------------------------------------------------------------------------------------- while it runs


@pytest.mark.parametrize("how", ["user", "arbiter"])
def test_what_there_is_is_kept_before_the_pods_go_and_the_job_goes_on_with_it(how: str) -> None:
    cluster = started()
    began = cluster.status["startTime"]

    def stop(value: bool) -> None:
        if how == "user":
            cluster.manifest["spec"]["runPolicy"]["suspend"] = value
        else:
            annotate(cluster, names.ALLOWANCE_ANNOTATION, allowed(not value, 1, 1, "job ads/next has priority 100"))

    stop(True)
    actions = cluster.look()
    assert not actions.delete_pods and cluster.last["reason"] == "TFJobSuspending" and cluster.last["status"] == "False"
    assert actions.again_seconds == CUT_SECONDS and not cluster.decide().writes
    cluster.pass_seconds(40)
    assert not cluster.look().delete_pods
    says(cluster)
    cluster.settle()
    assert cluster.living == set() and cluster.state == "Suspended" and cluster.last["status"] == "True"
    assert cluster.last["reason"] == ("TFJobSuspended" if how == "user" else "TFJobParked")
    assert cluster.last["message"].endswith("; kept: disk backup of step 1,200.")
    assert ("job ads/next has priority 100" in cluster.last["message"]) == (how == "arbiter")
    assert condition(cluster.status, "Running")["status"] == "False"  # type: ignore[index]
    cluster.reap()
    cluster.pass_seconds(1000)
    assert not cluster.look().writes and not cluster.aimaster_wanted
    stop(False)
    actions = cluster.look()
    assert actions.aimaster is not None and cluster.reasons()[-1] == "TFJobResumed"
    assert not cluster.manifest["metadata"]["annotations"][names.PARKED_ANNOTATION], "of the AIMaster that was"
    assert cluster.status["startTime"] > began
    if how == "arbiter":
        assert (actions.aimaster.first_ps, actions.aimaster.first_workers) == (1, 1)
    runs(cluster)


@pytest.mark.parametrize(("disk", "most"), [(True, CUT_SECONDS), (False, KEEPING_SECONDS)])
def test_an_aimaster_that_says_nothing_is_not_waited_for_for_long(disk: bool, most: float) -> None:
    cluster = elastic(Options(), **({"backup": "disk=/backups"} if disk else {}))
    cluster.settle()
    runs(cluster)
    cluster.manifest["spec"]["runPolicy"]["suspend"] = True
    cluster.settle()
    cluster.pass_seconds(most - 1)
    assert not cluster.look().delete_pods
    cluster.pass_seconds(1)
    cluster.settle()
    assert cluster.living == set() and "has not said what was kept" in cluster.last["message"]


@pytest.mark.parametrize("phase", ["Pending", "Failed", ""])
def test_an_aimaster_that_is_only_rescheduled_is_waited_for_before_the_pods_go(phase: str) -> None:
    def away(cluster: Cluster) -> None:
        if phase:
            cluster.aimaster(phase)
        else:
            del cluster.pods["mnist-aimaster"]
        cluster.manifest["spec"]["runPolicy"]["suspend"] = True
        actions = cluster.look()
        assert cluster.last["reason"] == "TFJobSuspending" and actions.aimaster is not None, "it is made again"
        assert {one.name for one in actions.delete_pods} == ({"mnist-aimaster"} if phase == "Failed" else set())
        assert actions.again_seconds == KEEPING_SECONDS

    cluster = started()
    away(cluster)
    cluster.pass_seconds(KEEPING_SECONDS - 1)
    assert "mnist-chief-0" not in {one.name for one in cluster.look().delete_pods}
    cluster.aimaster("Running")
    cluster.pass_seconds(60)
    assert not cluster.look().delete_pods, "it is there, and has as long as any other"
    says(cluster)
    cluster.settle()
    assert cluster.living == set() and cluster.last["message"].endswith("; kept: disk backup of step 1,200.")
    cluster = started()
    away(cluster)
    cluster.pass_seconds(KEEPING_SECONDS)
    cluster.settle()
    assert cluster.living == set() and "has not said what was kept" in cluster.last["message"]


@pytest.mark.parametrize("gone", [False, True])
def test_where_nothing_runs_that_could_be_kept_nobody_is_waited_for(gone: bool) -> None:
    cluster = started()
    cluster.aimaster("Pending")
    if gone:
        del cluster.pods["mnist-chief-0"]
    else:
        cluster.pods["mnist-chief-0"]["status"]["phase"] = "Pending"
    cluster.manifest["spec"]["runPolicy"]["suspend"] = True
    cluster.settle()
    assert cluster.living == set() and cluster.state == "Suspended"


def test_whoever_changes_their_mind_in_time_is_heard_and_what_has_stopped_is_finished_first() -> None:
    cluster = started()
    policy: dict[str, Any] = cluster.manifest["spec"]["runPolicy"]
    policy["suspend"] = True
    cluster.look()
    policy["suspend"] = False
    cluster.settle()
    suspended = condition(cluster.status, "Suspended")
    assert suspended is not None and suspended["reason"] == "TFJobResumed" and "chief-0" in cluster.living
    policy["suspend"] = True
    cluster.look()
    says(cluster)
    policy["suspend"] = False
    actions = cluster.look()
    assert {one.name for one in actions.delete_pods} == {"mnist-aimaster", "mnist-chief-0"}
    assert cluster.look().aimaster is not None, "and then it goes on"


def test_a_job_that_has_succeeded_is_not_suspended_any_more() -> None:
    cluster = started()
    cluster.end("chief-0", 0)
    cluster.manifest["spec"]["runPolicy"]["suspend"] = True
    cluster.settle()
    assert cluster.state == "Succeeded"


def test_a_strict_job_that_parks_itself_is_tried_again_after_a_while() -> None:
    cluster = elastic(Options(), supervise="strict")
    cluster.settle()
    runs(cluster)
    says(cluster, "kept: 2 PS", "strict, and there is no room for ps-1", 60.0)
    cluster.settle()
    assert cluster.living == set() and cluster.last["reason"] == "TFJobParked"
    assert "no room for ps-1" in cluster.last["message"]
    cluster.reap()
    assert 0 < (cluster.decide().again_seconds or 0) <= 60 and not cluster.aimaster_wanted
    cluster.pass_seconds(61)
    assert cluster.look().aimaster is not None


def test_a_strict_job_that_has_parked_itself_is_woken_by_what_the_arbiter_allows_later_and_by_nothing_before() -> None:
    cluster = elastic(supervise="strict")

    def allow(seconds: float, runs: bool = True) -> None:
        since = cluster.now.timestamp() + seconds
        told = {"runs": runs, "ps": 2, "workers": 3, "since": since, "why": "there is room"}
        annotate(cluster, names.ALLOWANCE_ANNOTATION, json.dumps(told))

    allow(0)
    cluster.settle()
    runs(cluster)
    cluster.pass_seconds(60)
    says(cluster, "kept: 2 PS", "strict, and there is no room for ps-1", 900.0)
    cluster.settle()
    cluster.reap()
    cluster.pass_seconds(5)
    assert not cluster.look().writes and not cluster.aimaster_wanted, "of before: there was no room by it"
    allow(0, runs=False)
    cluster.look()
    assert not cluster.aimaster_wanted
    allow(0)
    assert cluster.look().aimaster is not None and cluster.reasons()[-1] == "TFJobResumed"
    without = elastic(Options(), supervise="strict")
    without.settle()
    runs(without)
    says(without, "kept: 2 PS", "strict, and there is no room for ps-1", 900.0)
    without.settle()
    without.reap()
    annotate(
        without, names.ALLOWANCE_ANNOTATION, cluster.manifest["metadata"]["annotations"][names.ALLOWANCE_ANNOTATION]
    )
    without.look()
    assert not without.aimaster_wanted, "without an arbiter the annotation says nothing"


def test_a_word_that_was_copied_with_the_manifest_of_another_job_says_nothing() -> None:
    cluster = elastic(Options(), backup="disk=/backups")
    says(cluster, why="of another job", again=60.0)
    cluster.settle()
    assert cluster.aimaster_wanted and not cluster.manifest["metadata"]["annotations"][names.PARKED_ANNOTATION]
    runs(cluster)
    assert cluster.reasons() == []


def test_a_strict_job_s_gang_is_all_of_it() -> None:
    for supervise, members in (("strict", 6), ("dynamic", 2)):
        cluster = elastic(Options(scheduler="coscheduling"), supervise=supervise)
        cluster.settle()
        assert cluster.pod_group is not None and cluster.pod_group["spec"]["minMember"] == members


def test_annotations_that_say_nothing_sensible_are_refused() -> None:
    for key, value in (("supervise", "maybe"), ("max-wait", "-5m"), ("max-wait", "soon")):
        cluster = elastic(**{key.replace("-", "_"): value})
        cluster.settle()
        assert cluster.state == "Failed" and key in cluster.last["message"]
