"""The AIMaster's directory is one that the commands of `deeprec-ext` accept."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from deeprec_ext.aimaster.kubernetes.describing import describe, occupy
from deeprec_ext.aimaster.rpc.server import AIMaster
from deeprec_ext.cli.main import main
from deeprec_ext.options import JobSpec, Settings
from deeprec_ext.rundir import RunDirectory
from deeprec_ext.security.authority import create_certificates
from tests.unit.aimaster.world import World


def spec(directory: Path) -> JobSpec:
    return JobSpec(name="team.ctr", workdir=directory / "state" / "ctr-1", slots=8, ps=2, workers=1, ps_cpu=2.0,
                   settings=Settings(autoscale=True))  # fmt: skip


def test_the_job_runs_for_as_long_as_the_lock_is_held(tmp_path: Path) -> None:
    lock = occupy(spec(tmp_path), "0.0.0.0:2223", None)
    directory = RunDirectory(tmp_path / "state" / "ctr-1")
    assert lock is not None and directory.in_use()
    found = directory.read_description()
    assert (found["job"], found["aimaster"]) == ("team.ctr", "127.0.0.1:2223")
    assert found["settings"] == {"autoscale": True} and found["requests"]["ps"]["cpu"] == 2.0
    lock.close()
    assert not directory.in_use()


def test_a_second_aimaster_on_the_same_volume_goes_on_without_the_lock(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = occupy(spec(tmp_path), "0.0.0.0:2223", None)
    assert first is not None
    assert occupy(spec(tmp_path), "0.0.0.0:2223", None) is None
    assert "a job is running in it" in caplog.text
    first.close()


def test_a_volume_without_links_does_not_keep_the_aimaster_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    assert occupy(spec(tmp_path), "0.0.0.0:2223", str(tmp_path)) is None
    assert "do not work in this pod" in caplog.text


def test_the_next_aimaster_keeps_the_time_at_which_the_job_began(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "state" / "ctr-1")
    directory.path.mkdir(parents=True)
    directory.describe(describe(spec(tmp_path), "0.0.0.0:2223", 17.0))
    lock = occupy(spec(tmp_path), "0.0.0.0:2223", None)
    assert lock is not None and directory.read_description()["started"] == 17.0
    lock.close()


@pytest.mark.parametrize(
    ("listen", "address"),
    [("[::]:7", "127.0.0.1:7"), ("[fd00::5]:7", "[fd00::5]:7"), (":7", "127.0.0.1:7"), ("10.0.0.1:7", "10.0.0.1:7")],
)
def test_commands_call_it_from_the_same_pod(tmp_path: Path, listen: str, address: str) -> None:
    assert describe(spec(tmp_path), listen, 0.0)["aimaster"] == address


def test_status_of_its_directory_asks_the_aimaster_as_an_administrator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certs = create_certificates(tmp_path / "certs", "team.ctr")

    async def run() -> int:
        it, backend = spec(tmp_path), World(tmp_path / "world").backend
        it.workdir.mkdir(parents=True)
        master = AIMaster(it, backend, str(certs))
        port = await master.start("127.0.0.1:0")
        lock = occupy(it, f"0.0.0.0:{port}", str(certs))
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, main, ["status", str(it.workdir), "--json"])
        finally:
            await master.stop()
            assert lock is not None
            lock.close()

    assert asyncio.run(asyncio.wait_for(run(), 50)) == 0
    assert json.loads(capsys.readouterr().out)["job"] == "team.ctr"
