"""Beside Kubeflow: pods are made and deleted by `replicas` alone. Kubeflow's controller is played here, see `Kubeflow`."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from deeprec_ext.aimaster.kubernetes import ending, replicas
from deeprec_ext.aimaster.kubernetes.naming import Naming
from deeprec_ext.aimaster.kubernetes.replicas import Replicas, ReplicasMaker
from deeprec_ext.errors import UnreachableError, UsageError
from tests.unit.aimaster.kubernetes.fake_api import EVENTS, PODS, SERVICES, FakeApi
from tests.unit.aimaster.kubernetes.test_running import Cluster, cluster, tfjob
from tfjob.model import names
from tfjob.model.kinds import TFJOBS, Manifest
from tfjob.model.names import INDEX_LABEL, SCALED_TO_ANNOTATION, TYPE_LABEL
from tfjob.model.spec import TFJob
from tfjob.pods import replica
from tfjob.reconciling.admission import admit


class Kubeflow:
    """What the training operator does for the pods of a job: missing indices are created, surplus ones deleted, and of a pod
    that has succeeded nothing is done. Not its status, its events, or how it restarts pods that failed as a whole."""

    def __init__(self, api: FakeApi) -> None:
        self._api = api
        self.paused = False

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.005)
            manifest = self._api.objects.get((TFJOBS.plural, "ctr"))
            if manifest is not None and not self.paused:
                await self._look(TFJob.parse(copy.deepcopy(manifest)))

    async def _look(self, job: TFJob) -> None:
        for type_, spec in job.specs.items():
            for index in range(spec.replicas):
                if names.pod_name("ctr", type_, index) not in self._api.names(PODS):
                    await self._api.create(PODS, "team", replica.pod(job, type_, index))
        for (plural, name), one in list(self._api.objects.items()):
            labels = one["metadata"].get("labels") or {}
            for type_, spec in job.specs.items():
                ours = plural == PODS.plural and labels.get(TYPE_LABEL) == type_.lower()
                going = one["metadata"].get("deletionTimestamp")
                if ours and int(labels[INDEX_LABEL]) >= spec.replicas and not going:
                    await self._api.delete(PODS, "team", name)


class Beside(Cluster):
    kubeflow: Kubeflow

    @property
    def sizes(self) -> tuple[dict[str, int], dict[str, int]]:
        """Of the spec, and as noted."""
        found = self.api.objects["tfjobs", "ctr"]
        counts = {kind: one["replicas"] for kind, one in found["spec"]["tfReplicaSpecs"].items() if kind != "Chief"}
        return counts, json.loads(found["metadata"]["annotations"].get(SCALED_TO_ANNOTATION, "{}"))

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        for _ in range(800):
            if condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"not in time: {what}; {self.sizes}, {self.api.names(PODS)}")

    async def settled(self, **sizes: int) -> None:
        """Replicas, their note and the pods say so, and no scaling is left."""
        wanted = {f"ctr-{kind.lower()}-{index}" for kind, count in sizes.items() for index in range(count)}
        for _ in range(800):
            ended = all(one.outcome for one in (await self.status()).scalings)
            if ended and self.sizes == (sizes, sizes) and set(self.api.names(PODS)) == {*wanted, "ctr-chief-0"}:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"not in time: {sizes}; {self.sizes}, {self.api.names(PODS)}")

    def edit(self, **counts: int) -> None:
        """kubectl edit."""
        specs = {kind: {"replicas": count} for kind, count in counts.items()}
        self.api.change(TFJOBS, "ctr", {"spec": {"tfReplicaSpecs": specs}})


@contextlib.asynccontextmanager
async def beside(directory: Path) -> AsyncIterator[Beside]:
    async with cluster(directory) as it:
        it.__class__ = Beside
        assert isinstance(it, Beside)
        manifest = tfjob()
        it.api.change(TFJOBS, "ctr", admit(manifest, "team", package_image="deeprec-ext:1").job)
        it.more = {"own_pods": False}
        it.kubeflow = Kubeflow(it.api)
        playing = asyncio.ensure_future(it.kubeflow.run())
        try:
            yield it
        finally:
            playing.cancel()
            await asyncio.wait([playing])


def play(directory: Path, test: Callable[[Beside], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with beside(directory) as it:
            serving = it.aimaster()
            try:
                await it.trains()
                await test(it)
            finally:
                serving.cancel()
                await asyncio.wait([serving])

    asyncio.run(asyncio.wait_for(run(), 60))


def made_by_the_aimaster(it: Beside) -> list[tuple[str, str, str]]:
    return [call for call in it.api.calls if call[:2] == ("create", "services")]


def test_up_and_down_by_replicas_and_the_highest_leave_by_exiting_0(tmp_path: Path) -> None:
    async def test(it: Beside) -> None:
        await it.settled(PS=2, Worker=1)
        counts = []
        patched = it.api.patch

        async def patch(resource: Any, namespace: str, name: str, body: Manifest, *more: Any) -> Manifest:
            counts.append(((body.get("spec") or {}).get("tfReplicaSpecs") or {}).get("PS", {}).get("replicas"))
            return await patched(resource, namespace, name, body, *more)

        it.api.patch = patch  # type: ignore[method-assign]
        await it.scale(ps=4)
        await it.settled(PS=4, Worker=1)
        assert [count for count in counts if count] == [4], "asked for at once"
        ended: dict[str, int] = {}
        deleted = it.api.delete

        async def delete(resource: Any, namespace: str, name: str, **how: Any) -> bool:
            one = it.api.objects.get((resource.plural, name), {})
            for status in (one.get("status") or {}).get("containerStatuses", []):
                ended[name] = (status["state"].get("terminated") or {}).get("exitCode", -1)
            return await deleted(resource, namespace, name, **how)

        it.api.delete = delete  # type: ignore[method-assign]
        await it.scale(ps=2)
        await it.settled(PS=2, Worker=1)
        assert ended == {"ctr-ps-2": 0, "ctr-ps-3": 0}, "both had left before anybody deleted them"
        await it.scale(workers=3)
        await it.settled(PS=2, Worker=3)
        await it.scale(workers=0)
        await it.settled(PS=2, Worker=0)
        outcomes = [one.outcome for one in (await it.status()).scalings]
        assert outcomes == ["committed"] * 4, "what it writes itself is no request of a user's"
        assert not it.api.names(SERVICES)

    play(tmp_path, test)


def test_only_replicas_and_annotations_are_patched(tmp_path: Path) -> None:
    async def test(it: Beside) -> None:
        before = copy.deepcopy(it.api.objects["tfjobs", "ctr"])
        await it.scale(ps=3)
        await it.settled(PS=3, Worker=1)
        after = copy.deepcopy(it.api.objects["tfjobs", "ctr"])
        for one in (before, after):
            del one["spec"]["tfReplicaSpecs"]["PS"]["replicas"]
            del one["metadata"]["annotations"], one["metadata"]["resourceVersion"]
        assert before == after
        assert {call[1] for call in it.api.calls if call[0] == "create"} <= {"pods", "configmaps", EVENTS.plural}

    play(tmp_path, test)


def test_a_user_s_change_is_a_request_and_kubeflow_s_pods_take_part(tmp_path: Path) -> None:
    async def test(it: Beside) -> None:
        await it.until(lambda: it.sizes[1] == {"PS": 2, "Worker": 1}, "the first note")
        it.edit(Worker=3)
        await it.trains(4)
        await it.settled(PS=2, Worker=3)
        (one,) = (await it.status()).scalings
        assert (one.kind, one.role, one.outcome, one.from_count, one.to_count) == (
            "scale-up",
            "worker",
            "committed",
            1,
            3,
        )

    play(tmp_path, test)


def test_ps_that_kubeflow_deletes_because_a_user_lowered_replicas_leave_in_their_grace(tmp_path: Path) -> None:
    """They have a preStop hook, see `tfjob.reconciling.admission`."""

    async def test(it: Beside) -> None:
        it.backend.patient = True  # type: ignore[attr-defined]
        await it.scale(ps=4)
        await it.settled(PS=4, Worker=1)
        it.edit(PS=2)
        await it.settled(PS=2, Worker=1)
        _, down = (await it.status()).scalings
        assert (down.kind, down.outcome, down.from_count, down.to_count) == ("scale-down", "committed", 4, 2)
        assert down.bytes_moved > 0, "nothing was lost: it moved"
        assert not {"PSLost", "PSPromoted", "NodeReclaimed"} & {reason for _, reason, _ in it.api.told()}

    play(tmp_path, test)


def test_a_scaling_that_is_rolled_back_takes_replicas_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "MADE_SECONDS", 1.0)

    async def test(it: Beside) -> None:
        await it.until(lambda: it.sizes[1] == {"PS": 2, "Worker": 1}, "the first note")
        it.kubeflow.paused = True
        await it.scale(ps=4)
        await it.until(lambda: it.sizes[0]["PS"] == 4, "asked for")
        await it.until(lambda: it.sizes == ({"PS": 2, "Worker": 1},) * 2, "taken back")
        (one,) = (await it.status()).scalings
        assert (
            one.outcome == "rolled_back" and "Kubeflow's training operator has not made the pod ctr-ps-2" in one.reason
        )

    play(tmp_path, test)


def test_a_pod_that_is_lost_comes_back_from_kubeflow_under_its_name(tmp_path: Path) -> None:
    async def test(it: Beside) -> None:
        it.backend.stop("worker-0")
        it.api.vanish(PODS, "ctr-worker-0")
        await asyncio.sleep(0.05)
        await it.trains()
        assert it.sizes[0] == {"PS": 2, "Worker": 1} and "ctr-worker-0" in it.api.names(PODS)

    play(tmp_path, test)


def test_it_dies_while_it_grows_and_the_next_one_takes_it_back_or_ends_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with beside(tmp_path) as it:
            first = it.aimaster()
            await it.trains()
            await it.until(lambda: it.sizes[1] == {"PS": 2, "Worker": 1}, "the first note")
            it.kubeflow.paused = True
            await it.scale(ps=4)
            await it.until(lambda: it.sizes[0]["PS"] == 4, "asked for")
            first.cancel()
            await asyncio.wait([first])
            it.kubeflow.paused = False
            second = it.aimaster()
            await it.trains()
            for _ in range(800):
                outcomes = [one.outcome for one in (await it.status()).scalings]
                if outcomes and all(outcomes):
                    break
                await asyncio.sleep(0.01)
            await it.settled(PS=4 if outcomes[0] == "committed" else 2, Worker=1)
            second.cancel()
            await asyncio.wait([second])

    asyncio.run(asyncio.wait_for(run(), 60))


def test_the_end_deletes_nothing_and_leaves_replicas_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "STOP_GRACE_SECONDS", 0.2)

    async def run() -> None:
        async with beside(tmp_path) as it:
            serving = it.aimaster()
            await it.trains()
            it.backend.agents["ps-1"].mute.add("leave")
            it.backend.exit("chief-0", 0)
            assert await serving == 0
            assert it.api.count("delete", PODS) == 0 and it.sizes[0] == {"PS": 2, "Worker": 1}
            phases = {name: one["status"]["phase"] for (kind, name), one in it.api.objects.items() if kind == "pods"}
            assert phases["ctr-ps-0"] == "Succeeded" and phases["ctr-ps-1"] == "Running", "Kubeflow's policy takes it"

    asyncio.run(asyncio.wait_for(run(), 60))


def test_no_pod_is_replaced_by_one_of_another_name(tmp_path: Path) -> None:
    async def test(it: Beside) -> None:
        with pytest.raises(Exception, match="cannot be replaced beside Kubeflow"):
            await it.scale(replace="ps-1")

    play(tmp_path, test)


# ---------------------------------------------------------------------------------------------------- the numbers alone


class Numbers:
    """A TFJob with 4 workers, of which some are wanted."""

    def __init__(self, *wanted: int) -> None:
        self.api = FakeApi()
        self.api.put(TFJOBS, {"metadata": {"name": "ctr"}, "spec": {"tfReplicaSpecs": {"worker": {"replicas": 4}}}})
        self.replicas = Replicas(self.api, "team", Naming("ctr", "Chief"))  # type: ignore[arg-type]
        self.replicas.wanted = lambda: {"Worker": max(wanted, default=-1) + 1}

    @property
    def count(self) -> int:
        count: int = self.api.objects["tfjobs", "ctr"]["spec"]["tfReplicaSpecs"]["worker"]["replicas"]
        return count


@pytest.mark.parametrize(
    "wanted, name, gone, count",
    [
        ((0, 1, 2), "worker-3", True, 3),
        ((0,), "worker-2", True, 1),
        ((0, 3), "worker-2", False, 4),
        ((), "worker-0", True, 0),
    ],
)
def test_only_what_is_above_all_that_is_wanted_can_leave(wanted: Any, name: str, gone: bool, count: int) -> None:
    it = Numbers(*wanted)
    assert asyncio.run(it.replicas.leave(name)) is gone and it.count == count
    versions = it.api.count("patch", TFJOBS)
    assert asyncio.run(it.replicas.leave(name)) is gone and it.api.count("patch", TFJOBS) == versions, "idempotent"


def test_what_a_user_writes_meanwhile_is_seen_before_it_is_overwritten() -> None:
    it, seen = Numbers(0, 1, 2, 3), list[Manifest]()

    async def look(manifest: Manifest) -> None:
        if not seen:
            it.api.change(TFJOBS, "ctr", {"spec": {"tfReplicaSpecs": {"worker": {"replicas": 2}}}})
        seen.append(manifest)

    it.replicas.looked = look
    asyncio.run(it.replicas.reach("worker-5"))
    counts = [one["spec"]["tfReplicaSpecs"]["worker"]["replicas"] for one in seen]
    assert counts == [4, 2] and it.count == 6


def test_a_job_that_goes_is_not_changed() -> None:
    it = Numbers(0)
    it.api.change(TFJOBS, "ctr", {"spec": {"runPolicy": {"suspend": True}}})
    asyncio.run(it.replicas.reach("worker-7"))
    assert it.count == 4


def test_a_pod_of_somebody_else_in_the_way_is_told() -> None:
    it = Numbers(0)

    async def sleep(seconds: float) -> None: ...

    maker = ReplicasMaker(it.api, "team", Naming("ctr", "Chief"), "uid", it.replicas, sleep)  # type: ignore[arg-type]
    it.api.put(PODS, {"metadata": {"name": "ctr-worker-0", "namespace": "team"}, "spec": {}, "status": {}})
    with pytest.raises(UsageError, match="ctr-worker-0 does not belong to this job"):
        asyncio.run(maker.make("worker-0", None))
    it.api.unreachable = 1000
    with pytest.raises(UnreachableError):
        asyncio.run(maker.delete("worker-0", 5.0))
