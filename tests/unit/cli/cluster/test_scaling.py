"""`scale -n … --wait` from end to end: the API server, the command in the pod, a real AIMaster, a scaling that is committed."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from pathlib import Path

import pytest

from deeprec_ext.aimaster.kubernetes.describing import occupy
from deeprec_ext.cli.main import main
from deeprec_ext.launch.client import JobClient
from tests.unit.aimaster.world import World, world
from tests.unit.cli.cluster.server import Answer, Server, aimaster, failure, tfjob
from tfjob.model.kinds import PODS, TFJOBS


@pytest.fixture
def _without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the AIMaster of the world has it."""
    make = JobClient.__init__
    monkeypatch.setattr(JobClient, "__init__", lambda self, address, job, certs: make(self, address, job, None))


def in_the_pod(it: World, words: list[str]) -> Answer:
    """What the container runtime would do, in this process."""
    command = words[words.index("--") + 1 :]
    command[1] = str(it.spec.workdir)
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        code = main(command)
    messages = [(1, out.getvalue().encode()), (2, error.getvalue().encode())]
    return Answer(messages, failure(code)) if code else Answer(messages)


@pytest.mark.usefixtures("_without_tls")
def test_a_scaling_is_asked_for_waited_for_and_told(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.api.put(TFJOBS, tfjob())
    server.api.put(PODS, aimaster())

    async def run() -> list[int]:
        (tmp_path / "run").mkdir()
        async with world(tmp_path / "run") as it:
            lock = occupy(it.spec, it.address, None)
            assert lock is not None
            server.script = lambda words: in_the_pod(it, words)
            loop, codes = asyncio.get_running_loop(), []
            it.backend.stillborn.add("ps-3")  # the last of these is rolled back
            for words in (["--ps", "3", "--wait", "--json"], ["--ps", "3"], ["--ps", "99"], ["--ps", "4", "--wait"]):
                codes.append(await loop.run_in_executor(None, main, ["scale", "-n", "team", "ctr", *words]))
            lock.close()
            assert len(it.master.job.view().ps) == 3
            return codes

    assert asyncio.run(asyncio.wait_for(run(), 50)) == [0, 0, 2, 1]
    captured = capsys.readouterr()
    ended, _, rest = captured.out.partition("}\n")
    assert json.loads(ended + "}")["outcome"] == "committed"
    assert "nothing to do" in rest or "already" in rest
    assert "99" in captured.err
