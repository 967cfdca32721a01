"""The launcher with real processes: a fake AIMaster (tests/unit/launch), scripts without TensorFlow."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import psutil
import pytest

from deeprec_ext.gazer.proctable import descendants
from deeprec_ext.proto import deeprec_ext_pb2 as pb2
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security.credentials import open_channel, server_name

FAKES = Path(__file__).parent.parent / "unit" / "launch"
TRAINER = ["python", str(FAKES / "fake_trainer.py")]
ENDLESS = [*TRAINER, "1000000", "0.01"]


class Run:
    """One `deeprec-ext run` with the fake AIMaster."""

    def __init__(self, directory: Path, flags: list[str], command: list[str]) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [sys.executable, str(FAKES / "fake_run.py"), "run", "--workdir", str(directory), *flags, "--", *command],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=directory.parent,
            env={**os.environ, "PYTHONPATH": str(FAKES.parent.parent.parent)},
        )  # fmt: skip

    def end(self, seconds: float = 40.0) -> str:
        """What it printed; its exit code is then in `process.returncode`."""
        return self.process.communicate(timeout=seconds)[0]

    def step(self, role: str) -> int:
        try:
            return int(json.loads((self.directory / f"progress-{role}.json").read_text())["step"])
        except (FileNotFoundError, ValueError):
            return 0

    def pid(self, role: str) -> int:
        try:
            return int(json.loads((self.directory / f"progress-{role}.json").read_text())["incarnation"])
        except (FileNotFoundError, ValueError):
            return 0

    def processes(self) -> list[psutil.Process]:
        found = []
        for pid in descendants(self.process.pid):
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                found.append(psutil.Process(pid))
        return found

    def summary(self) -> dict:
        return json.loads((self.directory / "summary.json").read_text())


@pytest.fixture(autouse=True)
def hangups_count() -> Iterator[None]:
    """Also where pytest itself runs under nohup: children inherit what is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def begin(*flags: str, command: list[str] = ENDLESS) -> Run:
        runs.append(Run(tmp_path / "run", list(flags), command))
        return runs[-1]

    yield begin
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
        run.process.communicate()


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def test_a_job_succeeds_and_leaves_its_directory_as_promised(start):
    run = start("--evaluator", command=[*TRAINER, "30", "0.02"])
    output = run.end()
    assert run.process.returncode == 0, output
    assert "succeeded" in output
    names = {path.name for path in run.directory.iterdir()}
    assert {"summary.json", "events.jsonl", "aimaster.db", "logs", "certs", "job.json"} <= names
    logs = {path.name for path in (run.directory / "logs").iterdir()}
    assert logs == {f"{name}.log" for name in ("aimaster", "ps-0", "ps-1", "chief-0", "worker-0", "evaluator-0")}
    summary = run.summary()
    assert summary["status"] == "succeeded"
    assert summary["roles"]["chief-0"] == {"started": 1, "restarted": 0}
    events = (run.directory / "events.jsonl").read_text()
    assert '"finished", "status": "succeeded"' in events
    assert (run.directory / "logs" / "chief-0.log").read_text().startswith("--- deeprec-ext: chief-0, start 1, pid ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_stops_everything_cleanly(start, wait_until, number):
    run = start()
    wait_until(lambda: run.step("chief-0") and run.step("worker-0"), what="steps")
    processes = run.processes()
    assert len(processes) >= 6  # guard, aimaster, 2 PS, chief, worker
    run.process.send_signal(number)
    run.end()
    assert run.process.returncode == 130
    assert run.summary()["status"] == "stopped"
    assert not alive(processes)


def test_interrupts_without_end_are_one_stop_with_its_exit_code_and_its_last_line(start, wait_until):
    run = start()
    wait_until(lambda: run.step("chief-0") and run.step("worker-0"), what="steps")
    processes = run.processes()
    while run.process.poll() is None:
        run.process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    output = run.end()
    assert run.process.returncode == 130, output
    assert [line for line in output.splitlines() if line.startswith("stopped: Ctrl-C")], output
    assert run.summary()["status"] == "stopped"
    assert not alive(processes)


def test_a_terminal_that_is_closed_stops_the_run_as_a_signal_does(tmp_path, wait_until):
    ours, theirs = os.openpty()
    directory = tmp_path / "run"
    words = [sys.executable, str(FAKES / "fake_run.py"), "run", "--workdir", str(directory), "--", *ENDLESS]
    make_it_control = (
        "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", make_it_control, *words], stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(FAKES.parent.parent.parent), "TERM": "xterm"},
    )  # fmt: skip
    try:
        os.close(theirs)
        reader = threading.Thread(target=drain, args=(ours, directory / "progress-chief-0.json"))
        reader.start()
        reader.join(40)
        found = [psutil.Process(pid) for pid in descendants(process.pid)]
        os.close(ours)
        assert process.wait(40) == 130
        assert json.loads((directory / "summary.json").read_text())["status"] == "stopped"
        assert not alive(found)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def drain(terminal: int, until: Path) -> None:
    """Reads what is shown, until that file is there."""
    while not until.exists() and os.read(terminal, 65536):
        pass


def test_a_run_directory_that_others_can_write_to_is_told_first(start, tmp_path):
    def told(mode: int) -> list[str]:
        tmp_path.chmod(mode)
        said = start("--ps", "1", "--workers", "0", command=[*TRAINER, "3", "0.01"]).end().splitlines()
        return [line for line in said if "warning: run directory" in line]

    [line] = told(0o777)
    assert f"{tmp_path} (mode 0777) can be written by every user" in line and f"chmod go-w {tmp_path}" in line
    (tmp_path / "run").rename(tmp_path / "before")
    assert not told(0o700)


def test_a_second_interrupt_does_not_wait_for_anybody(start, wait_until, tmp_path):
    deaf = tmp_path / "deaf.py"
    deaf.write_text("import signal, time, os\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                    "open(os.environ['DEEPREC_EXT_WORKDIR'] + '/deaf-' + os.environ['DEEPREC_EXT_ROLE'], 'w')\n"
                    "time.sleep(1000)\n")  # fmt: skip
    run = start(command=["python", str(deaf)])
    wait_until(
        lambda: (run.directory / "deaf-chief").exists() and (run.directory / "deaf-worker").exists(), what="roles"
    )
    processes = run.processes()
    run.process.send_signal(signal.SIGINT)
    assert run.process.stdout is not None
    while "Ctrl-C again" not in run.process.stdout.readline():
        pass
    run.process.send_signal(signal.SIGINT)
    run.end(seconds=4.0)  # the grace alone is longer
    assert not alive(processes)


def test_a_killed_launcher_leaves_no_process_behind(start, wait_until, tmp_path):
    script = tmp_path / "train.sh"
    script.write_text(f'"{sys.executable}" {FAKES / "fake_trainer.py"} 1000000 0.01\ntrue\n')  # a child, no exec
    run = start(command=["bash", str(script)])
    wait_until(lambda: run.step("chief-0") and run.step("worker-0"), what="steps")
    processes = run.processes()
    assert len(processes) >= 8
    run.process.kill()
    wait_until(lambda: not alive(processes), 10.0, "the end of all processes")


def test_a_killed_role_comes_back_and_nobody_else_is_touched(start, wait_until):
    run = start()
    wait_until(lambda: run.step("chief-0") > 5 and run.step("worker-0") > 5, what="steps")
    chief, worker = run.pid("chief-0"), run.pid("worker-0")
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: run.pid("worker-0") not in (0, worker), what="another worker")
    assert run.pid("chief-0") == chief
    run.process.send_signal(signal.SIGINT)
    run.end()
    assert run.summary()["roles"]["worker-0"] == {"started": 2, "restarted": 1}
    log = (run.directory / "logs" / "worker-0.log").read_text()
    assert "worker-0, start 1," in log
    assert "worker-0, start 2," in log


def test_a_script_that_dies_at_import_shows_its_traceback_and_exits_1(start, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import no_such_module_at_all\n")
    run = start(command=["python", str(script)])
    output = run.end()
    assert run.process.returncode == 1
    log = run.directory / "logs" / "chief-0.log"
    assert f"what the script prints: {log}" in output, "there is no table that would show it"
    worker = log.with_name("worker-0.log")  # which may come to its import before the chief
    shown = [f"the end of {one}:\nTraceback (most recent call last)" in output for one in (log, worker)]
    assert shown.count(True) == 1
    assert "ModuleNotFoundError: No module named 'no_such_module_at_all'" in output
    assert "exited with code 1 before its first training step" in output
    summary = run.summary()
    assert summary["status"] == "failed"
    assert all(role["restarted"] == 0 for role in summary["roles"].values())


FAILS = """
import json, os, time
path = os.path.join(os.environ["DEEPREC_EXT_WORKDIR"], "progress-chief-0.json")
first = not os.path.exists(path)
with open(path, "w") as file:
    json.dump({"incarnation": os.getpid(), "step": 10 if first else 0}, file)
time.sleep(2 if first else 0)
raise ValueError("of the script's own")
"""


def test_a_chief_whose_script_fails_after_training_is_started_again_once(start, tmp_path):
    (tmp_path / "train.py").write_text(FAILS)
    run = start("--workers", "0", command=["python", str(tmp_path / "train.py")])
    output = run.end()
    assert run.process.returncode == 1
    why = "chief-0 exited with code 1 twice, at the same line of its script: ValueError: of the script's own"
    assert why in output and run.summary()["reason"] == why
    assert run.summary()["roles"]["chief-0"] == {"started": 2, "restarted": 1}


def test_a_job_the_aimaster_gives_up_ends_with_its_reason(start, wait_until, tmp_path):
    script = tmp_path / "train.sh"
    script.write_text(f'echo loading\nexec "{sys.executable}" {FAKES / "fake_trainer.py"} 1000000 0.01\n')
    run = start(command=["bash", str(script)])
    wait_until(lambda: run.step("chief-0"), what="a step")
    (run.directory / "refuse").touch()
    output = run.end()
    assert run.process.returncode == 1
    assert f"the end of {run.directory / 'logs' / 'chief-0.log'}:\nloading\n" in output
    assert "the script was refused: use another" in output
    assert run.summary()["reason"] == "the script was refused: use another"


def test_an_aimaster_that_cannot_start_ends_the_job(start, tmp_path, wait_until):
    run = start("--workers", "0")
    wait_until(lambda: run.step("chief-0"), what="a step")
    run.process.kill()
    run.end()
    (run.directory / "aimaster.db").unlink()
    (run.directory / "aimaster.db").mkdir()  # no store can be made there
    again = start("--resume")
    output = again.end()
    assert again.process.returncode == 1
    assert "before it had started" in output
    assert "aimaster.db cannot b" in output  # one line that names the file
    assert "Traceback" not in output


def test_scripted_events_run_in_order_and_a_killed_aimaster_returns_at_the_same_address(start, tmp_path, wait_until):
    events = tmp_path / "events.yaml"
    events.write_text(
        "- {at_step: 10, scale: {workers: 2}}\n- {at_step: 15, kill: worker-0}\n- {at_step: 20, kill: aimaster}\n"
        "- {at_step: 25, kill: ps-1}\n- {at_seconds: 1, replace: ps-3}\n"
    )
    run = start("--events", str(events), command=[*TRAINER, "300", "0.02"])
    output = run.end()
    assert run.process.returncode == 0, output
    summary = run.summary()
    outcomes = [(one["event"].split(" at ")[0], one["outcome"]) for one in summary["events"]]
    assert outcomes == [
        ("scale workers to 2", "committed"), ("kill worker-0", "recovered"), ("kill aimaster", "recovered"),
        ("kill ps-1", "recovered"), ("replace ps-3", "refused"),
    ]  # fmt: skip
    assert summary["roles"]["aimaster"] == {"started": 2, "restarted": 1}
    assert summary["roles"]["ps-1"] == {"started": 2, "restarted": 1}
    assert summary["events_left"] == 0


def test_a_run_that_ends_with_events_left_says_so_and_exits_1(start, tmp_path):
    events = tmp_path / "events.yaml"
    events.write_text("- {at_step: 1000000, kill: ps-0}\n")
    run = start("--events", str(events), command=[*TRAINER, "20", "0.01"])
    output = run.end()
    assert run.process.returncode == 1
    assert "1 scripted events left: kill ps-0 at step 1000000" in output
    assert run.summary()["status"] == "succeeded"
    assert run.summary()["events_left"] == 1


def test_a_directory_with_a_job_needs_resume(start, wait_until):
    first = start(command=[*TRAINER, "10", "0.01"])
    first.end()
    second = start(command=[*TRAINER, "10", "0.01"])
    output = second.end()
    assert second.process.returncode == 2
    assert "add --resume" in output


def test_no_port_stays_behind(start, wait_until):
    run = start()
    wait_until(lambda: run.step("chief-0"), what="a step")
    description = json.loads((run.directory / "job.json").read_text())
    run.process.kill()
    run.end()
    for name in ("aimaster", "launcher"):
        host, _, port = description[name].partition(":")

        def closed(host: str = host, port: str = port) -> bool:
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
                return False
            return True

        wait_until(closed, 5.0, f"{name}'s port to be closed")


def test_a_hung_aimaster_is_killed_and_started_again(start, tmp_path):
    events = tmp_path / "events.yaml"
    events.write_text("- {at_step: 5, hang: aimaster}\n")
    run = start("--events", str(events), command=[*TRAINER, "400", "0.02"])
    output = run.end()
    assert run.process.returncode == 0, output
    assert run.summary()["roles"]["aimaster"] == {"started": 2, "restarted": 1}
    assert run.summary()["events"][0]["outcome"] == "recovered"


def test_a_trainer_may_not_start_or_stop_processes(start, wait_until):
    run = start()
    wait_until(lambda: run.step("chief-0"), what="a step")
    address = json.loads((run.directory / "job.json").read_text())["launcher"]
    for role, code in (("trainer", grpc.StatusCode.PERMISSION_DENIED), ("admin", grpc.StatusCode.INVALID_ARGUMENT)):
        channel = open_channel(address, server_name("launcher", "run"), role, run.directory / "certs")
        with channel, pytest.raises(grpc.RpcError) as error:
            rpc.LauncherStub(channel).Create(pb2.Pod(name="sh", role=pb2.WORKER), timeout=10)
        assert error.value.code() is code
    run.process.send_signal(signal.SIGINT)
    run.end()


def test_the_other_commands_find_the_job_by_its_directory(start, wait_until):
    run = start()
    wait_until(lambda: run.step("chief-0"), what="a step")

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "deeprec_ext.cli.main", *words], capture_output=True, text=True, timeout=30, check=False,
            env={**os.environ, "PYTHONPATH": str(FAKES.parent.parent.parent)},
        )  # fmt: skip

    status = command("status", str(run.directory), "--json")
    assert json.loads(status.stdout)["state"] == "training", status
    assert "chief-0" in command("status", str(run.directory)).stdout
    assert (
        json.loads(command("scale", str(run.directory), "--workers", "2", "--wait", "--json").stdout)["outcome"]
        == "committed"
    )
    assert command("scale", str(run.directory), "--workers", "1").stdout == "already that size\n"
    refused = command("scale", str(run.directory), "--replace", "ps-9")
    assert (refused.returncode, refused.stderr) == (2, "deeprec-ext: there is no ps-9\n")
    assert "worker-1, start 1" in command("logs", str(run.directory), "worker-1").stdout
    run.process.send_signal(signal.SIGINT)
    run.end()
    assert json.loads(command("status", str(run.directory), "--json").stdout)["status"] == "stopped"
