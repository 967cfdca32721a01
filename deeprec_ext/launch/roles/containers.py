"""Each role in a cgroup of its own: held to what it requests, measured by itself, and its death for want of memory known.

Only where something is requested; otherwise roles stay in the launcher's group, as they always did. The groups of a job lie
in a directory `deeprec-ext-<pid>-<start of the launcher>`. The guard removes it, also when the launcher was killed; what
both have left behind, because both were killed, the next launcher removes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

from deeprec_ext.errors import UsageError
from deeprec_ext.gazer.cgroup import Group, own_groups
from deeprec_ext.gazer.proctable import started
from deeprec_ext.launch.resources import Requests, Resources, check
from deeprec_ext.launch.roles.groups import base_for, switch_on
from deeprec_ext.launch.roles.guard import PREFIX, remove_groups
from deeprec_ext.units import format_bytes

_log = logging.getLogger(__name__)
_LOOK_AT_MAX = 20_000  # directories
_COUNTS_AS = 10
"""The scheduler shares cores among groups before it shares them inside. A job weighs like so many processes, as if its roles
had stayed beside the others of the machine."""


class Containers:
    """Made by `open_containers`. Not thread-safe: everything happens on the launcher's loop."""

    def __init__(self, requests: Requests, roots: Mapping[str, Group], own: Mapping[str, Group]) -> None:
        self._roles = {"ps": requests.ps, "worker": requests.worker}
        self._roots = roots  # controller -> the job's directory; empty: no limits
        self._pods: dict[str, Resources] = {}
        self._made: dict[str, str] = {}  # name -> role
        self._oom_seen: dict[Path, int] = {}
        self._own = own.get("memory")
        if self._own is not None:
            self._oom_seen[self._own.path] = self._own.oom_kills()

    @property
    def paths(self) -> list[Path]:
        """Directories that have to be removed at the end."""
        return [group.path for group in _distinct(self._roots)]

    def resources(self, name: str) -> Resources:
        """What a pod is held to at present, or will be."""
        kind = _kind(name)
        return self._pods.get(name) or self._roles.get(kind, Resources())

    def enter(self, name: str, wanted: Resources | None = None) -> tuple[Path, ...]:
        """Files into which a process has to write 0 to be in the pod's group, which is made. Raises UsageError."""
        if wanted:
            self._pods[name] = self.resources(name).changed(check(wanted))
        if not self._roots:
            return ()
        groups = self._groups(name)
        try:
            for group in groups.values():
                group.make()
            self._limit(groups, self.resources(name))
        except OSError as error:
            raise UsageError(f"{name} cannot be limited to {self.resources(name)}: {_line(error)}") from error
        self._made[name] = _kind(name)
        return tuple(group.processes_file for group in _distinct(groups))

    def resize(self, name: str, wanted: Resources) -> list[str]:
        """Change a pod, or a role (`ps`, `worker`) with all its pods, while they run; names of the pods changed.

        Raises UsageError, and then nothing has changed: no limits can be set, or more memory is in use.
        """
        check(wanted)
        names = [pod for pod in self._made if name in (pod, self._made[pod])]
        if not self._roots:
            raise UsageError(
                f"{name} cannot be resized: this job was started without --ps-cpu, --worker-memory and the like"
            )
        if name not in self._roles and not names:
            raise UsageError(f"{name} cannot be resized: there is no such pod")
        for pod in names:
            used = self._groups(pod)["memory"].working_set_bytes() if "memory" in self._roots else 0
            if wanted.memory_bytes and used > wanted.memory_bytes:
                limit, in_use = format_bytes(wanted.memory_bytes), format_bytes(used)
                raise UsageError(f"{pod} cannot be limited to {limit}: it uses {in_use}")
        for pod in names:
            try:
                self._limit(self._groups(pod), wanted)
            except OSError as error:
                raise UsageError(f"{pod} cannot be resized to {wanted}: {_line(error)}") from error
            self._pods[pod] = self.resources(pod).changed(wanted)
        if name in self._roles:
            self._roles[name] = self._roles[name].changed(wanted)
        return names

    def ran_out_of_memory(self, name: str) -> bool:
        """Whether the kernel killed for want of memory in the pod's group since this was asked last.

        Without groups of their own all roles share the launcher's, and so do the kills in it.
        """
        group = self._groups(name)["memory"] if name in self._made and "memory" in self._roots else self._own
        if group is None:
            return False
        kills = group.oom_kills()
        rose = kills > self._oom_seen.get(group.path, 0)
        self._oom_seen[group.path] = kills
        return rose

    def kill_rest(self, name: str) -> None:
        """What the role has started and is still there, in whatever process group."""
        if name in self._made:
            for pid in next(iter(self._groups(name).values())).read("cgroup.procs").split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)

    def _groups(self, name: str) -> dict[str, Group]:
        return {controller: root.below(name) for controller, root in self._roots.items()}

    @staticmethod
    def _limit(groups: Mapping[str, Group], resources: Resources) -> None:
        if resources.cpu:
            groups["cpu"].limit_cpu(resources.cpu)
        if resources.memory_bytes:
            groups["memory"].limit_memory(resources.memory_bytes)


def open_containers(requests: Requests, own: Mapping[str, Group] | None = None) -> Containers:
    """The directories of a job's groups. Raises UsageError where limits are requested and cannot be set.

    Args:
        own: controller -> our own group; from the kernel if not given.
    """
    own = own_groups() if own is None else own
    if not requests:
        return Containers(requests, {}, own)
    wanted = {
        "cpu": requests.ps.cpu or requests.worker.cpu,
        "memory": requests.ps.memory_bytes or requests.worker.memory_bytes,
    }
    for controller in wanted:
        if wanted[controller] and controller not in own:
            raise _unlimited(controller, f"no cgroup controller {controller} is mounted")
    roots: dict[str, Group] = {}
    for group in _distinct(own):
        controllers = [name for name in own if own[name] == group]
        limiting = [name for name in controllers if name in wanted]
        try:
            base = base_for(group, limiting)
            remove_leftovers(_mount_of(base.path))
            root = base.below(_directory())
            root.make()
            roots.update(dict.fromkeys(controllers, root))
            switch_on(root, limiting)
            if "cpu" in controllers:
                root.weigh(_COUNTS_AS)
        except OSError as error:
            refused = [name for name in limiting if wanted[name]]
            if refused:
                remove_groups([root.path for root in _distinct(roots)])
                raise _unlimited(refused[0], _line(error)) from error
            _log.info("%s is not measured per role: %s", ", ".join(controllers), _line(error))
    return Containers(requests, roots, own)


def remove_leftovers(top: Path) -> None:
    """Directories of launchers that do not live any more, anywhere below `top`; their processes are killed."""
    for path in _walk(top):
        match = re.fullmatch(rf"{PREFIX}(\d+)-(\d+)", path.name)
        if match and started(int(match[1])) != int(match[2]):
            _log.info("removing %s, left by a launcher that was killed", path)
            remove_groups([path])


def _walk(top: Path) -> Iterator[Path]:
    for number, (directory, names, _) in enumerate(os.walk(top)):
        if number >= _LOOK_AT_MAX:
            return
        yield from (Path(directory) / name for name in names if name.startswith(PREFIX))
        names[:] = [name for name in names if not name.startswith(PREFIX)]


def _mount_of(path: Path) -> Path:
    while not os.path.ismount(path) and path != path.parent:
        path = path.parent
    return path


def _directory() -> str:
    return f"{PREFIX}{os.getpid()}-{started(os.getpid())}"


def _kind(name: str) -> str:
    return "ps" if name.startswith("ps-") else "" if name == "aimaster" else "worker"


def _distinct(groups: Mapping[str, Group]) -> list[Group]:
    return list(dict.fromkeys(groups.values()))


def _line(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)


def _unlimited(what: str, why: str) -> UsageError:
    return UsageError(
        f"--ps-{what}, --worker-{what}: roles cannot be limited on this machine ({why}). Run as root, or: systemd-run --user "
        "--scope -p Delegate=yes deeprec-ext run ...; in a container, mount its cgroup writable; or leave the limits out"
    )
