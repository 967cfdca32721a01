"""`run --isolate on`: nobody reaches TensorFlow's ports, and the job does everything that it does without."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from deeprec_ext.launch.roles.isolation import why_impossible
from tests.behaviour.jobs import COUNT, ROOT, RealJob, environment
from tests.behaviour.losses import Losses

WHY = why_impossible()
pytestmark = [
    pytest.mark.slow, pytest.mark.skipif(bool(WHY), reason=f"no network namespace can be made here: {WHY}")
]  # fmt: skip
BACKUPS = ("--setting", "peer_backup_seconds=0.5", "--setting", "ps_heartbeat_limit_seconds=5")
LISTENS = "0A"


def listening_inside(pid: int) -> set[int]:
    """Ports with a listener in the network of this process."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENS:
                found.add(int(words[1].rpartition(":")[2], 16))
    return found


def reached(port: int) -> bool:
    """Whether anybody on this machine answers at the port, at any of its addresses."""
    for host in ("127.0.0.1", "::1", socket.gethostname()):
        try:
            socket.create_connection((host, port), timeout=5).close()
            return True
        except OSError:
            continue
    return False


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deeprec_ext.cli.main", *words], env=environment(), cwd=ROOT, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip


def ports(job: RealJob) -> dict[str, int]:
    """Role → port of TensorFlow, as it has registered last."""
    return {event["role"]: int(event["address"].rpartition(":")[2]) for event in job.events("registered")}


@pytest.mark.timeout(300)
@pytest.mark.long
def test_nobody_reaches_tensorflow_and_everything_else_works(begin) -> None:
    job = begin(
        "--ps", "2", "--workers", "1", "--max-ps", "3", "--dashboard", "0", "--isolate", "on", *BACKUPS, command=COUNT
    )
    losses = Losses(job, 2)
    job.wait_scalable()
    losses.wait_protected()
    losses.remember_catalogue()
    described = json.loads((job.directory / "job.json").read_text())
    assert described["isolated"] and described["aimaster"] == f"unix:{job.directory}/aimaster.sock"
    assert "network: the job's own" in job.output

    for role, port in ports(job).items():
        assert port in listening_inside(job.pid(role)), f"{role} does not listen at {port} at all"
        assert not reached(port), f"{role} is reached at {port} from outside"
    own = os.readlink(f"/proc/{os.getpid()}/ns/net")
    networks = {os.readlink(f"/proc/{pid}/ns/net") for pid in job.running().values()}
    assert len(networks) == 1 and own not in networks

    assert job.scale(ps=3).outcome == "committed"
    assert not reached(ports(job)["ps-2"]) and ports(job)["ps-2"] in listening_inside(job.pid("ps-2"))
    done = command("scale", str(job.directory), "--workers", "2", "--wait")
    assert done.returncode == 0 and "committed" in done.stdout, done.stderr
    job.until(lambda: job.steps_of("worker-1") > 3, "steps of a new worker")
    losses.ps = 3
    losses.wait_protected()
    losses.strike("ps-0")
    job.kill_aimaster()
    job.wait_training("chief-0", "worker-0", "worker-1")

    def metrics() -> bytes:
        with urllib.request.urlopen(described["dashboard"] + "metrics", timeout=30) as page:
            return page.read()

    job.until(lambda: b"deeprec_steps_total" in metrics(), "steps in the metrics of the AIMaster that has just begun")
    shown = command("status", str(job.directory))
    assert shown.returncode == 0 and "worker-1" in shown.stdout, shown.stderr
    assert command("logs", str(job.directory), "chief-0").returncode == 0
    job.until(
        lambda: job.role("ps-0") is not None and job.role("ps-0").slots, "the PS that was lost to have slots again"
    )
    assert job.scale(ps=2).outcome == "committed"
    assert job.finish() == 0, job.output
    losses.check(slack=1)
    assert command("report", str(job.directory)).returncode == 0
    assert not (job.directory / "aimaster.sock").exists() and not (job.directory / "dashboard.html").exists()


@pytest.mark.timeout(200)
def test_without_isolation_the_first_lines_say_what_is_open(begin) -> None:
    job = begin("--ps", "1", "--workers", "0", "--isolate", "off", command=COUNT)
    job.wait_training("chief-0")
    assert "TensorFlow's ports are open to all users of this machine" in job.output
    assert all(reached(port) for port in ports(job).values()), "else the test of isolation proves nothing"
    assert job.finish() == 0, job.output


OUT = """
import os, socket, sys
host, port = sys.argv[1].rsplit(":", 1)
with socket.create_connection((host, int(port)), timeout=20) as connection:
    connection.sendall(b"hello from inside")
exec(compile(open(sys.argv[2]).read(), sys.argv[2], "exec"))
"""


@pytest.mark.timeout(200)
@pytest.mark.skipif(not shutil.which("slirp4netns"), reason="slirp4netns is not on the PATH")
def test_a_script_reaches_others_through_slirp4netns(begin, tmp_path: Path) -> None:
    """And `auto` isolates by itself then. What is out there is played by this machine's own address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        any_socket.connect(("192.0.2.1", 9))  # sends nothing: which address would it be?
        address = any_socket.getsockname()[0]
    script = tmp_path / "out.py"
    script.write_text(OUT)
    with socket.create_server((address, 0)) as server:
        server.settimeout(120)
        outside = f"{address}:{server.getsockname()[1]}"
        job = begin("--ps", "1", "--workers", "0", command=("python", str(script), outside, COUNT[1]))
        connection, _ = server.accept()
        with connection:
            assert connection.recv(100) == b"hello from inside"
    assert "through slirp4netns" in job.output
    assert not any(reached(port) for port in ports(job).values())
