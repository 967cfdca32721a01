"""The processors that a process may use, and how long they have worked, for whomever: what there is to share.

The kernel counts for each processor what it did since it booted (/proc/stat). A process may be kept to some of them, and a
container to a quota of processor time that all in it share. What cannot be read is 0, which means: not known.
"""

from __future__ import annotations

import os

from deeprec_ext.gazer.cgroup import Cgroup, read
from deeprec_ext.gazer.proctable import TICKS_A_SECOND
from deeprec_ext.proto import deeprec_ext_pb2 as pb

_WORKED = (0, 1, 2, 5, 6, 7)
"""user, nice, system, irq, softirq, steal (the hypervisor gave it to others); not idle, iowait, nor guest, which is in user."""


def processors() -> frozenset[int]:
    """Numbers of those that this process may use (its affinity); empty where the system does not tell."""
    try:
        return frozenset(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return frozenset()


def worked_seconds(stat: str, numbers: frozenset[int]) -> float:
    """Of these processors since boot; `stat`: the text of /proc/stat."""
    ticks = 0
    for line in stat.splitlines():
        name, *words = line.split()
        if not name.startswith("cpu"):
            break  # they come first
        if name[3:].isdigit() and int(name[3:]) in numbers:
            ticks += sum(int(words[at]) for at in _WORKED if at < len(words) and words[at].isdigit())
    return ticks / TICKS_A_SECOND


def machine(root: str = "/") -> str:
    """What tells this host from those of another kind, `2 x AMD EPYC 7B13`: on another one, a job has another speed. All its
    processors count, also where this process may use some of them alone: processes of one job may each have others."""
    lines = read(os.path.join(root, "proc/cpuinfo")).splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))]
    count = sum(line.startswith("processor") for line in lines) or len(processors())
    return f"{count} x {names[0] if names else 'cores'}"[:100] if count else ""


def free_memory_bytes(cgroup: Cgroup | None = None) -> int:
    """What processes beside this one may still take: of the machine's memory what is available, and no more than the limits of
    this process's container leave.

    Args:
        cgroup: the container of this process; found if not given.
    """
    import psutil  # of the master side: it is not in the image of a trainer

    available, left = int(psutil.virtual_memory().available), (cgroup or Cgroup()).free_memory_bytes()
    return available if left is None else min(available, left)


class HostReader:
    """Args:
    root: where `/proc` is looked for; for tests.
    cgroup: the container of this process.
    """

    def __init__(self, root: str, cgroup: Cgroup) -> None:
        self._stat, self._cgroup = os.path.join(root, "proc/stat"), cgroup

    def read(self, shared: bool) -> pb.HostSample:
        """`shared`: the process's own group has other roles in it, so that its quota is theirs too."""
        numbers = processors()
        worked = worked_seconds(read(self._stat), numbers)
        quota, used = self._cgroup.shared_quota(own=shared)
        return pb.HostSample(
            cores=float(len(numbers)) if worked else 0.0,
            busy_seconds=worked,
            quota_cores=quota,
            quota_seconds=used,
            processors=sorted(numbers) if worked else (),
        )
