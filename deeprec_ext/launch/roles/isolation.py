"""`run --isolate`: PS and trainers in a network namespace of their own.

TensorFlow's own port takes graphs from whoever reaches it, and a graph reads any file that the job's owner may read. In a
namespace of the job nobody reaches it: no other user, no other machine. AIMaster and launcher stay outside; what is inside
talks to the AIMaster through its Unix socket, which a namespace does not hide, so commands and dashboard are as without.

A namespace has no way out. Where `slirp4netns` is on the PATH it is the way (user-mode networking: nothing comes in). A script
that reads remote data would fail without, long after its start, so `auto` takes a namespace only where there is a way out.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from deeprec_ext.errors import UsageError
from deeprec_ext.printable import printable

MODES = ("auto", "on", "off")
OUTWARD = "slirp4netns"
NO_PORT = "--port {}: with --isolate on the AIMaster has a Unix socket and no port; leave one out"
_MAKER = Path(__file__).with_name("netns.py")
_READY_SECONDS = 10.0
_SOCKET, _SOCKET_MAX = "aimaster.sock", 100  # the kernel takes 107 characters
_MTU = "65520"  # the most that it takes: fewer packets


@dataclass(frozen=True)
class Decision:
    """Whether the job gets a network of its own; `line` says so, and what follows from it, to the user."""

    own: bool
    line: str
    outward: str | None = None  # the program that leads out of it


def decide(
    mode: str, *, impossible: str, outward: str | None, unresolved: str, port: int, sums: bool = False
) -> Decision:
    """What `--isolate MODE` comes to on this machine. Raises UsageError where `on` cannot be.

    Args:
      impossible: why no namespace can be made here; empty: it can.
      outward: the program that leads out of a namespace, if there is one.
      unresolved: a name server of this machine that is not reached through it; empty: none.
      port: of `--port`, 0 if it was not given.
      sums: the job has no PS.
    """
    if mode == "on":
        if port:
            raise UsageError(NO_PORT.format(port))
        if impossible:
            raise UsageError(
                f"--isolate on: no network namespace can be made here ({impossible}); run as root, or allow user namespaces "
                "(sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0)"
            )
        return Decision(True, _inside(outward, unresolved), outward)
    if mode == "auto" and not impossible and outward and not unresolved and not port:
        return Decision(True, _inside(outward, unresolved), outward)
    return Decision(False, f"network: {IN_STEP if sums else open_ports()}; {_remedy(impossible, outward)}")


def socket_for(directory: Path) -> Path:
    """Where the AIMaster's Unix socket will be: in the run directory or, where its path is none that gRPC and the kernel take,
    in a directory of its own that nobody else can enter."""
    path = directory / _SOCKET
    if re.fullmatch(r"[\w./-]+", str(path), re.ASCII) and len(str(path)) <= _SOCKET_MAX:
        return path
    return Path(tempfile.mkdtemp(prefix="deeprec-ext-")) / _SOCKET


def remove_socket(path: Path, directory: Path) -> None:
    """After the run."""
    path.unlink(missing_ok=True)
    if path.parent != directory:
        with contextlib.suppress(OSError):
            path.parent.rmdir()


IN_STEP = "the ports at which workers sum take in only who proves to be of this job"
"""Of a job without PS, which has no port of TensorFlow's."""


def open_ports() -> str:
    """What a run without a network of its own leaves open."""
    owner = "root" if os.geteuid() == 0 else "you"
    return f"TensorFlow's ports are open to all users of this machine, who can read through them what {owner} can read"


def _remedy(impossible: str, outward: str | None) -> str:
    if impossible:
        return f"no namespace can close them here ({impossible})"
    reach = "" if outward else f" (the script then reaches no network, unless {OUTWARD} is installed)"
    return f"--isolate on closes them{reach}"


def _inside(outward: str | None, unresolved: str) -> str:
    line = "network: the job's own; from outside only AIMaster and dashboard are reached"
    if outward is None:
        return f"{line}; the script reaches no network ({OUTWARD} is not on the PATH)"
    names = f", and no names are resolved: {unresolved} is out of reach" if unresolved else ""
    return f"{line}; the script reaches others through {OUTWARD}, but no service at 127.0.0.1{names} (--isolate off)"


def loopback_name_server(path: Path = Path("/etc/resolv.conf")) -> str:
    """The first name server, if it is at a loopback address of this machine: nobody inside reaches it."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in path.read_text().splitlines():
            words = line.split()
            if len(words) > 1 and words[0] == "nameserver":
                return words[1] if words[1].startswith("127.") or words[1] == "::1" else ""
    return ""


def why_impossible() -> str:
    """Why no namespace can be made here, in a few words; empty: one was made, and is gone again."""
    try:
        Namespace().close()
    except UsageError as error:
        return str(error)
    return ""


def open_network(mode: str, port: int = 0, *, sums: bool = False) -> tuple[Decision, Namespace | None]:
    """Decides, and makes it. `sums`: of a job without PS. Raises UsageError."""
    outward = shutil.which(OUTWARD)
    if mode == "off":
        return decide(mode, impossible="", outward=outward, unresolved="", port=port, sums=sums), None
    decision = decide(
        mode, impossible=why_impossible(), outward=outward, unresolved=loopback_name_server(), port=port, sums=sums
    )
    if not decision.own:
        return decision, None
    try:
        return decision, Namespace(decision.outward)
    except UsageError as error:
        if mode == "on":
            raise
        return Decision(False, f"network: {IN_STEP if sums else open_ports()}; {error}"), None


class Namespace:
    """A network namespace with its loopback up, for as long as this object or a process in it lives."""

    def __init__(self, outward: str | None = None) -> None:
        """Raises UsageError that says why there is none."""
        self.descriptors: list[int] = []
        """Of the namespaces, in the order in which a process enters them."""
        self._outward: subprocess.Popen[bytes] | None = None
        self._leads: int | None = None
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - `close` does; a pipe that nobody reads would stop who writes
        with subprocess.Popen(
            [sys.executable, "-I", "-S", str(_MAKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as maker:  # fmt: skip
            assert maker.stdin is not None and maker.stdout is not None
            try:
                answer = maker.stdout.readline().strip()
                if answer != "ready":
                    raise UsageError(answer or "the program that makes it ended")
                for kind in ("user", "net"):
                    path = f"/proc/{maker.pid}/ns/{kind}"
                    if os.readlink(path) != os.readlink(f"/proc/self/ns/{kind}"):
                        self.descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                if outward is not None:
                    self._lead_outward(outward, maker.pid)
            except BaseException as error:
                self.close()
                if isinstance(error, OSError):
                    raise UsageError(f"{error.filename}: {error.strerror}") from error
                raise
            finally:
                maker.stdin.close()  # it ends; the descriptors keep what it has made

    def _lead_outward(self, program: str, pid: int) -> None:
        """Starts it, and waits until there is a route. Raises UsageError."""
        ends, self._leads = os.pipe()  # it ends with the last writer: with this process, whatever that dies of
        try:
            self._outward = subprocess.Popen(
                [program, "--configure", f"--mtu={_MTU}", "--disable-host-loopback", f"--exit-fd={ends}", str(pid), "tap0"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._said, pass_fds=(ends,),
                start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(ends)
        deadline = time.monotonic() + _READY_SECONDS
        while not _has_route(pid):
            if self._outward.poll() is not None:
                self._said.seek(0)
                said = self._said.read(4096).decode(errors="replace").strip().splitlines() or ["it ended"]
                raise UsageError(f"{program} does not work here: {printable(said[0])}")
            if time.monotonic() > deadline:
                raise UsageError(f"{program} did not make a network within {_READY_SECONDS:.0f} s")
            time.sleep(0.02)

    def close(self) -> None:
        """Processes in it keep it, but nothing leads out of it any more."""
        if self._outward is not None:
            self._outward.kill()
            self._outward.wait()
            self._outward = None
        if self._leads is not None:
            os.close(self._leads)
            self._leads = None
        self._said.close()
        while self.descriptors:
            os.close(self.descriptors.pop())


def _has_route(pid: int) -> bool:
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/net/route").read_text().splitlines()[1:]
        return any(line.split()[1] == "00000000" for line in lines)
    return False
