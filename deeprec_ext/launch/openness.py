"""Who else can change a run directory.

Its files are their owner's alone, but whoever can write to the directory can put others in their place, and whoever can write
to one above it can put another directory in its place: a store with other decisions, certificates, a script's checkpoints. We
change no directory that is not ours, so it is said. A sticky directory (as /tmp) lets nobody move what belongs to others.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

ROOT = 0
_ACL = "system.posix_acl_access"


@dataclass(frozen=True)
class Opening:
    """Where somebody else gets in: one line, and what to do."""

    line: str
    remedy: str


def opening(directory: Path) -> Opening | None:
    """The nearest one, from the directory upwards; what is not there yet is none.

    It counts also below a directory that lets nobody through: that one may be opened, for another reason, while the job runs.
    """
    path = directory.resolve()
    for place in (path, *path.parents):
        try:
            found = place.stat()
        except OSError:
            continue
        sticky = place != path and found.st_mode & stat.S_ISVTX
        who = _owner(found) if sticky else _writers(place, found)
        if not who:
            continue
        harm = (
            "can change what the job has written" if place == path else f"can put another directory in place of {path}"
        )
        remedy = (
            f"chmod go-w {place}"
            if os.geteuid() in (ROOT, found.st_uid) and not _owner(found)
            else "choose a directory below one of yours"
        )
        return Opening(f"{place} (mode {stat.S_IMODE(found.st_mode):04o}) can be written by {who}, who {harm}", remedy)
    return None


def _writers(place: Path, found: os.stat_result) -> str:
    """Beside root and us, who have all rights anyway; empty: nobody."""
    if found.st_mode & stat.S_IWOTH:
        return "every user"
    if found.st_mode & stat.S_IWGRP:
        if _has_acl(place):
            return "those that its ACL names"
        if not _is_of_one_user(found.st_gid):
            return f"the group {_group_name(found.st_gid)}"
    return _owner(found)


def _owner(found: os.stat_result) -> str:
    return "" if found.st_uid in (ROOT, os.geteuid()) else f"its owner {_user_name(found.st_uid)}"


def _is_of_one_user(group: int) -> bool:
    """Root's, or the one that Debian and others make for each user, under the user's name: with it comes a umask of 002."""
    if group == ROOT:
        return True
    try:
        user = pwd.getpwuid(os.geteuid())
        entry = grp.getgrgid(group)
    except KeyError:
        return False
    return entry.gr_gid == user.pw_gid and entry.gr_name == user.pw_name and not set(entry.gr_mem) - {user.pw_name}


def _has_acl(place: Path) -> bool:
    """With an ACL the group's rights are the most that anybody gets whom it names."""
    try:
        return _ACL in os.listxattr(place)
    except OSError:
        return False


def _group_name(group: int) -> str:
    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return str(group)


def _user_name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
