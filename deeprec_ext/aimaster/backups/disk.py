"""Disk backups as the AIMaster sees them: when a snapshot is made, whether it is a base, what is removed, and what is restored.

A snapshot: the ledger's position and the step are read, every PS writes the files of its slots, and when all have said so one
PS writes the manifest. Nothing in training waits for any of it. A snapshot that a scaling or a death comes across is dropped:
without a manifest its files do not exist, and the next commit removes them. What cannot be written is one warning per episode,
and is tried again at the next interval.

The directory itself is the memory: a new AIMaster asks a PS what is in it, and begins a new chain.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from deeprec_ext.aimaster.backups import answers
from deeprec_ext.aimaster.ledger import Ledger
from deeprec_ext.aimaster.membership import commands
from deeprec_ext.aimaster.membership.commands import CommandError, GoneError
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.aimaster.membership.view import AgreedCluster
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.aimaster.state.shared import JobState
from deeprec_ext.aimaster.store import resuming
from deeprec_ext.backup import chains, manifest, model
from deeprec_ext.backup.chains import CommittedSnapshot
from deeprec_ext.backup.manifest import DataFile, Manifest, Snapshot
from deeprec_ext.proto import deeprec_ext_pb2 as pb

T = TypeVar("T")

log = logging.getLogger(__name__)

TICK_SECONDS = 0.25
LOOK_SECONDS = 60.0
"""Longest wait for a PS that reads the directory; it reads manifests, not data."""

MARKS_SECONDS = 5.0
"""How much longer than an interval a snapshot waits for rows to be marked."""

TRIES_MAX = 8
"""Snapshots tried by one restore, newest first."""


class DroppedError(CommandError):
    """A scaling or a death came across the snapshot: no fault of the directory."""


@dataclass(frozen=True)
class Restored:
    """What the variables on the PS are now."""

    cut: int
    step: int
    """Global step at the time of the snapshot, as far as the AIMaster knew it."""
    ledger: bytes
    bytes: int
    seconds: float


class DiskBackups:
    """`job.disk`."""

    def __init__(self, job: JobState, ledger: Ledger) -> None:
        self._job, self._ledger = job, ledger
        # Of the last attempt, by whichever AIMaster of this run.
        self.error: str = "" if job.spec.resume else job.store.get("disk_error", "")
        self._path = ""  # of which the following is known
        self._cuts: list[CommittedSnapshot] = []
        self._chain: tuple[Snapshot, ...] = ()
        self._highest = 0
        self._dropped: list[str] = []
        self._committed_number = 0
        self._committed_at = 0.0  # monotonic; when the newest committed snapshot began
        self._begun_at: float | None = None
        self._tried = False  # by this AIMaster
        self._state: object = None  # the job's, when the newest committed snapshot began
        self._restores = 0
        self._cutting = asyncio.Lock()

    # ------------------------------------------------------------------------------------------------ what others ask

    def status(self, message: pb.BackupStatus) -> None:
        if path := self._job.choices.disk_path:
            message.disk_path, message.disk_cut = path, self._committed_number
            message.disk_seconds = self._job.clock.monotonic() - self._committed_at if self._committed_number else 0.0
            message.error = message.error or self.error

    @property
    def job_id(self) -> str:
        """Of this job, also after a restart; another job of the same name has another one."""
        return hashlib.sha256(f"{self._job.spec.name} {self._job.started!r}".encode()).hexdigest()[:8]

    # ------------------------------------------------------------------------------------------------ when

    async def run(self) -> None:
        """Runs for ever."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if self._due() and self._ready():
                await self.cut()

    def _due(self) -> bool:
        """Every `disk_backup_seconds`, from the beginning of one to the beginning of the next; the first as soon as rows are
        marked, since deltas can follow it then."""
        job = self._job
        if not job.choices.disk_path:
            return False
        now = job.clock.monotonic()
        if self._begun_at is None:
            self._begun_at = now  # of waiting
        if not self._tried and job.marks_on:
            return True
        # Soon after a restore rows are not marked yet, and a snapshot could not be followed by a delta.
        patience = 0.0 if job.marks_on else job.choices.disk_seconds + MARKS_SECONDS
        return now - self._begun_at >= job.choices.disk_seconds + patience

    def _ready(self) -> bool:
        quiet = self._job.quiet(Hold.VIEWS, Hold.GATE, Hold.MARKS, Hold.CHANGE)
        return quiet and bool(self._job.catalogue.variables)

    def _situation(self) -> tuple[object, ...]:
        """Another one in the end than at the beginning: the snapshot is not of one owner per slot."""
        cluster = self._job.cluster
        return cluster.ps, cluster.slot_map, cluster.lost, *self._marked_state()

    def _marked_state(self) -> tuple[object, ...]:
        """While it is the same and marks are on, every change of a row has been marked."""
        job = self._job
        return job.cluster.generation, job.catalogue.fingerprint, self._restores, job.marks_on

    # ------------------------------------------------------------------------------------------------ a snapshot

    async def cut(self) -> bool:
        """One snapshot, committed or dropped; after the one under way. Never raises for what can go wrong with it."""
        async with self._cutting:
            return await self._try()

    async def _try(self) -> bool:
        job = self._job
        self._begun_at = began = job.clock.monotonic()
        self._tried = True
        try:
            await self._cut(began)
        except (DroppedError, GoneError) as error:
            job.event("disk_backup_dropped", reason=str(error)[:500])
        except CommandError as error:
            if not self.error:
                job.event("warning", text=f"no disk backup could be written to {job.choices.disk_path}: {str(error)[:500]}; "
                          "training goes on, and it is tried again")  # fmt: skip
            self._note(str(error)[:500])
        else:
            if self.error:
                job.event("disk_backup_again", path=job.choices.disk_path)
            self._note("")
            return True
        return False

    def _note(self, error: str) -> None:
        """An episode may outlast an AIMaster: the next one does not warn of it again, and tells its end."""
        if bool(error) != bool(self.error):
            self._job.store.put(disk_error=error)
        self.error = error

    async def _cut(self, began: float) -> None:
        job = self._job
        if self._path != job.choices.disk_path:
            await self._look()
        situation, state = self._situation(), self._marked_state()
        known = chains.chain_of(self._cuts, self._chain[0].id) if self._chain else []
        changed = "" if state == self._state else "variables or marks are not those of the last cut any more"
        decided = chains.next_cut(known, marks_on=job.marks_on, changed=changed)
        self._highest = number = self._highest + 1
        identifier = manifest.snapshot_id(number, job.incarnation, self.job_id)
        self._dropped.append(identifier)
        ledger, step, wall = self._ledger.position(), job.members.step, job.clock.wall()
        files = await self._write(number, identifier, decided.base, situation)
        chain = () if decided.base or all(file.whole for file in files) else self._chain
        chain = (*chain, Snapshot(identifier, number, files))
        variables = manifest.variables_of(job.catalogue.variables)
        made = Manifest(
            job=job.spec.name, job_id=self.job_id, fingerprint=model.fingerprint(variables),
            layout=model.layout(variables), step=step, epoch=job.cluster.epoch, time=wall, ledger=ledger,
            slots=len(job.cluster.slot_map), global_step=job.catalogue.global_step, variables=variables, chain=chain,
        )  # fmt: skip
        await self._seal(made)
        self._chain, self._state = chain, state
        self._committed_number, self._committed_at = number, began
        job.store.put(**{resuming.DISK: {"step": step, "time": wall}})
        whole = chain[0].id == identifier
        job.event(
            "disk_backup", cut=number, base=whole, bytes=chain[-1].bytes, raw_bytes=sum(f.raw_bytes for f in files),
            rows=sum(f.rows for f in files), files=len(files), step=step, why=decided.why if whole else "",
            seconds=round(job.clock.monotonic() - began, 3),
        )  # fmt: skip

    async def _write(
        self, number: int, identifier: str, base: bool, situation: tuple[object, ...]
    ) -> tuple[DataFile, ...]:
        job = self._job
        message = pb.WriteBackup(
            path=job.choices.disk_path, cut=number, base=base, aimaster_incarnation=job.incarnation, id=identifier,
            parent=self._chain[-1].id if self._chain else "",
        )  # fmt: skip
        futures, asked = {}, {}
        for task, variables in job.cluster.by_task(job.catalogue.variables).items():
            member = self._ps(job.cluster, task)
            asked[member.name] = variables
            one = pb.WriteBackup(variables=variables)
            one.MergeFrom(message)
            futures[member.name] = job.commander.send(member.outbox, write_backup=one)
        try:
            acks = await commands.gather(futures, job.settings.disk_backup_limit_seconds, "WriteBackup")
        except CommandError as error:
            if situation != self._situation() or job.lock.held(Hold.CHANGE):
                raise DroppedError(f"cut {number}: {error}") from error
            raise
        if situation != self._situation():
            raise DroppedError(f"cut {number}: slots have moved, or the model was restored, while it was written")
        files: list[DataFile] = []
        for name, ack in acks.items():
            slots = {variable.slot for variable in asked[name]}
            files += self._believe(name, partial(answers.written, ack, identifier, slots))
        return tuple(sorted(files, key=lambda file: file.slot))

    def _believe(self, name: str, read: Callable[[], T]) -> T:
        """What a PS has answered. Raises CommandError for what cannot be, and its sender is suspect."""
        try:
            return read()
        except answers.ImpossibleError as error:
            member = self._job.members.get(name)
            if member is not None:
                self._job.suspects.note(member, str(error))
            raise CommandError(f"{name} answered: {error}") from error

    async def _seal(self, made: Manifest) -> None:
        job = self._job
        cuts = [*self._cuts, chains.committed(made)]
        dropped = [identifier for identifier in self._dropped if identifier != made.id]
        remove = chains.removable(cuts, self.job_id, job.settings.disk_backup_keep, dropped, made.slots)
        seal = pb.SealBackup(
            path=job.choices.disk_path, cut=made.number, manifest_json=manifest.dumps(made), remove=remove
        )
        member = self._any_ps(job.cluster)
        future = job.commander.send(member.outbox, seal_backup=seal)
        await commands.gather({member.name: future}, job.settings.disk_backup_limit_seconds, "SealBackup")
        gone = set(remove)
        self._cuts = [cut for cut in cuts if manifest.manifest_name(cut.id) not in gone]
        self._dropped = []

    async def _look(self) -> None:
        """What the directory holds, before the first snapshot into it."""
        values = await self._find(self._any_ps(self._job.cluster))
        self._cuts, self._dropped = list(values.cuts), list(values.unsealed)
        self._highest, self._chain = max(self._highest, values.highest), ()
        self._path = self._job.choices.disk_path

    async def _find(self, member: Member, before: int = 0, most: int = 0) -> answers.Looked:
        job = self._job
        fingerprint = model.fingerprint(manifest.variables_of(job.catalogue.variables))
        message = pb.FindBackup(
            path=job.choices.disk_path, fingerprint=fingerprint, job=self.job_id, before=before, most=most
        )  # fmt: skip
        future = job.commander.send(member.outbox, find_backup=message)
        acks = await commands.gather({member.name: future}, LOOK_SECONDS, "FindBackup")
        return self._believe(member.name, partial(answers.looked, acks[member.name].backup_json))

    # ------------------------------------------------------------------------------------------------ restoring

    async def restore(self, cluster: AgreedCluster) -> Restored | None:
        """Loads the newest consistent snapshot of this job into the PS of `cluster`, every slot of it, and rewinds the ledger.

        None when there is no disk backup, or no snapshot of it can be used (a `warning` event says why). Nobody may train
        meanwhile, and nothing else may be going on with these PS. Raises CommandError when one of the PS is lost, or does not
        answer within `disk_backup_limit_seconds`.

        Args:
          cluster: who owns which slot from now on. All its PS are registered; it need not be the job's view yet.
        """
        job = self._job
        if not job.choices.disk_path or not job.catalogue.variables:
            return None
        began, before, problem = job.clock.monotonic(), 0, "no cut was ever completed"
        layout = model.layout(manifest.variables_of(job.catalogue.variables))
        for _ in range(TRIES_MAX):
            try:
                values = await self._find(self._any_ps(cluster), before, TRIES_MAX)
            except CommandError as error:
                self._raise_if_gone(cluster, error)
                problem = str(error)
                break
            found = values.found
            if found is None or (before and found.number >= before):
                problem = "; ".join([problem, *values.damaged][-3:])
                break
            before = found.number
            if found.layout != layout:
                problem = f"cut {before} has other variables or slots than the job has now"
                continue
            try:
                count = await self._load(cluster, found.number, found.id)
            except CommandError as error:
                self._raise_if_gone(cluster, error)
                problem = f"cut {before}: {error}"
                job.event("warning", text=f"an earlier disk backup is tried: {problem[:500]}")
                continue
            self._restores += 1
            self._ledger.rewind(found.ledger)
            seconds = job.clock.monotonic() - began
            restored = Restored(found.number, found.step, found.ledger, count, seconds)
            job.event("disk_restored", cut=restored.cut, step=restored.step, bytes=count, seconds=round(seconds, 3))
            return restored
        job.event("warning", text=f"nothing could be restored from {job.choices.disk_path}: {problem[:500]}")
        return None

    async def _load(self, cluster: AgreedCluster, number: int, identifier: str) -> int:
        job, futures = self._job, {}
        for task, variables in cluster.by_task(job.catalogue.variables).items():
            member = self._ps(cluster, task)
            message = pb.RestoreBackup(path=job.choices.disk_path, cut=number, id=identifier, variables=variables)
            futures[member.name] = job.commander.send(member.outbox, restore_backup=message)
        acks = await commands.gather(futures, job.settings.disk_backup_limit_seconds, "RestoreBackup")
        return sum(ack.copy.bytes for ack in acks.values())

    # ------------------------------------------------------------------------------------------------ PS

    def _ps(self, cluster: AgreedCluster, task: int) -> Member:
        """Raises GoneError."""
        for ps in cluster.ps:
            member = self._job.members.get(ps.name)
            if ps.task == task and member is not None and member.admitted and member.task == task:
                return member
        raise GoneError(f"the PS with task {task} is gone")

    def _any_ps(self, cluster: AgreedCluster) -> Member:
        return self._ps(cluster, min(set(cluster.slot_map)))

    def _raise_if_gone(self, cluster: AgreedCluster, error: CommandError) -> None:
        """What is wrong with a PS is for the caller, what is wrong with the files is not."""
        if isinstance(error, (GoneError, commands.MissingAckError)):
            raise error
        for task in cluster.by_task(self._job.catalogue.variables):
            self._ps(cluster, task)
