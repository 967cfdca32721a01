"""What this process costs, read from /proc and the files of its control groups: no library, well below a millisecond."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from deeprec_ext.gazer.cgroup import Cgroup, read
from deeprec_ext.gazer.host import HostReader
from deeprec_ext.gazer.proctable import TICKS_A_SECOND, stat_fields
from deeprec_ext.proto import deeprec_ext_pb2 as pb

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

NEIGHBOURS_EVERY = 30
"""Samples between two looks at who else is in the container: that costs a file for each process there."""

NEIGHBOURS_MAX = 200
"""Processes of the container that are looked at."""


@dataclass(frozen=True)
class ProcessSample:
    """Resident memory in bytes and CPU time in seconds since the start of the process."""

    rss_bytes: int
    cpu_seconds: float


def process_sample() -> ProcessSample:
    """Of the calling process. Memory is 0 where /proc is absent."""
    try:
        with open("/proc/self/statm") as statm:
            rss = int(statm.read().split()[1]) * _PAGE_BYTES
    except OSError:
        rss = 0
    return ProcessSample(rss, time.process_time())


class ProcessReader:
    """Everything that Gazer reports of a process and its container. What cannot be read is 0; nothing raises.

    Args:
      root: where `/proc` and the control groups are looked for; for tests.
    """

    def __init__(self, root: str = "/") -> None:
        self._proc = os.path.join(root, "proc")
        self._cgroup = Cgroup(root)
        self._host = HostReader(root, self._cgroup)
        self._samples = 0
        self._shared = False

    def read(self) -> pb.ProcessSample:
        cpu, rss, threads = self._stat()
        received, sent = self._network()
        if self._samples % NEIGHBOURS_EVERY == 0:
            self._shared = self._has_neighbours()
        self._samples += 1
        return pb.ProcessSample(
            **vars(self._cgroup.sample()),
            cpu_seconds=cpu,
            rss_bytes=rss,
            received_bytes=received,
            sent_bytes=sent,
            open_files=self._open_files(),
            threads=threads,
            shared_limits=self._shared,
        )

    def read_host(self) -> pb.HostSample:
        """Of the machine, or of what a container leaves of it."""
        return self._host.read(self._shared)

    def _stat(self) -> tuple[float, int, int]:
        """(CPU seconds, resident bytes, threads)."""
        fields = stat_fields(f"{self._proc}/self/stat")
        return (fields[14] + fields[15]) / TICKS_A_SECOND, fields[24] * _PAGE_BYTES, fields[20]

    def _network(self) -> tuple[int, int]:
        """Bytes (received, sent) of the network namespace; the loopback device counts only where it is the only one."""
        devices = {}
        for line in read(f"{self._proc}/self/net/dev").splitlines():
            name, colon, numbers = line.partition(":")
            values = numbers.split()
            if colon and len(values) >= 9 and values[0].isdigit() and values[8].isdigit():
                devices[name.strip()] = int(values[0]), int(values[8])
        if len(devices) > 1:
            devices.pop("lo", None)
        return sum(one for one, _ in devices.values()), sum(one for _, one in devices.values())

    def _open_files(self) -> int:
        try:
            return len(os.listdir(f"{self._proc}/self/fd"))
        except OSError:
            return 0

    def _has_neighbours(self) -> bool:
        """Whether the container has processes that neither started this one nor were started by it: other roles."""
        own, leaf = stat_fields(f"{self._proc}/self/stat")[1], self._cgroup.leaf
        if not own or leaf is None:
            return True  # no container of its own
        family = self._ancestors(own)
        others = {int(pid) for pid in read(f"{leaf}/cgroup.procs").split()[:NEIGHBOURS_MAX] if pid.isdigit()} - family
        return any(above and own not in above for above in map(self._ancestors, others))

    def _ancestors(self, pid: int) -> set[int]:
        """The process and those above it, as far as they are visible; empty for one that has ended."""
        found: set[int] = set()
        while pid not in found and (fields := stat_fields(f"{self._proc}/{pid}/stat"))[1] == pid > 0:
            found.add(pid)
            pid = fields[4]
        return found
