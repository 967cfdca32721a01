"""Settings of a job: what, unit, default and why, in one place. The command line's flags have the same names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deeprec_ext.bounds import DIGITS, MOST
from deeprec_ext.errors import UsageError

OBJECTIVES = ("fastest", "cheapest", "deadline")
"""What the autoscaler can be after."""


BAD_RECORDS = ("fail", "skip")
"""What a damaged record of a dataset may do."""


WORDS = {
    "bad_records": BAD_RECORDS,
    "cut": ("auto", "on", "off"),
    "dedup": ("auto", "on", "off"),
    "objective": OBJECTIVES,
    "peer_backup": ("auto", "on", "off"),
    "peer_backup_holder": ("auto", "off"),
    "ps_failover": ("promote", "replace"),
}
"""Settings that are one of few words: another is an error, not the default."""


@dataclass(frozen=True)
class Settings:
    """Time limits and sizes of one job. Tests make them small."""

    heartbeat_seconds: float = 0.5
    """How often an agent reports. 1 000 agents at 0.5 s are 2 000 messages a second; larger jobs set 2 s."""

    ps_heartbeat_limit_seconds: float = 3.0
    """A PS silent for longer is given up: no user code runs there, so nothing but a hang or a death explains it."""

    worker_heartbeat_limit_seconds: float = 30.0
    """A worker silent for longer is given up. User code may hold the interpreter for long (a C extension, a collection)."""

    busy_limit_seconds: float = 60.0
    """A process that is silent because it waits for the processor, or works, is given up after so long instead: to kill it
    makes no machine emptier, and costs the most recent updates. One that is seen to hang has only the limits above."""

    acquire_limit_seconds: float = 300.0
    """How long ACQUIRE waits for new processes to register. A pod may have to pull an image."""

    prepare_limit_seconds: float = 600.0
    """How long PREPARE may take: pre-copy of terabytes and preparing sessions of large graphs. Training goes on."""

    pause_limit_seconds: float = 10.0
    """How long PAUSE waits for the last trainer to stop at a step boundary: longer than any usual step."""

    lease_seconds: float = 30.0
    """How long a trainer stands still at most; then it goes on with the old view. Covers PAUSE and FINAL_COPY."""

    commit_margin_seconds: float = 1.0
    """COMMIT is decided only while every lease has at least this left: clocks differ in rate, messages take time."""

    release_limit_seconds: float = 60.0
    """How long RELEASE waits for drained processes to exit by themselves before they are stopped."""

    copy_chunk_bytes: int = 8 << 20
    """Rows per pre-copy message are chosen so that a message stays below this: bounds memory and the time a step competes."""

    dirty_small_bytes: int = 4 << 20
    """Pre-copy ends when less than this is dirty: about 10 ms of final copy."""

    dirty_rounds_max: int = 8
    """Pre-copy ends after so many rounds even if the remainder still shrinks."""

    end_limit_seconds: float = 60.0
    """How long a trainer's process may live after its script has ended (last line, own threads, own `atexit` handlers): then it
    is ended with the script's exit code. Taking apart an interpreter full of data takes seconds, on a busy machine tens."""

    finish_grace_seconds: float = 30.0
    """How long workers may go on after the chief has ended."""

    restarts_max: int = 10
    """A role that exited in error is started again so many times."""

    verify_copies: bool = False
    """Compare checksums of both sides of every moved variable, in the pause. For tests."""

    dedup: str = "auto"
    """Look up unique ids only: `auto` (where it pays), `on`, `off`."""

    cut: str = "auto"
    """Cut variables over slots, so that no PS has a large one alone: `auto` (those of 2 MB and more), `on` (of 128 kB and
    more), `off`. Holds for a job from its start: what is on the PS is not cut afterwards."""

    peer_backup: str = "auto"
    """Backups of every slot in another PS's memory, or, with a single PS, a trainer's: `auto` (on) or `off`."""

    peer_backup_holder: str = "auto"
    """With a single PS, which has no peer: `auto` (its backups lie with a trainer, the *holder*: another host's before the
    chief; they count in its memory) or `off` (there are none)."""

    peer_backup_seconds: float = 5.0
    """How often they are refreshed by dirty rows: the most a lost PS can forget. Bytes grow with the rows touched."""

    peer_backup_steps: int = 0
    """Refresh every so many global steps instead; 0: by time."""

    disk_backup: str = ""
    """Directory of incremental disk backups, anything that tf.io.gfile writes; empty: what the script's BackupHook asks for,
    `off`: none."""

    disk_backup_seconds: float = 60.0
    """How often a cut (base or delta) is written to the disk backup."""

    disk_backup_keep: int = 2
    """Chains (a base with its deltas) kept in the disk backup; older ones are removed."""

    disk_backup_limit_seconds: float = 600.0
    """How long one cut may take before it is given up."""

    ps_failover: str = "promote"
    """What a lost PS's slots come back on: `promote` (the survivors that hold the peer backups) or `replace` (a new PS, from
    the disk backup or the last checkpoint)."""

    replace_lost_ps: bool = True
    """After a promotion, start a new PS in the background and move slots to it, so that the job has its size again."""

    lost_ack_seconds: float = 0.5
    """How long a failover waits for the trainers' highest steps before it goes on without the late ones."""

    standby_sessions_max: int = 4
    """Sessions a trainer prepares in advance for the loss of single PS; each costs the memory of a graph. 0: none."""

    standby_delay_seconds: float = 0.0
    """From a change of the PS until they are prepared for it. With `autoscale` at least 90 s: while a size is being looked
    for, the next change makes them worthless, and preparing them makes the throughput look worse than it is."""

    lease_ahead_seconds: float = 60.0
    """Work a worker holds in leased shards: training goes on so long without an AIMaster."""

    autoscale: bool = False
    """Whether the AIMaster decides the size of the job, within its limits. Without it nothing but a request scales."""

    objective: str = "fastest"
    """What the autoscaler is after: `fastest`, `cheapest` or `deadline`."""

    deadline_seconds: float = 0.0
    """For the objective `deadline`: when the job shall have ended, counted from its start."""

    decide_seconds: float = 10.0
    """How often at least the autoscaler looks whether something is to be changed; it does so when a window ends as well."""

    window_seconds: float = 10.0
    """Length of the windows in which throughput is measured: some hundred steps, so that noise evens out."""

    strict: bool = False
    """Whether a job fails where something trains beside the PS (or is otherwise told as a notice) instead of going on."""

    gazer_seconds: float = 2.0
    """How often every process reports what it uses and how its steps go; 0: never. A sample costs below a millisecond."""

    trace_seconds: float = 30.0
    """The least time between two traced steps of a trainer (op times, transfers, load per slot); 0: no traces."""

    trace_budget: float = 0.001
    """Share of a trainer's time that traced steps may cost more than usual ones; where they cost much they become rarer."""

    rebuild_limit_seconds: float = 8.0
    """How long an AIMaster that has lost its store waits for the word of those who took part. A PS that does not come counts
    as lost; what a trainer trained that does not come is trained again. Below the 10 s after which a failed step is one."""

    bad_records: str = "fail"
    """What a damaged record of a dataset does (a CRC that is wrong, a quote that is not closed): `fail` (its shard fails, and
    the job with it) or `skip` (it is left out and counted)."""

    shard_failures_max: int = 3
    """A shard that failed so often (not counting deaths of workers) stops the job with its name, or is set aside."""


@dataclass(frozen=True)
class JobSpec:
    """What the job was started with."""

    name: str
    workdir: Path
    slots: int
    ps: int
    workers: int
    evaluator: bool = False
    min_ps: int = 1
    max_ps: int = 0  # 0: as many as slots
    min_workers: int = 0
    max_workers: int = 1000
    settings: Settings = field(default_factory=Settings)
    given: frozenset[str] = frozenset()  # names of the settings that somebody has given, be it with their usual value
    resume: bool = False  # nothing of the former run is alive
    ps_cpu: float = 0.0  # cores that a PS requests; 0: no request
    worker_cpu: float = 0.0
    ps_memory_bytes: int = 0
    worker_memory_bytes: int = 0
    max_ps_cpu: float = 0.0  # to which the autoscaler may raise the request; 0: not at all
    max_worker_cpu: float = 0.0
    max_ps_memory_bytes: int = 0
    max_worker_memory_bytes: int = 0
    total_cpu: float = 0.0  # cores that all pods may request together; 0: no limit
    total_memory_bytes: int = 0
    own_pods: bool = True  # the AIMaster makes them; else Kubeflow, by `replicas`: numbered, and all of a role the same
    start: str = ""  # how the autoscaler's first size was estimated; empty: it was given

    @property
    def ps_limit(self) -> int:
        return min(self.max_ps or self.slots, self.slots)


def split_setting(text: str) -> tuple[str, str]:
    """`name=value` → both. Raises UsageError."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--setting {text}: write name=value, for example heartbeat_seconds=2")
    return name.strip().replace("-", "_"), value.strip()


def values_given(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Names and texts → names and values, for `Settings`. Raises UsageError that names the setting, and those there are."""
    kinds = {name: type(value) for name, value in dataclasses.asdict(Settings()).items()}
    values: dict[str, Any] = {}
    for name, text in pairs:
        if name not in kinds:
            raise UsageError(f"--setting {name}: no such setting; there are {', '.join(kinds)}")
        kind = kinds[name]
        try:
            if kind is bool:
                values[name] = {"true": True, "1": True, "false": False, "0": False}[text.lower()]
            elif kind in (int, float) and len(text) > DIGITS:
                raise ValueError(text)
            else:
                values[name] = kind(text)
        except (KeyError, ValueError):
            example = {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "text")
            raise UsageError(f"--setting {name}={text[:DIGITS]}: must be {example}") from None
        if kind in (int, float):
            most = MOST[_kind_of(name, kind)]
            if not 0 <= values[name] <= most:
                raise UsageError(
                    f"--setting {name}={text[:DIGITS]}: must be a number of 0 or more, and {most:,} at the most"
                )
        if text not in WORDS.get(name, (text,)):
            raise UsageError(f"--setting {name}={text[:DIGITS]}: must be one of {', '.join(WORDS[name])}")
    return values


def _kind_of(name: str, kind: type) -> str:
    """Of `bounds.MOST`: a setting's name ends with its unit."""
    unit = name.rpartition("_")[2]
    return unit if unit in ("seconds", "bytes") else "count" if kind is int else "number"
