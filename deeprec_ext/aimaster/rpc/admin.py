"""The gRPC service `Admin`: status, scaling, events."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import grpc.aio

from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.reporting.reply import status
from deeprec_ext.aimaster.rpc.service import refuse
from deeprec_ext.aimaster.scaling.queue import QueueFullError, ScalingQueue
from deeprec_ext.autoscaler.loop import Autoscaler
from deeprec_ext.errors import DeepRecError, UsageError
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc

DECISIONS_DEFAULT, DECISIONS_MAX = 100, 1000
"""In one reply."""


class AdminService(rpc.AdminServicer):
    def __init__(self, job: Job, scalings: ScalingQueue, autoscaler: Autoscaler | None = None) -> None:
        self._job, self._scalings, self._autoscaler = job, scalings, autoscaler

    async def Status(self, request: pb.StatusRequest, context: grpc.aio.ServicerContext) -> pb.StatusReply:
        return status(self._job, self._scalings)

    async def Scale(self, request: pb.ScaleRequest, context: grpc.aio.ServicerContext) -> pb.ScaleReply:
        try:
            return await self._scalings.request(request)
        except QueueFullError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
            raise
        except DeepRecError as error:
            await refuse(context, error)

    async def Hold(self, request: pb.HoldRequest, context: grpc.aio.ServicerContext) -> pb.HoldReply:
        self._job.hold(request.hold, request.reason)
        return pb.HoldReply(hold=self._job.held, autoscale=self._job.settings.autoscale)

    async def Decisions(self, request: pb.DecisionsRequest, context: grpc.aio.ServicerContext) -> pb.DecisionsReply:
        if self._autoscaler is None:
            await refuse(context, UsageError("this job decides nothing: it runs without --autoscale"))
        if request.preview:
            decision, observed = await self._autoscaler.preview()
            return pb.DecisionsReply(decisions=[decision.to_json(), observed.to_json()])
        limit = min(request.limit or DECISIONS_DEFAULT, DECISIONS_MAX)
        return pb.DecisionsReply(decisions=await self._autoscaler.recorded(request.after, limit))

    async def Events(self, request: pb.EventsRequest, context: grpc.aio.ServicerContext) -> AsyncIterator[pb.Event]:
        async for event in self._job.events.follow(request.after, request.follow):
            yield event

    async def Graph(self, request: pb.CatalogueRequest, context: grpc.aio.ServicerContext) -> pb.GraphReply:
        return pb.GraphReply(catalogue=self._job.catalogue, passes_json=self._job.store.blob("passes").decode() or "[]")

    async def Series(self, request: pb.SeriesRequest, context: grpc.aio.ServicerContext) -> pb.SeriesReply:
        return await self._job.metrics.series_reply(request)

    async def Finish(self, request: pb.FinishRequest, context: grpc.aio.ServicerContext) -> pb.FinishReply:
        job = self._job
        job.members.flush()
        job.store.put(finish={"status": request.status, "reason": request.reason})
        job.end("failed" if request.status == "failed" else "finished", request.reason)
        return pb.FinishReply()
