"""Decisions about snapshots, as pure functions: base or delta, what may be removed, which is the newest consistent one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from deeprec_ext.backup.manifest import Manifest, data_name, manifest_name, newest_first

CHAIN_MAX = 64
"""Snapshots in a chain: a restore opens so many files per slot at most."""


@dataclass(frozen=True)
class CommittedSnapshot:
    """What planning has to remember of a committed snapshot."""

    id: str
    number: int
    base: str
    """Id of the base it builds on; its own id when it is one."""
    bytes: int
    files: tuple[str, ...]
    """Its own files, without those of earlier snapshots."""
    job_id: str


@dataclass(frozen=True)
class Next:
    """What the next snapshot is to be."""

    base: bool
    why: str


def committed(manifest: Manifest) -> CommittedSnapshot:
    cut = manifest.cut
    names = tuple(file.name for file in cut.files)
    return CommittedSnapshot(cut.id, cut.number, manifest.base.id, cut.bytes, names, manifest.job_id)


def chain_of(cuts: Sequence[CommittedSnapshot], base: str) -> list[CommittedSnapshot]:
    return sorted((cut for cut in cuts if cut.base == base), key=lambda cut: cut.number)


def next_cut(
    chain: Sequence[CommittedSnapshot], *, marks_on: bool, changed: str = "", chain_max: int = CHAIN_MAX
) -> Next:
    """Whether the next snapshot begins a new chain.

    Args:
        chain: the snapshots of the present chain, base first; empty when there is none.
        marks_on: changed rows have been marked ever since the newest of them.
        changed: why everything is to be written again (a restore, another model); empty: nothing of the kind.
    """
    if not chain:
        return Next(True, "the first")
    if changed:
        return Next(True, changed)
    if not marks_on:
        return Next(True, "rows are not marked")
    deltas = sum(cut.bytes for cut in chain[1:])
    if deltas >= chain[0].bytes:
        return Next(True, "the deltas are as large as their base")
    if len(chain) >= chain_max:
        return Next(True, f"the chain has {len(chain)} cuts")
    return Next(False, "")


def removable(
    cuts: Sequence[CommittedSnapshot], job_id: str, keep: int, dropped: Iterable[str] = (), slots: int = 0
) -> list[str]:
    """Names to remove, manifests before their files, so that no manifest ever names a file that was removed.

    Only what this job wrote, and of that all but the newest `keep` chains.

    Args:
        dropped: ids of snapshots that were begun and never committed, with up to `slots` files each.
    """
    own = [cut for cut in cuts if cut.job_id == job_id]
    newest = {cut.base: max(c.number for c in own if c.base == cut.base) for cut in own}
    kept = sorted(newest, key=newest.__getitem__)[-max(1, keep) :]
    needed = {name for cut in cuts if cut.job_id != job_id or cut.base in kept for name in cut.files}
    old = [cut for cut in own if cut.base not in kept]
    names = [manifest_name(cut.id) for cut in old]
    names += [name for cut in old for name in cut.files if name not in needed]
    alive = {cut.id for cut in cuts}
    for one in dropped:
        if one not in alive:  # its manifest may have come after all, when a commit was given up
            names += [manifest_name(one), manifest_name(one) + ".tmp", *(data_name(one, slot) for slot in range(slots))]
    return names


def damage_of(manifest: Manifest, damaged: Mapping[str, str]) -> list[str]:
    """What is wrong with the files that this snapshot needs, one line each."""
    needed = {file.name for files in manifest.needed().values() for file in files}
    return [text for name, text in sorted(damaged.items()) if name in needed]


def newest_consistent(
    manifests: Iterable[Manifest],
    damaged: Mapping[str, str] = {},
    *,
    job_id: str = "",
    before: int = 0,
    layouts: Collection[str] = (),
) -> Manifest | None:
    """The newest snapshot of which every file that it needs is sound. Empty conditions do not count.

    Args:
        damaged: file name -> what is wrong with it.
    """
    for manifest in newest_first(manifests):
        if (job_id and manifest.job_id != job_id) or (before and manifest.number >= before):
            continue
        if layouts and manifest.layout not in layouts:
            continue
        if not damage_of(manifest, damaged):
            return manifest
    return None
