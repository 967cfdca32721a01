"""kill -9 of a PS at any moment, by seed: in every state of a scaling of every kind, and up to 5 s after it.

    python -m benchmarks.kills --kills 300                 # jobs of 1 to 4 PS, 25 kills each; over an hour on 2 cores
    python -m benchmarks.kills --kills 20 --seed 7 --json
    python -m benchmarks.kills --pending-seconds 120       # one kill, of a scaling that has waited for a pod so long

The script counts its own updates on every slot (benchmarks/updates.py), so what a kill has cost is counted exactly: the most
updates of one trainer that a slot misses, and how old the oldest of them was. Each change begins when the job is at full
strength: all PS there and with slots, every slot with a backup, no scaling under way.

Counted: how each loss was recovered from, and what is missing beyond the interval of the backups and one second; by the
state that the scaling was in when the signal was sent, as `events.jsonl` has it: what was wanted is often over by then.
The directory of a job with such a loss is kept, and its seed and number printed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import grpc

from benchmarks import updates
from benchmarks.job import Job, end_on_signals, running, say
from benchmarks.stock.cluster import ROOT
from deeprec_ext.proto import deeprec_ext_pb2 as pb

SCRIPT = str(ROOT / "benchmarks" / "updates.py")
STATES = ("ACQUIRE", "PREPARE", "PAUSE", "FINAL_COPY", "COMMIT", "RELEASE")
WORKER_STATES = ("ACQUIRE", "COMMIT", "RELEASE")
AFTER_SECONDS = (0.0, 0.1, 1.0, 5.0)
PS_MAX, JOB_KILLS = 4, 25
SLACK_SECONDS = 1.0
COUNTED = ("chief-0", "worker-0")
"""Trainers that never leave: their counts go on for the whole job."""

GRACE_SECONDS = 30.0
"""A state may pass unseen, or a scaling end before it: then the PS is killed at its end."""


@dataclass(frozen=True)
class Change:
    """What is asked for: one field of a ScaleRequest."""

    kind: str
    request: dict[str, Any]


@dataclass(frozen=True)
class Kill:
    """One, drawn: during a state, or so long after the commit."""

    change: Change
    state: str = ""
    after_seconds: float = 0.0


@dataclass
class Outcome:
    """`wanted` is the moment that was drawn, `moment` the one that it was: see `moment_of`."""

    number: int
    kind: str
    wanted: str
    moment: str
    victim: str
    ps: int
    scaling: str = ""
    by: str = ""
    told_age_seconds: float = 0.0
    told_steps: int = 0
    missing_updates: int = 0
    oldest_seconds: float = 0.0
    repeated: int = 0
    recovered_seconds: float = 0.0
    generation: int = 1
    trouble: str = ""


@dataclass
class Result:
    kills: list[Outcome] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


def draw(random_: random.Random, ps: int, workers: int, names: list[str]) -> Kill:
    """The next kill of a job with so many PS and workers."""
    changes = [Change("worker", {"workers": workers + 1 if workers < 2 else workers - 1})]
    if ps < PS_MAX:
        changes += [Change("scale-up", {"ps": random_.randint(ps + 1, PS_MAX)})] * 2
    if ps > 1:
        changes += [Change("scale-down", {"ps": random_.randint(1, ps - 1)})] * 2
        changes += [Change("rebalance", {"rebalance": True})]
    changes += [Change("replace", {"replace": random_.choice(names)})]
    change = random_.choice(changes)
    if random_.random() < 0.5:
        return Kill(change, after_seconds=random_.choice(AFTER_SECONDS))
    return Kill(change, state=random_.choice(WORKER_STATES if change.kind == "worker" else STATES))


def moment_of(events: Sequence[Mapping[str, Any]], scaling: int, struck: float) -> str:
    """The state that a scaling was in at that time (Unix seconds), by what the AIMaster has told; `ended`: in none any more."""
    before = [event for event in events if event.get("scaling") == scaling and event["time"] <= struck]
    if any(event["type"] == "scaling_ended" for event in before):
        return "ended"
    states = [event["state"] for event in before if event["type"] == "scaling_state"]
    return states[-1] if states else "queued" if scaling else "none"


class Killing:
    """One job."""

    def __init__(self, job: Job, seed: int, interval: float) -> None:
        self.job, self.interval = job, interval
        self._random = random.Random(seed)
        self._read = 0
        self._events: list[dict[str, Any]] = []

    def events(self) -> list[dict[str, Any]]:
        """All so far; only what is new is read."""
        with contextlib.suppress(FileNotFoundError), open(self.job.workdir / "events.jsonl", "rb") as file:
            file.seek(self._read)
            text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read += len(whole)
            for line in whole.splitlines():
                with contextlib.suppress(ValueError):
                    self._events.append(json.loads(line))
        return self._events

    def _of(self, kind: str, **values: Any) -> list[dict[str, Any]]:
        return [
            event for event in self.events()
            if event["type"] == kind and all(event.get(name) == value for name, value in values.items())
        ]  # fmt: skip

    def strong(self) -> pb.StatusReply | None:
        """At full strength."""
        status = self.job.status()
        if status is None or status.state != "training" or not status.live:
            return None
        if status.backup.unprotected_slots or not status.backup.peer or any(not one.outcome for one in status.scalings):
            return None
        ps = [role for role in status.roles if role.role == pb.PS and role.state not in ("exited", "failed")]
        trainers = [role for role in status.roles if role.role in (pb.CHIEF, pb.WORKER) and role.state != "exited"]
        serving = all(role.state == "running" and role.slots for role in ps)
        return status if serving and all(role.heartbeat.training for role in trainers) else None

    def wait_strong(self) -> pb.StatusReply:
        status = self.job.until(self.strong, "full strength")
        assert status is not None
        return status

    def strike(self, number: int) -> Outcome:
        status = self.wait_strong()
        self.job.wait_steps(5, time.time())
        ps = sorted(role.name for role in status.roles if role.role == pb.PS and role.slots)
        workers = sum(role.role == pb.WORKER and role.state == "running" for role in status.roles)
        kill = draw(self._random, len(ps), workers, ps)
        choice = self._random.random()
        failures, recovered = len(self._of("failure")), len(self._of("recovered"))
        try:
            scaling = self.job.ask(**kill.change.request)
        except grpc.RpcError as error:
            raise RuntimeError(f"{kill}: {error}") from error
        wanted = self._wait(kill, scaling)
        alive = self._alive()
        victim = alive[min(len(alive) - 1, int(choice * len(alive)))]
        view = {one.name: one for one in self.job.until(self.job.status, "status").roles}
        struck = self.job.send(victim, signal.SIGKILL)
        outcome = Outcome(number, kill.change.kind, wanted, "", victim, len(view[victim].slots) and len(ps))
        self.job.until(
            lambda: len(self._of("failure")) > failures or self._gone(victim), "the failure to be noticed", 60
        )
        return self._concluded(outcome, scaling, struck, recovered)

    def strike_pending(self, seconds: float) -> Outcome:
        """A worker is asked for and its process stopped before it has registered, like a pod without a node; then a PS dies."""
        self.wait_strong()
        self.job.wait_steps(5, time.time())
        recovered, name = len(self._of("recovered")), f"worker-{len(self.job.trainers) - 1}"
        scaling = self.job.ask(workers=len(self.job.trainers))
        self.job.until(lambda: (role := self._role(name)) and role.pid, f"a process of {name}", every=0.01)
        pid, began = self.job.pid(name), time.monotonic()
        self.job.send(name, signal.SIGSTOP)
        say(f"{name} is pending for {seconds:g} s")
        while time.monotonic() - began < seconds:
            time.sleep(0.1)
        role = self._role(name)
        if role is None or role.heartbeat.training or moment_of(self.events(), scaling, time.time()) != "ACQUIRE":
            raise RuntimeError(f"the scaling does not wait for {name}; see {self.job.base}")
        *others, victim = self.job.servers()
        struck = self.job.send(victim, signal.SIGKILL)
        self.job.until(lambda: len(self._of("recovered")) > recovered, "the recovery", every=0.05)
        self.job.go_on(pid)
        outcome = Outcome(0, "worker", f"pending for {seconds:g} s", "", victim, 1 + len(others))
        return self._concluded(outcome, scaling, struck, recovered)

    def _role(self, name: str) -> pb.RoleStatus | None:
        status = self.job.status()
        return next((role for role in status.roles if role.name == name), None) if status is not None else None

    def _concluded(self, outcome: Outcome, scaling: int, struck: float, recovered: int) -> Outcome:
        """When the job is at full strength again: what the kill has cost. `recovered`: events of that kind before it."""
        began, victim = time.monotonic(), outcome.victim
        self.job.wait_steps(5, struck + 0.5)
        self.wait_strong()
        self.job.wait_steps(5, time.time())
        outcome.recovered_seconds = round(time.monotonic() - began, 2)
        for event in self._of("recovered", role=victim)[:]:
            if event["time"] >= struck:
                outcome.by = event["by"] or "restart"
                outcome.told_age_seconds, outcome.told_steps = event["backup_age_seconds"], event["steps_missing"]
        outcome.by = outcome.by or ("nothing to recover" if len(self._of("recovered")) == recovered else "?")
        outcome.moment = moment_of(self.events(), scaling, struck)
        ended = self._of("scaling_ended", scaling=scaling)
        outcome.scaling = ended[-1]["outcome"] if ended else ""
        outcome.generation = max((event["generation"] for event in self._of("view_published")), default=1)
        self._count(outcome, struck)
        return outcome

    def _wait(self, kill: Kill, scaling: int) -> str:
        """Until the moment; what it is called."""
        state = kill.state or "RELEASE"

        def reached() -> bool:
            return bool(
                self._of("scaling_state", scaling=scaling, state=state) or self._of("scaling_ended", scaling=scaling)
            )

        deadline = time.monotonic() + GRACE_SECONDS
        while scaling and not reached() and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(kill.after_seconds)
        return kill.state or f"{kill.after_seconds:g} s after"

    def _alive(self) -> list[str]:
        """PS whose process runs, also of those that come or leave."""
        status = self.job.until(self.job.status, "status")
        return sorted(role.name for role in status.roles if role.role == pb.PS and role.state == "running" and role.pid)

    def _gone(self, victim: str) -> bool:
        return victim not in self._alive()

    def _count(self, outcome: Outcome, struck: float) -> None:
        """What the slots miss since then."""
        for role, lines in updates.read(self.job.recorded).items():
            before = [line for line in lines if line.time <= struck]
            if role not in COUNTED or not before:
                continue
            after = lines[-1]
            if after.done < before[-1].done:
                outcome.trouble = f"{role} began anew"
                continue
            for kind in ("counters", "tables"):
                for now, then in zip(getattr(after, kind), getattr(before[-1], kind)):
                    missing = (after.done - now) - (before[-1].done - then)
                    outcome.repeated = max(outcome.repeated, -missing)
                    if missing > 0:
                        outcome.missing_updates = max(outcome.missing_updates, missing)
                        age = struck - before[-min(missing, len(before))].time
                        outcome.oldest_seconds = max(outcome.oldest_seconds, round(age, 3))
        if outcome.generation > 1 or outcome.by in ("checkpoint", "disk backup"):
            outcome.trouble = outcome.trouble or "it went back to a checkpoint"
        elif outcome.oldest_seconds > self.interval + SLACK_SECONDS:
            outcome.trouble = "older than the interval"


def one_job(seed: int, kills: int, interval: float, result: Result, told: Callable[[Outcome], None]) -> None:
    ps = 1 + seed % PS_MAX
    flags = ["--max-ps", str(PS_MAX), "--max-workers", "2", "--setting", f"peer_backup_seconds={interval:g}"]
    with running([SCRIPT, "--pace", "0.02"], ps=ps, workers=1, flags=flags, label=f"kills-{seed}") as job:
        job.wait_steps(20, 0.0)
        killing = Killing(job, seed, interval)
        good = True
        for number in range(kills):
            outcome = killing.strike(number)
            result.kills.append(outcome)
            told(outcome)
            good = good and not outcome.trouble
            if outcome.generation > 1:
                say("the job has another generation now; the next job begins")
                break
    if not good:
        kept = job.base.with_name(f"{job.base.name}-kept")
        shutil.copytree(job.base, kept, ignore=shutil.ignore_patterns("model"))
        result.kept.append(f"seed {seed}: {kept}")


def one_pending(seconds: float, interval: float, result: Result, told: Callable[[Outcome], None]) -> None:
    flags = [
        "--max-workers", "2", "--setting", f"peer_backup_seconds={interval:g}",
        "--setting", f"acquire_limit_seconds={seconds + GRACE_SECONDS:g}",
    ]  # fmt: skip
    with running([SCRIPT, "--pace", "0.02"], ps=2, workers=1, flags=flags, label="pending") as job:
        job.wait_steps(20, 0.0)
        result.kills.append(Killing(job, 0, interval).strike_pending(seconds))
        told(result.kills[-1])


def summary(result: Result, interval: float) -> dict[str, Any]:
    kills = result.kills
    lost = [one for one in kills if one.by not in ("nothing to recover", "restart")]
    return {
        "kills": len(kills),
        "of_the_view": len(lost),
        "by": dict(Counter(one.by for one in kills)),
        "moments": dict(sorted(Counter(f"{one.kind}, {one.moment}" for one in kills).items())),
        "wanted": dict(sorted(Counter(f"{one.kind}, {one.wanted}" for one in kills).items())),
        "interval_seconds": interval,
        "missing_updates_max": max((one.missing_updates for one in kills), default=0),
        "oldest_seconds_max": max((one.oldest_seconds for one in kills), default=0.0),
        "told_age_seconds_max": max((one.told_age_seconds for one in lost), default=0.0),
        "told_steps_max": max((one.told_steps for one in lost), default=0),
        "trouble": [asdict(one) for one in kills if one.trouble],
        "kept": result.kept,
        "each": [asdict(one) for one in kills],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0, help="of the first job; the next has the next")
    parser.add_argument("--job-kills", type=int, default=JOB_KILLS, help="in one job")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two refreshes of a backup")
    parser.add_argument(
        "--pending-seconds", type=float, default=0.0, help="one kill instead, when a worker has been pending so long"
    )
    parser.add_argument("--seconds", type=float, default=0.0, help="begin no further job after so long")
    parser.add_argument("--json", action="store_true", help="every kill, as JSON")
    arguments = parser.parse_args()
    end_on_signals()
    result, began, seed = Result(), time.monotonic(), arguments.seed

    def told(one: Outcome) -> None:
        what = f"{one.kind}, {one.wanted} ({one.moment}): {one.victim}"
        text = f"{len(result.kills)}/{arguments.kills} seed {seed}.{one.number} {what}"
        missing = f"{one.missing_updates} updates missing, oldest {one.oldest_seconds:.2f} s"
        trouble = f" TROUBLE: {one.trouble}" if one.trouble else ""
        say(f"{text}: by {one.by}, {missing}, {one.scaling}, strong again after {one.recovered_seconds:.1f} s{trouble}")

    if arguments.pending_seconds:
        arguments.kills = 1
        one_pending(arguments.pending_seconds, arguments.interval, result, told)
    while len(result.kills) < arguments.kills and not (
        arguments.seconds and time.monotonic() - began > arguments.seconds
    ):
        try:
            one_job(
                seed, min(arguments.job_kills, arguments.kills - len(result.kills)), arguments.interval, result, told
            )
        except RuntimeError as error:
            result.kept.append(f"seed {seed}: {error}")
            say(f"seed {seed}: {error}")
        seed += 1
    found = summary(result, arguments.interval)
    if not arguments.json:
        found.pop("each")
    print(json.dumps(found, indent=2))
    return 1 if found["trouble"] or found["kept"] else 0


if __name__ == "__main__":
    sys.exit(main())
