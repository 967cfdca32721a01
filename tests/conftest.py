"""What all tests share: no process left behind, waiting without sleeping blindly, free ports, the shared data."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import psutil
import pytest

from deeprec_ext.launch import ports

hypothesis.settings.register_profile(
    "whatever the machine does", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("whatever the machine does")

ROOT = Path(__file__).resolve().parent.parent
EXIT_SECONDS = 5.0  # how long a process that a test has stopped may take to be gone


def wait_until(condition: Callable[[], object], seconds: float = 30.0, what: str = "", every: float = 0.02) -> object:
    """The first true value of `condition`; fails the test when there is none within `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds:g} s in vain for {what or getattr(condition, '__name__', 'the condition')}")
        time.sleep(every)


@pytest.fixture(name="wait_until")
def _wait_until() -> Callable[..., object]:
    return wait_until


@pytest.fixture(name="free_port")
def _free_port() -> Callable[[], int]:
    """A port nobody listens on. Where possible, bind port 0 yourself instead: nothing keeps this one free for you."""
    return ports.free_port


@pytest.fixture(scope="session")
def root() -> Path:
    """The working tree."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The directory with data that the repository does not ship; a test that needs it is skipped elsewhere."""
    directory = Path(os.environ.get("DEEPREC_EXT_SHARED") or ROOT.parent / "shared")
    if not directory.is_dir():
        pytest.skip(f"no shared data: neither DEEPREC_EXT_SHARED nor {directory.name}/ beside the repository")
    return directory


@pytest.fixture(scope="session")
def adult(shared: Path) -> Path:
    """The UCI Adult census data."""
    directory = shared / "data" / "adult"
    if not (directory / "adult.data").is_file():
        pytest.skip("the shared directory has no data/adult")
    return directory


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """A program that is run within a test sets up logging for its process, which is that of all tests that follow: its handler
    would write what they log to the stderr of a test that has ended, and the error about that to theirs."""
    log = logging.getLogger()
    handlers, level = log.handlers[:], log.level
    yield
    for handler in log.handlers[:]:
        if handler not in handlers:
            log.removeHandler(handler)
    log.setLevel(level)


@pytest.fixture(scope="session", autouse=True)
def _data_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Jobs of tests do not end up in the history of the user's jobs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _temporary_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a process that a test kills leaves among temporary files (sources of AutoGraph, keys that the Kubernetes
    client wrote for OpenSSL) goes with the session. Its name is short: Chromium makes a socket in it."""
    directory = tmp_path_factory.mktemp("t")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(directory))
        patch.setattr(tempfile, "tempdir", None)
        yield
    shutil.rmtree(directory, ignore_errors=True)


# ------------------------------------------------------------------------------------------- no process left behind


def _processes_of(test: str) -> dict[int, psutil.Process]:
    """Children of this process, and whatever a child of a test has left behind: pytest names the test in its environment."""
    found = {child.pid: child for child in psutil.Process().children(recursive=True)}
    mark = f"PYTEST_CURRENT_TEST={test} (".encode()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError, psutil.Error):
                if mark in Path(entry.path, "environ").read_bytes():
                    found[int(entry.name)] = psutil.Process(int(entry.name))
    return {pid: process for pid, process in found.items() if not _is_harmless(process)}


def _is_harmless(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE or "multiprocessing.resource_tracker" in " ".join(
            process.cmdline()
        )
    except psutil.Error:
        return True


@pytest.fixture(autouse=True)
def no_process_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test after which processes run that did not run before, and kills them."""
    test = request.node.nodeid
    before = set(_processes_of(test))
    yield
    deadline = time.monotonic() + EXIT_SECONDS
    while left := {pid: process for pid, process in _processes_of(test).items() if pid not in before}:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    described = []
    for process in left.values():
        with contextlib.suppress(psutil.Error):
            described.append(f"{process.pid}: {' '.join(process.cmdline())[:150]}")
            process.kill()
    if described:
        pytest.fail("the test left processes behind:\n  " + "\n  ".join(described))
