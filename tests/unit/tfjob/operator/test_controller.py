"""The controller on an API server in memory: what was decided is carried out, also when it is cut off, late or refused."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Awaitable, Callable

import pytest

from benchmarks.operator import TFJOB
from deeprec_ext.errors import UnreachableError
from tests.unit.aimaster.kubernetes.fake_api import NAMESPACE, FakeApi
from tfjob.api.client import ApiError, ConflictError, ForbiddenError
from tfjob.model.kinds import EVENTS, PODS, SERVICES, TFJOBS, Manifest, Resource
from tfjob.operator.controller import Controller
from tfjob.operator.leader import LEASE_SECONDS, Leader
from tfjob.operator.sight import EVERYWHERE
from tfjob.operator.web import metrics
from tfjob.reconciling.observed import Options

KEY = (NAMESPACE, "job")


class Rig:
    def __init__(self) -> None:
        self.api = FakeApi()
        self.aimasters: list[str] = []
        self.controller = Controller(self.api, Options(), EVERYWHERE, self.make_aimaster)  # type: ignore[arg-type]

    async def make_aimaster(self, job: Manifest, elastic: object, pods: object) -> None:
        self.aimasters.append(job["metadata"]["name"])

    def submit(self, **annotations: str) -> None:
        body = copy.deepcopy(TFJOB)
        metadata = {"name": "job", "namespace": NAMESPACE, "annotations": annotations}
        self.api.put(TFJOBS, {**body, "metadata": metadata})
        self.seen()

    def seen(self) -> None:
        """The watch of TFJobs has caught up."""
        self.controller.job_changed(copy.deepcopy(self.api.objects[TFJOBS.plural, "job"]))

    async def settled(self) -> None:
        """Looks at the job until there is nothing left to do."""
        for _ in range(10):
            self.seen()
            actions = await self.controller.reconcile(KEY)
            await asyncio.sleep(0.01)  # the watches of pods and services
            if not actions.writes:
                return
        raise AssertionError("it never settles")


def play(scenario: Callable[[Rig], Awaitable[None]]) -> None:
    async def main() -> None:
        rig = Rig()
        watching = asyncio.ensure_future(rig.controller.watch())
        try:
            while not rig.controller.synced:
                await asyncio.sleep(0.001)
            await asyncio.wait_for(scenario(rig), 20)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            rig.controller.queue.close()

    asyncio.run(main())


def test_a_job_gets_its_pods_and_services_and_then_nothing_more_is_written() -> None:
    async def scenario(rig: Rig) -> None:
        rig.submit()
        await rig.settled()
        assert len(rig.api.names(PODS)) == len(rig.api.names(SERVICES)) == 10
        writes = [call for call in rig.api.calls if call[0] not in ("get", "list", "watch")]
        await rig.controller.reconcile(KEY)
        rig.seen()
        await rig.controller.reconcile(KEY)
        assert [call for call in rig.api.calls if call[0] not in ("get", "list", "watch")] == writes

    play(scenario)


def test_jobs_that_went_while_nobody_watched_are_forgotten_and_new_ones_looked_at() -> None:
    async def scenario(rig: Rig) -> None:
        rig.api.put(TFJOBS, {**copy.deepcopy(TFJOB), "metadata": {"name": "gone", "namespace": NAMESPACE}})
        while (NAMESPACE, "gone") not in rig.controller.jobs:
            await asyncio.sleep(0.001)
        rig.api.silent = True
        rig.api.compact()
        rig.api.vanish(TFJOBS, "gone")
        rig.api.put(TFJOBS, {**copy.deepcopy(TFJOB), "metadata": {"name": "new", "namespace": NAMESPACE}})
        rig.api.break_watches()
        while (NAMESPACE, "gone") in rig.controller.jobs:
            await asyncio.sleep(0.001)
        assert set(rig.controller.jobs) == {(NAMESPACE, "new")}
        assert len(rig.controller.queue) == 2  # nobody works here: both are still to be looked at

    play(scenario)


def test_nothing_is_seen_before_the_jobs_are() -> None:
    async def scenario() -> None:
        api = FakeApi()
        api.forbidden.add(("list", TFJOBS.plural))
        controller = Controller(api, Options(), EVERYWHERE, Rig().make_aimaster)  # type: ignore[arg-type]
        watching = asyncio.ensure_future(controller.watch())
        await asyncio.sleep(0.05)
        assert not controller.synced
        api.forbidden.clear()
        while not controller.synced:
            await asyncio.sleep(0.01)
        watching.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_what_was_just_created_is_not_created_again_before_the_watch_shows_it() -> None:
    async def scenario(rig: Rig) -> None:
        rig.submit()
        await rig.controller.reconcile(KEY)
        created = rig.api.count("create", PODS)
        await rig.controller.reconcile(KEY)  # the watch had no time to say anything
        assert created == 10 and rig.api.count("create", PODS) == 10

    play(scenario)


def test_an_operator_that_was_cut_off_anywhere_is_followed_by_one_that_finishes() -> None:
    for cut in range(1, 22):

        async def scenario(rig: Rig, cut: int = cut) -> None:
            rig.submit()
            rig.api.calls.clear()
            create = rig.api.create

            async def fragile(*arguments: object) -> Manifest:
                if sum(call[0] == "create" for call in rig.api.calls) >= cut:
                    raise UnreachableError("killed")
                return await create(*arguments)  # type: ignore[arg-type]

            rig.api.create = fragile  # type: ignore[method-assign]
            with contextlib.suppress(UnreachableError):
                await rig.controller.reconcile(KEY)
            rig.api.create = create  # type: ignore[method-assign]
            another = Rig()
            another.api = rig.api
            another.controller = Controller(rig.api, Options(), EVERYWHERE, another.make_aimaster)  # type: ignore[arg-type]
            watching = asyncio.ensure_future(another.controller.watch())
            while not another.controller.synced:
                await asyncio.sleep(0.001)
            await another.settled()
            watching.cancel()
            assert len(rig.api.names(PODS)) == len(rig.api.names(SERVICES)) == 10

        play(scenario)


def test_a_pod_of_somebody_else_in_the_way_is_told_and_left_alone() -> None:
    async def scenario(rig: Rig) -> None:
        rig.api.put(PODS, {"metadata": {"name": "job-ps-1", "namespace": NAMESPACE}, "spec": {}, "status": {}})
        rig.submit()
        await rig.settled()
        assert len(rig.api.names(PODS)) == 10 and not rig.api.count("delete", PODS)
        assert any("job-ps-1" in message for kind, _, message in rig.api.told() if kind == "Warning")

    play(scenario)


def test_rights_that_are_too_narrow_are_told_with_verb_and_resource_and_once() -> None:
    async def scenario(rig: Rig) -> None:
        rig.api.forbidden.add(("create", "pods"))
        rig.submit()
        for _ in range(3):
            with pytest.raises(ForbiddenError):
                await rig.controller.reconcile(KEY)
        warnings = [message for kind, reason, message in rig.api.told() if reason == "Forbidden"]
        assert len(warnings) == 1 and "create" in warnings[0] and "pods" in warnings[0]

    play(scenario)


def _refusing(rig: Rig, plural: str, name: str) -> None:
    create = rig.api.create

    async def refusing(resource: Resource, namespace: str | None, body: Manifest) -> Manifest:
        if (resource.plural, body["metadata"].get("name")) == (plural, name):
            raise ApiError(422, "Invalid", f'Pod "{name}" is invalid: volumeMounts[0].name: Not found')
        return await create(resource, namespace, body)

    rig.api.create = refusing  # type: ignore[method-assign]


@pytest.mark.parametrize(("resource", "reason"), [(PODS, "FailedCreatePod"), (SERVICES, "FailedCreateService")])
def test_a_refused_pod_is_told_once_and_the_job_has_been_created(resource: Resource, reason: str) -> None:
    async def scenario(rig: Rig) -> None:
        _refusing(rig, resource.plural, "job-worker-0")
        rig.submit()
        for _ in range(3):
            with pytest.raises(ApiError):
                await rig.controller.reconcile(KEY)
            rig.seen()
        found = [message for kind, why, message in rig.api.told() if (kind, why) == ("Warning", reason)]
        assert len(found) == 1 and "job-worker-0" in found[0] and "Not found" in found[0]
        conditions = rig.api.objects[TFJOBS.plural, "job"]["status"]["conditions"]
        assert [one["type"] for one in conditions] == ["Created"]
        assert "job-worker-0" not in rig.api.names(resource)

    play(scenario)


def test_what_becomes_of_jobs_is_counted_under_the_names_of_kubeflow() -> None:
    async def scenario(rig: Rig) -> None:
        rig.submit()
        await rig.settled()
        lines = metrics(rig.controller).decode().splitlines()
        assert (
            f'training_operator_jobs_created_total{{framework="tensorflow",job_namespace="{NAMESPACE}"}} 1.0' in lines
        )

    play(scenario)


def test_a_job_whose_time_to_live_is_over_is_deleted_and_that_is_told() -> None:
    async def scenario(rig: Rig) -> None:
        rig.submit()
        job = rig.api.objects[TFJOBS.plural, "job"]
        ended = {"type": "Succeeded", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}
        job["status"] = {"conditions": [ended], "completionTime": "2020-01-01T00:00:00Z"}
        job["spec"]["runPolicy"] = {"ttlSecondsAfterFinished": 0}
        rig.seen()
        await rig.controller.reconcile(KEY)
        assert ("Normal", "SuccessfulDeleteJob", "Deleted job: job") in list(rig.api.told())
        assert (TFJOBS.plural, "job") not in rig.api.objects

    play(scenario)


def test_a_status_from_an_old_view_of_the_job_is_refused_by_the_server_and_written_later() -> None:
    async def scenario(rig: Rig) -> None:
        rig.submit()
        rig.api.change(TFJOBS, "job", {"metadata": {"labels": {"somebody": "else"}}})
        with pytest.raises(ConflictError):
            await rig.controller.reconcile(KEY)
        await rig.settled()
        assert rig.api.objects[TFJOBS.plural, "job"]["status"]["conditions"][0]["type"] == "Created"
        assert rig.api.objects[TFJOBS.plural, "job"]["metadata"]["labels"] == {"somebody": "else"}

    play(scenario)


def test_the_same_event_is_not_written_with_every_look() -> None:
    async def scenario(rig: Rig) -> None:
        rig.submit(**{"aimaster.deeprec.io/max-pss": "3", "aimaster.deeprec.io/enabled": "true"})
        for _ in range(3):
            await rig.settled()
        told = [message for _, reason, message in rig.api.told() if reason == "UnknownAnnotation"]
        assert len(told) == 1 and "max-ps" in told[0] and rig.api.count("create", EVENTS) >= 1

    play(scenario)


def test_an_elastic_job_gets_an_aimaster_and_no_pods_from_the_operator() -> None:
    async def scenario(rig: Rig) -> None:
        rig.submit(**{"aimaster.deeprec.io/enabled": "true"})
        await rig.settled()
        assert rig.aimasters and not rig.api.names(PODS)

    play(scenario)


def test_an_older_state_of_a_job_that_comes_late_does_not_replace_our_own_write() -> None:
    async def scenario(rig: Rig) -> None:
        rig.submit()
        old = copy.deepcopy(rig.controller.jobs[KEY])
        await rig.controller.reconcile(KEY)
        written = rig.controller.jobs[KEY]["metadata"]["resourceVersion"]
        rig.controller.job_changed(old)
        assert rig.controller.jobs[KEY]["metadata"]["resourceVersion"] == written != old["metadata"]["resourceVersion"]
        again = {**old, "metadata": {**old["metadata"], "uid": "another"}}
        rig.controller.job_changed(again)  # deleted and made anew: never older
        assert rig.controller.jobs[KEY]["metadata"]["uid"] == "another"

    play(scenario)


def told_of(rig: Rig, reason: str) -> list[str]:
    return sorted(message for kind, why, message in rig.api.told() if why == reason and kind == "Normal")


def test_each_pod_and_service_that_is_made_or_deleted_is_told_once() -> None:
    async def scenario(rig: Rig) -> None:
        rig.submit()
        await rig.settled()
        assert told_of(rig, "SuccessfulCreatePod") == [f"Created pod: {name}" for name in rig.api.names(PODS)]
        assert told_of(rig, "SuccessfulCreateService")[0] == "Created service: job-chief-0"
        events = rig.api.count("create", EVENTS)
        await rig.settled()
        assert rig.api.count("create", EVENTS) == events and not told_of(rig, "SuccessfulDeletePod")
        rig.api.change(TFJOBS, "job", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 5}}}})
        await rig.settled()
        assert told_of(rig, "SuccessfulDeletePod") == ["Deleted pod: job-worker-5"]
        rig.api.change(TFJOBS, "job", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 6}}}})
        await rig.settled()
        assert told_of(rig, "SuccessfulCreatePod").count("Created pod: job-worker-5") == 2  # it happened twice

    play(scenario)


def test_of_many_pods_at_once_one_event_tells() -> None:
    async def scenario(rig: Rig) -> None:
        rig.submit()
        rig.api.change(TFJOBS, "job", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 1000}}}})
        await rig.settled()
        (message,) = told_of(rig, "SuccessfulCreatePod")
        assert message.startswith("Created pods: job-chief-0, ") and message.endswith(" and 984 more")
        assert len(rig.api.names(PODS)) == 1004 and rig.api.count("create", EVENTS) < 5

    play(scenario)


def test_what_was_made_is_told_though_the_rest_has_failed() -> None:
    async def scenario(rig: Rig) -> None:
        rig.api.forbidden.add(("create", "pods"))
        rig.submit()
        with pytest.raises(ForbiddenError):
            await rig.controller.reconcile(KEY)
        assert len(told_of(rig, "SuccessfulCreateService")) == 10 and not told_of(rig, "SuccessfulCreatePod")

    play(scenario)


# ---------------------------------------------------------------------------------------------------- leader


class Two:
    """Two candidates and one clock."""

    def __init__(self) -> None:
        self.now, self.api = 0.0, FakeApi()
        self.first, self.second = (
            Leader(self.api, NAMESPACE, "lease", name, lambda: self.now)
            for name in ("first", "second")  # type: ignore[arg-type]
        )


def test_one_leads_until_its_lease_has_not_changed_for_its_duration() -> None:
    async def scenario() -> None:
        two = Two()
        assert await two.first._try() and not await two.second._try()
        for _ in range(5):
            two.now += LEASE_SECONDS - 1
            await asyncio.sleep(0.001)
            assert await two.first._try() and not await two.second._try()
        two.now += LEASE_SECONDS + 1
        assert await two.second._try() and not await two.first._try()

    asyncio.run(scenario())


def test_a_lease_that_was_released_is_taken_at_once() -> None:
    async def scenario() -> None:
        two = Two()
        assert await two.first._try()
        await two.second.release()  # not its own: nothing happens
        assert not await two.second._try()
        await two.first.release()
        assert await two.second._try()

    asyncio.run(scenario())


def test_of_two_that_take_it_at_the_same_moment_one_gets_it() -> None:
    async def scenario() -> None:
        two = Two()
        assert sorted(await asyncio.gather(two.first._try(), two.second._try())) == [False, True]
        two.now += 1
        assert not await two.second._try()  # begins to watch it
        two.now += LEASE_SECONDS + 1
        assert sorted(await asyncio.gather(two.first._try(), two.second._try())).count(True) >= 1

    asyncio.run(scenario())


def test_nobody_leads_who_cannot_renew(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        two = Two()
        assert await two.first._try()
        two.api.unreachable = 1_000

        async def passes(seconds: float) -> None:
            two.now += seconds

        monkeypatch.setattr("tfjob.operator.leader.asyncio.sleep", passes)
        await two.first.lost()
        assert two.now >= 10.0

    asyncio.run(scenario())
