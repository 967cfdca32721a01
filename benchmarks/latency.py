"""A network with latency between two parts of one machine, where the kernel has no `netem`: two network namespaces, a tunnel
in each, and a process that hands packets from one to the other after a while. Needs root.

    python -m benchmarks.latency 0.5        # tells the round trip of a byte over TCP, in milliseconds
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import fcntl
import os
import select
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

HERE, THERE = "10.83.0.1", "10.83.0.2"
"""Addresses of this process, and of those that are started there."""

_NEW_NET, _MAKE_TUN, _PACKETS, _MTU, _TIMER_SLACK = 0x40000000, 0x400454CA, 0x0001 | 0x1000, 60_000, 29


def _c(function: str, *arguments: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), function)(*arguments):
        raise OSError(ctypes.get_errno(), f"{function}: {os.strerror(ctypes.get_errno())}")


def _namespace(address: str, other: str) -> tuple[int, int]:
    """This process is in a new one from now on; the namespace and its tunnel."""
    _c("unshare", _NEW_NET)
    tunnel = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tunnel, _MAKE_TUN, struct.pack("16sH", b"far", _PACKETS))
    for command in (
        "ip link set lo up", f"ip addr add {address} peer {other} dev far", f"ip link set far mtu {_MTU} txqueuelen 10000 up",
    ):  # fmt: skip
        subprocess.run(command.split(), check=True)
    return os.open("/proc/self/ns/net", os.O_RDONLY), tunnel


@contextlib.contextmanager
def far_away(milliseconds: float) -> Iterator[Callable[[], None]]:
    """Moves this process into a namespace of its own, for good, before it has any thread.

    Args:
      milliseconds: one way.

    Yields:
      What a child calls (`preexec_fn`) to be on the other side.
    """
    there, far = _namespace(THERE, HERE)
    _, near = _namespace(HERE, THERE)
    command = [sys.executable, "-m", "benchmarks.latency", "relay", str(milliseconds), str(near), str(far)]
    relay = subprocess.Popen(command, pass_fds=(near, far))
    try:
        yield lambda: _c("setns", there, _NEW_NET)
    finally:
        relay.kill()
        relay.wait()


def _relay(seconds: float, near: int, far: int) -> None:
    _c("prctl", _TIMER_SLACK, 1)  # else it wakes up 50 microseconds late
    with contextlib.suppress(OSError):
        os.nice(-15)
    waiting: collections.deque[tuple[float, int, bytes]] = collections.deque()
    other = {near: far, far: near}
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for tunnel in select.select([near, far], [], [], timeout)[0]:
            with contextlib.suppress(BlockingIOError):
                while True:
                    waiting.append((time.monotonic() + seconds, other[tunnel], os.read(tunnel, 65_536)))
        while waiting and waiting[0][0] <= time.monotonic():
            _, tunnel, packet = waiting.popleft()
            with contextlib.suppress(OSError):  # a packet that is lost is sent again
                os.write(tunnel, packet)


def round_trip(enter: Callable[[], None], count: int = 200) -> float:
    """Milliseconds of a byte there and back, the median."""
    server = socket.create_server((HERE, 0))

    def echo() -> None:
        with server.accept()[0] as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while (found := connection.recv(1)) != b"":
                connection.sendall(found)

    threading.Thread(target=echo, daemon=True).start()
    command = [sys.executable, "-m", "benchmarks.latency", "ask", str(server.getsockname()[1]), str(count)]
    found = subprocess.run(command, check=True, capture_output=True, text=True, preexec_fn=enter)
    return float(found.stdout)


def _ask(port: int, count: int) -> float:
    with socket.create_connection((HERE, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        times = []
        for _ in range(count):
            began = time.perf_counter()
            connection.sendall(b"1")
            connection.recv(1)
            times.append(time.perf_counter() - began)
    return 1e3 * statistics.median(times)


def main() -> None:
    what, *rest = sys.argv[1:]
    if what == "relay":
        _relay(float(rest[0]) / 1e3, int(rest[1]), int(rest[2]))
    elif what == "ask":
        print(_ask(int(rest[0]), int(rest[1])))
    else:
        with far_away(float(what)) as enter:
            print(f"{round_trip(enter):.3f}")


if __name__ == "__main__":
    main()
