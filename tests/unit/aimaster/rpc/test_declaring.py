"""A job whose first size nobody has named begins with what follows from the model that its chief declares."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from deeprec_ext.aimaster.reporting.summary import summarize
from deeprec_ext.aimaster.rpc.server import AIMaster
from deeprec_ext.aimaster.state.declared import estimates_in
from deeprec_ext.autoscaler.history import regression
from deeprec_ext.autoscaler.history.estimates import Estimates
from deeprec_ext.autoscaler.history.history import Finished, NoHistoryError
from deeprec_ext.autoscaler.loop import beginning
from deeprec_ext.autoscaler.model.memory_model import PROCESS_BYTES
from deeprec_ext.autoscaler.observe.features import declared_model, fingerprint_of
from deeprec_ext.history.client import HistoryError
from deeprec_ext.history.places import jobs_of
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security import credentials
from tests.unit.aimaster.world import SETTINGS, World
from tests.unit.autoscaler.history.test_start import MODEL, finished

GB = 10**9
LIMIT = PROCESS_BYTES + 3 * GB
"""Of a PS. Three GB of variables fit, but not with room for anything else."""


STRANGE = dataclasses.replace(MODEL, table_bytes=10**15, batch_size=5e6, lookups_per_step=1e9, flops_per_example=1e12)
"""Like nothing that is declared here."""


def on_a_loop(scenario: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test as a coroutine."""

    @functools.wraps(scenario)
    def test(**fixtures: Any) -> None:
        asyncio.run(scenario(**fixtures))

    return test


def declaration(table_bytes: int, slots: int = 8) -> pb.Declaration:
    """One table, cut over all slots."""
    parts = [
        pb.Variable(
            name=f"table/part_{slot}", saved_name="table", slot=slot, update=pb.Variable.ROWS, bytes=table_bytes // slots,
            shape=[table_bytes // slots // 64, 16],
        )
        for slot in range(slots)
    ]  # fmt: skip
    return pb.Declaration(catalogue=pb.Catalogue(variables=parts), batch_size=128, lookups_per_example=26)


@contextlib.asynccontextmanager
async def starting(
    workdir: Path,
    jobs: Callable[[], list[Finished]] = list,
    queued: set[str] | None = None,
    nodes: str = "",
    **spec: object,
) -> AsyncIterator[World]:
    """A job that has asked for its first pods, of which these find no place yet. `nodes`: of which kind others are than this
    machine."""
    values = {
        "ps": 1, "workers": 0, "max_ps": 4, "max_workers": 4, "max_ps_memory_bytes": LIMIT, "start": "no job has finished yet",
        "settings": dataclasses.replace(SETTINGS, autoscale=True), **spec,
    }  # fmt: skip
    world = World(workdir, **values)
    world.backend.queued |= queued or set()
    world.backend.machine_kind, world.backend.one_host = nodes, not nodes
    world.master = AIMaster(world.spec, world.backend, None, jobs=jobs)
    world.address = f"127.0.0.1:{await world.master.start(world.address)}"
    try:
        await world.until(lambda: {"ps-0", "chief-0"} - world.backend.queued <= set(world.backend.agents))
        yield world
    finally:
        await world.stop()


async def declare(world: World, model: pb.Declaration | None, name: str = "chief-0") -> None:
    """As the process of this name does, until it is heard."""
    why_not = "" if model is not None else "it waits for its cluster"
    request = pb.DeclareRequest(incarnation=world.agent(name).secret, declaration=model, why_not=why_not)
    async with credentials.open_aio_channel(world.address, "aimaster.job", "trainer", None) as channel:
        for _ in range(500):
            try:
                if (await rpc.AgentsStub(channel).Declare(request, timeout=5)).heard:
                    return
            except grpc.aio.AioRpcError as error:  # its store is being rebuilt, or one before it died: come again
                if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                    raise
            await asyncio.sleep(0.01)
    raise AssertionError("it was never heard")


def told(world: World) -> str:
    """Its events, as text."""
    return "\n".join(f"{event[2]} {event[5]}" for event in world.master.job.store.events(0))


@on_a_loop
async def test_ps_for_the_declared_variables_are_there_before_the_first_view(tmp_path: Path) -> None:
    async with starting(tmp_path) as world:
        cluster = world.master.job.cluster
        await asyncio.sleep(0.3)
        assert not world.master.job.cluster.formed, "one PS is there, and the first view waits for the declaration"
        await declare(world, declaration(6 * GB))
        await world.until(lambda: world.master.job.cluster.live)
        cluster = world.master.job.cluster
        assert len(cluster.ps) >= 3 and cluster.epoch == 1 + cluster.live
        assert world.agent("chief-0").registered == 1
        assert not world.master.scalings.ended, "it began with them: nothing was moved"


@on_a_loop
async def test_what_was_estimated_is_kept_for_the_end(tmp_path: Path) -> None:
    async with starting(tmp_path) as world:
        await declare(world, declaration(6 * GB))
        await world.until(lambda: "estimated" in told(world))
        found = summarize(world.master.job.store, status="succeeded", seconds=1.0, roles={})["estimator"]
        (memory,) = found["ps_memory"]
        assert memory["low"] < memory["predicted"] < memory["high"] and memory["role"] == "ps"
        assert memory["used"] is None, "it has not ended"
        assert found["worker_cpu"] == [], "no finished job tells it"


@on_a_loop
async def test_slots_lie_where_bytes_are_balanced_from_the_beginning(tmp_path: Path) -> None:
    sizes = [5, 1, 5, 1, 1, 1, 1, 1]  # of slots; s mod P would give PS 0 twelve of sixteen
    model = declaration(16 * GB // 10)
    for variable, size in zip(model.catalogue.variables, sizes):
        variable.bytes, variable.shape[:] = size * GB // 10, [size * GB // 640, 16]
    async with starting(tmp_path, ps=2, min_ps=2, max_ps=2) as world:
        await declare(world, model)
        await world.until(lambda: world.master.job.cluster.formed)
        load: dict[int, int] = {}
        for slot, task in enumerate(world.master.job.cluster.slot_map):
            load[task] = load.get(task, 0) + sizes[slot]
        assert sorted(load.values()) == [8, 8]


@on_a_loop
async def test_a_small_model_begins_with_the_one_ps_that_is_there(tmp_path: Path) -> None:
    async with starting(tmp_path) as world:
        await declare(world, declaration(GB // 10))
        await world.until(lambda: world.master.job.cluster.live)
        assert [ps.name for ps in world.master.job.cluster.ps] == ["ps-0"]
        assert set(world.backend.everybody) == {"ps-0", "chief-0"}


@on_a_loop
async def test_what_was_started_in_vain_is_taken_away_before_the_first_view(tmp_path: Path) -> None:
    async with starting(tmp_path, ps=3, workers=2, start="2 jobs like it") as world:
        await declare(world, declaration(GB // 10))
        await world.until(lambda: world.master.job.cluster.live)
        assert [ps.name for ps in world.master.job.cluster.ps] == ["ps-0"]
        assert sorted(world.backend.deleted) == ["ps-1", "ps-2", "worker-0", "worker-1"]
        assert not world.master.job.ending and not world.master.job.store.failures()


@on_a_loop
async def test_a_chief_without_a_graph_begins_as_its_script_lets_expect(tmp_path: Path) -> None:
    async with starting(tmp_path, ps=2) as world:
        await declare(world, None)
        await world.until(lambda: world.master.job.cluster.live)
        assert len(world.master.job.cluster.ps) == 2
        assert "declares no model (it waits for its cluster)" in told(world)


@on_a_loop
async def test_a_chief_that_declares_nothing_is_waited_for_within_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beginning, "DECLARE_LIMIT_SECONDS", 0.2)
    async with starting(tmp_path) as world:
        await world.until(lambda: world.master.job.cluster.live)
        assert "no model within 0.2 s" in told(world)


@on_a_loop
async def test_a_chief_that_prepares_its_data_is_waited_for_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beginning, "SAID_SECONDS", 0.2)
    async with starting(tmp_path) as world:
        await world.until(lambda: "the chief has no graph yet, after 0.4 s" in told(world))
        await declare(world, declaration(6 * GB))
        await world.until(lambda: world.master.job.cluster.live)
        assert len(world.master.job.cluster.ps) >= 3


@on_a_loop
async def test_a_chief_that_waits_for_a_node_is_not_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Slurm's queue."""
    monkeypatch.setattr(beginning, "DECLARE_LIMIT_SECONDS", 0.2)
    async with starting(tmp_path, queued={"chief-0"}) as world:
        await asyncio.sleep(0.5)
        assert "no model within" not in told(world)
        world.backend.queued.clear()
        await world.backend.create("chief-0")
        await world.until(lambda: world.master.job.cluster.live)
        assert "no model within 0.2 s" in told(world)


@on_a_loop
async def test_a_history_that_hangs_holds_nobody_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beginning, "READ_SECONDS", 0.2)
    never = threading.Event()
    try:
        async with starting(tmp_path, lambda: never.wait(60) or []) as world:
            await declare(world, declaration(6 * GB))
            await world.until(lambda: world.master.job.cluster.live)
            assert len(world.master.job.cluster.ps) >= 3 and "has not answered within 0.2 s" in told(world)
    finally:
        never.set()


@on_a_loop
async def test_jobs_of_which_nothing_can_be_made_keep_no_ps_from_the_declared_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = beginning.first_size

    def broken(model: Any, limits: Any, history: Any, **words: Any) -> Any:
        if history:
            raise ZeroDivisionError("of a job")
        return real(model, limits, history, **words)

    monkeypatch.setattr(beginning, "first_size", broken)
    monkeypatch.setattr(beginning.Beginning, "_read", lambda self: [finished()])
    async with starting(tmp_path) as world:
        await declare(world, declaration(6 * GB))
        await world.until(lambda: world.master.job.cluster.live)
        assert len(world.master.job.cluster.ps) >= 3, "what is declared counts all the same"
        assert world.master.autoscaler is not None
        (first,) = await world.master.autoscaler.recorded(-1, 1)
        assert "nothing could be made of the finished jobs in time (of a job)" in first


@on_a_loop
async def test_what_a_job_will_use_is_estimated_also_from_jobs_that_its_start_could_not_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And from what is declared alone, where nothing can be made of them at all."""
    real, asked = beginning.first_size, []

    def slow(model: Any, limits: Any, history: Any, **words: Any) -> Any:
        if history:
            raise HistoryError("not in time")
        return real(model, limits, history, **words)

    def none(self: Any, model: Any, size: Any, jobs: Any) -> Any:
        asked.append(len(jobs))
        if jobs:
            raise ZeroDivisionError("of a job")
        return Estimates(size, words=("alone",))

    monkeypatch.setattr(beginning, "first_size", slow)
    monkeypatch.setattr(beginning.Beginning, "_read", lambda self: [finished()])
    monkeypatch.setattr(beginning.Beginning, "_figures", none)
    async with starting(tmp_path) as world:
        await declare(world, declaration(6 * GB))
        await world.until(lambda: len(asked) == 2)
        await world.until(lambda: estimates_in(world.master.job.store) is not None)
        told_of = estimates_in(world.master.job.store)
        assert asked == [1, 0] and told_of is not None and told_of.words == ("alone",)


@on_a_loop
async def test_a_history_that_cannot_be_read_is_told_and_the_job_begins(tmp_path: Path) -> None:
    def broken() -> list[Finished]:
        raise OSError("the disk is gone")

    async with starting(tmp_path, broken) as world:
        await declare(world, declaration(6 * GB))
        await world.until(lambda: world.master.job.cluster.live)
        assert "the disk is gone" in told(world)
        assert len(world.master.job.cluster.ps) >= 3, "what is declared counts all the same"


@pytest.mark.parametrize("content", [b"no database at all", b"SQLite format 3\0" + bytes(4096)])
@on_a_loop
async def test_a_damaged_history_keeps_no_ps_from_the_declared_variables(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "kept" / "history.db"
    file.parent.mkdir()
    file.write_bytes(content)
    async with starting(tmp_path, lambda: jobs_of(file, "train")) as world:
        await declare(world, declaration(6 * GB))
        await world.until(lambda: world.master.job.cluster.live)
        assert len(world.master.job.cluster.ps) >= 3
        assert "the finished jobs cannot be read, the job begins without them" in told(world)
        assert world.master.autoscaler is not None
        (first,) = await world.master.autoscaler.recorded(-1, 1)
        assert "cannot be read" in first and "no job has finished yet" not in first


@on_a_loop
async def test_a_job_without_a_history_says_that_none_is_kept(tmp_path: Path) -> None:
    def none() -> list[Finished]:
        raise NoHistoryError

    async with starting(tmp_path, none) as world:
        await declare(world, declaration(6 * GB))
        await world.until(lambda: world.master.job.cluster.live)
        assert world.master.autoscaler is not None
        (first,) = await world.master.autoscaler.recorded(-1, 1)
        assert "no history of finished jobs is kept, so it starts small" in first
        assert "cannot be read" not in told(world)


@on_a_loop
async def test_what_a_script_nobody_has_changed_will_ask_is_learnt_while_its_chief_starts(tmp_path: Path) -> None:
    """Training waits for its first size: nothing but the question shall be left when the model is declared."""
    mine = declaration(6 * GB)
    jobs = []
    for number in range(8):
        model = declared_model(declaration((6 + number) * GB), 8)
        computed = {"ps_memory_bytes": 7 * GB, "ps_computed_bytes": 7 * GB, "ps_stored_bytes": 6 * GB}
        jobs.append(dataclasses.replace(finished(model, seed=number, number=-number), **computed))
    jobs[0] = dataclasses.replace(jobs[0], fingerprint=fingerprint_of(mine.catalogue))
    learnt = regression._learnt
    learnt.cache_clear()
    async with starting(tmp_path, lambda: jobs, script="train.py") as world:
        await world.until(lambda: learnt.cache_info().currsize == 5)
        assert learnt.cache_info().hits == 0, "three costs, the memory of PS, and the libraries"
        await declare(world, mine)
        await world.until(lambda: world.master.job.cluster.live)
        assert learnt.cache_info().hits >= 4


@on_a_loop
async def test_what_is_declared_again_before_the_first_view_is_heard_once(tmp_path: Path) -> None:
    async with starting(tmp_path) as world:
        await declare(world, declaration(6 * GB))
        await declare(world, declaration(6 * GB))
        await world.until(lambda: world.master.job.cluster.live)
        assert sum(line.startswith("declared ") for line in told(world).splitlines()) == 1


@pytest.mark.parametrize(
    ("jobs", "ground"),
    [
        ([], "no job has finished yet"),
        ([finished(declared_model(declaration(6 * GB), 8), script="other")], "1 job like it"),
        ([finished(STRANGE, script="other")] * 5, "no job like it"),
    ],
)
@on_a_loop
async def test_with_whatever_history_the_declared_variables_have_their_ps_and_the_ground_is_told(
    tmp_path: Path, jobs: list[Finished], ground: str
) -> None:
    async with starting(tmp_path, lambda: jobs, script="train.py") as world:
        await declare(world, declaration(6 * GB))
        await world.until(lambda: world.master.job.cluster.live)
        assert 3 <= len(world.master.job.cluster.ps) <= 4
        assert world.master.autoscaler is not None
        (first,) = await world.master.autoscaler.recorded(-1, 1)
        assert ground in first


@pytest.mark.parametrize(("kind", "there"), [("64 x mine", False), ("2 x other", True)])
@on_a_loop
async def test_jobs_on_nodes_like_the_chiefs_are_jobs_of_this_kind_of_machine(
    tmp_path: Path, kind: str, there: bool
) -> None:
    jobs = [
        dataclasses.replace(finished(declared_model(declaration(6 * GB), 8), script="train.py"), machine="64 x mine")
    ]
    async with starting(tmp_path, lambda: jobs, script="train.py", nodes=kind) as world:
        await declare(world, declaration(6 * GB))
        await world.until(lambda: world.master.job.cluster.live)
        assert world.master.autoscaler is not None
        (first,) = await world.master.autoscaler.recorded(-1, 1)
        assert ("another kind of machine" in first) == there
        assert world.master.job.store.get("machine_kinds") == [kind]


@on_a_loop
async def test_only_the_chief_is_heard_and_only_what_can_be(tmp_path: Path) -> None:
    async with starting(tmp_path) as world:
        job = world.master.job
        await declare(world, declaration(6 * GB), name="ps-0")
        assert not job.declared.heard and "ps-0" in {one.name for one in job.suspects.all}
        wrong = declaration(GB)
        wrong.catalogue.variables[0].slot = 8
        await declare(world, wrong)
        assert job.declared.heard and job.declared.model is None


@on_a_loop
async def test_a_job_whose_size_was_named_waits_for_nothing_and_keeps_what_is_declared(tmp_path: Path) -> None:
    async with starting(tmp_path, start="") as world:
        await world.until(lambda: world.master.job.cluster.live)
        await declare(world, declaration(6 * GB))
        assert world.master.job.declared.model is not None and len(world.master.job.cluster.ps) == 1


@on_a_loop
async def test_the_decision_tells_what_it_rests_on(tmp_path: Path) -> None:
    async with starting(tmp_path) as world:
        await declare(world, declaration(6 * GB))
        await world.until(lambda: world.master.job.cluster.live)
        assert world.master.autoscaler is not None
        (first,) = await world.master.autoscaler.recorded(-1, 1)
        assert "variables of 6.0 GB, 128 examples a step" in first
        assert "declared {" in told(world)


@pytest.mark.parametrize("before", [False, True], ids=["declared after", "declared before"])
@on_a_loop
async def test_an_aimaster_that_comes_back_before_the_first_view_still_decides(tmp_path: Path, before: bool) -> None:
    async with starting(tmp_path, jobs=lambda: time.sleep(0.5) or []) as world:
        if before:
            await declare(world, declaration(6 * GB))
        await world.crash()
        world.master = AIMaster(world.spec, world.backend, None, settle_seconds=0.5, jobs=list)
        await world.master.start(world.address)
        if not before:
            await asyncio.sleep(0.3)
            assert not world.master.job.cluster.formed, "who registers again makes no view"
            await declare(world, declaration(6 * GB))
        await world.until(lambda: world.master.job.cluster.live)
        assert len(world.master.job.cluster.ps) >= 3
