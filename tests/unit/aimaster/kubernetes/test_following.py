"""The TFJob: a user's change is a request, and what runs is written back."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from deeprec_ext.aimaster.kubernetes.following import Follower, status_line
from deeprec_ext.aimaster.kubernetes.naming import Naming
from deeprec_ext.aimaster.kubernetes.reclaim import TAINTS, Reclaim
from deeprec_ext.aimaster.kubernetes.reporting import LOST, Reporter, tell
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.arbiter.observed import Bid, Count, Worth
from deeprec_ext.autoscaler.loop.observing import reclaimed_of
from deeprec_ext.decoding import built
from tests.unit.aimaster.kubernetes.fake_api import NAMESPACE, FakeApi
from tests.unit.aimaster.world import World, world
from tfjob.model.kinds import EVENTS, NODES, TFJOBS
from tfjob.model.names import SCALER_ANNOTATION
from tfjob.model.scaler import Asked

SCALED_TO, STATUS = "aimaster.deeprec.io/scaled-to", "aimaster.deeprec.io/status"


class Cluster:
    def __init__(self, it: World) -> None:
        self._it, self.closed = it, False
        self.why: dict[str, str] = {}
        self.nodes: dict[str, str] = {}  # pod → node

    def waiting(self) -> dict[str, str]:
        return self.why

    def pods_on(self, node: str) -> list[str]:
        return [name for name, where in self.nodes.items() if where == node]

    def runs(self, name: str) -> bool:
        return self._it.backend.pods[name].state == "running"

    def unplaced(self) -> dict[str, str]:
        return dict.fromkeys(self._it.backend.queued, "Insufficient cpu")


class Scene:
    def __init__(self, it: World, chief: str) -> None:
        self.it, self.api, self.cluster = it, FakeApi(), Cluster(it)
        types = {"Worker": 1 if chief else 2, **({chief: 1} if chief else {}), **({} if it.spec.sums else {"PS": 2})}
        specs = {kind: {"replicas": count, "template": {}} for kind, count in types.items()}
        self.api.put(TFJOBS, {"metadata": {"name": "ctr"}, "spec": {"tfReplicaSpecs": specs}})
        job, scalings = it.master.job, it.master.scalings
        self.follower = Follower(self.api, NAMESPACE, Naming("ctr", chief), job, scalings, self.cluster)  # type: ignore[arg-type]

    @property
    def tfjob(self) -> dict[str, Any]:
        return self.api.objects["tfjobs", "ctr"]

    def sizes(self) -> tuple[dict[str, int], dict[str, int]]:
        """Of the spec, and as noted."""
        specs = self.tfjob["spec"]["tfReplicaSpecs"]
        noted = json.loads((self.tfjob["metadata"].get("annotations") or {}).get(SCALED_TO, "{}"))
        return {kind: specs[kind]["replicas"] for kind in ("PS", "Worker") if kind in specs}, noted

    async def look(self) -> None:
        await self.follower.look(self.tfjob)

    def edit(self, **replicas: int) -> None:
        """kubectl edit."""
        specs = {kind: {"replicas": count} for kind, count in replicas.items()}
        self.api.change(TFJOBS, "ctr", {"spec": {"tfReplicaSpecs": specs}})

    def note(self, note: Asked, **replicas: int) -> None:
        """A ScaleOut or ScaleIn."""
        specs = {kind: {"replicas": count} for kind, count in replicas.items()}
        self.api.change(TFJOBS, "ctr", {
            "metadata": {"annotations": {SCALER_ANNOTATION: note.text}}, "spec": {"tfReplicaSpecs": specs},
        })  # fmt: skip

    async def written(self) -> None:
        await self.look()
        await self.follower.write()


def play(tmp_path: Path, test: Callable[[Scene], Coroutine[Any, Any, None]], chief: str = "Chief", **spec: Any) -> None:
    async def main() -> None:
        async with world(tmp_path, **spec) as it:
            await test(Scene(it, chief))

    asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize("chief", ["Chief", "Master", ""])
def test_a_user_s_change_of_replicas_is_a_request(tmp_path: Path, chief: str) -> None:
    more = 3 if chief else 4  # worker 0 stands for a chief that is missing

    async def test(scene: Scene) -> None:
        it = scene.it
        await scene.written()
        assert scene.sizes()[1] == {"PS": 2, "Worker": 1 if chief else 2}
        scene.edit(PS=3, Worker=more)
        await scene.look()
        ended = await it.ended()
        assert (ended.outcome, ended.kind, ended.role, ended.to_count) == ("committed", "scale-up", "ps", 3)
        assert (ended.workers_from, ended.workers_to) == (1, 3), "one edit is one scaling"
        assert [one.asked_reason for one in it.master.scalings.ended] == ["kubectl"]
        await it.until(lambda: it.master.scalings.running is None)
        await scene.written()
        assert scene.sizes() == ({"PS": 3, "Worker": more},) * 2
        await scene.look()
        assert not it.master.scalings.queue, "its own word is no request"

    play(tmp_path, test, chief)


@pytest.mark.parametrize("own_pods", [True, False])
def test_the_workers_that_a_scale_in_names_leave(tmp_path: Path, own_pods: bool) -> None:
    async def test(scene: Scene) -> None:
        it = scene.it
        await scene.written()
        scene.edit(Worker=3)
        await scene.look()
        assert (await it.ended()).outcome == "committed"
        await it.until(lambda: it.master.scalings.running is None)
        await scene.written()
        note = Asked("u", 3, 2, ("worker-1",), "ScaleIn:team/s").text
        scene.api.change(TFJOBS, "ctr", {"metadata": {"annotations": {SCALER_ANNOTATION: note}}})
        scene.edit(Worker=2)
        await scene.look()
        assert (await it.ended(2)).outcome == "committed"
        await it.until(lambda: it.master.scalings.running is None)
        await scene.written()
        scene.edit(Worker=1)  # by a user, who names nobody
        await scene.look()
        assert (await it.ended(3)).outcome == "committed"
        gone = [scaling.drained for scaling in it.master.scalings.ended[1:]]
        assert gone == [("worker-1",), ("worker-2",)] if own_pods else gone == [("worker-2",), ("worker-1",)]

    play(tmp_path, test, own_pods=own_pods)


def test_while_a_request_is_under_way_the_user_s_number_stays(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        it = scene.it
        await scene.written()
        it.backend.stillborn.add("ps-2")
        scene.edit(PS=3)
        await scene.look()
        await it.until(lambda: it.master.scalings.running is not None)
        await scene.written()
        await scene.look()
        assert scene.sizes() == ({"PS": 3, "Worker": 1}, {"PS": 2, "Worker": 1})
        assert len(it.master.scalings.records()) == 1, "asked once"
        assert (await it.ended()).outcome == "rolled_back"
        await it.until(lambda: it.master.scalings.running is None)
        await scene.written()
        assert scene.sizes() == ({"PS": 2, "Worker": 1},) * 2, "what runs is said again"

    play(tmp_path, test)


def test_a_user_who_changes_their_mind_is_heard(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        it = scene.it
        await scene.written()
        scene.edit(PS=3)
        await scene.look()
        scene.edit(PS=2)  # what it was, and is noted
        await scene.look()
        assert [(await it.ended(number)).to_count for number in (1, 2)] == [3, 2]
        await it.until(lambda: it.master.scalings.running is None)
        await scene.written()
        assert scene.sizes() == ({"PS": 2, "Worker": 1},) * 2 and len(it.master.job.cluster.ps) == 2

    play(tmp_path, test)


def test_a_request_that_is_refused_is_told_and_taken_back(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        await scene.written()
        scene.edit(PS=9)
        await scene.look()
        [event] = [row for row in scene.it.master.job.store.events(0, 1000) if row[2] == "request_refused"]
        told = tell("request_refused", "", json.loads(event[5]))
        assert (
            told is not None and told[:2] == ("Warning", "ScalingRefused") and "more than the 8 slots" in told.message
        )
        await scene.written()
        assert scene.sizes()[0]["PS"] == 2
        scene.edit(PS=9)
        await scene.look()
        events = [row for row in scene.it.master.job.store.events(0, 1000) if row[2] == "request_refused"]
        assert len(events) == 2, "asked again, answered again"

    play(tmp_path, test)


def test_what_a_user_writes_meanwhile_is_never_overwritten(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        await scene.look()
        scene.edit(PS=3)  # not seen yet
        await scene.follower.write()
        assert scene.sizes() == ({"PS": 3, "Worker": 1}, {})
        await scene.look()
        assert (await scene.it.ended()).to_count == 3

    play(tmp_path, test)


def test_scalings_that_others_ask_for_are_written_back(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        await scene.written()
        await scene.it.scale(workers=2)
        assert (await scene.it.ended()).outcome == "committed"
        await scene.it.until(lambda: scene.it.master.scalings.running is None)
        await scene.written()
        assert scene.sizes() == ({"PS": 2, "Worker": 2},) * 2

    play(tmp_path, test)


def test_a_worker_that_has_ended_by_itself_is_no_change_of_size(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        await scene.written()
        scene.it.backend.exit("worker-0", 0)
        await scene.it.until(lambda: scene.it.master.job.members.records["worker-0"].ended)
        await scene.written()
        assert scene.sizes() == ({"PS": 2, "Worker": 1},) * 2

    play(tmp_path, test)


def test_the_line_of_status_changes_at_most_every_few_seconds(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        now = [1000.0]
        scene.it.master.job.clock.monotonic = lambda: now[0]  # type: ignore[method-assign]
        await scene.written()
        first = scene.tfjob["metadata"]["annotations"][STATUS]
        assert first.startswith("PS 2, workers 1, step ")
        patches = scene.api.count("patch", TFJOBS)
        scene.it.agent("worker-0").step += 1000
        await scene.it.until(lambda: scene.it.master.job.members.step > 1000)
        await scene.written()
        assert scene.api.count("patch", TFJOBS) == patches
        now[0] += 5.0
        await scene.written()
        assert scene.tfjob["metadata"]["annotations"][STATUS] != first

    play(tmp_path, test)


def test_ps_that_somebody_adds_to_a_job_without_them_are_refused_once_and_nothing_is_written(tmp_path: Path) -> None:
    def refused(scene: Scene) -> list[str]:
        return [row[5] for row in scene.it.master.job.store.events(0, 1000) if row[2] == "request_refused"]

    async def test(scene: Scene) -> None:
        await scene.written()
        patches = scene.api.count("patch", TFJOBS)
        specs = {"ps": {"replicas": 2, "template": {}}}  # as its user spells it
        scene.api.change(TFJOBS, "ctr", {"spec": {"tfReplicaSpecs": specs}})
        for _ in range(10):
            await scene.written()
        assert scene.api.count("patch", TFJOBS) == patches, "what is its user's stays as it is"
        (said,) = refused(scene)
        told = tell("request_refused", "", json.loads(said))
        assert told is not None and told[:2] == ("Warning", "ScalingRefused")
        assert "no PS (strategy allreduce)" in told.message and "leave out spec.tfReplicaSpecs.ps" in told.message
        scene.edit(Worker=2)  # which is no reason to ignore what can be done
        await scene.look()
        assert (await scene.it.ended()).outcome == "committed"
        await scene.it.until(lambda: scene.it.master.scalings.running is None)
        await scene.written()
        await scene.look()
        assert scene.sizes()[1] == {"Worker": 2} and scene.tfjob["spec"]["tfReplicaSpecs"]["ps"]["replicas"] == 2
        assert len(refused(scene)) == 1, "said once"
        del scene.tfjob["spec"]["tfReplicaSpecs"]["ps"]
        await scene.look()
        scene.api.change(TFJOBS, "ctr", {"spec": {"tfReplicaSpecs": specs}})
        await scene.look()
        assert len(refused(scene)) == 2, "asked again, answered again"

    play(tmp_path, test, slots=0, ps=0, min_ps=0)


@pytest.mark.parametrize(("chief", "beside"), [("Chief", 0), ("", 1)])
def test_a_job_without_ps_is_scaled_by_its_workers_and_says_so(tmp_path: Path, chief: str, beside: int) -> None:
    async def test(scene: Scene) -> None:
        it = scene.it
        await scene.written()
        assert scene.sizes()[1] == {"Worker": 1 + beside}
        scene.edit(Worker=2 + beside)
        await scene.look()
        assert (await it.ended()).outcome == "committed"
        await it.until(lambda: it.master.scalings.running is None)
        await scene.written()
        assert scene.sizes() == ({"Worker": 2 + beside},) * 2
        assert f"in step, workers {2 + beside}" in scene.follower.line()

    play(tmp_path, test, chief, slots=0, ps=0, min_ps=0)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("training", {"PS": 3, "Worker": 2}, 1200, 350.4), "PS 3, workers 2, step 1200, 350 examples/s"),
        (("training", {"Worker": 2}, 7, 350.4), "in step, workers 2, step 7, 350 examples/s"),
        (("training", {"PS": 1}, 7, 0.25), "PS 1, workers 0, step 7, 0.25 examples/s"),
        (
            ("starting", {"PS": 1, "Worker": 1}, 0, 0.0, "ps-0: no room"),
            "starting: PS 1, workers 1, step 0; ps-0: no room",
        ),
        (
            ("failed", {"PS": 1, "Worker": 1}, 5, 0.0, "chief-0 exited"),
            "failed: PS 1, workers 1, step 5; chief-0 exited",
        ),
    ],
)
def test_lines_of_status(arguments: tuple[Any, ...], line: str) -> None:
    assert status_line(*arguments) == line


def test_the_annotation_hold_counts_when_it_changes(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        job = scene.it.master.job
        hold = "aimaster.deeprec.io/hold"
        for value, by_hand, held in (("true", None, True), ("true", False, False), ("false", None, False),
                                     ("True", None, True), (None, None, False)):  # fmt: skip
            if by_hand is not None:
                job.hold(by_hand, "command line")
            scene.api.change(TFJOBS, "ctr", {"metadata": {"annotations": {hold: value}}})
            await scene.look()
            assert job.held is held

    play(tmp_path, test)


@pytest.mark.parametrize("how", ["deleting", "gone", "suspended"])
def test_when_the_tfjob_goes_nothing_is_started_any_more(tmp_path: Path, how: str) -> None:
    async def test(scene: Scene) -> None:
        watching = asyncio.ensure_future(scene.follower.watch())
        await scene.it.until(lambda: scene.api.count("watch", TFJOBS) == 1)
        assert not scene.cluster.closed
        if how == "gone":
            scene.api.vanish(TFJOBS, "ctr")
        elif how == "deleting":
            scene.api.change(TFJOBS, "ctr", {"metadata": {"deletionTimestamp": "now"}})
        else:
            told = {"type": "Suspended", "status": "True", "reason": "TFJobSuspended"}
            scene.api.change(TFJOBS, "ctr", {"status": {"conditions": [told]}})
        await scene.it.until(lambda: scene.cluster.closed)
        assert scene.it.master.job.lock.held(Hold.STOPPING)
        patches = scene.api.count("patch", TFJOBS)
        await scene.follower.write()
        assert scene.api.count("patch", TFJOBS) == (patches if how != "gone" else patches + 1)
        watching.cancel()

    if how == "gone":
        with pytest.raises(Exception, match="not found"):
            play(tmp_path, test)
    else:
        play(tmp_path, test)


# -------------------------------------------------------------------------------------------------------------- arbiter

WORTH, ALLOWANCE = "aimaster.deeprec.io/worth", "aimaster.deeprec.io/allowance"
BID = Bid(1000.0, Count(2, 1), Count(2, 1), (Worth(2, 1, 400.0), Worth(1, 1, 300.0)), training=True)


def allow(scene: Scene, workers: int | None) -> None:
    """None: the annotation is taken away."""
    values = {"runs": True, "ps": 2, "workers": workers, "since": 1.0, "why": "a serving pod waits"}
    text = None if workers is None else json.dumps(values)
    scene.api.change(TFJOBS, "ctr", {"metadata": {"annotations": {ALLOWANCE: text}}})


async def heard(scene: Scene, allowances: AsyncIterator[str | None]) -> Any:
    """The next one, once the TFJob was looked at."""
    await scene.look()
    text = await asyncio.wait_for(anext_of(allowances), 5)
    return None if text is None else json.loads(text)["workers"]


async def anext_of(allowances: AsyncIterator[str | None]) -> str | None:
    return await allowances.__anext__()


def test_a_bid_is_written_with_what_else_is_due_and_only_where_there_is_an_arbiter(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        now = [1000.0]
        scene.it.master.job.clock.monotonic = lambda: now[0]  # type: ignore[method-assign]
        await scene.written()
        assert not scene.follower.is_read, "nobody has asked"
        allow(scene, 1)
        await scene.written()
        patches = scene.api.count("patch", TFJOBS)
        await scene.follower.publish(BID)
        assert scene.follower.is_read and scene.api.count("patch", TFJOBS) == patches
        now[0] += 5.0
        scene.it.agent("worker-0").step += 1000
        await scene.it.until(lambda: scene.it.master.job.members.step > 1000)
        for _ in range(3):
            await scene.written()
        assert scene.api.count("patch", TFJOBS) == patches + 1, "one write for status and bid"
        annotations = scene.tfjob["metadata"]["annotations"]
        assert built(Bid, json.loads(annotations[WORTH])) == BID and " 1," in annotations[STATUS]

    play(tmp_path, test)


def test_a_bid_that_meets_a_conflict_is_written_when_the_newer_version_is_known(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        allow(scene, 1)
        await scene.written()
        await scene.follower.publish(BID)
        allow(scene, 2)  # not seen yet
        await scene.follower.write()
        assert WORTH not in scene.tfjob["metadata"]["annotations"]
        await scene.follower.publish(dataclasses.replace(BID, busy=True))
        await scene.written()
        assert json.loads(scene.tfjob["metadata"]["annotations"][WORTH])["busy"], "the newest"

    play(tmp_path, test)


def test_allowances_come_by_the_watch_and_their_end_as_well(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        allowances = scene.follower.allowances()
        assert await heard(scene, allowances) is None, "there is none: what the store may have is not so any more"
        for workers in (1, 0, None, 3):
            allow(scene, workers)
            assert await heard(scene, allowances) == workers
        waiting = asyncio.ensure_future(anext_of(allowances))
        scene.api.change(TFJOBS, "ctr", {"metadata": {"annotations": {"of": "somebody else"}}})
        for workers in (2, 1):
            await scene.look()
            await asyncio.sleep(0)
            assert not waiting.done()
            if workers == 2:
                continue
            allow(scene, 2)
            allow(scene, 1)
        await scene.look()
        assert json.loads(await asyncio.wait_for(waiting, 5) or "{}")["workers"] == 1, "the newest of several"

    play(tmp_path, test)


def test_a_tfjob_is_scaled_in_for_its_annotation_and_replicas_say_so(tmp_path: Path) -> None:
    async def main() -> None:
        it = World(tmp_path, workers=3)
        scene: Scene

        class Later:
            """The follower needs the AIMaster's job, and the AIMaster its follower."""

            is_read = property(lambda self: scene.follower.is_read)

            async def publish(self, bid: Bid) -> None:
                await scene.follower.publish(bid)

            async def allowances(self) -> AsyncIterator[str | None]:
                while not started.is_set():
                    await started.wait()
                async for text in scene.follower.allowances():
                    yield text

        started = asyncio.Event()
        it.exchange = Later()
        await it.start()
        scene = Scene(it, "Chief")
        try:
            await it.training()
            scene.edit(Worker=3)
            await scene.written()
            started.set()
            allow(scene, 1)
            await scene.look()
            ended = await it.ended()
            assert (ended.outcome, ended.to_count, ended.requested_by) == ("committed", 1, "arbiter")
            assert ended.reason == "a serving pod waits"
            await it.until(lambda: not it.master.scalings.under_way())
            await scene.written()
            assert scene.sizes() == ({"PS": 2, "Worker": 1},) * 2
            scene.edit(Worker=4)
            await scene.look()
            await it.until(lambda: any(row[2] == "request_waits" for row in it.master.job.store.events(0, 1000)))
            await scene.written()
            assert scene.sizes() == ({"PS": 2, "Worker": 1},) * 2, "it waits"
            allow(scene, 9)
            await scene.look()
            assert (await it.ended(2)).to_count == 4
            await it.until(lambda: not it.master.scalings.under_way())
            await scene.written()

            allow(scene, 2)
            await scene.look()
            assert (await it.ended(3)).to_count == 2
            await it.until(lambda: not it.master.scalings.under_way())
            await scene.written()
            out = Asked("uid-of-out", 2, 7, by="ScaleOut:ml/out")
            scene.note(out, Worker=7)
            await scene.look()
            await it.until(lambda: it.master.job.allowed.back("worker") == 7)
            await scene.written()
            scene.note(dataclasses.replace(out, failed=True))
            await scene.look()
            assert it.master.job.allowed.back("worker") == 4, "as before"
            allow(scene, 9)
            await scene.look()
            assert (await it.ended(4)).to_count == 4
            scene.note(out, Worker=6)
            await scene.look()
            await it.ended(5)
            scene.note(dataclasses.replace(out, failed=True))
            await scene.look()
            assert it.master.job.allowed.back("worker") == 6, "somebody has asked for another size since"
            scene.edit(Worker=7)
            await scene.look()
            await it.until(lambda: it.master.job.allowed.back("worker") == 7)
            await scene.look()
            assert it.master.job.allowed.back("worker") == 7, "by hand, as the ScaleOut that has failed did"
        finally:
            await it.stop()

    asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize(("type_", "fields", "told"), [
    ("allowance", {"ps": 1, "workers": 2, "reason": "why"}, ("Normal", "Allowance", "1 PS, 2 workers: why")),
    ("allowance", {"reason": "the arbiter limits this job no more"},
     ("Normal", "Allowance", "the arbiter limits this job no more")),
    ("allowance_ignored", {"reason": "why"}, ("Warning", "AllowanceIgnored", "why")),
    ("request_waits", {"asked": "4 workers", "reason": "why"}, ("Normal", "ScalingWaits", "4 workers: why")),
])  # fmt: skip
def test_what_the_arbiter_does_is_told_as_events(
    type_: str, fields: dict[str, Any], told: tuple[str, str, str]
) -> None:
    assert tell(type_, "", fields) == told


# --------------------------------------------------------------------------------------------------------------- events

QUEUED = {"kind": "scale-up", "target": "ps", "from_count": 2, "to_count": 3, "replace": "", "reason": "kubectl"}
ENDED = {"kind": "scale-up", "target": "ps", "from_count": 2, "to_count": 3, "seconds": 3.2, "slots_moved": 2,
         "bytes_moved": 12_000_000, "reason": ""}  # fmt: skip


@pytest.mark.parametrize(
    ("type_", "role", "fields", "told"),
    [
        ("scaling_queued", "", QUEUED, ("Normal", "ScalingRequested", "scale-up of PS, 2 → 3 (kubectl)")),
        ("scaling_queued", "", {**QUEUED, "workers_from": 4, "workers_to": 2},
         ("Normal", "ScalingRequested", "scale-up of PS, 2 → 3, workers 4 → 2 (kubectl)")),
        ("scaling_queued", "", {"kind": "replace", "target": "ps", "returning": "ps-1", "reason": ""},
         ("Normal", "ScalingRequested", "replace of ps-1")),
        ("scaling_ended", "", {**ENDED, "outcome": "committed"},
         ("Normal", "ScalingCommitted", "scale-up of PS, 2 → 3 in 3.2 s, 2 slots with 12 MB moved")),
        ("scaling_ended", "", {**ENDED, "outcome": "rolled_back", "reason": "0/1 nodes are available"},
         ("Warning", "ScalingRolledBack", "scale-up of PS, 2 → 3: 0/1 nodes are available")),
        ("scaling_ended", "", {**ENDED, "outcome": "refused", "reason": "no memory"},
         ("Warning", "ScalingRefused", "scale-up of PS, 2 → 3: no memory")),
        ("failure", "ps-1", {"cause": "evicted: low on memory"}, ("Warning", "PSLost", "ps-1: evicted: low on memory")),
        ("failure", "worker-0", {"cause": "killed by signal 9"}, ("Warning", "WorkerLost", "worker-0: killed by signal 9")),
        ("promoted", "ps-1", {"slots": 4, "stale_records": 12},
         ("Normal", "PSPromoted", "4 slots of ps-1 go on from their peer backups, 12 records forgotten")),
        ("recovered", "ps-1", {"seconds": 2.0, "by": "promotion"},
         ("Normal", "Recovered", "ps-1 trains again after 2.0 s, by promotion")),
        ("broken", "", {"reason": "cannot create pods"},
         ("Warning", "AIMasterFailed", "cannot create pods; it is started again, and training goes on meanwhile")),
        ("view_published", "", {}, None),
    ],
)  # fmt: skip
def test_what_is_told(type_: str, role: str, fields: dict[str, Any], told: tuple[str, str, str] | None) -> None:
    assert tell(type_, role, fields) == told


def test_scalings_and_failovers_are_events_of_the_tfjob(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        job = scene.it.master.job
        teller = Reporter(scene.api, NAMESPACE, {"kind": "TFJob", "name": "ctr", "uid": "u"}, job)  # type: ignore[arg-type]
        telling = asyncio.ensure_future(teller.run())
        await scene.it.scale(ps=3)
        assert (await scene.it.ended()).outcome == "committed"
        await scene.it.backend.kill("ps-0")
        await scene.it.until(lambda: any(row[2] == "recovered" for row in job.store.events(0, 1000)))
        await teller.flush(5.0)
        reasons = [reason for _, reason, _ in scene.api.told()]
        assert reasons[:2] == ["ScalingRequested", "ScalingCommitted"] and {LOST["ps"], "Recovered"} <= set(reasons)
        assert all(
            one["involvedObject"]["uid"] == "u" for (kind, _), one in scene.api.objects.items() if kind == "events"
        )
        telling.cancel()

    play(tmp_path, test)


def test_without_the_right_to_tell_nothing_else_suffers(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.api.forbidden = {("create", "events")}
        teller = Reporter(scene.api, NAMESPACE, {"name": "ctr"}, scene.it.master.job)  # type: ignore[arg-type]
        telling = asyncio.ensure_future(teller.run())
        await scene.it.scale(workers=2)
        await asyncio.wait_for(telling, 5)
        assert (await scene.it.ended()).outcome == "committed" and scene.api.count("create", EVENTS) == 1

    play(tmp_path, test)


# --------------------------------------------------------------------------------------------------------- reclaim notices


async def no_sleep(seconds: float) -> None:
    await asyncio.sleep(0)


def node(name: str, *taints: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]}}


@pytest.mark.parametrize("taint", TAINTS)
def test_pods_of_a_node_that_is_about_to_go_are_replaced_in_time(tmp_path: Path, taint: str) -> None:
    async def test(scene: Scene) -> None:
        it, job = scene.it, scene.it.master.job
        scene.cluster.nodes = {"ps-1": "spot", "chief-0": "spot", "ps-0": "steady"}
        for name in ("spot", "steady"):
            scene.api.put(NODES, node(name, "node.kubernetes.io/unschedulable"))
        reclaim = Reclaim(scene.api, job, it.master.scalings, scene.cluster, sleep=no_sleep)  # type: ignore[arg-type]
        watching = asyncio.ensure_future(reclaim.watch())
        await it.until(lambda: scene.api.count("watch", NODES) == 1)
        scene.api.change(NODES, "spot", node("spot", taint))
        ended = await it.ended()
        assert (ended.kind, ended.outcome) == ("replace", "committed") and "ps-1" not in job.members.wanted(1)
        scene.api.change(NODES, "spot", {"metadata": {"labels": {"seen": "again"}}})
        rows = [row for row in job.store.events(0, 1000) if row[2] == "reclaimed"]
        told = {row[3]: json.loads(row[5])["answer"] for row in rows}
        assert told == {"ps-1": "it is replaced in time", "chief-0": "it is started again elsewhere when it has gone"}
        watching.cancel()

    play(tmp_path, test)


def test_the_autoscaler_sees_whose_node_goes_and_that_it_stays_after_all(tmp_path: Path) -> None:
    """It asks for a replacement where the first one failed; the successor under the same name is not meant."""

    async def test(scene: Scene) -> None:
        it, job, gate = scene.it, scene.it.master.job, asyncio.Event()

        async def sleep(seconds: float) -> None:
            await gate.wait()

        scene.cluster.nodes = {"ps-1": "spot", "ps-0": "steady"}
        for name in ("spot", "steady"):
            scene.api.put(NODES, node(name, "node.kubernetes.io/unschedulable"))
        reclaim = Reclaim(scene.api, job, it.master.scalings, scene.cluster, sleep=sleep)  # type: ignore[arg-type]
        watching = asyncio.ensure_future(reclaim.watch())
        await it.until(lambda: scene.api.count("watch", NODES) == 1)
        scene.api.change(NODES, "spot", node("spot", TAINTS[0]))
        await it.until(lambda: reclaimed_of(job) == ["ps-1"])
        scene.api.change(NODES, "spot", node("spot", "node.kubernetes.io/unschedulable"))
        await it.until(lambda: reclaimed_of(job) == [])
        scene.api.change(NODES, "spot", node("spot", TAINTS[0]))
        await it.until(lambda: reclaimed_of(job) == ["ps-1"])
        job.reclaimed["ps-1"] = "of the one before"
        assert reclaimed_of(job) == []
        reclaim.close()
        watching.cancel()

    play(tmp_path, test)


def test_who_has_gone_already_is_failed_over_and_not_replaced(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        it = scene.it
        gate = asyncio.Event()

        async def sleep(seconds: float) -> None:
            await gate.wait()

        reclaim = Reclaim(scene.api, it.master.job, it.master.scalings, scene.cluster, sleep=sleep)  # type: ignore[arg-type]
        for _ in range(2):
            reclaim.notice("worker-0", "its pod is deleted")
        it.backend.exit("worker-0", 143, restarting=True)
        gate.set()
        await it.until(lambda: not reclaim._answering)
        assert it.master.scalings.records() == []

    play(tmp_path, test)


def test_without_the_right_to_watch_nodes_it_is_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "deeprec_ext")

    async def test(scene: Scene) -> None:
        scene.cluster.nodes["ps-1"] = "n1"
        scene.api.put(NODES, {"metadata": {"name": "n1"}, "spec": {"taints": [{"key": TAINTS[0]}]}})
        scene.api.forbidden = {("list", "nodes")}
        reclaim = Reclaim(scene.api, scene.it.master.job, scene.it.master.scalings, scene.cluster)  # type: ignore[arg-type]
        await asyncio.wait_for(reclaim.watch(), 5)
        assert scene.api.count("list", NODES) == 1 and scene.api.count("watch", NODES) == 0
        assert scene.it.master.scalings.records() == [] and not reclaim._answering
        assert not scene.it.master.broken.is_set()

    play(tmp_path, test)
    assert [
        one for one in caplog.messages if one.startswith("nodes are not watched, reclaim notices come from pods alone")
    ]
