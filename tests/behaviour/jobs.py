"""Real jobs for the tests: `deeprec-ext run` with everything real, watched and steered from outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from deeprec_ext.autoscaler.observe.observed import Observed
from deeprec_ext.autoscaler.policy.decision import Decision
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security.credentials import open_channel, server_name

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = Path(__file__).resolve().parent / "scripts"
COUNT = ("python", str(SCRIPTS / "count.py"))
HUNGRY = ("python", str(SCRIPTS / "hungry.py"))
LONG = 120.0
"""Deadline of what takes seconds on an idle machine."""

REFUSED = "TensorFlow refused a step by the number of its request"
"""In the log of a trainer, each time."""


def environment() -> dict[str, str]:
    """Of the launcher: nothing of another job in it, and a traceback for a process that crashes."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("TF_CONFIG", "TF_GRPC_", "DEEPREC_"))
    }
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"}


STACKS_SECONDS = 1.0
"""How long a process that aborts takes to write what its threads are doing."""


class RealJob:
    """One `deeprec-ext run`, or another verb that starts a job.

    Whatever is waited for, the end of the launcher fails the test with its output.
    """

    def __init__(
        self, directory: Path, flags: tuple[str, ...], command: tuple[str, ...] = (), verb: str = "run",
        module: str = "deeprec_ext.cli.main",
    ) -> None:  # fmt: skip
        self.directory = directory
        directory.parent.mkdir(parents=True, exist_ok=True)
        self._output = directory.with_name(f"{directory.name}.out")
        words = [
            sys.executable,
            "-m",
            module,
            verb,
            "--workdir",
            str(directory),
            *flags,
            *(["--", *command] if command else []),
        ]
        with self._output.open("w") as output:
            self.process = subprocess.Popen(
                words, stdout=output, stderr=subprocess.STDOUT, cwd=directory.parent,
                env=environment(),
            )  # fmt: skip
        self._stub: rpc.AdminStub | None = None
        self._described = 0
        self._stopped: set[int] = set()

    # ------------------------------------------------------------------------------------------------ waiting

    @property
    def output(self) -> str:
        return self._output.read_text()

    def until(self, condition: Callable[[], Any], what: str, seconds: float = LONG, every: float = 0.05) -> Any:
        """The first true value of the condition."""
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            if self.process.poll() is not None:
                pytest.fail(f"the run ended while the test waited for {what}:\n{self.output[-3000:]}{self.tails()}")
            if time.monotonic() > deadline:
                pytest.fail(
                    f"waited {seconds:g} s in vain for {what}; last events:\n"
                    f"{self.last_events()}{self.tails()}{self.stacks()}"
                )
            time.sleep(every)
        return value

    def happens(self, condition: Callable[[], Any], seconds: float, every: float = 0.01) -> bool:
        """Whether it becomes true within the time."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(every)
        return True

    def end(self, seconds: float = 2 * LONG) -> int:
        """Waits for the end; its exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the run did not end within {seconds:g} s; last events:\n{self.last_events()}{self.tails()}")

    def last_events(self) -> str:
        return "\n".join(json.dumps(event)[:300] for event in self.events()[-15:])

    def tails(self) -> str:
        logs = sorted((self.directory / "logs").glob("*.log"))
        return "".join(f"\n--- {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in logs)

    def stacks(self) -> str:
        """What every thread of the trainers is doing, at the cost of their lives (PYTHONFAULTHANDLER)."""
        told = ""
        with contextlib.suppress(psutil.Error, ProcessLookupError):  # the job may end by the first that is made to tell
            ours = {process.pid for process in psutil.Process(self.process.pid).children(recursive=True)}
            for log in sorted((self.directory / "logs").glob("*.log")):
                pid = self.pid(log.stem)
                if pid in ours and log.stem.split("-")[0] in ("chief", "worker", "master"):
                    before = log.stat().st_size
                    os.kill(pid, signal.SIGABRT)
                    time.sleep(STACKS_SECONDS)
                    with log.open(errors="replace") as file:
                        file.seek(before)
                        told += f"\n--- threads of {log.stem}\n{file.read()[:20000]}"
        return told

    def close(self) -> None:
        """After the test, whatever became of it."""
        for pid in list(self._stopped):
            self.go_on(pid)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    # ------------------------------------------------------------------------------------------------ looking

    def events(self, *types: str) -> list[dict[str, Any]]:
        try:
            lines = (self.directory / "events.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # torn by a kill, or being written
            if not types or event["type"] in types:
                found.append(event)
        return found

    def states(self, scaling: int) -> list[str]:
        """The states that a scaling has entered."""
        return [event["state"] for event in self.events("scaling_state") if event["scaling"] == scaling]

    def log(self, role: str) -> str:
        try:
            return (self.directory / "logs" / f"{role}.log").read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def summary(self) -> dict[str, Any]:
        return json.loads((self.directory / "summary.json").read_text())

    def _admin(self) -> rpc.AdminStub:
        file = self.directory / "job.json"
        made = file.stat().st_mtime_ns  # a run that is resumed finds the one of the run before
        if self._stub is None or made != self._described:
            self._described = made
            described = json.loads(file.read_text())
            certificates = self.directory / "certs"
            channel = open_channel(
                described["aimaster"], server_name("aimaster", described["job"]), "admin", certificates
            )
            self._stub = rpc.AdminStub(channel)
        return self._stub

    def connect_again(self) -> None:
        """With the certificates that there are then."""
        self._described = 0

    def status(self) -> pb.StatusReply | None:
        """None while no AIMaster answers."""
        if not (self.directory / "job.json").exists():
            return None
        try:
            return self._admin().Status(pb.StatusRequest(), timeout=5)
        except grpc.RpcError:
            return None

    def observed(self) -> Observed:
        """What the autoscaler sees at this moment. Raises grpc.RpcError without one."""
        reply = self._admin().Decisions(pb.DecisionsRequest(preview=True), timeout=30)
        return Observed.from_json(reply.decisions[1])

    def decided(self) -> Decision:
        """What it would decide at this moment. Raises grpc.RpcError without one."""
        reply = self._admin().Decisions(pb.DecisionsRequest(preview=True), timeout=30)
        return Decision.from_json(reply.decisions[0])

    def catalogue(self) -> pb.Catalogue:
        """The variables of the model."""
        return self._admin().Graph(pb.CatalogueRequest(), timeout=10).catalogue

    def role(self, name: str) -> pb.RoleStatus | None:
        status = self.status()
        return next((role for role in status.roles if role.name == name), None) if status is not None else None

    def running(self) -> dict[str, int]:
        """role -> pid of everything that runs, but for the AIMaster."""
        status = self.until(self.status, "the AIMaster's answer")
        return {role.name: role.pid for role in status.roles if role.state == "running"}

    def roles_of(self, kind: str) -> list[str]:
        return sorted(name for name in self.running() if name.startswith(kind))

    def step(self) -> int:
        status = self.status()
        return status.step if status is not None else 0

    def steps_of(self, role: str) -> int:
        """Steps that the role has counted itself (count.py)."""
        import numpy as np

        try:
            return int(np.load(self.directory / "count" / f"{role}.npy", mmap_mode="r")[-3])
        except FileNotFoundError:
            return 0

    def wait_training(self, *roles: str) -> None:
        """Until each of them has made some more steps."""
        for role in roles:
            before = self.steps_of(role)
            self.until(lambda role=role, before=before: self.steps_of(role) > before + 3, f"steps of {role}")

    def wait_scalable(self) -> None:
        """Until the AIMaster knows the model and its tables are marked: from then on a scaling begins at once."""

        def known() -> pb.StatusReply | None:
            status = self.status()
            return status if status is not None and status.live and sum(role.bytes for role in status.roles) else None

        status = self.until(known, "the catalogue")
        if status.backup.peer:
            self.until(lambda: self.events("marks_on"), "dirty rows to be marked")

    # ------------------------------------------------------------------------------------------------ steering

    def ask(self, **request: Any) -> pb.ScaleReply:
        """Raises grpc.RpcError when it is refused."""
        return self._admin().Scale(pb.ScaleRequest(**request), timeout=LONG)

    def hold(self, held: bool) -> None:
        """The user's veto on the autoscaler."""
        self._admin().Hold(pb.HoldRequest(hold=held, reason="a test"), timeout=LONG)

    def scaling(self, identifier: int) -> pb.ScalingStatus | None:
        status = self.status()
        return next((one for one in status.scalings if one.id == identifier), None) if status is not None else None

    def wait_scaling(self, identifier: int, seconds: float = 2 * LONG) -> pb.ScalingStatus:
        """Until it has ended, for which a process that begins imports TensorFlow: on a starved machine for minutes."""
        return self.until(
            lambda: (one := self.scaling(identifier)) is not None and bool(one.outcome) and one,
            f"the end of scaling {identifier}", seconds,
        )  # fmt: skip

    def scale(self, **request: Any) -> pb.ScalingStatus | None:
        """Asks and waits; None: nothing to do."""
        reply = self.ask(**request)
        return self.wait_scaling(reply.scaling_id) if reply.scaling_id else None

    def wait_state(self, identifier: int, state: str) -> None:
        self.until(lambda: state in self.states(identifier), f"{state} of scaling {identifier}", every=0.001)

    def stick(self, role: str) -> None:
        """From now on the input of the role gives nothing: its run does not end (count.py --paced)."""
        self.put(f"stick-{role}")

    def unstick(self, role: str) -> None:
        (self.directory / "count" / f"stick-{role}").unlink()

    def hold_in_pause(self, scaling: int, role: str) -> None:
        """A role that is stuck may do single steps until it marks its writes; then PAUSE waits for it."""

        def paused() -> bool:
            if "PAUSE" in self.states(scaling):
                return True
            one = self.scaling(scaling)
            if one is not None and one.detail == "dirty rows are marked":  # Mark waits for the end of the run
                self.put(f"pass-{role}")
            return False

        self.until(paused, f"PAUSE of scaling {scaling}", every=0.2)

    def pid(self, role: str) -> int:
        """Of the running process, from the log's last start: also of one that has not registered, and of the AIMaster."""
        starts = [line for line in self.log(role).splitlines() if line.startswith(f"--- deeprec-ext: {role}, start")]
        return int(starts[-1].split("pid ")[1].split()[0].rstrip(",;:-")) if starts else 0

    def stop(self, role: str) -> int:
        """SIGSTOP; returns the pid for `go_on`."""
        pid = self.pid(role)
        os.kill(pid, signal.SIGSTOP)
        self._stopped.add(pid)
        return pid

    def go_on(self, pid: int) -> None:
        self._stopped.discard(pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def kill(self, role: str) -> int:
        """SIGKILL; the pid it had."""
        pid = self.pid(role)
        os.kill(pid, signal.SIGKILL)
        return pid

    def kill_aimaster(self) -> None:
        """And waits until another one answers."""
        before = self.pid("aimaster")
        os.kill(before, signal.SIGKILL)
        self.until(lambda: self.pid("aimaster") not in (0, before), "another AIMaster")
        self.until(self.status, "the answer of another AIMaster")

    def put(self, name: str, content: object = "") -> Path:
        """Writes a steering file of count.py; removing it ends its effect."""
        path = self.directory / "count" / name
        path.parent.mkdir(exist_ok=True)
        draft = path.with_name(f".{name}")
        draft.write_text(str(content))
        draft.rename(path)
        return path

    def finish(self) -> int:
        """All trainers of count.py stop, the chief last, so that its checkpoint holds everything; the exit code."""
        trainers = [name for name in self.running() if name.startswith(("chief", "worker"))]
        self.put("stop", json.dumps(trainers))
        return self.end()

    # ------------------------------------------------------------------------------------------------ the result

    def check_counts(self, kills: dict[str, int] | None = None) -> int:
        """The last checkpoint, as stock TensorFlow reads it, holds every update exactly once; returns the steps.

        Args:
            kills: how often a role was killed: each time one step may be done and not counted.
        """
        try:
            return check_counts(self.directory, kills)
        except AssertionError as error:
            pytest.fail(f"{error}\nlast events:\n{self.last_events()}{self.tails()}")


class PatientJob(RealJob):
    """A real job whose waits have a longer limit: its processes import all of TensorFlow, or have large graphs to compile."""

    PATIENCE_SECONDS = 300.0
    """Deadline of each wait; on an idle machine the longest takes seconds."""

    def until(self, condition: Callable[[], Any], what: str, seconds: float = LONG, every: float = 0.1) -> Any:
        return super().until(condition, what, max(seconds, self.PATIENCE_SECONDS), every)


def refused(directory: Path, role: str) -> int:
    """How often TensorFlow refused a step of this trainer by the number of its request (docs/critiques.md): a part of each may
    have been done by another PS, and was done again.
    """
    log = directory / "logs" / f"{role}.log"
    return log.read_text(errors="replace").count(REFUSED) if log.exists() else 0


def check_counts(directory: Path, kills: dict[str, int] | None = None) -> int:
    """See `RealJob.check_counts`; `directory` has the model, the counts and the logs."""
    import numpy as np
    import tensorflow as tf

    from tests.behaviour.scripts import count

    reader = tf.train.load_checkpoint(str(directory / "model"))
    values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    tables = {name: values[name] for name in count.SGD}
    tables |= {f"{name}/Adagrad": values[f"{name}/Adagrad"] - 1.0 for name in count.ADAGRAD}
    ledgers = {path.stem: np.load(path) for path in (directory / "count").glob("*.npy")}
    slacks = {role: (kills or {}).get(role, 0) + refused(directory, role) for role in ledgers}
    steps, trouble = 0, []
    for role, ledger in ledgers.items():
        block, slack = _block(role), slacks[role]
        rows = slice(block * count.BLOCK, (block + 1) * count.BLOCK)
        told, done, back = ledger[: count.BLOCK], int(ledger[count.BLOCK]), int(ledger[count.BLOCK + 2])
        assert back == 0, f"{role}: the global step went back {back} times"
        assert told.sum() == done * count.BATCH
        for name, table in tables.items():
            wrong = (table[rows] < told[:, None]) | (table[rows] > told[:, None] + slack)
            if wrong.any():
                trouble.append(_difference(role, name, table[rows], told, wrong))
        for name in count.DENSE:
            if not np.all((values[name][block] >= done) & (values[name][block] <= done + slack)):
                trouble.append(f"{role}: {name} has {values[name][block]}, counted were {done}")
        steps += done
    made = int(values["global_step"])
    if not steps <= made <= steps + sum({**(kills or {}), **slacks}.values()):
        trouble.append(f"the global step is {made}, counted were {steps}")
    others = [block for block in range(count.BLOCKS) if not any(_block(role) == block for role in ledgers)]
    for name, table in tables.items():
        if table.reshape(count.BLOCKS, -1)[others].any():
            trouble.append(f"{name} has updates that nobody made")
    assert not trouble, "\n".join(trouble)
    return steps


def _block(role: str) -> int:
    kind, _, index = role.partition("-")
    return 0 if kind == "chief" else 1 + int(index)


def _difference(role: str, name: str, table: Any, told: Any, wrong: Any) -> str:
    rows = sorted({int(row) for row in wrong.nonzero()[0]})
    some = ", ".join(f"{row}: {table[row].tolist()} instead of {int(told[row])}" for row in rows[:5])
    return f"{role}: {name} is wrong in {len(rows)} rows, {rows[0]} to {rows[-1]}: {some}"


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
