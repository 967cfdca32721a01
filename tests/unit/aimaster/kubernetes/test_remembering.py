"""How a TFJob begins by the history of its cluster, and what is added at its end; and that no history keeps it from either."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import math
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from deeprec_ext.aimaster.kubernetes import remembering
from deeprec_ext.aimaster.kubernetes.remembering import Remembering, script_of
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.history import client
from deeprec_ext.history.client import Service
from deeprec_ext.options import JobSpec, Settings
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.kubernetes.fake_api import PODS, ForbiddenError
from tests.unit.aimaster.kubernetes.test_running import IN_STEP, Cluster, play, tfjob
from tests.unit.aimaster.rpc.test_declaring import GB, LIMIT, declaration, declare
from tests.unit.aimaster.world import SETTINGS
from tests.unit.autoscaler.history.test_finished import in_step
from tests.unit.autoscaler.history.test_start_in_step import finished as finished_in_step
from tests.unit.history.jobs import FINISHED, window
from tests.unit.history.jobs import job as finished
from tests.unit.history.serving import Serving, serving
from tests.unit.history.test_service import Liar, answering
from tests.unit.launch.test_history import workdir  # noqa: F401 # a fixture
from tfjob.model.kinds import TFJOBS, Manifest, Resource
from tfjob.model.names import SCALED_TO_ANNOTATION
from tfjob.model.spec import TFJob

SIZES = (window(1, 0, 100.0), window(1, 1, 199.0), window(1, 2, 298.0), window(1, 3, 396.0), window(2, 3, 400.0))
"""Each worker brings as much as the first; a second PS nothing."""

MARKS = {"aimaster.deeprec.io/history": "true", "aimaster.deeprec.io/autoscale": "true"}
AUTOSCALED = {"settings": dataclasses.replace(SETTINGS, autoscale=True), "max_workers": 3, "max_ps": 4}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Serving]:
    with serving(f"sqlite:///{tmp_path}/history.db", tmp_path) as found:
        yield found


def remembers(service: Serving, directory: Path, namespace: str = "team", **changes: Any) -> list[str]:
    """An AIMaster's words, with which it finds four jobs of this namespace."""
    writer = service.writer(namespace, directory)
    for number in range(4):
        writer.add(f"u{number}", finished(number, **{"windows": SIZES, "script": "train.py", **changes}))
    return ["--history", f"127.0.0.1:{service.port}", "--history-certs", str(directory)]


def names_of(it: Cluster) -> list[str]:
    return [name.partition("-")[2] for name in it.api.names(PODS)]


def told(it: Cluster) -> list[str]:
    """Of the history, in the TFJob's Events."""
    said = [message for kind, reason, message in it.api.told() if (kind, reason) == ("Normal", "Notice")]
    return [message for message in said if message.startswith("aimaster: ")]


def requests(it: Cluster, name: str) -> Any:
    return it.api.objects["pods", f"ctr-{name}"]["spec"]["containers"][0].get("resources")


def test_a_job_begins_with_what_jobs_of_its_script_needed(tmp_path: Path, service: Serving) -> None:
    words = remembers(service, tmp_path / "certs")

    async def test(it: Cluster) -> None:
        it.words, it.more = words, AUTOSCALED
        serving = it.aimaster()
        await it.trains(4)
        assert [name for name in names_of(it) if not name.startswith("chief")] == [
            "ps-0", "worker-0", "worker-1", "worker-2",
        ]  # fmt: skip
        for _ in range(500):
            if it.annotations.get(SCALED_TO_ANNOTATION):
                break
            await asyncio.sleep(0.01)
        specs = it.api.objects["tfjobs", "ctr"]["spec"]["tfReplicaSpecs"]
        assert json.loads(it.annotations[SCALED_TO_ANNOTATION]) == {"PS": 1, "Worker": 3}
        assert (specs["PS"]["replicas"], specs["Worker"]["replicas"]) == (1, 3), "the TFJob says what runs"
        assert not (await it.status()).scalings, "what was written is no request"
        decided = [json.loads(line) for line in (tmp_path / "pod-1" / "decisions.jsonl").read_text().splitlines()]
        assert "history of the cluster: 4 jobs like it" in json.dumps(decided[0])
        assert requests(it, "ps-0") == {"requests": {"cpu": "360m", "memory": str(5 << 29)}}
        for name in ("chief-0", "worker-2"):
            assert requests(it, name) == {"requests": {"cpu": "1080m", "memory": str(5 << 28)}}
        (said,) = told(it)
        assert said == (
            "aimaster: each PS requests 0.36 cores and 2.7 GB, each trainer requests 1.08 cores and 1.3 GB: what 4 jobs like "
            "it used, and 20% more CPU, 25% more memory; no limit holds them to it"
        )
        assert said.partition(": ")[2] in [one.notice.text for one in (await it.status()).notices]
        specs["PS"]["replicas"] = 2
        it.api.change(TFJOBS, "ctr", {"spec": {"tfReplicaSpecs": {"PS": {"replicas": 2}}}})
        await it.committed()  # what its user writes afterwards is one
        assert requests(it, "ps-1") == requests(it, "ps-0")
        it.backend.exit("chief-0", 0)
        assert await serving == 0

    play(tmp_path, test, **MARKS)


ROOM = {**AUTOSCALED, "max_ps_memory_bytes": LIMIT}


async def decided(it: Cluster, directory: Path) -> str:
    """The first decision, once the TFJob says what runs."""
    for _ in range(500):
        if it.annotations.get(SCALED_TO_ANNOTATION):
            break
        await asyncio.sleep(0.01)
    return (directory / "decisions.jsonl").read_text().splitlines()[0]


@pytest.mark.parametrize("remembered", [False, True])
def test_the_declared_variables_have_their_ps_before_the_first_view(
    tmp_path: Path, service: Serving, remembered: bool
) -> None:
    """Six GB, of which a PS may have three: with a history that knows the script, and without one."""
    words = remembers(service, tmp_path / "certs") if remembered else []

    async def test(it: Cluster) -> None:
        it.words, it.more, it.model = words, ROOM, declaration(6 * GB)
        it.backend.late.add("worker-0")  # type: ignore[attr-defined] # it joins a view of its own: that moves nothing
        serving = it.aimaster()
        await it.trains(2)
        first = await decided(it, tmp_path / "pod-1")
        assert "variables of 6" in first, "by what the chief has declared"
        sizes = json.loads(it.annotations[SCALED_TO_ANNOTATION])
        assert sizes["PS"] >= 3 and len([name for name in names_of(it) if name.startswith("ps-")]) == sizes["PS"]
        with contextlib.closing(Store(tmp_path / "pod-1" / "aimaster.db", read_only=True)) as store:
            views = [pb.View.FromString(row[0]) for row in store.rows("SELECT view FROM views ORDER BY epoch")]
        assert not (await it.status()).scalings and len(views[0].ps) == sizes["PS"], "it began with them"
        assert len({(one.generation, *one.slot_map) for one in views}) == 1, "nothing was moved"
        assert all(one.workers for one in views[1:]), "and no view was made for nothing"
        if remembered:
            assert "like it" in first or "nearest of its script" in first
        else:
            assert sizes["Worker"] == 1, "as it is written: nobody knows more"
        it.backend.exit("chief-0", 0)
        assert await serving == 0
        found = json.loads((tmp_path / "pod-1" / "summary.json").read_text())["estimator"]
        (memory,) = found["ps_memory"]
        assert memory["role"] == "ps" and memory["low"] < memory["predicted"] < memory["high"]

    play(tmp_path, test, **MARKS)


def test_nothing_written_is_taken_away_from_a_job_whose_like_nobody_has_seen(tmp_path: Path) -> None:
    async def test(it: Cluster) -> None:
        it.more, it.model = ROOM, declaration(GB // 10)
        serving = it.aimaster()
        await it.trains()
        assert names_of(it) == ["chief-0", "ps-0", "ps-1", "worker-0"]
        assert "no history of finished jobs is kept" in await decided(it, tmp_path / "pod-1")
        it.backend.exit("chief-0", 0)
        assert await serving == 0

    play(tmp_path, test, **MARKS)


def test_pods_made_after_the_declaration_request_what_it_says(tmp_path: Path, service: Serving) -> None:
    """ps-0 was made by what jobs of the script had used, ps-3 by what the variables need."""
    words = remembers(service, tmp_path / "certs")

    async def test(it: Cluster) -> None:
        it.words, it.more, it.model = words, ROOM, declaration(6 * GB)
        serving = it.aimaster()
        await it.trains(2)
        await decided(it, tmp_path / "pod-1")
        before, after = (int(requests(it, name)["requests"]["memory"]) for name in ("ps-0", "ps-3"))
        assert before == 5 << 29 < after <= LIMIT
        assert any("follows from the declared variables" in text for text in told(it))
        it.backend.exit("chief-0", 0)
        assert await serving == 0

    play(tmp_path, test, **MARKS)


def test_an_aimaster_that_dies_before_the_declaration_is_followed_by_one_that_waits_for_it(tmp_path: Path) -> None:
    async def test(it: Cluster) -> None:
        it.more, it.model, it.silent = ROOM, declaration(6 * GB), True
        first = it.aimaster()
        for _ in range(600):
            if len(it.backend.agents) == 4:
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        first.cancel()
        await asyncio.wait([first])
        second = it.aimaster()
        await declare(it, it.model)
        await it.trains()
        assert json.loads((tmp_path / "pod-2" / "decisions.jsonl").read_text().splitlines()[0])
        assert len([name for name in names_of(it) if name.startswith("ps-")]) >= 3
        it.backend.exit("chief-0", 0)
        assert await second == 0

    play(tmp_path, test, **MARKS)


def test_requests_outlive_the_aimaster_and_are_given_up_for_good(tmp_path: Path, service: Serving) -> None:
    words = remembers(service, tmp_path / "certs")

    async def test(it: Cluster) -> None:
        it.words, it.more = words, AUTOSCALED
        first = it.aimaster()
        await it.trains(4)
        first.cancel()
        await asyncio.wait([first])
        it.words = []  # whatever the history would say by now
        second = it.aimaster()
        await it.trains(4)
        await it.scale(ps=2)
        await it.committed()
        assert requests(it, "ps-1") == requests(it, "ps-0") == {"requests": {"cpu": "360m", "memory": str(5 << 29)}}
        create = it.api.create

        async def strict(resource: Resource, namespace: str | None, body: Manifest) -> Manifest:
            if resource is PODS and body["spec"]["containers"][0].get("resources"):
                raise ForbiddenError(403, "Forbidden", "exceeded quota: requests.cpu")
            return await create(resource, namespace, body)

        it.api.create = strict  # type: ignore[method-assign]
        await it.scale(ps=3)
        for _ in range(800):
            if [one.outcome for one in (await it.status()).scalings] == ["committed"] * 2:
                break
            await asyncio.sleep(0.01)
        assert requests(it, "ps-2") is None
        assert any("given up: ps-2 was refused with them: exceeded quota" in text for text in told(it))
        second.cancel()
        await asyncio.wait([second])
        it.api.create = create  # type: ignore[method-assign]
        third = it.aimaster()
        await it.trains(4)
        await it.scale(ps=4)
        for _ in range(800):
            if "ps-3" in names_of(it):
                break
            await asyncio.sleep(0.01)
        assert requests(it, "ps-3") is None
        it.backend.exit("chief-0", 0)
        assert await third == 0

    play(tmp_path, test, **MARKS)


@pytest.mark.parametrize(
    "what", ["other namespace", "other script", "not annotated to autoscale", "jobs without sizes"]
)
def test_a_job_begins_as_written_where_the_history_says_nothing_of_it(
    tmp_path: Path, service: Serving, what: str
) -> None:
    changes = {"other script": {"script": "rank"}, "jobs without sizes": {"windows": ()}}.get(what, {})
    namespace = "ads" if what == "other namespace" else "team"
    words = remembers(service, tmp_path / "certs", namespace, **changes)
    if what == "other namespace":
        service.writer("team", tmp_path / "mine")
        words[-1] = str(tmp_path / "mine")

    async def test(it: Cluster) -> None:
        it.words = words
        it.more = {} if "autoscale" in what else AUTOSCALED
        serving = it.aimaster()
        await it.trains()
        assert names_of(it) == ["chief-0", "ps-0", "ps-1", "worker-0"]
        it.backend.exit("chief-0", 0)
        assert await serving == 0

    play(tmp_path, test, **MARKS)


def test_a_job_without_ps_begins_with_what_such_jobs_of_its_script_needed_and_is_scaled_from_there(
    tmp_path: Path, service: Serving
) -> None:
    words = remembers(service, tmp_path / "certs")  # of jobs with PS, which say nothing of it
    writer = Service("127.0.0.1", service.port, tmp_path / "certs")
    for number in range(4):
        one = dataclasses.replace(finished_in_step(0, 1, 2), name=f"ring-{number}", finished=FINISHED + number)
        writer.add(f"ring-{number}", one)

    async def test(it: Cluster) -> None:
        it.words, it.more, it.silent = words, {"settings": AUTOSCALED["settings"], "max_workers": 3}, True
        serving = it.aimaster()
        await it.trains(3)
        assert names_of(it) == ["chief-0", "worker-0", "worker-1"]
        await noted(it, 2)
        first = (tmp_path / "pod-1" / "decisions.jsonl").read_text().splitlines()[0]
        assert "the job starts with 2 workers: from the history of the cluster: 4 jobs like it" in first
        assert not (await it.status()).scalings, "what was written is no request"
        assert requests(it, "worker-1") == requests(it, "chief-0") == {
            "requests": {"cpu": "1080m", "memory": str(math.ceil(1.25 * 3 * 64) << 24)}
        }  # fmt: skip
        (said,) = told(it)
        assert said.startswith("aimaster: each trainer requests 1.08 cores and ") and "PS" not in said
        await it.scale(workers=3)  # as a decision would
        await it.committed()
        await noted(it, 3)
        assert it.api.objects["tfjobs", "ctr"]["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] == 3
        with pytest.raises(grpc.aio.AioRpcError, match="limits, 0 to 3"):
            await it.scale(workers=4)
        it.backend.exit("chief-0", 0)
        assert await serving == 0

    play(tmp_path, test, **MARKS, **IN_STEP)


async def noted(it: Cluster, workers: int) -> None:
    """In the TFJob, which has no PS."""
    for _ in range(500):
        if json.loads(it.annotations.get(SCALED_TO_ANNOTATION, "{}")) == {"Worker": workers}:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(it.annotations)


def test_a_job_without_ps_that_has_ended_is_kept_and_found_by_the_next(tmp_path: Path, service: Serving) -> None:
    asked = TFJob.parse(tfjob(**MARKS, **IN_STEP))
    to = Service("127.0.0.1", service.port, tmp_path / "certs")
    service.writer("team", tmp_path / "certs")
    spec = JobSpec(
        name="job", workdir=in_step(tmp_path), ps=0, slots=0, min_ps=0, workers=1, max_workers=3,
        settings=Settings(autoscale=True, step_batch="each"),
    )  # fmt: skip
    job: Any = SimpleNamespace(spec=spec, failure="", started=1_700_000_000.0, store=Store(tmp_path / "asked.db"))
    asyncio.run(Remembering(to, asked, "u-ctr").end(job))
    ((kept,), _) = service.admin.jobs()
    assert kept.job.sums and kept.job.local_batch and {one.size.workers for one in kept.job.windows} == {1, 3}
    page = urllib.request.urlopen(f"{service.page}jobs/{kept.number}", timeout=20).read().decode()
    assert "in step, without PS" in page and "of a PS" not in page and "alpha" in page
    next_one = Remembering(to, asked, "u-next")
    begun = asyncio.run(next_one.first(dataclasses.replace(spec, workers=0)))
    assert begun.ps == 0 and begun.workers in (2, 3) and "1 job like it" in begun.start
    with_ps = asyncio.run(Remembering(to, TFJob.parse(tfjob(**MARKS)), "u").first(JobSpec(settings=spec.settings)))
    assert with_ps == JobSpec(settings=spec.settings), "it says nothing of a job with PS"


LIES: dict[str, Any] = {"windows": [dataclasses.asdict(window(10**6, 10**6, 1e17))] * 3}


@pytest.mark.parametrize("what", ["nobody", "no certificates", "nonsense", "slow", "lies", "no service"])
def test_no_history_keeps_a_job_from_beginning_or_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """One line says so."""
    monkeypatch.setattr(remembering, "SECONDS", 1.0)
    monkeypatch.setattr(Service.jobs, "__kwdefaults__", {**Service.jobs.__kwdefaults__, "seconds": 1.0})
    certificates = tmp_path / "authority"
    from deeprec_ext.history import identities

    identities.create(certificates)
    identities.write_writer(certificates, "team", tmp_path / "certs")
    values = {"number": 1, "namespace": "team", "job": {**dataclasses.asdict(finished()), **LIES}}
    answer = {
        "nonsense": b"HTTP/1.1 200 OK\r\n\r\n<html>", "slow": answering(b" " * 9000),
        "lies": answering(json.dumps({"jobs": [values] * 9, "next": ""}).encode()),
    }.get(what)  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    async def test(it: Cluster) -> None:
        it.more = AUTOSCALED
        it.words = ["--history", f"127.0.0.1:{port}", "--history-certs", str(tmp_path / "certs")]
        if what == "no service":
            it.words = []
        if what == "no certificates":
            it.words[-1] = str(tmp_path / "none")
        serving = it.aimaster()
        await it.trains()
        assert names_of(it) == ["chief-0", "ps-0", "ps-1", "worker-0"]
        assert [requests(it, name) for name in names_of(it)] == [None] * 4
        for _ in range(500):
            if what == "lies" or told(it):
                break
            await asyncio.sleep(0.01)
        assert len(told(it)) == (0 if what == "lies" else 1), "jobs that cannot have been are as none"
        assert all("history" in text for text in told(it))
        it.backend.exit("chief-0", 0)
        assert await serving == 0

    if answer is None:
        play(tmp_path, test, **MARKS)
        return
    with Liar(certificates, answer, drip=what == "slow") as liar:
        port = liar.port
        play(tmp_path, test, **MARKS)


def test_an_ended_job_is_added_once(tmp_path: Path, service: Serving, workdir: Path) -> None:  # noqa: F811
    asked = TFJob.parse(tfjob())
    to = Service("127.0.0.1", service.port, tmp_path / "certs")
    service.writer("team", tmp_path / "certs")
    spec = JobSpec(name="job", workdir=workdir, ps_cpu=0.5, worker_cpu=1.0, settings=Settings(autoscale=True))
    store = Store(tmp_path / "asked.db")
    store.put(**{remembering.KEY: {"ps_memory_bytes": 4 << 30}})  # by the history, which holds nobody to it
    for _ in range(2):  # the AIMaster's process died and came again
        job: Any = SimpleNamespace(spec=spec, failure="", started=1_700_000_000.0, store=store)
        asyncio.run(Remembering(to, asked, "u-ctr").end(job))
    ((kept,), _) = service.admin.jobs()
    assert (kept.namespace, kept.job.name, kept.job.script, kept.job.autoscaled) == ("team", "ctr", "train.py", True)
    assert {one.size.workers for one in kept.job.windows} == {0, 2} and kept.job.use.cpu_held_core_seconds > 0
    assert kept.job.use.memory_held_byte_seconds > 0, "what pods request is kept for them, and idle"
    assert kept.job.brought.first_examples_per_second == 600.0 and kept.job.brought.saved_seconds > 200


@pytest.mark.parametrize(
    ("container", "script"),
    [({"command": ["python", "/app/train.py", "--x"]}, "app/train.py"), ({"args": ["python", "-m", "rank.main"]}, "rank.main"),
     ({"command": ["bash", "-ec", "cd /app && exec python deep/fm.py --steps 5"]}, "deep/fm.py"),
     ({"command": ["sh", "-c", "python 'x"]}, "python"), ({"image": "registry:5000/team/wide:v1@sha256:1"}, "wide"),
     ({"command": ["sh"]}, "sh")],
)  # fmt: skip
def test_what_tells_jobs_of_one_script_from_others(container: dict[str, Any], script: str) -> None:
    manifest = tfjob()
    own = {"name": "tensorflow", "image": "train:1", **container}
    for spec in manifest["spec"]["tfReplicaSpecs"].values():
        spec["template"] = {"spec": {"containers": [own]}}
    assert script_of(TFJob.parse(manifest)) == script


def test_waits_are_bounded_by_the_client() -> None:
    assert client.SECONDS <= 5 and remembering.ESTIMATE_SECONDS <= 10 and remembering.READ_SECONDS <= 20
