"""The autoscaler on a real AIMaster with agents that pretend; what it decides is scripted here."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from deeprec_ext.aimaster.metrics.hosts import HostUse
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.autoscaler.loop import autoscaler as module
from deeprec_ext.autoscaler.loop.autoscaler import Autoscaler
from deeprec_ext.autoscaler.loop.keeps import Keeps
from deeprec_ext.autoscaler.loop.recalled import KEY, Recalled, keep
from deeprec_ext.autoscaler.observe.observed import Limits, Observed, Size, Stood, Window
from deeprec_ext.autoscaler.policy.decision import Decision
from deeprec_ext.autoscaler.policy.record import read
from deeprec_ext.errors import UsageError
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.world import SETTINGS, SLOT_BYTES, World, world
from tests.unit.autoscaler.facts import fact
from tests.unit.autoscaler.policy.jobs import windows


class Script:
    """Decides what it was told to, one after the other, then to keep; remembers what it saw and what was recorded."""

    def __init__(self, *steps: Callable[[Observed], Decision]) -> None:
        self.steps = list(steps)
        self.seen: list[Observed] = []
        self.added: list[tuple[Observed, Decision]] = []
        self.outcomes: list[tuple[int, str, str, float]] = []
        self.remembered: tuple[Window, ...] = ()
        self.first: Size | None = None
        self.begins = 1

    def decide(self, observed: Observed) -> Decision:
        self.seen.append(observed)
        if self.steps and observed.windows and not observed.hold and not observed.busy:
            return self.steps.pop(0)(observed)
        return Decision(observed.number, observed.time, "keep", observed.size, "nothing to do")

    def add(self, observed: Observed, decision: Decision) -> None:
        self.added.append((observed, decision))

    def outcome(self, number: int, outcome: str, reason: str, examples_per_second: float) -> None:
        self.outcomes.append((number, outcome, reason, examples_per_second))

    def tell(self, after: int, limit: int) -> list[str]:
        return [decision.to_json() for _, decision in self.added if decision.number > after][:limit]

    def foretold(self) -> dict[int, float]:
        return {}

    def last(self) -> tuple[tuple[Window, ...], Size | None]:
        return self.remembered, self.first

    @property
    def next_number(self) -> int:
        return self.begins + len(self.added)

    @next_number.setter
    def next_number(self, value: int) -> None:
        self.begins = value - len(self.added)


def scale(action: str = "scale", **size: int) -> Callable[[Observed], Decision]:
    return lambda seen: Decision(
        seen.number, seen.time, action, dataclasses.replace(seen.size, **size), "more is faster"
    )


def events(it: World, type_: str) -> list[dict[str, object]]:
    return [json.loads(row[5]) for row in it.master.job.store.events(0, 10_000) if row[2] == type_]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_SECONDS", 0.02)


def play(
    tmp_path: Path, script: Script, scenario: Callable[[World, Autoscaler], Awaitable[None]], *, in_place: bool = True,
    changed: dict[str, object] | None = None, age: float = 0.0, **spec: object,
) -> None:  # fmt: skip
    """`age`: seconds for which the job has run already."""
    settings = dataclasses.replace(SETTINGS, **{"decide_seconds": 0.05, "window_seconds": 0.3, **(changed or {})})

    async def main() -> None:
        async with world(tmp_path, settings=settings, **spec) as it:
            it.master.job.started -= age
            scaler = Autoscaler(
                it.master.job, it.master.scalings, it.backend.resize, lambda subject: {}, script.decide, script,
                resizes_in_place=in_place,
            )  # fmt: skip
            scaler._windows.settle_seconds = 0.1
            running = asyncio.get_running_loop().create_task(scaler.run())
            try:
                await scenario(it, scaler)
            finally:
                running.cancel()

    asyncio.run(main())


def test_a_decision_becomes_scalings_and_its_outcome_is_measured(tmp_path: Path) -> None:
    script = Script(scale(ps=3, workers=2))

    async def scenario(it: World, scaler: Autoscaler) -> None:
        await it.until(lambda: bool(script.outcomes))
        assert len(it.master.job.cluster.ps) == 3 and len(it.master.job.view().workers) == 3
        observed, decision = next((seen, made) for seen, made in script.added if made.action == "scale")
        [scaling] = it.master.job.store.scalings()
        assert (scaling.decision, scaling.both) == (decision.number, True), "one scaling for PS and workers"
        changes = [(one.role, one.kind, one.from_count, one.to_count) for one in scaler.observed().changes]
        assert changes == [("ps", "scale-up", 2, 3), ("worker", "scale-up", 1, 2)], "the policy sees one of each role"
        number, outcome, reason, rate = script.outcomes[0]
        assert (number, outcome, reason) == (decision.number, "committed", "") and rate > 0
        assert (observed.size.ps, observed.size.workers, decision.size.ps) == (2, 1, 3)
        assert Observed.from_json(observed.to_json()) == observed

    play(tmp_path, script, scenario, ps=2)


def test_what_a_suspect_says_of_its_examples_is_not_learned_from(tmp_path: Path) -> None:
    async def scenario(it: World, scaler: Autoscaler) -> None:
        await it.until(lambda: bool(scaler._windows.closed))
        members = it.master.job.members
        it.master.job.suspects.note(members.trainers()["worker-0"], "it says what cannot be")
        await it.until(lambda: scaler._windows._open is None)
        known = len(scaler._windows.closed)
        for _ in range(50):
            scaler._look()
            await asyncio.sleep(0)
        assert (len(scaler._windows.closed), scaler._windows._open) == (known, None)

    play(tmp_path, Script(), scenario)


def test_windows_reach_the_policy_and_none_is_of_a_time_of_change(tmp_path: Path) -> None:
    script = Script(scale(workers=2))

    async def scenario(it: World, scaler: Autoscaler) -> None:
        await it.until(lambda: len({w.size for seen in script.seen for w in seen.windows}) == 2)
        rates = {w.size.workers: w.examples_per_second for w in script.seen[-1].windows}
        assert rates[1] > 0 and rates[2] > 0

    play(tmp_path, script, scenario)


def test_no_window_is_of_a_time_in_which_a_trainer_builds_sessions(tmp_path: Path) -> None:
    script = Script()

    async def scenario(it: World, scaler: Autoscaler) -> None:
        await it.until(lambda: bool(scaler._windows.closed))
        chief = it.agent("chief-0")
        chief.preparing = True
        await it.until(lambda: it.master.job.members.trainers()["chief-0"].heartbeat.preparing)
        await it.until(lambda: scaler._windows._open is None)
        chief.preparing = False
        await it.until(lambda: scaler._windows._open is not None)

    play(tmp_path, script, scenario)


def test_a_window_in_which_a_trainer_builds_sessions_for_long_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deeprec_ext.autoscaler.observe.windows.PATIENCE_SECONDS", 0.3)
    script = Script()

    async def scenario(it: World, scaler: Autoscaler) -> None:
        it.agent("chief-0").preparing = True
        await it.until(lambda: any(window.preparing for seen in script.seen for window in seen.windows))
        it.agent("chief-0").preparing = False
        await it.until(lambda: not script.seen[-1].windows[-1].preparing)

    play(tmp_path, script, scenario)


def test_the_copies_of_a_single_ps_reach_the_policy_with_the_trainer_that_keeps_them(tmp_path: Path) -> None:
    script = Script()

    async def scenario(it: World, scaler: Autoscaler) -> None:
        chief = it.agent("chief-0")
        chief.mute.add("report")
        await it.until(lambda: "guard" in chief.told)
        await asyncio.sleep(0.2)
        assert chief.incarnation not in scaler._growth._points, "it fills up now"
        assert it.agent("worker-0").incarnation in scaler._growth._points
        assert script.seen[-1].copies_bytes == it.master.job.trainer_backups.needed_bytes > 8 * SLOT_BYTES
        assert not any(use.copies_bytes for use in script.seen[-1].roles)
        await chief.say(backup=pb.BackupReport(guard=chief.command("guard").guard.id, slots=range(8), age_seconds=0.01))
        await it.until(lambda: any(use.copies_bytes for use in script.seen[-1].roles))
        assert {use.name: use.copies_bytes for use in script.seen[-1].roles} == {
            "ps-0": 0, "chief-0": 8 * SLOT_BYTES, "worker-0": 0
        }  # fmt: skip
        await it.until(lambda: chief.incarnation in scaler._growth._points)

    play(tmp_path, script, scenario, ps=1, changed={"peer_backup": "auto", "peer_backup_seconds": 0.2})


@pytest.mark.parametrize("changed", [{"peer_backup_holder": "off"}, {"peer_backup": "off"}])
def test_where_no_trainer_keeps_copies_none_is_planned_for(tmp_path: Path, changed: dict[str, object]) -> None:
    script = Script()

    async def scenario(it: World, scaler: Autoscaler) -> None:
        await it.until(lambda: bool(script.seen))
        assert not script.seen[-1].copies_bytes
        assert script.seen[-1].backups == (changed.get("peer_backup") != "off")

    play(tmp_path, script, scenario, ps=1, changed={"peer_backup": "auto", **changed})


def test_nothing_is_decided_while_the_user_holds(tmp_path: Path) -> None:
    script = Script(scale(workers=3))

    async def scenario(it: World, scaler: Autoscaler) -> None:
        it.master.job.hold(True, "quiet hours")
        await it.until(lambda: any(seen.hold for seen in script.seen))
        before = len(script.seen)
        await it.until(lambda: len(script.seen) > before + 3)
        assert script.steps and not it.master.job.store.scalings()
        it.master.job.hold(False, "")
        await it.until(lambda: bool(script.outcomes))

    play(tmp_path, script, scenario)


def test_a_hold_that_comes_while_it_thinks_counts(tmp_path: Path) -> None:
    script = Script()

    async def scenario(it: World, scaler: Autoscaler) -> None:
        def think(seen: Observed) -> Decision:
            loop.call_soon_threadsafe(it.master.job.hold, True, "while it thinks")
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(5.0)  # until that has been done
            return scale(workers=2)(seen)

        loop = asyncio.get_running_loop()
        script.steps.append(think)
        await it.until(lambda: len(script.seen) > 3 and script.seen[-1].hold)
        assert not script.steps and not it.master.job.store.scalings()

    play(tmp_path, script, scenario)


def test_a_size_that_was_set_by_hand_while_it_thinks_is_not_undone(tmp_path: Path) -> None:
    script = Script()

    async def scenario(it: World, scaler: Autoscaler) -> None:
        async def by_hand() -> None:
            await it.master.scalings.request(pb.ScaleRequest(workers=3))
            await it.until(lambda: len(it.master.job.view().workers) == 4 and not it.master.scalings.under_way())

        def think(seen: Observed) -> Decision:
            asyncio.run_coroutine_threadsafe(by_hand(), loop).result(10.0)
            return scale(workers=0)(seen)

        loop = asyncio.get_running_loop()
        script.steps.append(think)
        await it.until(lambda: bool((script.seen and script.seen[-1].size.workers == 3) or script.added[1:]))
        assert [one.decision for one in it.master.job.store.scalings()] == [-1]

    play(tmp_path, script, scenario)


def test_what_was_measured_before_the_aimaster_came_back_is_still_known(tmp_path: Path) -> None:
    script = Script()
    past, to_come = windows(Size(1, 0), 100.0, 0.0, 2), windows(Size(3, 0), 900.0, 1e6, 2)
    script.remembered = (*past, *to_come)  # these are of a run before, whose clock began at another time

    async def scenario(it: World, scaler: Autoscaler) -> None:
        await it.until(lambda: bool(script.seen and script.seen[-1].windows[2:]))
        assert list(script.seen[-1].windows[:2]) == past
        assert script.seen[-1].windows[2].size == script.seen[-1].size

    play(tmp_path, script, scenario, age=100.0)


def test_the_outcome_of_a_change_is_measured_at_the_size_it_led_to(tmp_path: Path) -> None:
    """Somebody went on to a larger size, of which there is a window before the next decision."""
    script = Script(scale(workers=2))
    script.remembered = tuple(windows(Size(2, 1), 100.0, 0.0, 2))

    async def scenario(it: World, scaler: Autoscaler) -> None:
        await it.until(lambda: scaler._pending is not None and scaler._pending.ended_at is not None)
        at, size = scaler._pending.ended_at, scaler._pending.decision.size
        slow = windows(size, 50.0, at + 1, 1, scatter=0.0, preparing=True)
        here = windows(size, 200.0, at + 20, 1, scatter=0.0)
        larger = windows(dataclasses.replace(size, workers=5), 900.0, at + 40, 1)
        scaler._windows.remember([*slow, *here, *larger])
        await it.until(lambda: bool(script.outcomes))
        assert script.outcomes[0][1] == "committed" and script.outcomes[0][3] == 200.0

    play(tmp_path, script, scenario, changed={"window_seconds": 1000.0}, age=100.0, ps=2)


def test_the_outcome_is_of_two_windows_where_the_job_stays(tmp_path: Path) -> None:
    script = Script(scale(workers=2))
    script.remembered = tuple(windows(Size(2, 1), 100.0, 0.0, 2))

    async def scenario(it: World, scaler: Autoscaler) -> None:
        await it.until(lambda: scaler._pending is not None and scaler._pending.ended_at is not None)
        at, size = scaler._pending.ended_at, scaler._pending.decision.size
        one, two = windows(size, 200.0, at + 1, 2, scatter=0.1)
        scaler._windows.remember([one])
        await asyncio.sleep(0.2)
        assert not script.outcomes, "a window by itself may be a slow one by chance"
        scaler._windows.remember([two])
        await it.until(lambda: bool(script.outcomes))
        assert script.outcomes[0][3] == pytest.approx(200.0)

    play(tmp_path, script, scenario, changed={"window_seconds": 1000.0}, age=100.0, ps=2)


def test_the_size_a_job_began_with_is_never_forgotten(tmp_path: Path) -> None:
    """By an AIMaster that comes back neither, to which the changes since are not all known."""
    script = Script()

    async def scenario(it: World, scaler: Autoscaler) -> None:
        first = scaler.start()
        assert scaler.observed().first == first == Size(2, 1)
        script.first = Size(1, 0)
        again = Autoscaler(
            it.master.job, it.master.scalings, it.backend.resize, lambda subject: {}, script.decide, script
        )
        assert again.observed().first == Size(1, 0)

    play(tmp_path, script, scenario, ps=2)


def another(it: World, **words: object) -> tuple[Autoscaler, Script]:
    """An autoscaler of the same job whose record is gone, once the job is there."""
    script = Script()
    again = Autoscaler(
        it.master.job, it.master.scalings, it.backend.resize, lambda subject: {}, script.decide, script, **words
    )
    again._recall()
    return again, script


def test_a_successor_whose_record_is_gone_knows_the_first_size_and_what_sizes_did(tmp_path: Path) -> None:
    script = Script(scale(workers=2))

    async def scenario(it: World, scaler: Autoscaler) -> None:
        scaler.start()
        await it.until(lambda: bool(script.outcomes))
        await scaler.decide_now()
        again, fresh = another(it)
        assert again.observed().first == Size(2, 1)
        assert {one.size.workers for one in again.observed().windows} == {1}, (
            "as they were when the last decision was made"
        )
        assert again.observed().number == fresh.next_number == script.next_number > 2
        assert again._foretold == scaler._foretold and again._foretold
        assert not again.observed().stood, "somebody trained all the time"

    play(tmp_path, script, scenario, ps=2)


def test_time_in_which_a_job_stood_is_known_and_what_sizes_did_on_another_machine_is_not(tmp_path: Path) -> None:
    kept = Recalled(
        number=7, first=Size(1, 0), windows=tuple(windows(Size(2, 1), 100.0, 50.0)), heard=100.0, machine="64 x other",
        stood=(Stood(10.0, 20.0),),
    )  # fmt: skip

    async def scenario(it: World, scaler: Autoscaler) -> None:
        store, now = it.master.job.store, scaler._now()
        keep(store, kept)
        again, _ = another(it)
        assert again.observed().windows == () and again.observed().first == Size(1, 0)
        [before, since] = again.observed().stood
        assert before == Stood(10.0, 20.0) and (since.start, since.end) == (100.0, pytest.approx(now, abs=60.0))
        keep(store, dataclasses.replace(kept, machine=""))
        assert len(another(it)[0].observed().windows) == 3
        keep(store, dataclasses.replace(kept, heard=now - 60.0))
        assert another(it)[0].observed().stood == kept.stood, "an AIMaster that came back soon"
        chief = it.master.job.members.get("chief-0")
        assert chief is not None
        keep(store, dataclasses.replace(kept, chief=chief.incarnation))
        assert another(it)[0].observed().stood == kept.stood, (
            "it was the AIMaster that was away: who trained has trained on"
        )
        store.put(**{KEY: {"number": "seven"}})
        assert another(it)[0].observed().stood == ()

    play(tmp_path, Script(), scenario, age=5000.0, ps=2)


def test_a_host_of_some_of_the_processes_is_not_the_one_that_all_share(tmp_path: Path) -> None:
    """The others' hosts may not have told yet."""
    script = Script()

    async def scenario(it: World, scaler: Autoscaler) -> None:
        await it.until(lambda: bool(scaler._windows.closed))
        it.master.job.metrics.hosts = {"host-0": HostUse(4.0, 1.0, 0.5, ps=1, trainers=1)}
        assert scaler._only_host() is None
        host = HostUse(4.0, 1.0, 0.5, ps=2, trainers=2)
        it.master.job.metrics.hosts = {"host-0": host}
        assert scaler._only_host() is host

    play(tmp_path, script, scenario, ps=2)


def test_what_the_job_refuses_is_an_outcome_and_not_an_error(tmp_path: Path) -> None:
    script = Script(scale(ps=99))

    async def scenario(it: World, scaler: Autoscaler) -> None:
        await it.until(lambda: bool(script.outcomes))
        _, outcome, reason, _ = script.outcomes[0]
        assert outcome == "refused" and "99 PS" in reason

    play(tmp_path, script, scenario)


def test_a_policy_that_fails_leaves_the_job_alone(tmp_path: Path) -> None:
    def explode(seen: Observed) -> Decision:
        raise ValueError("no")

    script = Script(explode, scale(workers=2))

    async def scenario(it: World, scaler: Autoscaler) -> None:
        await it.until(lambda: bool(script.outcomes))
        assert script.outcomes[0][1] == "committed"

    play(tmp_path, script, scenario)


def test_an_error_in_a_look_is_said_once_and_the_next_look_goes_on(tmp_path: Path) -> None:
    script = Script(scale(workers=2))

    async def scenario(it: World, scaler: Autoscaler) -> None:
        looks: list[str] = []

        def explode(subject: str) -> dict[str, float]:
            looks.append(subject)
            raise KeyError(subject)

        await it.until(lambda: scaler._windows._open is not None)
        latest, scaler._latest = scaler._latest, explode
        seen = len(script.seen)
        await it.until(lambda: len(looks) > 3)
        assert len(script.seen) <= seen + 1 and scaler._windows._open is not None, "nothing is decided blindly"
        scaler._latest = latest
        await it.until(lambda: scaler._windows._open is None)  # what went on meanwhile belongs to no window
        await it.until(lambda: bool(script.outcomes))
        assert script.outcomes[0][1] == "committed"
        [said] = events(it, "warning")
        assert "KeyError" in said["text"] and "tries again" in said["text"]

    play(tmp_path, script, scenario)


def test_an_error_in_following_up_is_no_end(tmp_path: Path) -> None:
    script = Script(scale(workers=2))
    noted = script.outcome

    def explode(number: int, outcome: str, reason: str, examples_per_second: float) -> None:
        script.outcome = noted  # type: ignore[method-assign]
        script.steps.append(scale(workers=1))
        raise RuntimeError("no disk")

    async def scenario(it: World, scaler: Autoscaler) -> None:
        script.outcome = explode  # type: ignore[method-assign]
        await it.until(lambda: bool(script.outcomes))
        assert not script.steps and len(it.master.job.store.scalings()) == 2
        assert "no disk" in str(events(it, "warning")[0]["text"])

    play(tmp_path, script, scenario)


def test_what_ends_in_an_error_is_noted_as_failed(tmp_path: Path) -> None:
    script = Script(scale("resize", worker_memory_bytes=1 << 30))

    async def break_(name: str, cpu: float, memory_bytes: int) -> None:
        raise OSError("the connection was reset")

    async def scenario(it: World, scaler: Autoscaler) -> None:
        scaler._resize = break_
        await it.until(lambda: bool(script.outcomes))
        assert script.outcomes[0][1:3] == ("failed", "OSError: the connection was reset")
        await it.until(lambda: bool(script.seen[-1].changes))
        change = script.seen[-1].changes[-1]
        assert (change.kind, change.outcome) == ("resize", "refused"), "the policy does not try it at once again"
        assert events(it, "decision_failed")[0]["number"] == script.outcomes[0][0] and not events(it, "warning")

    play(tmp_path, script, scenario)


def test_what_was_queued_before_an_error_has_the_outcome_of_its_scaling(tmp_path: Path) -> None:
    script = Script(scale(workers=2))

    async def scenario(it: World, scaler: Autoscaler) -> None:
        request = it.master.scalings.request

        async def lose_the_answer(*arguments: object, **named: object) -> None:
            await request(*arguments, **named)  # type: ignore[arg-type]
            raise RuntimeError("the answer is lost")

        it.master.scalings.request = lose_the_answer  # type: ignore[assignment, method-assign]
        await it.until(lambda: bool(script.outcomes))
        number, outcome, reason, rate = script.outcomes[0]
        assert (outcome, reason) == ("committed", "") and rate > 0, "its effect is measured, too"
        assert [one.decision for one in it.master.job.store.scalings()] == [number]

    play(tmp_path, script, scenario)


def test_an_error_before_a_scaling_is_queued_is_a_failure(tmp_path: Path) -> None:
    script = Script(scale(workers=2))

    async def scenario(it: World, scaler: Autoscaler) -> None:
        async def fail(*arguments: object, **named: object) -> None:
            raise RuntimeError("no")

        it.master.scalings.request = fail  # type: ignore[assignment, method-assign]
        await it.until(lambda: bool(script.outcomes))
        assert script.outcomes[0][1:3] == ("failed", "RuntimeError: no")

    play(tmp_path, script, scenario)


def test_scalings_that_the_queue_has_forgotten_are_asked_of_the_store(tmp_path: Path) -> None:
    """A decision can replace more processes than the queue keeps scalings that have ended."""

    async def scenario(it: World, scaler: Autoscaler) -> None:
        await it.scale(workers=2)
        await it.ended()
        [scaling] = it.master.job.store.scalings()
        it.master.scalings.ended.clear()
        decision = Decision(9, 1.0, "replace", Size(2, 2), "a test")
        pending = module._Pending(decision, {scaling.id})
        scaler._settle(pending)
        assert pending.ends == [("committed", "")] and pending.ended_at is not None
        pending = module._Pending(decision, {scaling.id, 77})
        scaler._settle(pending)
        assert pending.ends == [("committed", ""), ("failed", "it is not known how scaling 77 has ended")]

    play(tmp_path, Script(), scenario)


def test_other_limits_go_to_the_backend_and_into_the_next_observation(tmp_path: Path) -> None:
    script = Script(scale("resize", ps_memory_bytes=2 << 30))

    async def scenario(it: World, scaler: Autoscaler) -> None:
        await it.until(lambda: bool(script.outcomes))
        assert it.backend.resized == [("ps", 0.0, 2 << 30)]
        assert script.outcomes[0][1] == "committed"
        await it.until(lambda: script.seen[-1].size.ps_memory_bytes == 2 << 30)
        change = script.seen[-1].changes[-1]  # what the policy remembers its own resizes by
        number = next(decision.number for _, decision in script.added if decision.action == "resize")
        assert (change.kind, change.role, change.outcome, change.decision) == ("resize", "ps", "committed", number)
        assert not change.manual

    play(tmp_path, script, scenario)


def test_where_pods_keep_their_size_they_are_replaced_one_after_the_other(tmp_path: Path) -> None:
    script = Script(scale("resize", ps_memory_bytes=2 << 30))

    async def scenario(it: World, scaler: Autoscaler) -> None:
        await it.until(lambda: bool(script.outcomes), 12.0)
        assert it.backend.resized == [("ps", 0.0, 2 << 30)] and script.outcomes[0][1] == "committed"
        done = [(one.kind, one.replace, one.outcome) for one in it.master.job.store.scalings()]
        assert done == [
            ("resize", "", "committed"), ("replace", "ps-0", "committed"), ("replace", "ps-1", "committed"),
        ]  # fmt: skip
        members = it.master.job.members
        assert members.wanted(pb.WORKER) == ["worker-0"] and not {"ps-0", "ps-1"} <= set(members.wanted(pb.PS))

    play(tmp_path, script, scenario, in_place=False)


def test_limits_that_the_backend_refuses_are_no_limits_and_the_policy_is_told(tmp_path: Path) -> None:
    script = Script(scale("resize", worker_memory_bytes=1 << 30))

    async def refuse(name: str, cpu: float, memory_bytes: int) -> None:
        raise UsageError("more is in use")

    async def scenario(it: World, scaler: Autoscaler) -> None:
        scaler._resize = refuse
        await it.until(lambda: bool(script.seen and script.seen[-1].changes))
        change = script.seen[-1].changes[-1]
        assert (change.kind, change.role, change.outcome) == ("resize", "worker", "refused")
        assert script.seen[-1].size.worker_memory_bytes == 0
        await it.until(lambda: bool(script.outcomes))
        assert script.outcomes[0][1:3] == ("refused", "more is in use")

    play(tmp_path, script, scenario)


@pytest.mark.parametrize("end", ["stopped", "finished", "cancelled"])
def test_the_last_reason_to_keep_the_size_is_recorded_with_what_it_was_made_from(tmp_path: Path, end: str) -> None:
    script = Script()

    async def scenario(it: World, scaler: Autoscaler) -> None:
        await it.until(lambda: len(script.seen) > 3 and bool(script.seen[-1].windows))
        assert len(script.added) == 1 and not script.added[0][0].windows, "the first one knows of no throughput yet"
        if end == "stopped":
            it.master.job.lock.take("the backend", Hold.STOPPING)
        elif end == "finished":
            it.master.job.end("finished")
        if end != "cancelled":
            await it.until(lambda: len(script.added) == 2)
            seen = len(script.seen)
            await asyncio.sleep(0.2)
            assert len(script.seen) == seen, "the end of a job is nothing to decide by"

    play(tmp_path, script, scenario)
    assert len(script.added) == 2 and script.added[-1][0].windows
    assert script.added[-1][0].number == script.added[-1][1].number == 2


def test_reasons_of_each_kind_are_recorded_and_the_record_stays_bounded() -> None:
    keeps, recorded = Keeps(), []
    for tick in range(360):  # an hour
        seen = fact(Observed, number=1, time=10.0 * tick, size=Size(1, 0), limits=Limits())
        reason = f"2 PS, 0 workers is predicted to train +{tick}%" if tick % 2 else f"it has trained for {tick}.5 s"
        decision = Decision(1, seen.time, "keep", seen.size, reason)
        if keeps.due(seen, decision, seen.time):
            recorded.append(decision)
        else:
            assert keeps.left == (seen, decision)
    assert {one.kind for one in recorded[:2]} == {one.kind for one in recorded} and len(
        {one.kind for one in recorded}
    ) == 2
    assert recorded[1].time == 70.0 and len(recorded) <= 2 * 3600 / 300 + 2
    keeps.changed()
    assert keeps.left is None and keeps.due(seen, decision, seen.time), "a change begins anew"


def test_a_request_by_hand_is_seen_as_such(tmp_path: Path) -> None:
    script = Script()

    async def scenario(it: World, scaler: Autoscaler) -> None:
        await it.scale(workers=2)
        await it.ended()
        await it.until(lambda: bool(script.seen and script.seen[-1].changes))
        assert [change.manual for change in script.seen[-1].changes] == [True]

    play(tmp_path, script, scenario)


def test_a_whole_aimaster_with_autoscale_starts_decides_records_and_tells(tmp_path: Path) -> None:
    """The real policy: it may do what it likes, but decision 0 is there, what it says can be read, and it obeys limits."""
    settings = dataclasses.replace(SETTINGS, autoscale=True, decide_seconds=0.05, window_seconds=0.2)

    async def main() -> None:
        async with world(
            tmp_path, settings=settings, ps=1, workers=0, max_ps=2, max_workers=1, start="as small as it gets"
        ) as it:
            assert read(it.master.job.spec.workdir)[0].observed.start == "as small as it gets"
            scaler = it.master.autoscaler
            assert scaler is not None
            entries = [json.loads(line) for line in await scaler.recorded(-1, 10)]
            assert entries[0]["decision"]["number"] == 0 and entries[0]["decision"]["action"] == "start"
            preview, seen = await scaler.preview()
            assert Observed.from_json(seen.to_json()) == seen and seen.size.ps >= 1
            assert preview.reason and 1 <= preview.size.ps <= 2 and 0 <= preview.size.workers <= 1
            assert (await it.status()).autoscale == "on"
            it.master.job.hold(True, "test")
            await it.until(lambda: scaler.latest_decision is not None and "held" in scaler.latest_decision.reason)

    asyncio.run(main())
