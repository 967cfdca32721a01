"""A certificate speaks for its process or role, and for nobody else."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import grpc
import grpc.aio
import pytest

from deeprec_ext import wholefiles
from deeprec_ext.aimaster.rpc.server import AIMaster
from deeprec_ext.proto import PROTOCOL_MAJOR
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security import authority, credentials
from deeprec_ext.security.credentials import Speakers, certificate_for, group_of
from deeprec_ext.security.incarnations import public
from tests.unit.aimaster.world import World

CASES = [
    # certificate, name, may: the directory has certificates of their own for worker-1 and ps-0
    ("worker-1", "worker-1", True), ("worker-1", "worker-2", False), ("worker-1", "ps-1", False),
    ("worker-1", "chief-0", False),
    ("worker", "worker-2", True), ("worker", "worker-1", False), ("worker", "chief-0", False), ("trainer", "chief-0", True),
    ("trainer", "worker-2", True), ("trainer", "worker-1", False), ("trainer", "ps-1", False), ("trainer", "evaluator-0", True),
    ("ps", "ps-1", True), ("ps", "ps-0", False), ("ps", "worker-2", False), ("ps-0", "ps-0", True), ("ps-0", "ps-10", False),
    ("admin", "worker-2", False), ("aimaster", "ps-1", False), ("", "worker-2", False), (None, "worker-2", False),
    ("worker-1\n", "worker-1", False), ("worker", "worker", False),
]  # fmt: skip


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = authority.create_certificates(tmp_path_factory.mktemp("certs") / "certs", "job")
    for name in ("worker-1", "ps-0"):
        authority.issue(directory, "job", name)
    return directory


@pytest.mark.parametrize(("certificate", "name", "may"), CASES)
def test_who_may_speak_for_whom(certs: Path, certificate: str | None, name: str, may: bool) -> None:
    assert Speakers(certs).may(certificate, name) is may


def test_without_tls_everybody_speaks_for_everybody() -> None:
    assert Speakers(None).may(None, "ps-0")


def test_a_process_takes_its_own_certificate_else_that_of_its_role_else_that_of_its_kind(
    certs: Path, tmp_path: Path
) -> None:
    assert certificate_for(certs, "worker", 1) == "worker-1"
    assert certificate_for(certs, "worker", 2) == "worker" and certificate_for(certs, "ps", 3) == "ps"
    (tmp_path / "trainer.pem").touch()  # a pod of which nobody knows whether it is the chief
    assert certificate_for(tmp_path, "worker", 0) == "trainer" and certificate_for(None, "chief", 0) == "trainer"
    assert [group_of(name) for name in ("ps-3", "chief", "evaluator-0", "admin")] == [
        "ps",
        "trainer",
        "trainer",
        "admin",
    ]


def test_one_that_cannot_be_written_again_stays_as_it_is(certs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "no space left on device")

    before = (certs / "worker-1.pem").read_bytes()
    monkeypatch.setattr(wholefiles, "draft", full)
    authority.issue(certs, "job", "worker-1")
    assert (certs / "worker-1.pem").read_bytes() == before
    with pytest.raises(OSError, match="no space"):
        authority.issue(certs, "job", "worker-9")


def test_a_disk_with_room_for_the_key_alone_leaves_key_and_certificate_a_pair(
    certs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [certs / "worker-1-key.pem", certs / "worker-1.pem"]
    before, draft = [file.read_bytes() for file in files], wholefiles.draft

    def nearly_full(path: Path, data: bytes, mode: int) -> Path:
        if not path.name.endswith("-key.pem"):
            raise OSError(28, "no space left on device")
        return draft(path, data, mode)

    monkeypatch.setattr(wholefiles, "draft", nearly_full)
    authority.issue(certs, "job", "worker-1")
    assert [file.read_bytes() for file in files] == before


def test_a_damaged_authority_keeps_nobody_from_being_started_again(tmp_path: Path) -> None:
    directory = authority.create_certificates(tmp_path / "certs", "job")
    authority.issue(directory, "job", "worker-1")
    (directory / "ca.pem").write_bytes(b"")
    authority.issue(directory, "job", "worker-1")
    with pytest.raises(OSError, match="is damaged"):
        authority.issue(directory, "job", "worker-2")


def register(name: str, incarnation: str) -> pb.RegisterRequest:
    role, _, index = name.partition("-")
    return pb.RegisterRequest(
        protocol_major=PROTOCOL_MAJOR, job="job", role=role.upper(), index=int(index), incarnation=incarnation,
        address=f"{name}:1", known_task=-1,
    )  # fmt: skip


def test_a_trainer_with_the_secret_of_a_ps_attaches_as_nobody(tmp_path: Path) -> None:
    """With what stood in every view: neither registering, nor the stream, nor a question in its name."""
    certs = str(authority.create_certificates(tmp_path / "certs", "job"))
    for name in ("ps-0", "chief-0", "worker-0", "worker-1"):
        authority.issue(certs, "job", name)

    async def denied(call: object, *words: str) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as found:
            if isinstance(call, grpc.aio.StreamStreamCall):
                async for _ in call:
                    pass
            else:
                await call  # type: ignore[misc]
        assert found.value.code() == grpc.StatusCode.PERMISSION_DENIED, found.value.details()
        for word in words:
            assert re.search(word, found.value.details() or "")

    async def main() -> None:
        it = World(tmp_path, ps=1, workers=1)
        it.backend.stillborn = {"ps-0", "chief-0", "worker-0"}
        master = AIMaster(it.spec, it.backend, certs, settle_seconds=0.1)
        it.master = master
        address = f"127.0.0.1:{await master.start('127.0.0.1:0')}"
        try:
            await it.until(lambda: len(it.backend.pods) == 3)
            async with (
                credentials.open_aio_channel(address, "aimaster.job", "ps-0", certs) as of_ps,
                credentials.open_aio_channel(address, "aimaster.job", "worker-0", certs) as of_worker,
                credentials.open_aio_channel(address, "aimaster.job", "trainer", certs) as of_trainers,
            ):
                reply = await rpc.AgentsStub(of_ps).Register(register("ps-0", "secret"), timeout=10)
                assert reply.view.ps[0].incarnation == public("secret") and reply.aimaster_proof
                await rpc.AgentsStub(of_worker).Register(register("worker-0", "mine"), timeout=10)
                for channel in (of_worker, of_trainers):
                    stub = rpc.AgentsStub(channel)
                    await denied(stub.Register(register("ps-0", "secret"), timeout=10), "may not register ps-0")
                    await denied(stub.Register(register("chief-0", "x"), timeout=10) if channel is of_worker
                                 else stub.Register(register("worker-0", "x"), timeout=10), "may not register")  # fmt: skip
                    stream = stub.Stream(timeout=10)
                    await stream.write(pb.AgentMessage(hello=pb.Hello(incarnation="secret")))
                    await denied(stream, "may not speak for ps-0")
                await denied(rpc.AgentsStub(of_trainers).Missing(pb.MissingRequest(incarnation="mine")), "worker-0")
                reply = await rpc.AgentsStub(of_worker).Missing(pb.MissingRequest(incarnation="mine"))
                assert reply.verdict == pb.MissingReply.LATER
                assert master.job.members.get("ps-0").outbox.generation == 0  # nobody has attached
        finally:
            await master.stop()

    asyncio.run(main())
