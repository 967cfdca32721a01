"""`run --isolate`: what is decided on which machine, and namespaces that are really made."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from deeprec_ext.errors import UsageError
from deeprec_ext.launch.roles import isolation
from deeprec_ext.launch.roles.isolation import Namespace, decide, loopback_name_server, remove_socket, socket_for

ROOT = Path(__file__).resolve().parents[3]
CHILD = ROOT / "deeprec_ext" / "launch" / "roles" / "child.py"
ANYWHERE = {"impossible": "", "outward": "/usr/bin/slirp4netns", "unresolved": "", "port": 0}
WHY = isolation.why_impossible()
needs_namespaces = pytest.mark.skipif(bool(WHY), reason=f"no network namespace can be made here: {WHY}")


def test_auto_isolates_where_the_script_keeps_its_way_out() -> None:
    decision = decide("auto", **ANYWHERE)
    assert decision.own and decision.outward == "/usr/bin/slirp4netns"
    assert "through slirp4netns" in decision.line and "--isolate off" in decision.line


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"outward": None}, "--isolate on closes them (the script then reaches no network, unless slirp4netns"),
        ({"impossible": "Operation not permitted"}, "no namespace can close them here (Operation not permitted)"),
        ({"unresolved": "127.0.0.53"}, "--isolate on closes them"),
        ({"port": 4000}, "--isolate on closes them"),
    ],
)
def test_elsewhere_auto_leaves_it_and_says_what_is_open(change: dict[str, object], part: str) -> None:
    decision = decide("auto", **{**ANYWHERE, **change})  # type: ignore[arg-type]
    assert not decision.own and "TensorFlow's ports are open to all users of this machine" in decision.line
    assert part in decision.line


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_of_a_job_without_ps_no_port_of_tensorflow_is_said_to_be_open(mode: str) -> None:
    line = decide(mode, **{**ANYWHERE, "outward": None}, sums=True).line  # type: ignore[arg-type]
    assert (
        "TensorFlow" not in line and "the ports at which workers sum take in only who proves to be of this job" in line
    )
    assert "--isolate on closes them" in line
    decision, namespace = isolation.open_network("off", sums=True)
    assert namespace is None and "TensorFlow" not in decision.line


def test_on_says_what_the_script_loses() -> None:
    assert "reaches no network" in decide("on", **{**ANYWHERE, "outward": None}).line
    assert "127.0.0.53 is out of reach" in decide("on", **{**ANYWHERE, "unresolved": "127.0.0.53"}).line


@pytest.mark.parametrize(
    ("change", "part"), [({"port": 4000}, "--port 4000"), ({"impossible": "not permitted"}, "not permitted")]
)
def test_on_where_it_cannot_be_is_an_error(change: dict[str, object], part: str) -> None:
    with pytest.raises(UsageError, match=part):
        decide("on", **{**ANYWHERE, **change})  # type: ignore[arg-type]


def test_off_is_off_and_says_what_is_open() -> None:
    decision, namespace = isolation.open_network("off")
    assert namespace is None and "are open to all users" in decision.line


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("nameserver 127.0.0.53\n", "127.0.0.53"),
        ("search x\nnameserver 10.0.0.2\nnameserver 127.0.0.1\n", ""),
        ("", ""),
    ],
)
def test_a_name_server_of_the_machine_itself_is_out_of_reach(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / "resolv.conf").write_text(text)
    assert loopback_name_server(tmp_path / "resolv.conf") == found
    assert loopback_name_server(tmp_path / "missing") == ""


@pytest.mark.parametrize("name", ["x" * 120, "with space", "50%", "what?", "a#b", "größe"])
def test_the_socket_is_where_grpc_and_the_kernel_take_it(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name
    directory.mkdir()
    path = socket_for(directory)
    assert path.parent != directory and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    remove_socket(path, directory)
    assert not path.parent.exists()


def test_usually_the_socket_is_in_the_run_directory() -> None:
    assert socket_for(Path("/runs/train-1")) == Path("/runs/train-1/aimaster.sock")


def inside(namespace: Namespace, *command: str) -> subprocess.CompletedProcess[str]:
    orders = ":".join([str(os.getpid()), *(f"namespace={number}" for number in namespace.descriptors)])
    return subprocess.run(
        [sys.executable, "-I", "-S", str(CHILD), orders, *command], pass_fds=namespace.descriptors,
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip


@needs_namespaces
def test_inside_there_is_a_loopback_of_its_own_and_nothing_else() -> None:
    namespace = Namespace()
    try:
        with socket.create_server(("127.0.0.1", 0)) as outside:
            port = outside.getsockname()[1]
            code = f"""
import os, socket
with socket.create_server(("127.0.0.1", {port})) as server:  # the port is free here
    socket.create_connection(server.getsockname(), timeout=5).close()
print([line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]])
print(os.geteuid() == {os.geteuid()}, os.getegid() == {os.getegid()})
try:
    socket.create_connection(("127.0.0.1", {port}), timeout=5)
except ConnectionRefusedError:
    print("refused")
"""
            done = inside(namespace, sys.executable, "-c", code)
    finally:
        namespace.close()
    assert done.stdout.splitlines() == ["['lo']", "True True", "refused"], done.stderr
    assert namespace.descriptors == []


NOBODY = 65534
PYTHON = "/usr/bin/python3"
IMPORTS = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import deeprec_ext.launch.roles.isolation"
AS_NOBODY = f"""
import os, socket, subprocess, sys
sys.path.insert(0, {str(ROOT)!r})
from deeprec_ext.launch.roles.isolation import Namespace
namespace = Namespace()
assert len(namespace.descriptors) == 2, "a user namespace, too"
orders = ":".join([str(os.getpid()), *(f"namespace={{number}}" for number in namespace.descriptors)])
outside = socket.socket()  # holds the port and does not listen: a server outside at the same number would be reached
outside.bind(("127.0.0.1", 0))
port = outside.getsockname()[1]
code = (
    f"import os, socket; server = socket.create_server(('127.0.0.1', {{port}})); print(os.geteuid(), flush=True); input()"
)
with subprocess.Popen([sys.executable, "-I", "-S", {str(CHILD)!r}, orders, sys.executable, "-c", code],
                      pass_fds=namespace.descriptors, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
    assert int(server.stdout.readline()) == os.geteuid()
    status = open(f"/proc/{{server.pid}}/status").read()
    assert "CapEff:\\t0000000000000000" in status, "no rights are gained in it"
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5)
        print("reached")
    except ConnectionRefusedError:
        print("out of reach")
    server.stdin.close()
"""


@needs_namespaces
@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="becoming another user needs root and setpriv"
)
def test_a_user_without_rights_isolates_as_well() -> None:
    as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    able = subprocess.run([*as_nobody, PYTHON, "-c", IMPORTS], capture_output=True, text=True, timeout=30, check=False)
    if able.returncode:
        pytest.skip(f"nobody cannot run this: {able.stderr.strip().splitlines()[-1:]}")
    allowed = subprocess.run([*as_nobody, "unshare", "-Urn", "true"], capture_output=True, timeout=30, check=False)
    if allowed.returncode:
        pytest.skip("user namespaces are not allowed here")
    done = subprocess.run(
        [*as_nobody, PYTHON, "-c", AS_NOBODY], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout == "out of reach\n", done.stderr


LEADS = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from deeprec_ext.launch.roles.isolation import OUTWARD, Namespace
print(Namespace(OUTWARD)._outward.pid, flush=True)
time.sleep(60)
"""


@needs_namespaces
@pytest.mark.skipif(not shutil.which(isolation.OUTWARD), reason=f"{isolation.OUTWARD} is not on the PATH")
def test_what_leads_outward_ends_with_the_launcher_even_if_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", LEADS], stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        pid = int(launcher.stdout.readline())
        assert psutil.pid_exists(pid)
        launcher.kill()
    deadline = time.monotonic() + 20
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(pid)


@needs_namespaces
def test_a_way_out_that_does_not_work_is_one_line_and_auto_goes_on_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / isolation.OUTWARD
    program.write_text("#!/bin/sh\necho 'no \033[2Jtun' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(isolation, "loopback_name_server", lambda: "")
    decision, namespace = isolation.open_network("auto")
    assert namespace is None and not decision.own
    assert "does not work here: no ␛[2Jtun" in decision.line and "are open to all users" in decision.line
    with pytest.raises(UsageError, match="does not work here"):
        isolation.open_network("on")
