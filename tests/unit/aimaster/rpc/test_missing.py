"""A trainer says that variables are gone: the PS are asked, and only what was trained and is gone restores the model."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security import credentials
from tests.unit.aimaster.scaling.test_queue import play
from tests.unit.aimaster.world import FakeAgent, World, catalogue

LATER, THERE = pb.MissingReply.LATER, pb.MissingReply.THERE
INITIALISE, RESTORE = pb.MissingReply.INITIALISE, pb.MissingReply.RESTORE


def without(it: World, *names: str) -> None:
    """PS that have all variables but these."""
    missing = list(names)

    def answer(agent: FakeAgent, command: pb.Command) -> pb.Ack:
        asked = [one.name for one in command.look.variables]
        return pb.Ack(copy=pb.CopyResult(skipped=[name for name in asked if name in missing]))

    it.answers = answer


async def trained(it: World) -> None:
    """The chief has told its variables with their names in a checkpoint."""
    known = catalogue()
    for variable in known.variables:
        variable.saved_name = variable.name
    known.fingerprint = "trained"
    await it.agent("chief-0").say(catalogue=known)
    await it.until(lambda: it.master.job.catalogue.fingerprint == "trained")


async def ask(it: World, who: str, *names: str, epoch: int = 0, generation: int = 1) -> pb.MissingReply:
    request = pb.MissingRequest(
        incarnation=it.agent(who).secret, variables=names, generation=generation,
        epoch=epoch or it.master.job.cluster.epoch,
    )  # fmt: skip
    async with credentials.open_aio_channel(it.address, "aimaster.job", "trainer", None) as channel:
        return await rpc.AgentsStub(channel).Missing(request, timeout=5)


@pytest.mark.parametrize("who", ["chief-0", "worker-0"])
def test_the_loss_of_what_was_trained_begins_another_generation_and_is_told(tmp_path: Path, who: str) -> None:
    async def scenario(it: World) -> None:
        await trained(it)
        without(it, "dense3")
        it.agent("chief-0").step = 500
        await it.until(lambda: it.master.job.members.step >= 500)
        assert (await ask(it, who, "dense3", "dense2")).verdict == RESTORE
        await it.until(lambda: it.master.job.cluster.generation == 2 and it.master.job.cluster.live)
        failure = it.master.job.store.failures()[-1]
        assert (failure.name, failure.cause, failure.recovered_by) == ("ps-1", "lost dense3", "checkpoint")
        assert failure.steps_lost >= 495, "the fake chief has restored step 5"
        assert await it.master.job.changed.until(lambda: it.master.job.members.step < 500, 5)
        assert [ps.name for ps in it.master.job.cluster.ps] == ["ps-0", "ps-1"]

    play(tmp_path, scenario)


def test_nothing_is_restored_when_the_ps_have_it(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await trained(it)
        without(it)
        assert (await ask(it, "chief-0", "dense3")).verdict == THERE
        assert it.master.job.cluster.generation == 1

    play(tmp_path, scenario)


def test_the_chief_alone_initialises_what_nobody_has_trained(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await trained(it)
        without(it, "new", "early", "not saved")
        early = pb.Variable(name="early", slot=1, bytes=4, shape=[1], saved_name="early")
        bare = pb.Variable(name="not saved", slot=1, bytes=4, shape=[1], update=pb.Variable.DENSE)
        await it.agent("chief-0").say(catalogue=pb.Catalogue(variables=[early, bare], fingerprint="more"))
        await it.until(lambda: "more" in it.master.job.catalogues.told(1))
        reply = await ask(it, "chief-0", "new", "early", "dense2", "not saved")
        assert (reply.verdict, list(reply.variables)) == (INITIALISE, ["early", "new", "not saved"])
        assert (await ask(it, "worker-0", "early", "dense2")).verdict == LATER
        assert (await ask(it, "worker-0", "a lookup table")).verdict == THERE
        assert it.master.job.cluster.generation == 1

    play(tmp_path, scenario)


def test_who_speaks_of_another_cluster_than_the_present_one_is_to_look_again(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await trained(it)
        without(it, "dense3")
        epoch = it.master.job.cluster.epoch
        assert (await ask(it, "chief-0", "dense3", epoch=epoch - 1)).verdict == LATER
        assert (await ask(it, "chief-0", "dense3", generation=2)).verdict == LATER
        it.backend.stillborn.add("ps-2")
        it.agent("ps-0").mute.add("FIRST")
        await it.scale(ps=1)
        await it.until(lambda: it.master.job.lock.held(Hold.DECISION))
        assert (await ask(it, "chief-0", "dense3")).verdict == LATER
        await it.ended()
        assert it.master.job.cluster.generation == 1

    play(tmp_path, scenario)


def test_many_that_fail_of_one_loss_begin_one_generation(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await trained(it)
        without(it, "dense3")
        who = ["chief-0", "worker-0"] * 10
        replies = await asyncio.gather(*(ask(it, name, "dense3") for name in who))
        assert {one.verdict for one in replies} <= {RESTORE, LATER}
        assert RESTORE in {one.verdict for one in replies}
        await it.until(lambda: it.master.job.cluster.generation == 2 and it.master.job.cluster.live)
        assert len(it.master.job.store.failures()) == 1
        assert sum(agent.told.count("look") for agent in it.backend.agents.values()) == 1

    play(tmp_path, scenario)
