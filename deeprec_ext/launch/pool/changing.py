"""What a command changes of a pool whose jobs run: how important one of them is, and how much there is to share.

The leader sees it at its next turn. What is said of a job lasts until it leaves; the size, while somebody is in the pool.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from deeprec_ext.bounds import real, whole
from deeprec_ext.errors import UsageError
from deeprec_ext.launch.pool.entry import Changes, Entry, PoolSize, needed
from deeprec_ext.launch.pool.membership import alone, usable
from deeprec_ext.launch.pool.places import PoolDirectory, put
from deeprec_ext.launch.pool.seen import Seen, read
from deeprec_ext.units import few

SAID = {"priority": whole("number"), "weight": real("number")}


def changes_of(words: Sequence[str]) -> Changes:
    """`priority=500`, `weight=2`. Raises UsageError."""
    found: dict[str, float] = {}
    for word in words:
        name, is_said, value = word.partition("=")
        if name not in SAID or not is_said:
            raise UsageError(f"--set {word[:80]}: say priority=NUMBER, weight=NUMBER, or both")
        try:
            found[name] = SAID[name](value)
        except argparse.ArgumentTypeError as error:
            raise UsageError(f"--set {word[:80]}: {error}") from None
    if not found:
        raise UsageError("--set: say what is to be changed of the job: priority=NUMBER, weight=NUMBER, or both")
    changes = Changes(**found)  # type: ignore[arg-type]
    if changes.weight is not None and not changes.weight > 0:
        raise UsageError(f"--set weight={changes.weight:g}: must be more than 0")
    return changes


def find(directory: PoolDirectory, seen: Seen, job: str) -> Entry:
    """By its run directory, or the last part of that. Raises UsageError."""
    path = str(Path(job).resolve())
    found = [one for one in seen.entries if one.job in (job, path)]
    found = found or [one for one in seen.entries if Path(one.job).name == job]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(
            f"--set {job}: {len(found)} jobs of the pool {directory.name} are called so; give the whole run directory: "
            f"{few([one.job for one in found])}"
        )
    there = few([Path(one.job).name for one in seen.entries], 10) or "nobody"
    raise UsageError(f"--set {job}: is not in the pool {directory.name}; in it is {there}")


def change_job(directory: PoolDirectory, entry: Entry, changes: Changes) -> None:
    """What was changed before and is not said now stays. Raises UsageError."""
    with alone(directory), usable(directory):
        before = read(Changes, directory.changes(entry.job)) or Changes()
        said = {name: value for name, value in vars(changes).items() if value is not None}
        put(directory.changes(entry.job), dataclasses.asdict(dataclasses.replace(before, **said)))


def resized(directory: PoolDirectory, seen: Seen, cores: float) -> PoolSize:
    """Raises UsageError."""
    if not cores:
        raise UsageError("--pool-cores 0: no job would ever have room; say how many the pool is to have")
    if seen.size is None or not seen.entries:
        raise UsageError(
            f"--pool-cores {cores:g}: no job is in the pool {directory.name}; its first one says it (run --pool-cores)"
        )
    return dataclasses.replace(seen.size, cores=cores)


def change_size(directory: PoolDirectory, size: PoolSize) -> None:
    """Raises UsageError."""
    with alone(directory), usable(directory):
        put(directory.size, dataclasses.asdict(size))


def consequences(seen: Seen, size: PoolSize) -> list[str]:
    """Of a pool that has so much from now on, where it is too little for somebody."""
    told = []
    least = sum(needed(one, one.least).cpu for one in seen.entries if one.running)
    if least > size.cores:
        told.append(
            f"the leasts of the jobs that run are {least:g} cores: nobody is ended, so they go on with these until some end"
        )
    for one in seen.entries:
        if not one.running and (needs := needed(one, one.least).cpu) > size.cores:
            told.append(f"{one.job}, which waits, needs {needs:g} cores at least and has no room in the pool so")
    return told
