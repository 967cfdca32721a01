"""What agents say on their streams."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

from deeprec_ext.aimaster.failures import Failures
from deeprec_ext.aimaster.job import Job
from deeprec_ext.aimaster.members import Member
from deeprec_ext.errors import RefusedError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger(__name__)
TEXT_MAX = 2000
METRICS_MAX = 1000


class Inbox:
    def __init__(self, job: Job, failures: Failures, pause_reported: Callable[[pb.PauseReport], None]) -> None:
        self._job, self._failures, self._pause_reported = job, failures, pause_reported

    def receive(self, member: Member, message: pb.AgentMessage) -> None:
        """One message of a member that is not fenced. Unknown kinds (a newer minor version) are ignored."""
        kind = message.WhichOneof("message")
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
            self._job.gazing.receive(member, message.gazer)
            return
        handler = getattr(self, f"_on_{kind}", None)
        if handler is not None:
            handler(member, getattr(message, str(kind)))
            self._job.changed.notify()

    def _on_catalogue(self, member: Member, catalogue: pb.Catalogue) -> None:
        job = self._job
        if not member.is_trainer:
            return
        try:
            changed = job.catalogues.add(member.name, catalogue, job.cluster.generation)
        except RefusedError as error:
            job.event("refusal", member.name, reason=str(error)[:TEXT_MAX])
            job.end("failed", str(error)[:TEXT_MAX])
            return
        if changed and job.catalogues.present.fingerprint:
            job.catalogue = present = job.catalogues.present
            total = sum(variable.bytes for variable in present.variables)
            job.event("catalogue", member.name, variables=len(present.variables), bytes=total,
                      warnings=list(catalogue.warnings))  # fmt: skip

    def _on_pause(self, member: Member, report: pb.PauseReport) -> None:
        job = self._job
        if report.loss:
            job.event("loss_pause", member.name, seconds=round(report.pause_seconds, 4), cause=report.cause)
            self._failures.paused(report.pause_seconds)
            return
        job.event("pause", member.name, scaling=report.scaling_id, seconds=round(report.pause_seconds, 4),
                  gate_waits=report.gate_waits, cause=report.cause)  # fmt: skip
        self._pause_reported(report)

    def _on_metrics(self, member: Member, report: pb.MetricsReport) -> None:
        metrics = {**self._job.store.get("metrics", {}), **report.metrics}
        self._job.store.put(metrics=dict(list(metrics.items())[:METRICS_MAX]))
        self._job.event("metrics", member.name, step=report.step, metrics=dict(report.metrics))

    def _on_backup(self, member: Member, report: pb.BackupReport) -> None:
        (self._job.holding if member.is_trainer else self._job.guards).report(member, report)

    def _on_backup_wish(self, member: Member, wish: pb.BackupWish) -> None:
        if wish != self._job.wish:
            self._job.wish = wish
            self._job.store.put_blob("backup_wish", wish.SerializeToString())

    def _on_trouble(self, member: Member, trouble: pb.PsTrouble) -> None:
        self._job.members.reached(trouble.step)
        self._failures.trouble(list(trouble.tasks))
        self._job.event("trouble", member.name, tasks=list(trouble.tasks), error=trouble.error[:TEXT_MAX])

    def _on_live(self, member: Member, live: pb.ModelLive) -> None:
        job = self._job
        if live.generation != job.cluster.generation or job.cluster.lost or job.cluster.live:
            return  # of a generation that is over, or said again
        self._rewind(live)
        self._failures.restored(live.step, "nothing" if live.fresh else "checkpoint")
        job.event("model_live", member.name, step=live.step, generation=live.generation)
        if live.cut:
            job.set_cluster(dataclasses.replace(job.cluster, cut=tuple(live.cut)))
        if job.hold_views:
            job.set_cluster(dataclasses.replace(job.cluster, live=True))
        else:
            job.advance(live=True)

    def _rewind(self, live: pb.ModelLive) -> None:
        """The ledger follows the model that the chief restored.

        A chief that says neither has attached: to a live model, or to one that the AIMaster restored from a disk backup and
        rewound the ledger for. In a job's very first start a model without a checkpoint is nothing to go back from.
        """
        job = self._job
        if live.ledger or (live.fresh and (live.generation > 1 or job.resumed)):
            job.ledger.rewind(live.ledger)
        job.ledger.model_is_live()

    def _on_refusal(self, member: Member, refusal: pb.Refusal) -> None:
        self._job.event("refusal", member.name, reason=refusal.reason[:TEXT_MAX])
        self._job.end("failed", refusal.reason[:TEXT_MAX])

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

    def _on_log(self, member: Member, line: pb.LogLine) -> None:
        self._job.event("warning", member.name, text=line.text[:TEXT_MAX])

    def _on_notice(self, member: Member, notice: pb.Notice) -> None:
        self._job.notices.add(member.name, notice)

    def _on_passes(self, member: Member, report: pb.PassReport) -> None:
        self._job.store.put_blob("passes", report.json.encode())
