"""A trainer says that variables of the model are gone: is it so, and what is to be done?

The PS are asked, not the trainer believed: its view may be old, its graph its own. Only what somebody has trained with in this
generation (a complete catalogue has it, as a global variable) can have been lost. Then the model begins anew, by order
(`Failover.begin_anew`); anything else restores nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.membership import commands
from deeprec_ext.aimaster.membership.commands import CommandError
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.proto import deeprec_ext_pb2 as pb

LOOK_SECONDS = 10.0
NAMES_MAX = 1000


class Missing:
    """`begin_anew` orders another generation, because of these variables."""

    def __init__(self, job: Job, begin_anew: Callable[[Sequence[pb.Variable]], None]) -> None:
        self._job, self._begin_anew = job, begin_anew
        self._lock = asyncio.Lock()  # all trainers may fail of the same variable in one moment
        self._ordered = 0  # the epoch whose model begins anew

    async def judge(self, request: pb.MissingRequest) -> pb.MissingReply:
        """What the trainer does now."""
        async with self._lock:
            return await self._judge(request)

    async def _judge(self, request: pb.MissingRequest) -> pb.MissingReply:
        member = self._job.members.by_incarnation(request.incarnation)
        if member is None or not member.is_trainer or not self._settled(request):
            return pb.MissingReply(verdict=pb.MissingReply.LATER)
        if self._ordered == request.epoch:
            return pb.MissingReply(verdict=pb.MissingReply.RESTORE)
        names = sorted(set(request.variables))[:NAMES_MAX]
        trained = {
            one.name: one for one in self._job.catalogue.variables if one.name in names and self._was_trained(one)
        }
        try:
            absent = await self._absent(list(trained.values()))
        except CommandError:
            return pb.MissingReply(verdict=pb.MissingReply.LATER)
        if not self._settled(request):
            return pb.MissingReply(verdict=pb.MissingReply.LATER)
        if absent:
            self._begin_anew(absent)
            self._ordered = request.epoch
            return pb.MissingReply(verdict=pb.MissingReply.RESTORE)
        new = [name for name in names if name not in trained]
        if member.role != pb.CHIEF:
            of_model = {one.name for one in self._job.catalogue.variables}
            coming = any(name in of_model for name in new)
            return pb.MissingReply(verdict=pb.MissingReply.LATER if coming else pb.MissingReply.THERE)
        if not new:
            return pb.MissingReply(verdict=pb.MissingReply.THERE)
        return pb.MissingReply(verdict=pb.MissingReply.INITIALISE, variables=new)

    def _settled(self, request: pb.MissingRequest) -> bool:
        """Whether the trainer has spoken of the cluster as it is."""
        cluster = self._job.cluster
        same = (request.generation, request.epoch) == (cluster.generation, cluster.epoch)
        return same and cluster.live and not cluster.lost and not self._job.lock.held(Hold.DECISION, Hold.GATE)

    def _was_trained(self, variable: pb.Variable) -> bool:
        present = variable.generation == self._job.cluster.generation
        return present and variable.update != pb.Variable.UPDATE_UNSPECIFIED and bool(variable.saved_name)

    async def _absent(self, variables: Sequence[pb.Variable]) -> list[pb.Variable]:
        """Those that the PS that should have them have not. Raises CommandError."""
        job = self._job
        members = job.members.ps()
        futures: dict[str, asyncio.Future[pb.Ack]] = {}
        for task, some in job.cluster.by_task(variables).items():
            if task not in members:
                raise CommandError(f"the PS with task {task} is gone")
            futures[members[task].name] = job.commander.send(members[task].outbox, look=pb.Look(variables=some))
        acks = await commands.gather(futures, LOOK_SECONDS, "Look")
        gone = {name for ack in acks.values() for name in ack.copy.skipped}
        return [one for one in variables if one.name in gone]
