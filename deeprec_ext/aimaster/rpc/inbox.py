"""What agents say on their streams."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import shlex
from collections.abc import Callable
from typing import Any

from deeprec_ext.aimaster.failover.failures import Failures
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.aimaster.membership.plausible import no_copy, too_large
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.aimaster.store import resuming
from deeprec_ext.errors import RefusedError
from deeprec_ext.layout.names import FLAGS_HINT
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.units import once

log = logging.getLogger(__name__)
RETURNS_MAX = 10_000
"""So often a member may leave the sums of a job without PS and come back; each is a view."""

NOT_FINITE = "not_finite"
TEXT_MAX = 2000
METRICS_MAX = 1000
NAMED_MAX, PATH_SHOWN, HOST_MAX = 5, 500, 253
AGE_GRACE_SECONDS = 3600.0
"""A store that was lost makes a job seem younger than it is."""

ALONE = "it refuses what others do not: {}"
"""What is suspect of who refuses the script; withdrawn when another one says the same of it."""

OF_PS = frozenset({"hello", "heartbeat", "ack", "backup", "gazer"})
"""What a PS has to say. All else is of scripts, which it has none of."""


def _is_place(address: str) -> bool:
    """Whether it is a host and a port."""
    host, _, port = address.rpartition(":")
    return 0 < len(host) <= HOST_MAX and len(port) <= 5 and port.isdecimal() and 0 < int(port) < 1 << 16


class Inbox:
    def __init__(self, job: Job, failures: Failures, pause_reported: Callable[[pb.PauseReport], None]) -> None:
        self._job, self._failures, self._pause_reported = job, failures, pause_reported
        self._refused: dict[str, tuple[int, str]] = {}  # role that refuses, and no chief -> pid of its pod, reason
        self._diverged: set[str] = set()  # metrics that are no numbers any more, told
        self.kill: Callable[[str], None] = lambda name: None

    def receive(self, member: Member, message: pb.AgentMessage) -> None:
        """One message of a member that is not fenced. Unknown kinds (a newer minor version) are ignored."""
        kind = message.WhichOneof("message")
        if member.role == pb.PS and kind is not None and kind not in OF_PS:
            self._job.suspects.note(member, f"it says what a PS has no part in: {kind}")
            return
        if kind == "heartbeat":  # by far the most frequent
            self._job.members.beat(member, message.heartbeat)
            if self._failures.open:
                self._failures.observe(member)
            return
        self._job.members.sign_of_life(member)
        if kind == "ack":
            member.outbox.ack(message.ack)
            return
        if kind == "data":
            self._job.ledger.receive(member, message.data)
            return
        if kind == "gazer":  # nobody waits for what it says
            self._job.metrics.receive(member, message.gazer)
            return
        handler = getattr(self, f"_on_{kind}", None)
        if handler is not None:
            handler(member, getattr(message, str(kind)))
            self._job.changed.notify()

    def _on_catalogue(self, member: Member, catalogue: pb.Catalogue) -> None:
        job = self._job
        if not member.is_trainer:
            return
        if doubt := self._doubt(member, catalogue):
            job.suspects.note(member, doubt)
            return
        try:
            changed = job.catalogues.add(member.name, catalogue, job.cluster.generation)
        except RefusedError as error:
            if not self._refuse(member, str(error)[:TEXT_MAX]):
                self.kill(member.name)  # it would train another model
            return
        if changed and job.catalogues.present.fingerprint:
            job.catalogue = present = job.catalogues.present
            total = sum(variable.bytes for variable in present.variables)
            job.event("catalogue", member.name, variables=len(present.variables), bytes=total,
                      warnings=list(catalogue.warnings))  # fmt: skip

    def declared(self, member: Member, request: pb.DeclareRequest) -> None:
        """What the chief's model is like. What cannot be is taken as not declared: its session will be refused."""
        job = self._job
        model = request.declaration if request.HasField("declaration") else None
        if member.role != pb.CHIEF:
            job.suspects.note(member, "it declares the model, which is the chief's to do")
            return
        variables = model.catalogue.variables if model is not None else ()
        doubt = next((f"slot {one.slot}" for one in variables if one.slot >= job.spec.slots), "")
        if doubt := doubt or next((why for one in variables if (why := too_large(one))), ""):
            job.event("warning", member.name, text=f"what it declares of its model is not believed: {doubt}"[:TEXT_MAX])
            model = None
        if job.declared.heard and model == job.declared.model:
            return  # it is repeated until there is a view
        job.declared.hear(model, request.why_not[:TEXT_MAX] or doubt)
        if model is not None:
            job.event("declared", member.name, variables=len(variables), bytes=sum(one.bytes for one in variables),
                      batch_size=model.batch_size)  # fmt: skip
        job.changed.notify()

    def _doubt(self, member: Member, catalogue: pb.Catalogue) -> str:
        """Why a trainer's variables are not taken in; empty: they are. The model is the chief's, as far as it can be."""
        job = self._job
        if member.role != pb.CHIEF:
            if wrong := next((one for one in catalogue.variables if one.slot >= job.spec.slots), None):
                return f"catalogue.variables has one on slot {wrong.slot}, the job has 0 to {job.spec.slots - 1}"
            known = {one.name for one in job.catalogues.known.variables}
            if job.suspects.has(member) and any(one.name not in known for one in catalogue.variables):
                return "it tells of variables that nobody else has, and is not believed any more"
        return next((why for one in catalogue.variables if (why := too_large(one))), "")

    def _on_pause(self, member: Member, report: pb.PauseReport) -> None:
        job = self._job
        if self._before_the_job(report.pause_seconds):
            job.suspects.note(member, f"pause.pause_seconds is {report.pause_seconds:g}: longer than the job is")
            return
        if report.loss:
            job.event("loss_pause", member.name, seconds=round(report.pause_seconds, 4), cause=report.cause)
            self._failures.paused(report.pause_seconds)
            return
        job.event("pause", member.name, scaling=report.scaling_id, seconds=round(report.pause_seconds, 4),
                  gate_waits=report.gate_waits, cause=report.cause)  # fmt: skip
        self._pause_reported(report)

    def _on_metrics(self, member: Member, report: pb.MetricsReport) -> None:
        """Numbers that are none (a model that has diverged) are told as words, and nowhere kept as numbers."""
        job, told = self._job, {name[:TEXT_MAX]: value for name, value in report.metrics.items()}
        good = {name: value for name, value in told.items() if math.isfinite(value)}
        bad = {name: str(value) for name, value in told.items() if name not in good}
        before = {name: value for name, value in job.store.get("metrics", {}).items() if name not in bad}
        job.store.put(metrics=dict(list({**before, **good}.items())[:METRICS_MAX]))
        job.event(
            "metrics", member.name, step=report.step, metrics=once(good), **({NOT_FINITE: once(bad)} if bad else {})
        )
        if new := sorted(once(bad).keys() - self._diverged):
            self._diverged.update(new[:METRICS_MAX])
            words = ", ".join(f"{name} is {bad[name]}" for name in new[:NAMED_MAX])
            job.event("warning", member.name, text=f"{words} at step {report.step}: the model has diverged")

    def _on_backup(self, member: Member, report: pb.BackupReport) -> None:
        slots = self._job.spec.slots
        if any(slot >= slots for slot in (*report.slots, *report.next_slots)):
            self._job.suspects.note(member, f"backup.slots has slots that the job has not: it has 0 to {slots - 1}")
            return
        if doubt := self._no_backup(report):
            self._job.suspects.note(member, doubt)
            return
        (self._job.trainer_backups if member.is_trainer else self._job.peer_backups).report(member, report)

    def _no_backup(self, report: pb.BackupReport) -> str:
        """Why nobody can have such copies; empty: it can be."""
        job = self._job
        if self._before_the_job(report.age_seconds):
            return f"backup.age_seconds is {report.age_seconds:g}: before the job was"
        model = sum(one.bytes for one in job.catalogues.known.variables)
        sent = no_copy(max(report.bytes, report.full_bytes), model)
        return sent and f"backup.bytes is {sent}"

    def _before_the_job(self, seconds: float) -> bool:
        """Whether so long ago there was no job."""
        return seconds > max(0.0, self._job.clock.wall() - self._job.started) + AGE_GRACE_SECONDS

    def _on_backup_wish(self, member: Member, wish: pb.BackupWish) -> None:
        job = self._job
        if not member.is_trainer or job.suspects.has(member):
            return
        if wish.disk_path and not job.choices.may_write_to(wish.disk_path):
            text = (
                f"the script asks for disk backups in {wish.disk_path[:PATH_SHOWN]!r}: where they go is for who starts "
                f"the job to say; give --setting disk_backup={shlex.quote(wish.disk_path[:PATH_SHOWN])} (to a TFJob the "
                f"annotation aimaster.deeprec.io/backup: peer,disk=DIR), or a place below {job.spec.workdir}"
            )
            job.event("warning", member.name, text=text)
            wish.ClearField("disk_path")
        if wish != self._job.choices.wish:
            self._job.choices.wish = wish
            self._job.store.put_blob("backup_wish", wish.SerializeToString())

    def _on_trouble(self, member: Member, trouble: pb.PsTrouble) -> None:
        if not member.is_trainer:
            return
        self._job.members.reached(trouble.step, member)
        there = {ps.task for ps in self._job.cluster.ps}
        tasks = sorted(there.intersection(trouble.tasks))
        self._failures.trouble(tasks)
        self._job.event("trouble", member.name, tasks=tasks, error=trouble.error[:TEXT_MAX])

    def _on_live(self, member: Member, live: pb.ModelLive) -> None:
        job = self._job
        if member.role != pb.CHIEF:
            job.suspects.note(member, "it says that the model is live, which is the chief's to say")
            return
        if live.generation != job.cluster.generation or job.cluster.lost:
            return  # of a generation that is over
        if job.cluster.live:
            # Said again. An AIMaster that has lost its store may have heard of others that it is live, and not what is cut.
            if live.cut and not job.cluster.cut:
                self._advance(cut=tuple(live.cut))
            return
        self._rewind(live)
        resuming.live(job.store, live.step, fresh=live.fresh)
        self._failures.restored(live.step, "nothing" if live.fresh else "checkpoint")
        job.event("model_live", member.name, step=live.step, generation=live.generation)
        self._advance(live=True, cut=tuple(live.cut))

    def _on_ring(self, member: Member, ring: pb.Ring) -> None:
        """In a job without PS: it can sum from now on, or the ring of a view is of no use."""
        job = self._job
        if not job.spec.sums or not member.is_trainer:
            job.suspects.note(member, "it tells of a ring, which trainers of a job without PS have alone")
            return
        if (
            ring.address
            and ring.address != member.ring
            and (member.ring or member.returns > RETURNS_MAX or not _is_place(ring.address))
        ):
            job.suspects.note(member, f"it cannot be reached at {ring.address[:PATH_SHOWN]!r}, or at two places")
            return
        if (member.ring, member.parted) != (ring.address, not ring.address):
            member.returns += member.parted
            member.ring, member.parted = ring.address, not ring.address
            if ring.address and not job.cluster.live:
                job.ledger.model_is_live()
                job.event("model_live", member.name, step=0, generation=job.cluster.generation)
                job.set_cluster(dataclasses.replace(job.cluster, live=True))
            job.publish_soon()
        if not ring.lost or ring.lost != job.cluster.epoch or job.ring_is_lost:
            return  # the first of all that lose it has told
        if member.incarnation in {worker.incarnation for worker in job.workers()}:
            job.event("ring_lost", member.name, lost=ring.lost, why=ring.trouble)
            job.ring_lost()

    def _advance(self, **changes: Any) -> None:
        job = self._job
        if job.lock.held(Hold.VIEWS):
            job.set_cluster(dataclasses.replace(job.cluster, **changes))
        else:
            job.advance(**changes)

    def _on_saved(self, member: Member, saved: pb.Saved) -> None:
        job = self._job
        if member.role != pb.CHIEF:
            job.suspects.note(member, "it says that it has written a checkpoint, which is the chief's to do")
        elif job.members.reached(saved.step, member):
            job.store.put(**{resuming.CHECKPOINT: {"step": saved.step, "time": job.clock.wall()}})

    def _rewind(self, live: pb.ModelLive) -> None:
        """The ledger follows the model that the chief restored.

        A chief that says neither has attached: to a live model, or to one that the AIMaster restored from a disk backup and
        rewound the ledger for. In a job's very first start a model without a checkpoint is nothing to go back from.
        """
        job = self._job
        if live.ledger or (live.fresh and (live.generation > 1 or job.resumed)):
            job.ledger.rewind(live.ledger, job.resumed and resuming.nothing_restored(job.store))
        job.ledger.model_is_live()

    def _on_refusal(self, member: Member, refusal: pb.Refusal) -> None:
        self._refuse(member, refusal.reason[:TEXT_MAX])

    def _refuse(self, member: Member, reason: str) -> bool:
        """The script cannot be made elastic, or is another one than the others': the end of the job. Whether it is.

        The chief is believed. Of another role it is that role's end, for now: when its process ends of it and nobody trains
        (`gone`), or its next process (the pod has another one) comes to the same, it is the script, and no liar.
        """
        job, name = self._job, member.name
        job.event("refusal", name, reason=reason)
        if member.role == pb.CHIEF and FLAGS_HINT not in reason:  # what it met may be a consequence
            reason = next((other for _, other in self._refused.values() if FLAGS_HINT in other), reason)
        said, _ = self._refused.get(name, (None, ""))
        alike = [other for other, (_, line) in self._refused.items() if other != name and line == reason]
        for other in alike:
            job.suspects.withdraw(other, ALONE.format(reason))
        if member.role != pb.CHIEF and (said is None or said == member.pod_pid):
            self._refused[name] = member.pod_pid, reason
            if job.members.trained - {name} and not alike:  # else all may be about to say it
                job.suspects.note(member, ALONE.format(reason))
            return False
        job.end("failed", reason)
        return True

    def gone(self, name: str) -> None:
        """The process of this role has ended with an error: one that has refused did as it said."""
        _, reason = self._refused.get(name, (0, ""))
        if reason and not self._job.members.trained - {name}:
            self._job.end("failed", reason)

    def _on_finished(self, member: Member, finished: pb.Finished) -> None:
        code = finished.exit_code if finished.HasField("exit_code") else None
        self._job.members.goodbye(member, code)
        member.error = finished.error[:TEXT_MAX]
        member.outbox.resign()
        self._job.ledger.release(member.incarnation, "the script has ended", clean=True)
        self._job.event(
            "script_ended", member.name, left=finished.left, had_session=finished.had_session, exit_code=code
        )  # fmt: skip
        self._job.publish_soon()

    def _on_notice(self, member: Member, notice: pb.Notice) -> None:
        if not self._job.suspects.has(member):
            self._job.notices.add(member.name, notice, member.incarnation)

    def _on_passes(self, member: Member, report: pb.PassReport) -> None:
        """Of the chief: a worker that has just come has not packed anything yet."""
        if member.role != pb.CHIEF:
            return
        try:
            json.loads(report.json)
        except (ValueError, RecursionError) as error:
            self._job.suspects.note(member, f"passes.json is no JSON: {type(error).__name__}")
            return
        self._job.store.put_blob("passes", report.json.encode())
