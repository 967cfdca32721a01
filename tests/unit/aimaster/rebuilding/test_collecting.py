"""While a store is rebuilt, whoever asks anything of the AIMaster is told to come again."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from deeprec_ext.aimaster.rebuilding import collecting
from deeprec_ext.launch.ports import free_port
from deeprec_ext.proto import deeprec_ext_pb2 as pb

ASKED = [(service, method.name) for service in ("Admin", "Agents")
         for method in pb.DESCRIPTOR.services_by_name[service].methods if method.name != "Register"]  # fmt: skip
"""All there is to be called, but the one that tells what a process knows."""


async def answer_of(service: str, name: str) -> tuple[grpc.StatusCode, str]:
    port = free_port()
    collector = collecting._Collector("job", {})
    server = await collecting._serve(collector, None, f"127.0.0.1:{port}")
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            method = pb.DESCRIPTOR.services_by_name[service].methods_by_name[name]
            ways = {
                (False, False): channel.unary_unary, (False, True): channel.unary_stream,
                (True, True): channel.stream_stream,
            }  # fmt: skip
            way = ways[method.client_streaming, method.server_streaming]
            request = getattr(pb, method.input_type.name)()
            ask = way(
                f"/{pb.DESCRIPTOR.package}.{service}/{name}", type(request).SerializeToString,
                getattr(pb, method.output_type.name).FromString,
            )  # fmt: skip
            # Nothing is written to a stream: where the answer is there before it, gRPC calls the write an error "from Core".
            call = ask(timeout=10) if method.client_streaming else ask(request, timeout=10)  # type: ignore[call-arg]
            return await call.code(), await call.details()
    finally:
        collector.done.set()
        await server.stop(None)


@pytest.mark.parametrize(("service", "name"), ASKED)
def test_whatever_is_asked_meanwhile_is_answered_with_not_now(service: str, name: str) -> None:
    expected = (grpc.StatusCode.UNAVAILABLE, "the AIMaster rebuilds its store; come again")
    assert asyncio.run(answer_of(service, name)) == expected
