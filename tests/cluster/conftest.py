"""A real Kubernetes API server: the one that KUBECONFIG names, or one that `tests/cluster/tool/cluster` starts.

`make cluster` builds what the latter needs (once, about five minutes). Without either the tests are skipped, with the reason.
"""

from __future__ import annotations

import itertools
import os
import shlex
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.kube import NAMESPACES, Operator, install_crd, talk
from tfjob.api.client import Api

TOOL = Path(__file__).parent / "tool" / "cluster"
NUMBERS = itertools.count(1)
ROOT = Path(__file__).resolve().parents[2]


_started: list[tuple[dict[str, str], str]] = []


@pytest.hookimpl(trylast=True)  # after what the test itself has made
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Behind the last of them it goes: it takes a tenth of a core as long as it runs."""
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        _stop()


def _stop() -> None:
    while _started:
        environment, run = _started.pop()
        subprocess.run(
            [TOOL, "down", "--purge"], env={**environment, "CLUSTER_RUN": run}, capture_output=True, timeout=120
        )


def cache() -> Path:
    base = os.environ.get("CLUSTER_CACHE")
    if base:
        return Path(base)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "k8s-test-cluster"


@pytest.fixture(scope="session")
def kubeconfig() -> Iterator[str]:
    """Path of a kubeconfig of an administrator."""
    given = os.environ.get("KUBECONFIG")
    if given:
        yield given
        return
    if not (cache() / "ready.control").exists():
        pytest.skip("no Kubernetes: set KUBECONFIG, or build one for tests with `make cluster`")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CLUSTER_RUN")}
    started = subprocess.run([TOOL, "up"], env=environment, capture_output=True, text=True, timeout=180)
    assert started.returncode == 0, started.stderr
    values = dict(
        word.split("=", 1) for line in started.stdout.splitlines() for word in shlex.split(line) if "=" in word
    )
    _started.append((environment, values["CLUSTER_RUN"]))
    try:
        yield values["KUBECONFIG"]
    finally:
        _stop()


@pytest.fixture(scope="session")
def crd(kubeconfig: str) -> None:
    """TFJobs are known to the server."""
    install_crd(kubeconfig)


@pytest.fixture
def namespace(kubeconfig: str) -> Iterator[str]:
    name = f"test-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}-{next(NUMBERS)}"

    async def make(api: Api) -> None:
        await api.create(NAMESPACES, None, {"metadata": {"name": name}})

    async def remove(api: Api) -> None:
        await api.delete(NAMESPACES, None, name)

    talk(kubeconfig, make)
    yield name
    talk(kubeconfig, remove)


@pytest.fixture
def operators(kubeconfig: str, namespace: str, tmp_path: Path) -> Iterator[Callable[..., Operator]]:
    """Starts operators of the namespace; those that run at the end are stopped in order."""
    started: list[Operator] = []

    def start(*words: str) -> Operator:
        log = tmp_path / f"operator-{len(started)}.log"
        one = Operator(kubeconfig, log, "--namespace", namespace, "--lease-namespace", namespace, *words)
        started.append(one)
        return one

    yield start
    for one in started:
        if one.process.poll() is None:
            assert one.stop() == 0, one.log.read_text()[-3000:]


@pytest.fixture
def play(kubeconfig: str, namespace: str) -> Callable[[Callable[[Api, str], Awaitable[None]]], None]:
    return lambda scenario: talk(kubeconfig, lambda api: scenario(api, namespace))
