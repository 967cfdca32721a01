"""The documents' commands about a job, word by word, with a real one: while it trains, and when it has ended."""

from __future__ import annotations

import os
import re
import shlex
import subprocess

import psutil
import pytest

from deeprec_ext.cli.main import main
from tests.behaviour.jobs import COUNT, LONG, ROOT, RealJob
from tests.docs.test_running import OF_A_JOB

pytestmark = pytest.mark.slow

WORDS = sorted({line.words[1:] for line in OF_A_JOB})
SCALE = [words for words in WORDS if words[0] == "scale"]
HOLD, RELEASE = ("scale", "runs/my-run", "--hold"), ("scale", "runs/my-run", "--release")
WAIT = ("scale", "runs/my-run", "--ps", "4", "--wait")
BACKUP = [words for words in WORDS if words[0] == "backup"]
LIVE_ONLY = ("plan", "runs/my-run")
WATCHES = [words for words in WORDS if "--watch" in words]
READS = [words for words in WORDS if words not in (*SCALE, *BACKUP, LIVE_ONLY, *WATCHES)]


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """`command(words)` runs it where `runs/my-run` and `backups/my-model` are, in this process; what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(words: tuple[str, ...]) -> str:
        code = main(words)
        captured = capsys.readouterr()
        assert code == 0, (words, captured)
        return captured.out

    return run


def is_local(process: psutil.Process) -> bool:
    """Whether it listens, and on the loopback address only."""
    hosts = {one.laddr.ip for one in process.net_connections() if one.status == psutil.CONN_LISTEN}
    return bool(hosts) and all(host.removeprefix("::ffff:") in ("127.0.0.1", "::1") for host in hosts)


@pytest.mark.timeout(900)
def test_every_command_of_the_documents_about_a_job_runs(begin, command, tmp_path):
    assert {HOLD, RELEASE, WAIT} <= set(SCALE) and len(BACKUP) >= 4 and len(READS) > 6 and WATCHES
    job = begin(
        "--ps", "2", "--workers", "1", "--autoscale", "--history", "off", "--backup", "peer,disk=backups/my-model",
        "--setting", "disk_backup_seconds=1", "--setting", "standby_sessions_max=0", command=COUNT,
    )  # fmt: skip
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "my-run").symlink_to(job.directory)
    job.wait_scalable()
    job.until(lambda: (job.directory / "decisions.jsonl").exists(), "the first decision")
    assert is_local(psutil.Process(job.process.pid)) and is_local(psutil.Process(job.pid("aimaster")))

    command(HOLD)  # the sizes below are those of the documents
    command(WAIT)
    for words in [words for words in SCALE if words not in (HOLD, RELEASE, WAIT)]:
        assert command(words).strip()
    job.until(lambda: all(one.outcome for one in job.status().scalings), "the end of all scalings", 5 * LONG)
    ended = job.events("scaling_ended")
    assert ended and all(one["outcome"] == "committed" for one in ended), ended
    assert len(job.roles_of("ps")) == 4 and len(job.roles_of("worker")) == 3 and "ps-1" not in job.roles_of("ps")
    command(LIVE_ONLY)
    for words in READS:
        assert command(words).strip(), words
    command(RELEASE)
    job.until(lambda: len(job.events("disk_backup")) > 1, "a disk backup")
    assert job.finish() == 0, job.output
    job.check_counts()

    for words in READS + WATCHES:
        assert command(words).strip(), words
    for words in BACKUP:
        command(words)
    assert list((tmp_path / "out").glob("model.ckpt*")) and (tmp_path / "new-model" / "checkpoint").exists()


@pytest.mark.long
@pytest.mark.timeout(700)
def test_the_demo_goes_through_all_its_changes(begin, tmp_path):
    """What `make demo` runs: its command is taken from the Makefile."""
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "demo"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    (line,) = re.findall(r"deeprec-ext run (.*)", done.stdout.replace("\\\n", " "))
    words = [str(ROOT / word) if word.startswith("examples/") else word for word in shlex.split(line)]
    first = words.index("--")
    assert words[0] == "--workdir" and not os.path.isabs(words[1])
    job: RealJob = begin(*words[2:first], command=tuple(words[first + 1 :]))
    assert job.end(600) == 0, job.output
    summary = job.summary()
    changes = [(one["role"], one["from"], one["to"], one["outcome"]) for one in summary["scaling"]]
    assert changes == [
        ("ps", 1, 3, "committed"), ("worker", 1, 3, "committed"), ("ps", 3, 2, "committed"), ("worker", 3, 2, "committed"),
    ]  # fmt: skip
    assert all(counts["restarted"] == 0 for counts in summary["roles"].values()) and not summary["failures"]
    assert summary["data"]["lost"] == 0 and summary["metrics"]["auc"] > 0.9, summary["metrics"]
