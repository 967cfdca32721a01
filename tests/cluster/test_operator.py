"""The operator against a real API server. There is no node: what kubelet would say, the tests write into the pods' status."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from deeprec_ext.options import read_specification
from tests.cluster.kube import LIMIT_SECONDS, TFJOB, conditions_of, pods_of, services_of, set_phase, until  # fmt: skip
from tfjob.api.client import Api, NotFoundError
from tfjob.model.kinds import EVENTS, LEASES, PODS, TFJOBS, Manifest

pytestmark = [pytest.mark.usefixtures("crd"), pytest.mark.slow]
Conversation = Callable[[Api, str], Awaitable[None]]


def job(name: str = "job", **replicas: int) -> Manifest:
    made = copy.deepcopy(TFJOB)
    made["metadata"]["name"] = name
    specs = made["spec"]["tfReplicaSpecs"]
    wanted = replicas or {"PS": 1, "Worker": 2}
    made["spec"]["tfReplicaSpecs"] = {type_: {**specs[type_], "replicas": count} for type_, count in wanted.items()}
    return made


async def has_pods(api: Api, namespace: str, name: str, *expected: str) -> dict[str, Manifest]:
    found: dict[str, Manifest] = {}

    async def as_expected() -> bool:
        found.clear()
        found.update(await pods_of(api, namespace, name))
        return {key for key, pod in found.items() if not pod["metadata"].get("deletionTimestamp")} == set(expected)

    await until(api, as_expected, f"the pods {expected}")
    return found


async def has_condition(api: Api, namespace: str, name: str, type_: str) -> Manifest:
    async def there() -> Manifest | None:
        return (await conditions_of(api, namespace, name)).get(type_)

    found = await until(api, there, f"the condition {type_}")
    assert found is not None
    return found


@pytest.mark.smoke
def test_a_job_from_its_creation_to_its_end(operators: Any, play: Callable[[Conversation], None]) -> None:
    operators()

    async def scenario(api: Api, namespace: str) -> None:
        await api.create(TFJOBS, namespace, job(PS=1, Chief=1, Worker=2))
        names = ("job-ps-0", "job-chief-0", "job-worker-0", "job-worker-1")
        pods = await has_pods(api, namespace, "job", *names)
        await has_condition(api, namespace, "job", "Created")

        async def all_services() -> bool:
            return set(await services_of(api, namespace, "job")) == set(names)

        await until(api, all_services, "a service for each pod")
        (variable,) = [v for v in pods["job-ps-0"]["spec"]["containers"][0]["env"] if v["name"] == "TF_CONFIG"]
        config = json.loads(variable["value"])
        assert config["cluster"]["ps"] == [f"job-ps-0.{namespace}.svc:2222"] and len(config["cluster"]["worker"]) == 2
        assert config["task"] == {"type": "ps", "index": 0}

        for name in names:
            await set_phase(api, namespace, name, "Running")
        running = await has_condition(api, namespace, "job", "Running")
        assert running["message"] == f"TFJob {namespace}/job is running."
        await set_phase(api, namespace, "job-chief-0", "Succeeded", exit_code=0)
        done = await has_condition(api, namespace, "job", "Succeeded")
        assert done["message"] == f"TFJob {namespace}/job successfully completed."
        found = await api.get(TFJOBS, namespace, "job")
        assert found["status"]["replicaStatuses"]["Chief"]["succeeded"] == 1 and found["status"]["completionTime"]
        events, _ = await api.list_all(EVENTS, namespace, fields="involvedObject.name=job")
        assert {"TFJobCreated", "TFJobSucceeded"} <= {event["reason"] for event in events} or events

    play(scenario)


def test_a_worker_that_is_killed_is_made_again_under_its_name(
    operators: Any, play: Callable[[Conversation], None]
) -> None:
    operators()

    async def scenario(api: Api, namespace: str) -> None:
        await api.create(TFJOBS, namespace, job())
        pods = await has_pods(api, namespace, "job", "job-ps-0", "job-worker-0", "job-worker-1")
        for name in pods:
            await set_phase(api, namespace, name, "Running")
        await has_condition(api, namespace, "job", "Running")
        await set_phase(api, namespace, "job-worker-1", "Failed", exit_code=137)
        old = pods["job-worker-1"]["metadata"]["uid"]

        async def another() -> bool:
            try:
                return (await api.get(PODS, namespace, "job-worker-1"))["metadata"]["uid"] != old
            except NotFoundError:
                return False

        await until(api, another, "another worker-1")
        assert "Failed" not in await conditions_of(api, namespace, "job")

    play(scenario)


@pytest.mark.smoke
def test_replicas_up_and_down(operators: Any, play: Callable[[Conversation], None]) -> None:
    operators()

    async def scenario(api: Api, namespace: str) -> None:
        await api.create(TFJOBS, namespace, job())
        await has_pods(api, namespace, "job", "job-ps-0", "job-worker-0", "job-worker-1")
        await api.patch(TFJOBS, namespace, "job", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 4}}}})
        workers = [f"job-worker-{index}" for index in range(4)]
        await has_pods(api, namespace, "job", "job-ps-0", *workers)
        await api.patch(TFJOBS, namespace, "job", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 1}}}})
        await has_pods(api, namespace, "job", "job-ps-0", "job-worker-0")

    play(scenario)


def test_an_invalid_job_says_which_field(operators: Any, play: Callable[[Conversation], None]) -> None:
    operators()

    async def scenario(api: Api, namespace: str) -> None:
        bad = job(Worker=1)
        bad["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["name"] = "main"
        await api.create(TFJOBS, namespace, bad)
        failed = await has_condition(api, namespace, "job", "Failed")
        assert failed["reason"] == "TFJobFailedValidation" and "Worker" in failed["message"]
        assert not await pods_of(api, namespace, "job")

    play(scenario)


def test_suspend_and_resume(operators: Any, play: Callable[[Conversation], None]) -> None:
    operators()

    async def scenario(api: Api, namespace: str) -> None:
        await api.create(TFJOBS, namespace, job())
        await has_pods(api, namespace, "job", "job-ps-0", "job-worker-0", "job-worker-1")
        await api.patch(TFJOBS, namespace, "job", {"spec": {"runPolicy": {"suspend": True}}})
        await has_condition(api, namespace, "job", "Suspended")
        await has_pods(api, namespace, "job")
        await api.patch(TFJOBS, namespace, "job", {"spec": {"runPolicy": {"suspend": False}}})
        await has_pods(api, namespace, "job", "job-ps-0", "job-worker-0", "job-worker-1")

    play(scenario)


def test_the_operator_is_killed_in_the_middle_and_another_converges(
    operators: Any, play: Callable[[Conversation], None]
) -> None:
    first = operators("--no-leader-election")

    async def scenario(api: Api, namespace: str) -> None:
        names = [f"job-{number}" for number in range(10)]
        for name in names:
            await api.create(TFJOBS, namespace, job(name, PS=3, Chief=1, Worker=6))

        async def some() -> bool:
            return len((await api.list_all(PODS, namespace))[0]) > 5

        await until(api, some, "the first pods", every=0.02)
        first.kill()
        before = len((await api.list_all(PODS, namespace))[0])
        assert before < 100, "it was killed too late for this test to mean anything"
        operators("--no-leader-election")

        async def every() -> bool:
            return len((await api.list_all(PODS, namespace))[0]) == 100

        await until(api, every, "all pods of all jobs")
        for name in names:
            await has_condition(api, namespace, name, "Created")
            assert len(await pods_of(api, namespace, name)) == len(await services_of(api, namespace, name)) == 10

    play(scenario)


def test_nothing_is_written_when_nothing_changes(
    operators: Any, play: Callable[[Conversation], None], free_port: Callable[[], int]
) -> None:
    first = operators("--no-leader-election")

    async def scenario(api: Api, namespace: str) -> None:
        await api.create(TFJOBS, namespace, job())
        pods = await has_pods(api, namespace, "job", "job-ps-0", "job-worker-0", "job-worker-1")
        for name in pods:
            await set_phase(api, namespace, name, "Running")
        await has_condition(api, namespace, "job", "Running")
        await asyncio.sleep(1.0)
        before = (await api.get(TFJOBS, namespace, "job"))["metadata"]["resourceVersion"]
        first.kill()
        port = free_port()
        second = operators("--no-leader-election", "--metrics-port", str(port))

        async def answers() -> bool:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return True
            return False

        await until(api, answers, "the second operator runs")
        await asyncio.sleep(6.0)  # it sees everything for the first time, and finds it as it should be
        assert second.process.poll() is None
        assert (await api.get(TFJOBS, namespace, "job"))["metadata"]["resourceVersion"] == before
        assert len(await pods_of(api, namespace, "job")) == 3

    play(scenario)


def test_of_two_operators_one_leads_and_the_other_takes_over(
    operators: Any, play: Callable[[Conversation], None]
) -> None:
    both = [operators(), operators()]

    async def scenario(api: Api, namespace: str) -> None:
        async def holder() -> str:
            try:
                lease = await api.get(LEASES, namespace, "deeprec-ext-operator")
            except NotFoundError:
                return ""
            return str(lease["spec"].get("holderIdentity") or "")

        first = await until(api, holder, "a leader")
        await api.create(TFJOBS, namespace, job("one"))
        await has_pods(api, namespace, "one", "one-ps-0", "one-worker-0", "one-worker-1")
        (leading,) = [one for one in both if "leads" in one.log.read_text()]
        leading.kill()

        async def another() -> bool:
            return (await holder()) not in ("", first)

        await until(api, another, "another leader")
        await api.create(TFJOBS, namespace, job("two"))
        await has_pods(api, namespace, "two", "two-ps-0", "two-worker-0", "two-worker-1")

    play(scenario)


def test_a_job_that_is_deleted_takes_its_pods_along(operators: Any, play: Callable[[Conversation], None]) -> None:
    operators()

    async def scenario(api: Api, namespace: str) -> None:
        await api.create(TFJOBS, namespace, job())
        await has_pods(api, namespace, "job", "job-ps-0", "job-worker-0", "job-worker-1")
        await api.delete(TFJOBS, namespace, "job")
        await has_pods(api, namespace, "job")  # the garbage collector, by owner references

    play(scenario)


assert LIMIT_SECONDS < 300  # pytest's own limit must not come first


def test_a_job_without_ps_gets_its_aimaster_and_one_with_both_is_told_what_to_leave_out(
    operators: Any, play: Callable[[Conversation], None]
) -> None:
    operators("--image", "deeprec-ext:test")

    async def scenario(api: Api, namespace: str) -> None:
        prefix = "aimaster.deeprec.io/"
        for name, replicas in (("ring", {"Chief": 1, "Worker": 2}), ("both", {"PS": 1, "Worker": 2})):
            made = job(name, **replicas)
            made["metadata"]["annotations"] = {prefix + "enabled": "true", prefix + "strategy": "allreduce"}
            await api.create(TFJOBS, namespace, made)
        pods = await has_pods(api, namespace, "ring", "ring-aimaster")
        (given,) = pods["ring-aimaster"]["spec"]["containers"][0]["env"]
        spec = read_specification(given["value"])
        assert spec.sums and (spec.ps, spec.slots, spec.workers, spec.max_workers) == (0, 0, 2, 4)
        failed = await has_condition(api, namespace, "both", "Failed")
        assert failed["reason"] == "TFJobFailedValidation"
        assert "[aimaster.deeprec.io/strategy]: is 'allreduce'; such a job has no PS: leave out" in failed["message"]
        await set_phase(api, namespace, "ring-aimaster", "Succeeded", exit_code=0, container="aimaster")
        await has_condition(api, namespace, "ring", "Succeeded")

    play(scenario)
