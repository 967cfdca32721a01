"""What is done to a job on a hard day, one thing after the other, each waited for until it is answered."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.day.disk import SmallDisk
from benchmarks.day.watching import Tail
from benchmarks.job import Job
from deeprec_ext.proto import deeprec_ext_pb2 as pb

PS_MIN, PS_MAX, WORKERS_MIN, WORKERS_MAX = 2, 3, 1, 2
ANSWER_SECONDS = 300.0
"""Each answer takes seconds; a new process imports TensorFlow, which takes half a minute where the cores are busy."""

TRIES = 6
"""A state that lasts for milliseconds may be over before the signal is sent: then the day tries once more."""

DISK_FULL_SECONDS = 60.0
STOPPED_SECONDS, RUNNING_SECONDS = 0.6, 0.3
KINDS = ("prepare", "commit", "final copy", "servers", "workers", "disk")


@dataclass
class Told:
    """What the report has to tell of a day."""

    failures: list[tuple[str, str]] = field(default_factory=list)
    """(role, beginning of the cause), in order."""
    scalings: list[tuple[int, str, str, int, int, str]] = field(default_factory=list)
    """(number, kind, role, from, to, outcome): those that the day asked for."""
    outages: list[tuple[float, float]] = field(default_factory=list)
    """When no AIMaster answered, in Unix seconds."""
    story: list[str] = field(default_factory=list)


class Bursts:
    """A slow worker: whatever process has this role is stopped for two thirds of the time, half a second at a time."""

    def __init__(self, job: Job, role: str) -> None:
        self._job, self._role, self._over = job, role, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(RUNNING_SECONDS):
            try:
                pid = self._job.pid(self._role)
                os.kill(pid, signal.SIGSTOP)
            except (OSError, IndexError):
                continue  # it has ended; another one may come
            self._over.wait(STOPPED_SECONDS)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class Day:
    """Strikes one job. Each method returns when the job has answered, and raises RuntimeError when it has not in time."""

    def __init__(self, job: Job, disk: SmallDisk, seed: int, say: Callable[[str], None]) -> None:
        self._job, self._disk, self._say = job, disk, say
        self._dice = random.Random(seed)
        self.order = list(KINDS)
        self._dice.shuffle(self.order)
        self.told = Told()
        self._began = time.monotonic()

    def run(self) -> None:
        """Everything once, in the order of the seed."""
        self.settle()
        methods = {
            "prepare": self.killed_in_prepare, "commit": self.hung_after_commit, "final copy": self.aimaster_in_final_copy,
            "servers": self.scale_servers, "workers": self.scale_workers, "disk": self.fill_disk,
        }  # fmt: skip
        for kind in self.order:
            self._wait_calm(self._dice.uniform(0.0, 3.0))
            methods[kind]()
        self.see_disk_again()

    def _wait_calm(self, seconds: float) -> None:
        """A moment drawn from the seed: the next strike may come into the aftermath of the one before."""
        threading.Event().wait(seconds)

    def _note(self, text: str) -> None:
        self.told.story.append(text)
        self._say(f"{time.monotonic() - self._began:5.0f} s  {text}")

    # ------------------------------------------------------------------------------------------------ looking

    def _status(self) -> pb.StatusReply:
        status = self._job.until(self._job.status, "answer of the AIMaster")
        assert status is not None
        return status

    def counts(self) -> tuple[int, int]:
        """(PS that own slots, workers beside the chief that train)."""
        roles = self._status().roles
        running = [one for one in roles if one.state == "running"]
        ps = sum(one.role == pb.PS and bool(one.slots) for one in running)
        return ps, sum(one.role == pb.WORKER and one.heartbeat.training for one in running)

    def settle(self, ps: int | None = None, workers: int | None = None) -> tuple[int, int]:
        """Until nothing is being changed, all train, and every slot has its backup; the counts."""
        lacking = [""]

        def settled() -> bool:
            status = self._job.status()
            lacking[0] = "an AIMaster that answers" if status is None else self._lacking(status, ps, workers)
            return not lacking[0]

        try:
            self._job.until(settled, "a settled job", ANSWER_SECONDS, every=0.25)
        except RuntimeError as error:
            raise RuntimeError(f"{error}; missing: {lacking[0]}") from None
        return self.counts()

    def _lacking(self, status: pb.StatusReply, ps: int | None, workers: int | None) -> str:
        running = [one for one in status.roles if one.state == "running"]
        servers = [one for one in running if one.role == pb.PS]
        trainers = [one for one in running if one.role in (pb.CHIEF, pb.WORKER)]
        idle = [one.name for one in servers if not one.slots] + [
            one.name for one in trainers if not one.heartbeat.training
        ]
        if status.state != "training" or not status.live:
            return f"training (its state is {status.state})"
        if open_ := [one for one in status.scalings if not one.outcome]:
            return f"the end of scaling {open_[0].id} ({open_[0].kind} {open_[0].role}, {open_[0].state}: {open_[0].detail})"
        if idle:
            return f"work for {', '.join(idle)}"
        if (ps is not None and len(servers) != ps) or len(servers) < PS_MIN:
            return f"{ps or PS_MIN} PS ({', '.join(one.name for one in servers)} run)"
        if (workers is not None and len(trainers) != 1 + workers) or not any(one.role == pb.CHIEF for one in trainers):
            return f"{workers} workers ({', '.join(one.name for one in trainers)} run)"
        if status.backup.unprotected_slots:
            return f"backups of {len(status.backup.unprotected_slots)} slots"
        return ""

    # ------------------------------------------------------------------------------------------------ scaling

    def _ask(self, **request: Any) -> int:
        number = self._job.ask(**request)
        if not number:
            raise RuntimeError(f"nothing to do for {request}; the day thought otherwise")
        return number

    def _ended(self, number: int) -> pb.ScalingStatus:
        def ended() -> pb.ScalingStatus | None:
            status = self._job.status()
            found = [one for one in status.scalings if one.id == number and one.outcome] if status is not None else []
            return found[0] if found else None

        one = self._job.until(ended, f"end of scaling {number}", ANSWER_SECONDS)
        assert one is not None
        self.told.scalings.append((one.id, one.kind, one.role, one.from_count, one.to_count, one.outcome))
        return one

    def _expect(self, number: int, outcome: str) -> pb.ScalingStatus:
        one = self._ended(number)
        if one.outcome != outcome:
            raise RuntimeError(
                f"scaling {number} ({one.kind} {one.role}) ended as {one.outcome}, not {outcome}: {one.reason}"
            )
        return one

    def scale_servers(self) -> None:
        """One up and one down, or the other way round."""
        ps, _ = self.settle()
        for count in (PS_MIN + PS_MAX - ps, ps):
            one = self._expect(self._ask(ps=count), "committed")
            self._note(f"{one.kind} to {count} PS committed in {one.seconds:.0f} s")

    def scale_workers(self) -> None:
        _, workers = self.settle()
        for count in (WORKERS_MIN + WORKERS_MAX - workers, workers):
            one = self._expect(self._ask(workers=count), "committed")
            self.settle(workers=count)
            self._note(f"{one.kind} to {count} workers committed in {one.seconds:.0f} s")

    # ------------------------------------------------------------------------------------------------ strikes

    def killed_in_prepare(self) -> None:
        """A PS dies while slots are being copied: rolled back, promoted, and a new one gets the slots."""
        for _ in range(TRIES):
            ps, _ = self.settle()
            victim = self._dice.choice(self._job.servers())
            tail = Tail(self._job)
            number = self._ask(**self._change(ps))
            if tail.until_state(number, "PREPARE", ANSWER_SECONDS):
                time.sleep(self._dice.uniform(0.0, 0.1))
                self._job.send(victim, signal.SIGKILL)
                self.told.failures.append((victim, "killed"))
                one = self._ended(number)
                self._recovered(victim)
                if one.outcome == "rolled_back":
                    self._note(f"{victim} killed during PREPARE of {one.kind}: rolled back ({one.reason})")
                    self.settle(ps=ps)
                    return
                self._note(f"{victim} was killed too late for PREPARE; again")
        raise RuntimeError(f"no PS could be killed during PREPARE in {TRIES} tries")

    def hung_after_commit(self) -> None:
        """A PS hangs at the moment a scaling is decided: it goes forward, and the PS is fenced and made up for."""
        ps, _ = self.settle()
        count = PS_MIN + PS_MAX - ps
        tail = Tail(self._job)
        number = self._ask(ps=count)
        if not tail.until_state(number, "COMMIT", ANSWER_SECONDS):
            raise RuntimeError(f"scaling {number} did not come to COMMIT: {self._ended(number).reason}")
        # Of a scale-down the last one leaves.
        running = [
            one.name for one in self._status().roles if one.role == pb.PS and one.state in ("running", "leaving")
        ]
        victim = self._dice.choice(sorted(running)[: max(PS_MIN, count)])
        self._job.send(victim, signal.SIGSTOP)
        self.told.failures.append((victim, "hung"))
        one = self._expect(number, "committed")
        self._recovered(victim)
        self.settle(ps=count)
        self._note(f"{victim} hung after COMMIT of {one.kind}: committed in {one.seconds:.0f} s, and recovered")

    def aimaster_in_final_copy(self) -> None:
        """The AIMaster dies while training stands still for a scaling: its successor rolls back."""
        for _ in range(TRIES):
            ps, _ = self.settle()
            known = set(self._job.servers())
            tail = Tail(self._job)
            number = self._ask(**self._change(ps))
            if not tail.until_state(number, "PREPARE", ANSWER_SECONDS):
                raise RuntimeError(f"scaling {number} did not come to PREPARE: {self._ended(number).reason}")
            new = [one.name for one in self._status().roles if one.role == pb.PS and one.state == "running"]
            target = next(name for name in new if name not in known)
            if tail.until_state(number, "PAUSE", ANSWER_SECONDS):
                held = self._job.pid(target)
                self._job.send(target, signal.SIGSTOP)  # it serves nothing yet, and will not answer the final copy
                try:
                    struck = tail.until_state(number, "FINAL_COPY", ANSWER_SECONDS) and self._kill_aimaster()
                finally:
                    self._job.go_on(held)
                if struck:
                    self._await_aimaster()
            one = self._ended(number)
            if one.outcome == "rolled_back" and "restarted in FINAL_COPY" in one.reason:
                self.settle(ps=ps)
                self._note(f"AIMaster killed in FINAL_COPY of {one.kind}: {one.reason}")
                return
            self._note(f"the AIMaster was not killed in FINAL_COPY ({one.outcome} {one.reason}); again")
        raise RuntimeError(f"the AIMaster could not be killed in FINAL_COPY in {TRIES} tries")

    def _change(self, ps: int) -> dict[str, Any]:
        """A change with a new PS, which leaves the job with as many as before where it is rolled back."""
        return {"ps": ps + 1} if ps < PS_MAX else {"replace": self._dice.choice(self._job.servers())}

    def _kill_aimaster(self) -> bool:
        self._old = self._job.pid("aimaster")
        self.told.outages.append((self._job.send("aimaster", signal.SIGKILL), float("inf")))
        return True

    def _await_aimaster(self) -> None:
        self._job.until(lambda: self._job.pid("aimaster") != self._old, "another AIMaster", ANSWER_SECONDS)
        self._job.until(self._job.status, "answer of another AIMaster", ANSWER_SECONDS)
        self.told.outages[-1] = self.told.outages[-1][0], time.time() + 3.0

    def _recovered(self, role: str) -> None:
        """Until training has recovered from every failure of this PS that the day has caused."""
        wanted = sum(name == role for name, _ in self.told.failures)
        self._job.until(
            lambda: sum(event["role"] == role for event in self._job.events("recovered")) >= wanted,
            f"recovery from the loss of {role}", ANSWER_SECONDS,
        )  # fmt: skip

    # ---------------------------------------------------------------------------------------------------- disk

    def fill_disk(self) -> None:
        """Until the job has noticed; the disk stays full for a minute, whatever comes next."""
        self._job.until(lambda: self._job.events("disk_backup"), "disk backup", ANSWER_SECONDS)
        before = len(self._disk_warnings())
        self._disk.fill(DISK_FULL_SECONDS)
        self._job.until(lambda: len(self._disk_warnings()) > before, "warning of the full disk", DISK_FULL_SECONDS - 5)
        self._note(f"disk of the backups full for {DISK_FULL_SECONDS:.0f} s: {self._disk_warnings()[-1]['text'][:90]}…")

    def see_disk_again(self) -> None:
        """Until there is a backup that was begun after the disk had room again."""
        self._disk.free(2 * DISK_FULL_SECONDS)
        known = len(self._job.events("disk_backup"))
        self._job.until(lambda: len(self._job.events("disk_backup")) > known + 1, "disk backups again", ANSWER_SECONDS)
        self._note("disk backups are written again")

    def _disk_warnings(self) -> list[dict[str, Any]]:
        return [one for one in self._job.events("warning") if "no disk backup could be written" in one["text"]]
