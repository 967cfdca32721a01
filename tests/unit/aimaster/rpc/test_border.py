"""Nobody's word is taken: what is out of range, what is another's to say, and what breaks a handler."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc.aio
import pytest

from deeprec_ext.aimaster.ledger.ledger import Ledger
from deeprec_ext.aimaster.reporting.summary import summarize
from deeprec_ext.aimaster.rpc.border import Border
from deeprec_ext.proto import PROTOCOL_MAJOR
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security import authority, credentials
from deeprec_ext.security.incarnations import public
from deeprec_ext.security.proofs import Proofs
from tests.unit.aimaster.world import World, world


def play(workdir: Path, scenario: Callable[[World], Awaitable[None]], **given: object) -> None:
    async def main() -> None:
        async with world(workdir, **given) as it:
            await it.training()
            await scenario(it)
            assert not it.master.broken.is_set() and not it.master.job.ending

    asyncio.run(main())


def events(it: World, type_: str) -> list[dict[str, object]]:
    return [{"role": row[3], **json.loads(row[5])} for row in it.master.job.store.events(0, 100_000) if row[2] == type_]


async def status_of(it: World, name: str) -> pb.RoleStatus:
    return next(role for role in (await it.status()).roles if role.name == name)


async def said(it: World, name: str, **message: object) -> None:
    """A stream of its own with the secret of this agent, as a broken process of it would have; raises what ends it."""
    agent = it.agent(name)
    async with credentials.open_aio_channel(it.address, "aimaster.job", "trainer", None) as channel:
        call = rpc.AgentsStub(channel).Stream()
        await call.write(pb.AgentMessage(hello=pb.Hello(incarnation=agent.secret)))
        await call.write(pb.AgentMessage(**message))
        async for _ in call:
            pass


def test_what_is_out_of_range_closes_that_stream_and_names_its_role(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as found:
            await said(it, "worker-0", heartbeat=pb.Heartbeat(step=-5))
        assert found.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert found.value.details() == "worker-0: heartbeat.step is -5, must be 0 to 9007199254740992 steps"
        worker = await status_of(it, "worker-0")
        assert worker.suspect == "heartbeat.step is -5, must be 0 to 9007199254740992 steps"
        assert not (await status_of(it, "chief-0")).suspect
        assert [one["role"] for one in events(it, "suspect")] == ["worker-0"]
        it.agent("worker-0").break_stream()  # the agent itself connects again and goes on
        before = it.master.job.members.get("worker-0").heartbeat.step
        await it.until(lambda: it.master.job.members.get("worker-0").heartbeat.step > before + 2)
        assert not it.backend.deleted
        summary = summarize(it.master.job.store, status="succeeded", seconds=1.0, roles={})
        [(name, told)] = summary["suspects"].items()
        assert (name, told["what"], told["offences"]) == ("worker-0", worker.suspect, 1) and told["time"] > 0

    play(tmp_path, scenario)


def test_a_suspect_stays_one_over_a_restart_and_no_longer_than_its_process(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        with pytest.raises(grpc.aio.AioRpcError):
            await said(it, "worker-0", heartbeat=pb.Heartbeat(step_seconds=math.nan))
        await it.crash()
        await it.start()
        await it.until(lambda: it.master.job.members.get("worker-0") is not None)
        assert "step_seconds is nan" in (await status_of(it, "worker-0")).suspect
        await it.backend.kill("worker-0")
        await it.until(lambda: not it.master.job.suspects.of("worker-0"))

    play(tmp_path, scenario)


def test_an_unary_call_out_of_range_is_refused(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        async with credentials.open_aio_channel(it.address, "aimaster.job", "trainer", None) as channel:
            stub = rpc.AgentsStub(channel)
            with pytest.raises(grpc.aio.AioRpcError) as found:
                await stub.Register(pb.RegisterRequest(role=pb.WORKER, incarnation="x", known_aimaster=2**62))
            assert found.value.code() == grpc.StatusCode.INVALID_ARGUMENT and "known_aimaster" in found.value.details()
            with pytest.raises(grpc.aio.AioRpcError) as found:
                await rpc.AdminStub(channel).Series(pb.SeriesRequest(since=math.nan))
            assert found.value.code() == grpc.StatusCode.INVALID_ARGUMENT

    play(tmp_path, scenario)


@pytest.mark.parametrize("claim", [{"known_aimaster": 1_000_000}, {"known_aimaster": 2**31 - 1, "known_epoch": 9}])
def test_who_claims_to_know_a_newer_aimaster_without_proof_ends_none(tmp_path: Path, claim: dict[str, int]) -> None:
    async def scenario(it: World) -> None:
        agent = it.agent("worker-0")
        request = pb.RegisterRequest(
            protocol_major=PROTOCOL_MAJOR, job="job", role=pb.WORKER, incarnation=agent.secret, **claim
        )
        async with credentials.open_aio_channel(it.address, "aimaster.job", "trainer", None) as channel:
            for proof in (b"", Proofs("job", None).make(1), b"x" * 32):
                request.aimaster_proof = proof
                with pytest.raises(grpc.aio.AioRpcError) as found:
                    await rpc.AgentsStub(channel).Register(request, timeout=5)
                assert "not believed" in found.value.details()
        assert not it.master.job.stale.is_set()

    play(tmp_path, scenario)


def test_a_proof_is_good_for_its_incarnation_and_its_job_alone(tmp_path: Path) -> None:
    certs = authority.create_certificates(tmp_path / "certs", "job")
    proofs = Proofs("job", certs)
    assert proofs.holds(3, proofs.make(3)) and Proofs("job", certs).holds(3, proofs.make(3))
    assert not proofs.holds(4, proofs.make(3)) and not Proofs("other", certs).holds(3, proofs.make(3))
    assert not proofs.holds(3, b"") and not Proofs("job", tmp_path).holds(3, b"")


def test_views_and_store_have_no_secret(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        secrets = [agent.secret for agent in it.backend.agents.values()]
        view, status = it.master.job.view(), await it.status()
        assert {ps.incarnation for ps in view.ps} == {public(it.agent(ps.name).secret) for ps in view.ps}
        it.master.job.store.checkpoint()
        stored = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
        told = view.SerializeToString() + status.SerializeToString() + stored
        assert not [secret for secret in secrets if secret.encode() in told]
        async with credentials.open_aio_channel(it.address, "aimaster.job", "trainer", None) as channel:
            call = rpc.AgentsStub(channel).Stream()
            await call.write(pb.AgentMessage(hello=pb.Hello(incarnation=view.ps[0].incarnation)))
            with pytest.raises(grpc.aio.AioRpcError) as found:
                async for _ in call:
                    pass
            assert found.value.code() == grpc.StatusCode.NOT_FOUND

    play(tmp_path, scenario)


def test_a_metric_that_is_no_number_is_told_as_a_word(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        told = {"loss": 0.5, "auc": 0.7, "val_auc": 0.7}  # of a validation
        await it.agent("chief-0").say(metrics=pb.MetricsReport(metrics=told, step=3))
        await it.agent("chief-0").say(metrics=pb.MetricsReport(metrics={"loss": math.nan, "norm": math.inf}, step=4))
        await it.until(lambda: len(events(it, "metrics")) == 2)
        first, second = events(it, "metrics")
        assert first["metrics"] == {"loss": 0.5, "val_auc": 0.7}
        assert (second["metrics"], second["not_finite"]) == ({}, {"loss": "nan", "norm": "inf"})
        assert dict((await it.status()).metrics) == {"auc": 0.7, "val_auc": 0.7}
        assert "loss is nan, norm is inf at step 4" in str(events(it, "warning")[0]["text"])
        assert not (await status_of(it, "chief-0")).suspect
        for line in (tmp_path / "events.jsonl").read_text().splitlines():
            json.loads(line, parse_constant=lambda word: pytest.fail(word))

    play(tmp_path, scenario)


def test_a_step_that_cannot_have_been_made_moves_no_figure(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        worker = it.agent("worker-0")
        worker.mute.add("heartbeat")
        await worker.say(heartbeat=pb.Heartbeat(step=2**53, examples=2**50, training=True))
        await it.until(lambda: bool(it.master.job.suspects.of("worker-0")))
        await worker.say(trouble=pb.PsTrouble(tasks=[0, 77], step=2**53))
        await it.until(lambda: bool(events(it, "trouble")))
        assert events(it, "trouble")[0]["tasks"] == [0]
        assert (await it.status()).step < 10**6
        it.master.job.members.flush()
        assert it.master.job.store.get("step") < 10**6 and it.master.job.store.examples() < 10**9

    play(tmp_path, scenario)


def test_a_worker_does_not_speak_for_the_chief_nor_end_the_job(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        job, worker = it.master.job, it.agent("worker-0")
        await it.until(lambda: {"chief-0", "worker-0"} <= job.members.trained)
        await worker.say(refusal=pb.Refusal(reason="I do not like it"))
        await it.until(lambda: bool(events(it, "refusal")))
        assert not job.ending and "refuses what others do not" in job.suspects.of("worker-0")
        await worker.say(live=pb.ModelLive(generation=job.cluster.generation, step=7, ledger=b"no position"))
        await worker.say(backup_wish=pb.BackupWish(disk_path="/etc"))
        await worker.say(passes=pb.PassReport(json="{"))
        await worker.say(metrics=pb.MetricsReport(metrics={"done": 1}))
        await it.until(lambda: bool(events(it, "metrics")))
        assert not job.choices.disk_path and job.store.blob("passes") == b""

    play(tmp_path, scenario)


def test_a_script_that_refuses_in_the_next_process_too_ends_the_job(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        job = it.master.job
        await it.until(lambda: {"chief-0", "worker-0"} <= job.members.trained)
        await it.agent("worker-0").say(refusal=pb.Refusal(reason="its graph is another one"))
        await it.until(lambda: bool(events(it, "refusal")))
        await it.backend.kill("worker-0")
        await it.until(lambda: it.agent("worker-0").call is not None)
        await it.agent("worker-0").say(refusal=pb.Refusal(reason="its graph is another one"))
        await it.until(lambda: job.ending == "failed")
        assert job.failure == "its graph is another one"
        job.ending = ""

    play(tmp_path, scenario)


def test_another_model_of_a_worker_costs_that_worker_its_process(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        job, dense = it.master.job, pb.Variable.DENSE
        await it.until(lambda: {"chief-0", "worker-0"} <= job.members.trained)
        beyond = pb.Variable(name="x", slot=99, bytes=4, update=dense)
        await it.agent("worker-0").say(catalogue=pb.Catalogue(variables=[beyond], fingerprint="beyond"))
        await it.until(lambda: "slot 99" in job.suspects.of("worker-0"))
        assert not it.backend.deleted and "x" not in {one.name for one in job.catalogues.known.variables}
        other = pb.Variable(name="dense3", slot=4, bytes=100, update=dense, shape=[25])
        await it.agent("worker-0").say(catalogue=pb.Catalogue(variables=[other], fingerprint="other"))
        await it.until(lambda: "worker-0" in it.backend.deleted)

    play(tmp_path, scenario)


def test_a_script_may_have_disk_backups_below_the_run_directory_alone(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        chief, job = it.agent("chief-0"), it.master.job
        for path in ("/etc/cron.d", "../outside", "beside", "hdfs://other/place", f"{tmp_path}/../x"):
            await chief.say(backup_wish=pb.BackupWish(disk_path=path, disk_seconds=1 + len(path)))
            await it.until(lambda: any(path in str(one["text"]) for one in events(it, "warning")))  # noqa: B023
            assert not job.choices.disk_path
        await chief.say(backup_wish=pb.BackupWish(disk_path=str(tmp_path / "backups"), disk_seconds=1))
        await it.until(lambda: job.choices.disk_path == str(tmp_path / "backups"))

    play(tmp_path, scenario)


def test_a_request_out_of_range_reaches_no_handler_also_where_its_caller_has_gone() -> None:
    class Gone:
        """The context of a call that has ended meanwhile: it can be ended no more."""

        async def abort(self, *_: object) -> None:
            raise grpc.aio.UsageError("the call has ended")

        def auth_context(self) -> dict[str, list[bytes]]:
            return {}

    seen: list[object] = []

    async def found_by(details: grpc.HandlerCallDetails) -> object:
        async def reached(request: object, context: object) -> object:
            seen.append(request)
            return pb.PodReply()

        return grpc.unary_unary_rpc_method_handler(reached)

    async def scenario() -> None:
        details = type("Details", (), {"method": "/deeprec_ext.v1.Launcher/Delete"})
        handler = await Border().intercept_service(found_by, details)
        for seconds in (1.0, math.nan):
            await handler.unary_unary(pb.PodRequest(name="ps-0", grace_seconds=seconds), Gone())

    asyncio.run(scenario())
    assert seen == [pb.PodRequest(name="ps-0", grace_seconds=1.0)]


@pytest.mark.parametrize("error, told", [(grpc.aio.InternalError("gone"), []), (KeyError("x"), ["KeyError"])])
def test_a_caller_that_is_gone_is_no_defect_of_a_handler(error: Exception, told: list[str]) -> None:
    class Context:
        async def abort(self, *_: object) -> None: ...

    async def fails(requests: object, context: object) -> None:
        raise error

    async def found_by(details: grpc.HandlerCallDetails) -> object:
        return grpc.stream_stream_rpc_method_handler(fails)

    failed: list[str] = []

    async def scenario() -> None:
        details = type("Details", (), {"method": "/deeprec_ext.v1.Agents/Stream"})
        border = Border(failed=lambda method, found: failed.append(type(found).__name__))
        await (await border.intercept_service(found_by, details)).stream_stream(None, Context())

    asyncio.run(scenario())
    assert failed == told


def test_an_error_in_a_handler_is_told_and_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("on purpose")

    async def scenario(it: World) -> None:
        monkeypatch.setattr(Ledger, "receive", broken)
        for _ in range(5):
            await it.agent("worker-0").say(data=pb.DataRequest(dataset="d"))
        await it.until(lambda: bool(events(it, "handler_failed")))
        assert events(it, "handler_failed")[0]["what"] == "data of worker-0"
        monkeypatch.setattr(Ledger, "position", broken)
        async with credentials.open_aio_channel(it.address, "aimaster.job", "trainer", None) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as found:
                await rpc.AgentsStub(channel).Position(pb.PositionRequest())
        assert found.value.code() == grpc.StatusCode.INTERNAL and "ZeroDivisionError" in found.value.details()
        assert {"/deeprec_ext.v1.Agents/Position"} <= {str(one["what"]) for one in events(it, "handler_failed")}

    play(tmp_path, scenario)
