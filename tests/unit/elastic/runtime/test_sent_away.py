"""The first process of a pod, which no signal ends that it does not handle: a namespace of its own stands in for the pod."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys

import pytest

from deeprec_ext.elastic import sent_away

UNSHARE = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]

SCRIPT = """
import os, signal, sys, time
assert os.getpid() == 1
from deeprec_ext.elastic import sent_away
mode, children = sys.argv[1:]
if mode != "stock":
    sent_away.install()
assert sent_away.is_free()
if mode == "wrapper":
    import subprocess
    child = subprocess.Popen(["sleep", "60"])
if mode in ("known", "alone"):
    sent_away.is_known()
if mode == "alone":
    sent_away.only_if(lambda: False)
reads, writes = os.pipe()
if children == "child" and not (child := os.fork()):
    os.write(writes, b"!")
    time.sleep(60)
elif children == "child":
    os.read(reads, 1)
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    sys.exit()
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _allowed() -> None:
    if shutil.which("unshare") is None or subprocess.run([*UNSHARE, "true"], capture_output=True).returncode:
        pytest.skip("namespaces of processes cannot be made here")


def begin(mode: str, children: str = "") -> subprocess.Popen[str]:
    words = [*UNSHARE, "--kill-child", sys.executable, "-c", SCRIPT, mode, children]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def first_process(unshare: subprocess.Popen[str]) -> int:
    """Its pid here."""
    path = f"/proc/{unshare.pid}/task/{unshare.pid}/children"
    with open(path, encoding="ascii") as file:
        return int(file.read().split()[0])


@pytest.mark.parametrize(
    ("mode", "ends"), [("stock", False), ("new", True), ("known", True), ("alone", False), ("wrapper", False)]
)
def test_it_ends_soon_but_where_nobody_else_has_what_it_trains(mode: str, ends: bool) -> None:
    process = begin(mode)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        subprocess.run(["kill", "-TERM", str(first_process(process))], check=True)
        if ends:
            assert process.wait(30) == sent_away.EXIT_CODE == 128 + signal.SIGTERM
            return
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(2 * sent_away.PATIENCE_SECONDS)
    finally:
        process.kill()
        process.wait()


def test_a_child_of_it_ends_as_ever() -> None:
    process = begin("known", "child")
    out, _ = process.communicate(timeout=30)
    assert out == f"{sent_away.EXIT_CODE}\n"
