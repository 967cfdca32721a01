"""Where cgroups of roles can be made: this needs a directory that we may write to."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from deeprec_ext.gazer.cgroup import Group
from deeprec_ext.gazer.proctable import descendants


def base_for(own: Group, controllers: Iterable[str]) -> Group:
    """Where new groups with these controllers can be made: our own group, or in version 2 perhaps the one above it.

    In version 2 a group that has children with controllers may have no processes itself. So the controllers must be
    switched on already, or we must be alone in our group and can move into a child of it. Raises OSError.
    """
    if own.version == 1:
        return own
    wanted = set(controllers)
    error: OSError | None = None
    for base in (own, Group(own.path.parent, 2)):
        if not wanted <= set(base.read("cgroup.controllers").split()):
            continue
        try:
            switch_on(base, wanted)
            return base
        except OSError as refused:
            error = refused
            if base == own and _alone_in(own):
                with contextlib.suppress(OSError):
                    _move_into_child(own)
                    switch_on(own, wanted)
                    return own
    raise error or PermissionError(1, "the group has not all of these controllers", str(own.path))


def switch_on(group: Group, controllers: Iterable[str]) -> None:
    """So that the groups below it have them (version 2; nothing to do in version 1). Raises OSError."""
    missing = set(controllers) - set(group.read("cgroup.subtree_control").split())
    if group.version == 2 and missing:
        (group.path / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(missing)))


def _alone_in(group: Group) -> bool:
    ours = {os.getpid(), *descendants(os.getpid())}
    return {int(pid) for pid in group.read("cgroup.procs").split()} <= ours


def _move_into_child(group: Group) -> None:
    child = group.below("deeprec-ext-launcher")
    child.make()
    for pid in group.read("cgroup.procs").split():
        child.processes_file.write_text(pid)
