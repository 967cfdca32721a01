"""The arbiter on an API server in memory: what it sees, what it writes, and that it writes nothing else."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deeprec_ext.arbiter.observed import Allowance
from deeprec_ext.arbiter.wire import allowance_text
from deeprec_ext.gazer.report.html import render
from tests.unit.aimaster.kubernetes.fake_api import FakeApi
from tests.unit.tfjob.arbiting.clusters import node, pod, pods_of, priority_class, quota, tfjob
from tfjob.arbiting.bidders import KUEUE_LABEL
from tfjob.arbiting.problems import NO_RIGHTS
from tfjob.model import names
from tfjob.model.arbitrated import allowance_of
from tfjob.model.kinds import NODES, PODS, PRIORITY_CLASSES, RESOURCE_QUOTAS, TFJOBS, Manifest
from tfjob.operator.arbiter import acting, page
from tfjob.operator.arbiter.acting import Arbiter, ArbiterOptions
from tfjob.operator.arbiter.undoing import undo
from tfjob.operator.controller import Controller
from tfjob.operator.main import shares
from tfjob.operator.sight import EVERYWHERE
from tfjob.operator.web import metrics
from tfjob.reconciling.observed import Options

WRITES = ("create", "update", "patch", "delete")
FULL = "0/1 nodes are available: 1 Insufficient cpu."


async def no_aimaster(*_: Any) -> None:
    raise AssertionError("nobody reconciles here")


class Rig:
    """A server, and operators of it that watch."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.tasks: list[asyncio.Task[None]] = []

    def operator(self, *namespaces: str, **options: Any) -> Arbiter:
        where = namespaces or EVERYWHERE
        controller = Controller(self.api, Options(), where, no_aimaster)  # type: ignore[arg-type]
        arbiter = Arbiter(self.api, controller, where, ArbiterOptions(**options))  # type: ignore[arg-type]
        self.tasks += [asyncio.ensure_future(controller.watch()), asyncio.ensure_future(arbiter.watch.run())]
        return arbiter

    async def synced(self, arbiter: Arbiter) -> Arbiter:
        while not (arbiter.watch.synced and arbiter._controller.synced):
            await asyncio.sleep(0.001)
        await self.caught_up()
        return arbiter

    async def caught_up(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def writes(self) -> list[tuple[str, str, str]]:
        return [call for call in self.api.calls if call[0] in WRITES and call[1] != "events"]

    def allowance(self, job: str = "ctr") -> Allowance | None:
        return allowance_of(self.api.objects[TFJOBS.plural, job]["metadata"]["annotations"], f"ml/{job}")[0]

    def put(self, *objects: Manifest) -> None:
        kinds = {"Node": NODES, "Pod": PODS, "TFJob": TFJOBS}
        for one in objects:
            self.api.put(kinds[one["kind"]], one)

    def running(self, job: Manifest, **counts: int) -> None:
        """A job with its pods on node n1."""
        self.put(job, *pods_of(job, "n1", **counts))


def play(scenario: Callable[[Rig], Awaitable[None]]) -> None:
    async def main() -> None:
        rig = Rig()
        try:
            await asyncio.wait_for(scenario(rig), 20)
        finally:
            for task in rig.tasks:
                task.cancel()
            await asyncio.gather(*rig.tasks, return_exceptions=True)

    asyncio.run(main())


def low(name: str = "ctr", **more: Any) -> Manifest:
    """Of low priority; it wants 1 PS and 3 workers."""
    status = {"conditions": [{"type": "Running", "status": "True"}]}
    return tfjob(name, ps=1, workers=3, status=status, **more)


def test_a_job_is_allowed_what_there_is_room_for_and_then_nothing_more_is_written():
    async def scenario(rig: Rig) -> None:
        rig.put(node("n1", 8))
        rig.running(low(), ps=1, workers=3)
        arbiter = await rig.synced(rig.operator())
        assert await arbiter.look(time.time())
        found = rig.allowance()
        assert found is not None and (found.runs, found.ps, found.workers) == (True, 1, 3) and found.why
        ((verb, plural, name),) = rig.writes()
        assert (verb, plural, name) == ("patch", "tfjobs", "ctr")
        assert [(kind, reason) for kind, reason, _ in rig.api.told()] == [("Normal", acting.ALLOWED)]
        before = len(rig.api.calls)
        for later in range(1, 400, 10):
            await rig.caught_up()
            assert await arbiter.look(time.time() + later)
        assert [call for call in rig.api.calls[before:] if call[0] in WRITES] == []

    play(scenario)


def test_a_pending_pod_of_higher_priority_has_workers_given_back_at_once():
    async def scenario(rig: Rig) -> None:
        rig.put(node("n1", 6))
        rig.running(low(), ps=1, workers=3)
        arbiter = await rig.synced(rig.operator())
        acts = asyncio.ensure_future(arbiter.act())
        rig.tasks.append(acts)
        while rig.allowance() is None:
            await asyncio.sleep(0.01)
        rig.put(pod("serving", cpu=2, priority=1000, waits=FULL))
        began = time.monotonic()
        while (found := rig.allowance()) is None or found.workers == 3:
            assert time.monotonic() - began < 5, "never"
            await asyncio.sleep(0.01)
        assert (found.runs, found.ps, found.workers) == (True, 1, 2), "one core was free already"
        assert "serving" in found.why and "1000" in found.why
        assert any("1 PS, 2 workers (before: 1 PS, 3 workers)" in message for _, _, message in rig.api.told())

    play(scenario)


def test_decisions_are_a_second_apart_whatever_happens(monkeypatch):
    async def scenario(rig: Rig) -> None:
        rig.put(node("n1", 8))
        rig.running(low(), ps=1, workers=3)
        arbiter = await rig.synced(rig.operator())
        rig.tasks.append(asyncio.ensure_future(arbiter.act()))
        began = time.monotonic()
        for number in range(60):
            rig.put(pod(f"p{number}", "n1", "1m"))
            await asyncio.sleep(0.02)
        assert 2 <= arbiter.figures.decisions <= 1 + (time.monotonic() - began) / 1.0

    play(scenario)


def test_the_next_leader_finds_the_allowances_and_writes_nothing():
    async def scenario(rig: Rig) -> None:
        rig.put(node("n1", 6), pod("serving", cpu=2, priority=1000, waits=FULL))
        rig.running(low(), ps=1, workers=3)
        first = await rig.synced(rig.operator())
        await first.look(time.time())
        before, written = rig.allowance(), rig.writes()
        second = await rig.synced(rig.operator())
        for later in range(3):
            assert await second.look(time.time() + later)
        assert rig.writes() == written and rig.allowance() == before and second.figures.decisions == 3

    play(scenario)


def test_two_that_decide_never_overwrite_what_they_have_not_seen():
    async def scenario(rig: Rig) -> None:
        rig.put(node("n1", 8))
        rig.running(low(), ps=1, workers=3)
        late = await rig.synced(rig.operator())
        rig.api.silent = True
        theirs = allowance_text(Allowance("", True, 1, 1, 5.0, "the other operator's"))
        rig.api.change(TFJOBS, "ctr", {"metadata": {"annotations": {names.ALLOWANCE_ANNOTATION: theirs}}})
        await late.look(time.time())
        assert rig.allowance().why == "the other operator's" and late.figures.conflicts == 1
        await late.look(time.time())  # now it has seen it
        assert rig.allowance().workers == 3

    play(scenario)


def test_an_aimaster_that_writes_meanwhile_keeps_nothing_back():
    async def scenario(rig: Rig) -> None:
        rig.put(node("n1", 8))
        rig.running(low(), ps=1, workers=3)
        arbiter = await rig.synced(rig.operator())
        rig.api.silent = True
        rig.api.change(TFJOBS, "ctr", {"metadata": {"annotations": {names.STATUS_ANNOTATION: "step 7"}}})
        assert await arbiter.look(time.time())
        assert rig.allowance().workers == 3 and arbiter.figures.conflicts == 1
        assert rig.api.objects[TFJOBS.plural, "ctr"]["metadata"]["annotations"][names.STATUS_ANNOTATION] == "step 7"

    play(scenario)


def test_an_api_server_that_goes_away_forgets_nothing_and_stops_nobody():
    async def scenario(rig: Rig) -> None:
        rig.put(node("n1", 6))
        rig.running(low(), ps=1, workers=3)
        arbiter = await rig.synced(rig.operator())
        await arbiter.look(time.time())
        rig.put(pod("serving", cpu=2, priority=1000, waits=FULL))
        await rig.caught_up()
        rig.api.break_watches()
        rig.api.unreachable = 1
        assert not await arbiter.look(time.time()), "told that it is to be repeated"
        assert rig.allowance().workers == 3
        rig.api.unreachable = 0
        assert await arbiter.look(time.time()) and rig.allowance().workers == 2

    play(scenario)


def test_a_dry_run_writes_nothing_and_decides_on_what_it_would_have_allowed(caplog):
    async def scenario(rig: Rig) -> None:
        rig.put(node("n1", 8))
        rig.running(low(), ps=1, workers=3)
        arbiter = await rig.synced(rig.operator(dry_run=True))
        with caplog.at_level("INFO"):
            for _ in range(3):
                assert await arbiter.look(time.time())
        assert rig.writes() == [] and rig.api.told() == [] and rig.allowance() is None
        told = [one.message for one in caplog.records if "dry run" in one.message]
        assert len(told) == 1 and "ml/ctr 1 PS, 3 workers" in told[0]

    play(scenario)


def test_what_is_wrong_with_a_job_is_told_once():
    async def scenario(rig: Rig) -> None:
        rig.put(node("n1", 2), tfjob(priority="god", cpu=4))
        arbiter = await rig.synced(rig.operator())
        for _ in range(3):
            arbiter._problems_at = -100.0
            await arbiter.look(time.time())
        warnings = sorted(reason for kind, reason, _ in rig.api.told() if kind == "Warning")
        assert warnings == ["NeverFits", "NoPriorityClass"]
        found = rig.allowance()
        assert found is not None and not found.runs and "never fits" in found.why

    play(scenario)


def test_other_words_for_the_same_are_not_written_each_second():
    async def scenario(rig: Rig) -> None:
        rig.put(node("n1", 8), pod("other", "n1", 7), tfjob(annotations={"min-workers": "2"}))
        arbiter = await rig.synced(rig.operator())
        await arbiter.look(time.time())
        first = rig.allowance()
        assert first is not None and not first.runs
        written = rig.writes()
        for cores in ("6500m", "6", "5500m"):
            rig.api.change(PODS, "other", pod("other", "n1", cores))
            await rig.caught_up()
            await arbiter.look(time.time())
        assert rig.writes() == written

    play(scenario)


def test_an_operator_with_a_role_only_takes_the_quota_for_the_room(caplog):
    async def scenario(rig: Rig) -> None:
        rig.api.forbidden |= {("list", "nodes"), ("list", "priorityclasses")}
        rig.api.put(RESOURCE_QUOTAS, quota(cpu="4", memory="64Gi"))
        rig.running(low(), ps=1, workers=3)
        arbiter = await rig.synced(rig.operator("ml"))
        await arbiter.look(time.time())
        found = rig.allowance()
        assert found is not None and (found.ps, found.workers) == (1, 2), "a chief has the fourth core"
        assert "sees no nodes" in caplog.text and "components/arbiter" in caplog.text
        (event,) = [one for one in rig.api.told() if one[1] == NO_RIGHTS]
        assert event[0] == "Normal" and "quota of namespace ml" in event[2].lower().replace("resource", "")
        found = page.answer(arbiter, time.time())
        assert [one.split(":")[0] for one in found["missing"]] == ["may not list nodes", "may not list priorityclasses"]
        text = page.page(arbiter, time.time())
        assert "Rights that the operator does without" in text and "ClusterRole would give it" in text
        assert caplog.text.count("may not list nodes") == 1

    play(scenario)


def without_nodes(rig: Rig, *namespaces: str) -> Arbiter:
    rig.api.forbidden |= {("list", "nodes"), ("list", "priorityclasses")}
    return rig.operator(*namespaces)


def test_without_nodes_and_a_quota_nothing_is_decided_and_nobody_is_held_by_an_earlier_word():
    async def scenario(rig: Rig) -> None:
        word = allowance_text(Allowance("ml/held", False, 0, 0, 5.0, "waits for 9 cores"))
        rig.put(low("held", annotations={"allowance": word}), low("new"))
        arbiter = await rig.synced(without_nodes(rig, "ml"))
        while len(arbiter._controller.queue):
            arbiter._controller.queue.done(await arbiter._controller.queue.get())
        assert await arbiter.look(time.time())
        assert rig.allowance("held") is None and rig.allowance("new") is None
        assert rig.writes() == [("patch", "tfjobs", "held")], "it is taken back, and nothing is handed out"
        for name in ("held", "new"):
            key = "ml", name
            assert arbiter._controller.observe(key).options.arbiter_seconds is None, "no word is waited for"
        assert len(arbiter._controller.queue) == 2, "they are looked at again at once"
        assert {one[:2] for one in rig.api.told()} == {("Warning", NO_RIGHTS)}
        await rig.caught_up()
        await arbiter.look(time.time() + 1)
        assert len(rig.writes()) == 1, "once"

        rig.api.put(RESOURCE_QUOTAS, quota(cpu="8", memory="64Gi"))
        await rig.caught_up()
        await arbiter.look(time.time() + 2)
        assert rig.allowance("held").runs and rig.allowance("new") is not None
        assert not arbiter.undecided(("ml", "held"))

    play(scenario)


def test_a_suspended_job_of_whose_room_nobody_knows_is_not_told_that_it_may_have_nothing():
    async def scenario(rig: Rig) -> None:
        rig.put(low(run_policy={"suspend": True}))
        rig.api.change(TFJOBS, "ctr", {"status": {"startTime": "2027-01-15T08:00:00Z"}})
        arbiter = await rig.synced(without_nodes(rig, "ml"))
        await arbiter.look(time.time())
        assert rig.writes() == []

    play(scenario)


def test_each_namespace_has_the_room_of_its_own_quota():
    async def scenario(rig: Rig) -> None:
        rig.api.put(RESOURCE_QUOTAS, quota(cpu="4", memory="64Gi"))
        rig.api.put(RESOURCE_QUOTAS, quota("web", "other", cpu="3", memory="64Gi"))
        for namespace, name in (("ml", "ctr"), ("web", "rank"), ("lab", "free")):
            job = low(name, namespace=namespace)
            rig.put(job, *pods_of(job, "n1", ps=1, workers=3))
        arbiter = await rig.synced(without_nodes(rig, "ml", "web", "lab"))
        await arbiter.look(time.time())
        allowed = {
            name: rig.api.objects[TFJOBS.plural, name]["metadata"]["annotations"] for name in ("ctr", "rank", "free")
        }
        assert [allowance_of(allowed[name], name)[0].workers for name in ("ctr", "rank")] == [2, 1]
        assert arbiter.undecided(("lab", "free")) and allowance_of(allowed["free"], "free")[0] is None

    play(scenario)


def test_of_pods_only_what_is_needed_is_kept():
    async def scenario(rig: Rig) -> None:
        large = pod("large", "n1", 2)
        large["metadata"]["annotations"] = {"note": "x" * 100_000}
        large["spec"]["containers"][0]["env"] = [{"name": "A", "value": "y" * 100_000}]
        rig.put(node("n1", 8), large, pod("ended", "n1", 3, phase="Succeeded"))
        arbiter = await rig.synced(rig.operator())
        assert arbiter.watch.pods.keys() == {("web", "large")} and arbiter.watch.pods.on("n1").resources.cpu == 2.0
        assert len(json.dumps(arbiter.watch.pods.get(("web", "large")), default=str)) < 1000
        rig.api.change(PODS, "large", {"status": {"phase": "Failed"}})
        await rig.caught_up()
        assert len(arbiter.watch.pods) == 0

    play(scenario)


def test_priorities_are_followed():
    async def scenario(rig: Rig) -> None:
        rig.api.put(PRIORITY_CLASSES, priority_class("gold", 5000))
        rig.put(node("n1", 5), pod("serving", cpu=2, priority=1000, waits=FULL))
        rig.running(low(priority="gold"), ps=1, workers=3)
        arbiter = await rig.synced(rig.operator())
        await arbiter.look(time.time())
        assert rig.allowance().workers == 3, "it goes before the pod that waits"

    play(scenario)


def test_a_suspended_job_may_have_nothing_and_resumed_waits_for_room_as_others_do():
    async def scenario(rig: Rig) -> None:
        rig.put(node("n1", 6))
        least = {"annotations": {"min-workers": "3"}}
        rig.running(low("old", **least), ps=1, workers=3)
        arbiter = await rig.synced(rig.operator())
        await arbiter.look(time.time())
        assert rig.allowance("old").runs
        rig.api.change(TFJOBS, "old", {"spec": {"runPolicy": {"suspend": True}}})
        await rig.caught_up()
        await arbiter.look(time.time() + 1)
        assert rig.allowance("old").runs, "its pods are there still: the suspension may be taken back"
        for name in [name for plural, name in rig.api.objects if plural == PODS.plural]:
            rig.api.vanish(PODS, name)
        rig.running(low("new", **least), ps=1, workers=3)
        await rig.caught_up()
        before = len(rig.writes())
        await arbiter.look(time.time() + 2)
        rested = rig.allowance("old")
        assert (rested.runs, rested.why) == (False, acting.RESTS) and rig.allowance("new").workers == 3
        assert sorted(rig.writes()[before:]) == [("patch", "tfjobs", "new"), ("patch", "tfjobs", "old")]
        for later in (3, 4, 400):
            await rig.caught_up()
            await arbiter.look(time.time() + later)
        assert len(rig.writes()) == before + 2, "once"
        arbiter._rested["ml", "old"] = resumed = time.time() + 400
        rig.api.change(TFJOBS, "old", {"spec": {"runPolicy": {"suspend": False}}})
        await rig.caught_up()
        await arbiter.look(resumed + 1)
        found = rig.allowance("old")
        assert not found.runs and "waits for" in found.why and rig.allowance("new").runs
        assert found.since == pytest.approx(resumed, abs=1), "it does not wait since it was suspended"

    play(scenario)


def test_a_job_that_is_resumed_meanwhile_is_looked_at_before_anything_is_taken_from_it():
    async def scenario(rig: Rig) -> None:
        rig.put(node("n1", 8), low())
        arbiter = await rig.synced(rig.operator())
        await arbiter.look(time.time())
        rig.api.change(TFJOBS, "ctr", {"spec": {"runPolicy": {"suspend": True}}})
        await rig.caught_up()
        rig.api.silent = True
        rig.api.change(TFJOBS, "ctr", {"spec": {"runPolicy": {"suspend": False}}})
        assert await arbiter.look(time.time() + 1)
        assert rig.allowance().runs

    play(scenario)


def test_a_pod_that_waits_for_nodes_of_its_own_stops_no_training():
    async def scenario(rig: Rig) -> None:
        taints = [{"key": "pool", "value": "serving", "effect": "NoSchedule"}]
        rig.put(node("n1", 5), node("s1", 2, labels={"pool": "serving"}, taints=taints))
        rig.running(low(), ps=1, workers=3)
        tolerates = [{"key": "pool", "operator": "Exists"}]
        full = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector."
        rig.put(
            pod("there", "s1", 2),
            pod("serving", cpu=2, priority=1000, waits=full, nodeSelector={"pool": "serving"}, tolerations=tolerates),
        )
        arbiter = await rig.synced(rig.operator())
        for later in (0, 1, 400):
            await arbiter.look(time.time() + later)
        found = rig.allowance()
        assert (found.runs, found.ps, found.workers) == (True, 1, 3)

    play(scenario)


@pytest.mark.parametrize(
    ("admitted", "cores", "size"),
    [(False, 5, (False, 0, 0)), (True, 5, (True, 1, 3)), (True, 3, (True, 1, 0)), (True, 2, (True, 1, 1))],
)
def test_what_kueue_has_admitted_gives_back_what_is_above_its_least_and_no_more(
    admitted: bool, cores: int, size: object
):
    async def scenario(rig: Rig) -> None:
        rig.put(node("n1", 5), pod("serving", cpu=cores, priority=1000, waits=FULL))
        job = low()
        job["metadata"]["labels"] = {KUEUE_LABEL: "team"} if admitted else {}
        rig.running(job, ps=1, workers=3)
        arbiter = await rig.synced(rig.operator())
        for later in range(3):
            await arbiter.look(time.time() + later)
        found = rig.allowance()
        assert (found.runs, found.ps, found.workers) == size
        assert rig.api.count("patch", TFJOBS) == 1

    play(scenario)


def test_without_an_arbiter_what_one_has_allowed_is_taken_back():
    async def scenario(rig: Rig) -> None:
        rig.put(node("n1", 8), tfjob("never", annotations={"hold": "true"}))
        rig.running(low(), ps=1, workers=3)
        arbiter = await rig.synced(rig.operator())
        await arbiter.look(time.time())
        assert rig.allowance() is not None and rig.allowance("never") is not None
        rig.api.change(TFJOBS, "never", {"metadata": {"annotations": {names.ALLOWANCE_ANNOTATION: None}}})
        await rig.caught_up()
        before = len(rig.api.calls)
        rig.tasks.append(asyncio.ensure_future(undo(rig.api, arbiter._controller)))  # type: ignore[arg-type]
        while rig.allowance() is not None:
            await asyncio.sleep(0.01)
        assert rig.api.calls[before:] == [("patch", "tfjobs", "ctr")]

    play(scenario)


def test_a_dry_run_after_a_real_one_takes_back_what_that_allowed_and_then_only_tells(caplog):
    async def scenario(rig: Rig) -> None:
        rig.put(node("n1", 8))
        rig.running(low(), ps=1, workers=3)
        arbiter = await rig.synced(rig.operator())
        assert len(shares(rig.api, arbiter._controller, arbiter)) == 1  # type: ignore[arg-type]
        await arbiter.look(time.time())
        assert rig.allowance() is not None
        before = len(rig.writes())
        dry = await rig.synced(rig.operator(dry_run=True))
        with caplog.at_level("INFO"):
            for act in shares(rig.api, dry._controller, dry):  # type: ignore[arg-type]
                rig.tasks.append(asyncio.ensure_future(act()))
            while rig.allowance() is not None or dry.figures.decisions == 0:
                await asyncio.sleep(0.01)
            await dry.look(time.time())
        assert rig.writes()[before:] == [("patch", "tfjobs", "ctr")]
        assert any("dry run: ml/ctr" in one.message for one in caplog.records)

    play(scenario)


@pytest.mark.parametrize("error", [RuntimeError("a bug"), asyncio.TimeoutError()])
def test_whatever_fails_it_goes_on(monkeypatch, error):
    async def scenario(rig: Rig) -> None:
        rig.put(node("n1", 8))
        rig.running(low(), ps=1, workers=3)
        arbiter = await rig.synced(rig.operator())
        monkeypatch.setattr(acting, "LEAST_SECONDS", 0.01)
        decide, failures = acting.decide, [error]

        def fragile(*arguments: Any) -> Any:
            if failures:
                raise failures.pop()
            return decide(*arguments)

        monkeypatch.setattr(acting, "decide", fragile)
        rig.tasks.append(asyncio.ensure_future(arbiter.act()))
        while rig.allowance() is None:
            await asyncio.sleep(0.01)

    play(scenario)


# ------------------------------------------------------------------------------------------------------- what is shown


def test_the_page_shows_jobs_with_what_they_may_have_and_why_and_nothing_of_it_is_html():
    async def scenario(rig: Rig) -> None:
        rig.put(node("n1", 6), pod("serving", cpu=2, priority=1000, waits=FULL))
        rig.running(low(annotations={"queue": "night"}), ps=1, workers=3)
        arbiter = await rig.synced(rig.operator())
        before = page.page(arbiter, time.time())
        assert "another operator leads" in before and "nothing has been decided" in before
        await arbiter.look(time.time())
        text = page.page(arbiter, time.time())
        for words in ("ml/ctr", "night", "1+3", "1+2", "web/serving", "1000"):
            assert words in text, words
        assert "<script" not in text and "http" not in text.partition("<body")[2]
        cluster, decision = arbiter.last
        evil = dataclasses.replace(decision.allowances[0], why="<img src=x onerror=alert(1)>")
        spoilt = dataclasses.replace(decision, allowances=(evil,))
        assert "<img" not in render(page.document(cluster, spoilt, True))

    play(scenario)


def test_programs_and_prometheus_read_the_same():
    async def scenario(rig: Rig) -> None:
        rig.put(node("n1", 6), pod("serving", cpu=2, priority=1000, waits=FULL), tfjob("late", cpu=9))
        rig.running(low(), ps=1, workers=3)
        arbiter = await rig.synced(rig.operator())
        assert page.answer(arbiter, time.time())["leads"] is False
        await arbiter.look(time.time())
        found = json.loads(json.dumps(page.answer(arbiter, time.time())))
        assert found["leads"] and (found["nodes"], found["decisions"], found["writes"]) == (1, 1, 2)
        assert [one["name"] for one in found["waiting_pods"]] == ["web/serving"] and len(found["jobs"]) == 2
        text = metrics(arbiter._controller, None, arbiter).decode()
        samples = {
            (sample.name.removeprefix(page.PREFIX), *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        assert samples["jobs",] == 2 and samples["waiting_jobs",] == 1 and samples["waiting_pods",] == 1
        assert samples["allowed", "ml", "worker"] == 2 and samples["allowed", "ml", "ps"] == 1
        assert samples["decisions_total",] == 1 and samples["writes_total",] == 2 and 0 < samples["used_share",] <= 1

    play(scenario)


def test_who_asks_often_is_given_what_was_made_a_moment_ago():
    made: list[float] = []
    served = page.Served(lambda now: made.append(now) or b"page")  # type: ignore[func-returns-value]
    for now in (10.0, 10.5, 10.9, 11.0, 11.5, 3.0):
        assert served.get(now) == b"page"
    assert made == [10.0, 11.0, 3.0]


def test_whoever_leads_no_more_stops_at_once_whatever_changes_meanwhile():
    """A cancellation that comes together with a change was swallowed once by `asyncio.wait_for`."""

    async def scenario(rig: Rig) -> None:
        rig.put(node("n1", 8))
        rig.running(low(), ps=1, workers=3)
        arbiter = await rig.synced(rig.operator())
        for _ in range(20):
            acts = asyncio.ensure_future(arbiter.act())
            decided = arbiter.figures.decisions
            while arbiter.figures.decisions == decided:
                await asyncio.sleep(0.001)
            await rig.caught_up()
            arbiter._changed.set()
            await asyncio.sleep(0)
            acts.cancel()
            done, _ = await asyncio.wait({acts}, timeout=2)
            assert done and acts.cancelled()

    play(scenario)
