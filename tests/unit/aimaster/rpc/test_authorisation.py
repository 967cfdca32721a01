"""A real AIMaster behind mTLS: who may call what."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from deeprec_ext.aimaster.rpc.authorisation import METHODS
from deeprec_ext.aimaster.rpc.server import AIMaster
from deeprec_ext.proto import PROTOCOL_MAJOR
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security import authority, credentials
from tests.unit.aimaster.world import World


def test_every_method_of_the_protocol_is_in_the_table() -> None:
    for service in ("Agents", "Admin"):
        for method in pb.DESCRIPTOR.services_by_name[service].methods:
            assert METHODS[f"/deeprec_ext.v1.{service}/{method.name}"]


def test_certificates_decide_who_may_call_what(tmp_path: Path) -> None:
    certs = str(authority.create_certificates(tmp_path / "certs", "job"))

    async def code(call: grpc.aio.UnaryUnaryCall) -> grpc.StatusCode:
        try:
            await call
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK

    async def services(channel: grpc.aio.Channel) -> set[str]:
        """What general tools are told by reflection."""
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        return {one.name async for reply in call for one in reply.list_services_response.service}

    async def main() -> None:
        it = World(tmp_path)
        master = AIMaster(it.spec, it.backend, certs)
        for name in ("ps-0", "ps-1", "chief-0", "worker-0"):
            it.backend.stillborn.add(name)
        address = f"127.0.0.1:{await master.start('127.0.0.1:0')}"
        try:
            for role, allowed in (("ps", False), ("trainer", False), ("aimaster", False), ("admin", True)):
                async with credentials.open_aio_channel(address, "aimaster.job", role, certs) as channel:
                    admin = rpc.AdminStub(channel)
                    expected = grpc.StatusCode.OK if allowed else grpc.StatusCode.PERMISSION_DENIED
                    assert await code(admin.Status(pb.StatusRequest())) == expected
                    assert await code(admin.Scale(pb.ScaleRequest(ps=2))) == expected
                    health = health_pb2_grpc.HealthStub(channel)
                    assert await code(health.Check(health_pb2.HealthCheckRequest())) == grpc.StatusCode.OK
                    watched = health.Watch(health_pb2.HealthCheckRequest())
                    assert (await watched.read()).status == health_pb2.HealthCheckResponse.SERVING
                    watched.cancel()
                    if allowed:
                        assert "deeprec_ext.v1.Admin" in await services(channel)
            async with credentials.open_aio_channel(address, "aimaster.job", "ps", certs) as channel:
                worker = pb.RegisterRequest(protocol_major=PROTOCOL_MAJOR, role=pb.WORKER, incarnation="x")
                assert await code(rpc.AgentsStub(channel).Register(worker)) == grpc.StatusCode.PERMISSION_DENIED
            async with credentials.open_aio_channel(address, "aimaster.job", "admin", certs) as channel:
                assert await code(rpc.AgentsStub(channel).Register(worker)) == grpc.StatusCode.PERMISSION_DENIED
        finally:
            await master.stop()

    asyncio.run(main())


def test_a_port_in_use_is_one_clear_line(tmp_path: Path) -> None:
    async def main() -> None:
        it = World(tmp_path)
        await it.start()
        (tmp_path / "other").mkdir()
        other = World(tmp_path / "other")
        other.address = it.address
        try:
            with pytest.raises(Exception, match="port is in use"):
                await other.start()
        finally:
            await it.stop()

    asyncio.run(main())
