"""A Slurm of one node on this machine, from Debian's packages: munged, slurmctld and slurmd, all below one directory.

Sixteen cores are declared, whatever there are: jobs of a test are small, and all of them shall run at the same time.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
READY_SECONDS, STOP_SECONDS = 40.0, 15.0
NODE = f"lone{os.getpid()}"  # its cgroups are called by it

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ctld}
SlurmdPort={d}
AuthType=auth/munge
AuthInfo=socket={at}/munge.socket
CredType=cred/munge
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/spool
SlurmctldPidFile={at}/slurmctld.pid
SlurmdPidFile={at}/slurmd.pid
SlurmctldLogFile={at}/slurmctld.log
SlurmdLogFile={at}/slurmd.log
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=100000,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
SlurmdParameters=config_overrides
MinJobAge=60
KillWait=5
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={d} CPUs=16 RealMemory=16000 State=UNKNOWN
PartitionName=all Nodes={node} Default=YES MaxTime=INFINITE DefMemPerNode=1500 State=UP OverSubscribe=NO
"""


def why_not() -> str:
    """Why none can be started here; empty: it can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"Slurm is not installed here ({', '.join(missing)})"
    return "" if os.geteuid() == 0 else "slurmd needs root"


@contextlib.contextmanager
def running(at: Path) -> Iterator[dict[str, str]]:
    """What the environment needs for `sbatch` to find it. Raises RuntimeError with the end of a log."""
    for name in ("state", "spool"):
        (at / name).mkdir()
    key, socket_path = at / "munge.key", at / "munge.socket"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    at.chmod(0o755)
    configuration = at / "slurm.conf"
    configuration.write_text(
        CONFIGURATION.format(host=socket.gethostname().partition(".")[0], at=at, ctld=_port(), d=_port(), node=NODE)
    )
    (at / "cgroup.conf").write_text("ConstrainRAMSpace=yes\nConstrainSwapSpace=no\nConstrainCores=no\n")
    environment = {"SLURM_CONF": str(configuration)}
    everywhere = {**os.environ, **environment}
    munged = [
        "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={socket_path}", f"--seed-file={at}/seed",
        f"--pid-file={at}/munged.pid", f"--log-file={at}/munged.log", "--num-threads=2",
    ]  # fmt: skip
    started: list[subprocess.Popen[bytes]] = []
    try:
        for words in (munged, ["slurmctld", "-D", "-i"], ["slurmd", "-D", "-N", NODE]):
            with (at / f"{words[0]}.out").open("wb") as out:
                started.append(
                    subprocess.Popen(words, env=everywhere, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
                )
            if words is munged:
                _until(socket_path.exists, started, at)
        _until(lambda: _idle(everywhere), started, at)
        yield environment
    finally:
        subprocess.run(["scancel", "--me", "--signal=KILL", "--full"], env=everywhere, timeout=20, check=False)
        subprocess.run(["scancel", "--me"], env=everywhere, timeout=20, check=False)
        with contextlib.suppress(TimeoutError):
            _wait(lambda: not _jobs(everywhere), 10.0)
        for one in reversed(started):
            one.terminate()
            try:
                one.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
        _remove_groups()


def _remove_groups() -> None:
    """slurmd leaves the directories of its node behind."""
    for top in [*Path("/sys/fs/cgroup").glob(f"*/slurm_{NODE}"), *Path("/sys/fs/cgroup").glob(f"slurm_{NODE}")]:
        for directory, *_ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(directory)


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _jobs(environment: dict[str, str]) -> str:
    words = ["squeue", "--me", "--noheader"]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=20, check=False).stdout


def _idle(environment: dict[str, str]) -> bool:
    words = ["sinfo", "--noheader", "--format=%T"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=20, check=False)
    return done.stdout.strip() == "idle"


def _until(ready: Callable[[], bool], started: list[subprocess.Popen[bytes]], at: Path) -> None:
    with contextlib.suppress(TimeoutError):
        _wait(lambda: any(one.poll() is not None for one in started) or ready(), READY_SECONDS)
    if not ready():
        logs = [
            f"{path.name}:\n{path.read_text(errors='replace')[-1500:]}" for path in sorted(at.glob("*.[lo][ou][gt]"))
        ]
        raise RuntimeError("Slurm does not start here\n" + "\n".join(logs))


def _wait(done: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.1)
