"""The end of a forwarded command that is in the pod: a process with a time to live."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from deeprec_ext.cli.cluster.inside import AGAIN
from deeprec_ext.rundir import RunDirectory
from deeprec_ext.security.authority import create_certificates

ROOT = str(Path(__file__).resolve().parents[4])


def start(directory: Path, *words: str, seconds: int = 60, stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    line = ["--seconds", str(seconds), "--directory", str(directory), "--terminal", "90x20", "--", *words]
    environment = {**os.environ, "PYTHONPATH": ROOT}
    command = [sys.executable, "-m", "deeprec_ext.cli.cluster.inside", *line]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env=environment)


def described(directory: Path) -> RunDirectory:
    found = RunDirectory(directory)
    found.path.mkdir(exist_ok=True)
    found.describe({"job": "team.ctr", "aimaster": "127.0.0.1:1"})
    return found


def test_it_waits_for_the_directory_of_an_aimaster_that_is_starting(tmp_path: Path) -> None:
    process = start(tmp_path / "run", "status", str(tmp_path / "run"))
    time.sleep(1.0)  # nothing can tell that it has begun to wait; it holds either way
    directory = tmp_path / "new"
    described(directory)
    (directory / "summary.json").write_text(json.dumps({"status": "succeeded", "steps": 7, "metrics": {"auc": 0.9}}))
    directory.rename(tmp_path / "run")
    out, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    assert b"succeeded; 7 steps" in out


def test_whoever_watches_is_asked_to_come_again_when_the_time_is_up(tmp_path: Path) -> None:
    directory = described(tmp_path)
    create_certificates(directory.certificates, "team.ctr")
    with directory.lock():  # the job runs; its AIMaster does not answer
        process = start(tmp_path, "status", str(tmp_path), "--watch", "--json", seconds=4)
        _, error = process.communicate(timeout=60)
    assert process.returncode == AGAIN, error


def test_one_that_nobody_reads_ends_all_the_same(tmp_path: Path) -> None:
    """Its caller has gone, and the pipe is full."""
    directory = described(tmp_path)
    (directory.path / "logs").mkdir()
    (directory.path / "logs" / "ps-0.log").write_text(("x" * 100 + "\n") * 5000)
    reader, writer = os.pipe()
    fcntl.fcntl(writer, 1031, 4096)  # F_SETPIPE_SZ
    try:
        process = start(tmp_path, "logs", str(tmp_path), "--lines", "5000", seconds=2, stdout=writer)
        assert process.wait(60) != 0
    finally:
        os.close(reader)
        os.close(writer)
        assert process.stderr is not None
        process.stderr.close()
