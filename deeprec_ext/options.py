"""The options of a job: name, unit, default, check, help, flag, annotation and environment of each, in one table.

A row is a field that `option` makes, so that code reads it with its type: `Settings` (each `--setting NAME=VALUE`), `Sizes`
(how many and how large), `JobSpec` (what an AIMaster is told besides); `OTHERS` are read before there is an AIMaster. The
command line, the annotations of a TFJob, the AIMaster's specification and the tables in docs/ are made from it, or compared
with it. An option that is added here is there in all of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from deeprec_ext import __version__
from deeprec_ext.bounds import DIGITS, MOST, real, whole
from deeprec_ext.errors import UsageError
from deeprec_ext.layout import LAYOUTS, OTHER_NAMES
from deeprec_ext.units import parse_duration

OBJECTIVES = ("fastest", "cheapest", "deadline")
"""What the autoscaler can be after."""

BAD_RECORDS = ("fail", "skip")
"""What a damaged record of a dataset may do."""

SWITCH = ("auto", "on", "off")

RATES_IN_STEP, RATES_WITH_PS = ("linear", "root"), ("inverse", "inverse_root")
"""How the learning rate may follow the number of trainers, in a job without PS, and with PS."""

RATES = ("none", *RATES_IN_STEP, *RATES_WITH_PS)

DEFAULT_MAX, DEFAULT_SLOTS = 4, 8
"""Of PS, and of workers; slots at least."""

SPECIFICATION_VERSION = 1
"""Grows when a field changes its meaning; one that is new is unknown to older AIMasters anyway."""

SPECIFICATION_MAX = 100_000
"""Characters. The kernel takes 128 KiB as one variable of an environment."""

_SUFFIXES = ("_seconds", "_bytes")
_UNITS = {"seconds": "seconds", "bytes": "bytes", "ps": "PS", "workers": "workers", "slots": "slots", "cpu": "cores"}
_METAVARS = {"PS": "N", "workers": "N", "slots": "S", "cores": "CORES", "bytes": "SIZE", "seconds": "DURATION"}
_TEXTS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True)
class Option:
    """One row. A job says it as `--max-ps 4` (`flag`) or `aimaster.deeprec.io/max-ps: "4"` (`annotation`), if at all."""

    name: str
    default: Any
    help: str
    words: tuple[str, ...] = ()  # it is one of these, where there are any: another is an error, not the default
    least: float = 0  # of a number: with less nothing would be done, or nothing else
    flag: bool = False
    annotation: bool = False
    environment: str = ""  # by which a process of the job is told, without `env.PREFIX`

    @property
    def type(self) -> type:
        return type(self.default)

    @property
    def key(self) -> str:
        """Of flag and annotation: a quantity is written with its unit, so its name needs none."""
        for suffix in _SUFFIXES:
            if self.name.endswith(suffix):
                return self.name[: -len(suffix)].replace("_", "-")
        return self.name.replace("_", "-")

    @property
    def unit(self) -> str:
        """Of `bounds.MOST`, as the name ends; empty: no number."""
        if self.type not in (int, float):
            return ""
        return _UNITS.get(self.name.rpartition("_")[2], "count" if self.type is int else "number")

    def complaint(self, value: Any) -> str:
        """Why it is no value of this option, as the rest of a sentence; empty: it is one."""
        if self.unit:
            if type(value) not in (int, self.type):
                return f"must be {_TEXTS[self.type]}"
            if not self.least <= value <= MOST[self.unit]:  # nor nan
                return f"must be a number of {self.least:,} or more, and {MOST[self.unit]:,} at the most"
        elif type(value) is not self.type:
            return f"must be {_TEXTS[self.type]}"
        return f"must be one of {', '.join(self.words)}" if self.words and value not in self.words else ""

    def read(self, text: str) -> Any:
        """As `--setting` takes it. Raises UsageError."""
        what = f"--setting {self.name}={text[:DIGITS]}"
        try:
            if self.unit and len(text) > DIGITS:
                raise ValueError(text)
            value = _BOOLEANS[text.lower()] if self.type is bool else self.type(text)
        except (KeyError, ValueError):
            raise UsageError(f"{what}: must be {_TEXTS[self.type]}") from None
        if complaint := self.complaint(value):
            raise UsageError(f"{what}: {complaint}")
        return value

    def said(self, text: str) -> str:
        """As `--setting` takes it, of what its own flag was given. Raises UsageError."""
        try:
            return written(parse_duration(text) if self.unit == "seconds" else text)
        except ValueError as error:
            raise UsageError(f"--{self.key}: {error}") from None

    def add_flag(self, parser: argparse.ArgumentParser) -> None:
        """To a command. Its destination is `key`; None, or False: not given."""
        if self.type is bool:
            parser.add_argument(f"--{self.key}", action="store_true", help=self.help)
            return
        if self.words:
            parser.add_argument(f"--{self.key}", choices=self.words, help=self.help)
            return
        counts = {int: whole, float: real}.get(self.type) if self.unit not in ("seconds", "bytes", "cores") else None
        metavar = _METAVARS.get(self.unit, "N" if self.unit else "WHAT")
        parser.add_argument(f"--{self.key}", type=counts(self.unit) if counts else str, metavar=metavar, help=self.help)


def one_of(words: tuple[str, ...]) -> str:
    """`a, b or c`."""
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def written(value: Any) -> str:
    """As `--setting` takes it."""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def option(default: Any, help: str, **more: Any) -> Any:
    """A field that is a row of the table; `more`: of `Option`."""
    return field(default=default, metadata={"help": help, **more})


@cache
def rows(table: type) -> tuple[Option, ...]:
    """Of a dataclass."""
    return tuple(Option(one.name, one.default, **one.metadata) for one in dataclasses.fields(table) if one.metadata)


def all_rows() -> tuple[Option, ...]:
    return (*rows(JobSpec), *rows(Settings), *OTHERS)


# Rows in the form of a table.
# fmt: off
BOTH: dict[str, Any] = {"flag": True, "annotation": True}


@dataclass(frozen=True)
class Settings:
    """Time limits, sizes and choices of one job's AIMaster. Tests make them small."""

    heartbeat_seconds: float = option(
        0.5, "How often an agent reports. 1 000 agents at 0.5 s are 2 000 messages a second; larger jobs set 2 s.", least=0.05)
    ps_heartbeat_limit_seconds: float = option(
        3.0, "A PS silent for longer is given up: no user code runs there, so nothing but a hang or a death explains it. After "
        "a third of that where the AIMaster sees that it hangs, and nobody waits for a processor.", least=0.5)
    worker_heartbeat_limit_seconds: float = option(
        30.0, "A worker silent for longer is given up. User code may hold the interpreter for long (a C extension, a "
        "collection).", least=0.5)
    busy_limit_seconds: float = option(
        60.0,
        "A process that is silent because it waits for the processor, or works, is given up after so long instead: to "
        "kill it makes no machine emptier, and costs the most recent updates. One that is seen to hang has only the "
        "limits above.")
    acquire_limit_seconds: float = option(
        300.0, "How long ACQUIRE waits for new processes to register. A pod may have to pull an image.", least=1)
    prepare_limit_seconds: float = option(
        600.0, "How long PREPARE may take: pre-copy of terabytes and preparing sessions of large graphs. Training goes on.",
        least=1)
    pause_limit_seconds: float = option(
        10.0, "How long PAUSE waits for the last trainer to stop at a step boundary: longer than any usual step.", least=0.1)
    lease_seconds: float = option(
        30.0, "How long a trainer stands still at most; then it goes on with the old view. Covers PAUSE and FINAL_COPY.",
        least=1)
    commit_margin_seconds: float = option(
        1.0, "COMMIT is decided only while every lease has at least this left: clocks differ in rate, messages take time.")
    release_limit_seconds: float = option(
        60.0, "How long RELEASE waits for drained processes to exit by themselves before they are stopped.")
    copy_chunk_bytes: int = option(
        8 << 20,
        "Rows per pre-copy message are chosen so that a message stays below this: bounds memory and the time a step "
        "competes.", least=1024)
    dirty_small_bytes: int = option(4 << 20, "Pre-copy ends when less than this is dirty: about 10 ms of final copy.")
    dirty_rounds_max: int = option(8, "Pre-copy ends after so many rounds even if the remainder still shrinks.")
    end_limit_seconds: float = option(
        60.0, "How long a trainer's process may live after its script has ended (last line, own threads, own `atexit` "
        "handlers): then it is ended with the script's exit code. Taking apart an interpreter full of data takes "
        "seconds, on a busy machine tens.", least=0.1)
    finish_grace_seconds: float = option(30.0, "How long workers may go on after the chief has ended.")
    restarts_max: int = option(10, "A role that exited in error is started again so many times.")
    verify_copies: bool = option(
        False, "Compare checksums of both sides of every moved variable, in the pause. For tests.")
    dedup: str = option("auto", "Look up unique ids only: `auto` (where it pays), `on`, `off`.", words=SWITCH)
    cut: str = option(
        "auto",
        "Cut variables over slots, so that no PS has a large one alone: `auto` (those of 2 MB and more that are more than a "
        "quarter of a slot's share of all bytes), `on` (of 128 kB and more), `off`. What the script has partitioned, and would "
        "not be cut, is made one variable again (not with `off`). Holds for a job from its start: what is on the PS is "
        "neither cut nor joined afterwards.", words=SWITCH)
    pack: str = option(
        "auto",
        "What crosses between a trainer and a PS, and is ready together, crosses as one message: `auto` (in runs that train, "
        "where it saves eight messages a step, once they run as they are), `on` (wherever it saves one, before the first run), "
        "`off`.", words=SWITCH)
    optimise: str = option(
        "auto",
        "TensorFlow's graph optimiser: `auto` (once for each run that training makes again and again, for all views, where a "
        "process has no accelerator), `off` (in each session by itself).", words=("auto", "off"))
    lazy: str = option(
        "off",
        "Optimizers that write every row of a table in each step (Adam, RMSProp, momentum; of Keras Ftrl too) write the rows "
        "of the batch alone, as LazyAdam does: `on` or `off`. Other rows keep their values and moments meanwhile, so the model "
        "is another one than the plain optimizer's; copies before a change and backups are of rows then.",
        words=("off", "on"))
    peer_backup: str = option(
        "auto", "Backups of every slot in another PS's memory, or, with a single PS, a trainer's: `auto` (on) or `off`.",
        words=SWITCH)
    peer_backup_holder: str = option(
        "auto",
        "With a single PS, which has no peer: `auto` (its backups lie with a trainer, the *holder*: another host's "
        "before the chief; they count in its memory) or `off` (there are none).", words=("auto", "off"))
    peer_backup_seconds: float = option(
        5.0, "How often they are refreshed by dirty rows: the most a lost PS can forget. Bytes grow with the rows touched.",
        least=0.1)
    peer_backup_steps: int = option(0, "Refresh every so many global steps instead; 0: by time.")
    disk_backup: str = option(
        "", "Directory of incremental disk backups, anything that tf.io.gfile writes; empty: what the script's BackupHook "
        "asks for, `off`: none.")
    disk_backup_seconds: float = option(60.0, "How often a cut (base or delta) is written to the disk backup.", least=0.1)
    disk_backup_keep: int = option(
        2, "Chains (a base with its deltas) kept in the disk backup; older ones are removed.", least=1)
    disk_backup_limit_seconds: float = option(600.0, "How long one cut may take before it is given up.", least=1)
    ps_failover: str = option(
        "promote",
        "What a lost PS's slots come back on: `promote` (the survivors that hold the peer backups) or `replace` (a "
        "new PS, from the disk backup or the last checkpoint).", words=("promote", "replace"))
    replace_lost_ps: bool = option(
        True, "After a promotion, start a new PS in the background and move slots to it, so that the job has its size "
        "again.")
    lost_ack_seconds: float = option(
        0.5, "How long a failover waits for the trainers' highest steps before it goes on without the late ones.")
    standby_sessions_max: int = option(
        4, "Sessions a trainer prepares in advance for the loss of single PS; each costs the memory of a graph. 0: none.")
    standby_delay_seconds: float = option(
        0.0, "From a change of the PS until they are prepared for it, but for five seconds of that work (at least the session "
        "for the loss of the fullest PS), which are spent at once. With `autoscale` at least 90 s: while a size is being "
        "looked for, the next change makes them worthless, and preparing them makes the throughput look worse than it is.")
    lease_ahead_seconds: float = option(
        60.0, "Work a worker holds in leased shards: training goes on so long without an AIMaster. Towards the end of an "
        "epoch, or of the data, less: at most half of an even share of what is left.", least=0.1)
    autoscale: bool = option(
        False, "let the AIMaster decide the numbers, within the limits below", **BOTH)
    objective: str = option(
        "fastest", "of --autoscale: fastest (default), cheapest, or deadline with --deadline",
        words=OBJECTIVES, **BOTH)
    deadline_seconds: float = option(
        0.0, "when the job shall have ended, from its start: 90s, 30m, 2h", **BOTH)
    decide_seconds: float = option(
        10.0,
        "How often at least the autoscaler looks whether something is to be changed; it does so when a window ends as "
        "well.", least=0.1)
    window_seconds: float = option(
        10.0, "Length of the windows in which throughput is measured: some hundred steps, so that noise evens out.", least=1)
    strict: bool = option(
        False, "fail where something trains beside the PS, instead of saying so", **BOTH)
    gazer_seconds: float = option(
        2.0, "How often every process reports what it uses and how its steps go; 0: never. A sample costs below a "
        "millisecond.")
    trace_seconds: float = option(
        30.0, "The least time between two traced steps of a trainer (op times, transfers, load per slot); 0: no traces.")
    trace_budget: float = option(
        0.001,
        "Share of a trainer's time that traced steps may cost more than usual ones; where they cost much they become "
        "rarer.")
    rebuild_limit_seconds: float = option(
        8.0, "How long an AIMaster that has lost its store waits for the word of those who took part. A PS that does not "
        "come counts as lost; what a trainer trained that does not come is trained again. Below the 10 s after which "
        "a failed step is one.", least=1)
    bad_records: str = option(
        "fail",
        "what a damaged record of a dataset does (a CRC that is wrong, a quote that is not closed): fail (default; "
        "its shard fails, and the job with it), or skip: it is left out and counted",
        words=BAD_RECORDS, **BOTH)
    step_batch: str = option(
        "whole", "Of a job without PS: `batch_size` is that of a step of all workers, each has its part (`whole`), or that of "
        "each worker, and a step has as many records as there are workers for (`each`).", words=("whole", "each"),
        annotation=True)
    rate_scaling: str = option(
        "none", "What the script's learning rate is multiplied by, of n trainers (chief and workers; n is their number divided "
        "by `rate_base`). Without PS, where each has a batch of its own: n (`linear`), or its root (`root`). With PS each "
        "makes its own updates, so n move the model n times as far already, which is `linear`: 1 ÷ root of n (`inverse_root`; "
        "together as far as `root`), or 1 ÷ n, the mean staleness of their gradients (`inverse`; together as far as one).",
        words=RATES, annotation=True)
    rate_base: int = option(
        1, "So many trainers the script's learning rate is meant for: with as many `rate_scaling` leaves it as it is.", least=1,
        annotation=True)
    rate_warmup_steps: int = option(
        100, "In so many steps (with PS: of each trainer) the learning rate has come to what `rate_scaling` says, from the "
        "script's own or from another number of trainers. Where it becomes less it does so at once.", least=1, annotation=True)
    sum_compression: str = option(
        "none", "Of a job without PS: gradients travel as they are (`none`), or as float16 (`fp16`): half the bytes, for "
        "networks of less than some 2 Gbit/s; elsewhere the work on them costs more. Statistics and learning rates go whole.",
        words=("none", "fp16"), annotation=True)
    worker_batch_max: int = option(
        0, "Of a job without PS, in `fit`: a worker has so many records in memory at once; a larger part of a step is "
        "computed in several batches of one size, whose gradients are added (0: any number).", least=0, annotation=True)
    bid_file: str = option(
        "", "Of a job in a pool: file in which its AIMaster says what each size would be worth to the job; empty: nowhere.")
    allowance_file: str = option(
        "", "The same: file in which it is told how many PS and workers the job may have, looked at twice a second.")
    shard_failures_max: int = option(
        3, "A shard that failed so often (not counting deaths of workers) stops the job with its name, or is set aside.",
        least=1)


@dataclass(frozen=True)
class Sizes:
    """How many and how large a job's processes are, and may become. `workers` are those beside the chief; 0 of what a pod
    requests: nothing was said."""

    ps: int = option(2, "parameter servers at the start (default 2; 1 with --autoscale)", flag=True)
    workers: int = option(1, "workers beside the chief (default 1; 0 with --autoscale, and allowed)", flag=True)
    slots: int = option(8, "virtual PS, fixed for the job (default 2 x max PS, at least 8)", **BOTH, environment="SLOTS")
    min_ps: int = option(1, "never fewer PS (default 1)", **BOTH)
    max_ps: int = option(0, "never more PS (default 4, or what --ps and --events need)", **BOTH)
    min_workers: int = option(0, "never fewer workers (default 0)", **BOTH)
    max_workers: int = option(1000, "never more workers (default 4, or what is needed)", **BOTH)
    evaluator: bool = option(
        False, "a process that evaluates checkpoints beside the training", flag=True, environment="EVALUATOR")
    ps_cpu: float = option(0.0, "hold each PS to so many cores: 0.5 or 500m (default: no limit)", flag=True)
    worker_cpu: float = option(0.0, "the same for chief, workers and evaluator, each", flag=True)
    ps_memory_bytes: int = option(0, "hold each PS to so much memory: 1GiB (default: no limit)", flag=True)
    worker_memory_bytes: int = option(0, "the same for chief, workers and evaluator, each", flag=True)
    max_ps_cpu: float = option(0.0, "of --autoscale: it may change what each PS is held to, up to this", **BOTH)
    max_worker_cpu: float = option(0.0, "the same for chief and workers, each", **BOTH)
    max_ps_memory_bytes: int = option(0, "the same for the memory of each PS", **BOTH)
    max_worker_memory_bytes: int = option(0, "the same for chief and workers, each", **BOTH)
    total_cpu: float = option(0.0, "of --autoscale: never more for all PS and workers together", **BOTH)
    total_memory_bytes: int = option(0, "the same for memory", **BOTH)


@dataclass(frozen=True)
class JobSpec(Sizes):
    """What the job was started with: the AIMaster's specification, and `workdir` and `resume`, which its process is told."""

    name: str = option("", "of the job")
    start: str = option("", "how the autoscaler's first size was estimated; empty: it was given")
    script: str = option("", "what tells jobs of its script from others, in the history")
    own_pods: bool = option(True, "the AIMaster makes them; else Kubeflow, by `replicas`: numbered, all of a role the same")
    elsewhere: bool = option(False, "they run on other machines than the launcher, and keep their size")
    operator: bool = option(True, "of a TFJob; without one the job is kept in the ConfigMap NAME-tfjob")
    package_image: str = option("", "of a TFJob: brings this package into its pods")
    gang_scheduler: str = option("", "of a TFJob: its pods belong to this one's PodGroup")
    settings: Settings = field(default_factory=Settings)
    given: frozenset[str] = frozenset()  # names of the settings that somebody has given, be it with their usual value
    workdir: Path = Path()
    resume: bool = False  # nothing of the former run is alive

    @property
    def sums(self) -> bool:
        """Whether it has no PS: chief and workers sum their gradients, step by step. It has no slots either."""
        return not self.slots

    def steps_rate(self, rates: Iterable[float]) -> float:
        """Steps a second of the job, of those that each trainer makes: in step all make the same."""
        return max(rates, default=0.0) if self.sums else sum(rates)

    @property
    def ps_limit(self) -> int:
        return min(self.max_ps or self.slots, self.slots)


OTHERS = (
    Option("strategy", "ps", "ps (default), or allreduce: no PS, chief and workers sum what they have, step by step",
           ("ps", "allreduce"), **BOTH),
    Option("backup", "", "off, peer, disk=DIR or peer,disk=DIR (default: peer, and what the script's BackupHook asks for)",
           **BOTH),
    Option("layout", "auto", "what the script's TF_CONFIG calls the chief: chief, master, or workers alone, of which worker 0 "
           "is the chief (also written worker0) (default: by the script's text)", ("auto", *LAYOUTS, *OTHER_NAMES), **BOTH,
           environment="LAYOUT"),
    Option("enabled", False, "the job is elastic", annotation=True),
    Option("hold", False, "nothing is decided", annotation=True),
    Option("history", False, "the job is kept in the cluster's history when it has ended; with `autoscale` its first replicas, "
           "and requests that its templates do not name, are what jobs of its script needed", annotation=True),
    Option("package", "inject", "inject: an init container brings the package into the user's image; image: the image has it",
           ("inject", "image"), annotation=True),
    Option("state_volume", "", "a claim for the AIMaster's files", annotation=True),
    Option("reachable_from", "", "namespaces whose pods reach the page and what containers serve", annotation=True),
)
# fmt: on


def rate_factor(scaling: str, trainers: int, base: int) -> float:
    """What the learning rate is multiplied by, once it has come there; of a `scaling` that is not known 1.

    In step n workers make one update of n batches: n times the rate (Goyal et al., "Accurate, Large Minibatch SGD", 2017, and
    Horovod's `lr * size`), or root n times (Krizhevsky, "One weird trick", 2014). With PS each makes its own, of a model that
    the n - 1 others have updated meanwhile: the rate ÷ n (Zhang et al., "Staleness-aware Async-SGD", IJCAI 2016, by the mean
    staleness), or ÷ root n, with which n updates change as much as one of n batches at root n times the rate.
    """
    size = max(1, trainers) / max(1, base)
    factors = {"linear": size, "root": size**0.5, "inverse": 1 / size, "inverse_root": size**-0.5}
    return factors.get(scaling, 1.0)


def rate_complaint(scaling: str, sums: bool) -> str:
    """Why a job does not take this `rate_scaling`, as the rest of a sentence; empty: it does.

    Args:
      sums: it has no PS.
    """
    if not sums and scaling in RATES_IN_STEP:
        instead = "leave it out" if scaling == "linear" else "the same is inverse_root"
        return (
            "is of jobs without PS, whose workers make one update together: with PS each makes its own, so n trainers move "
            f"the model n times as far as one already, and {scaling} would do it once more. Here {instead}; inverse lets them "
            "move it as far as one"
        )
    if sums and scaling in RATES_WITH_PS:
        return (
            "is of jobs with PS, where gradients are the staler the more trainers there are: without PS no gradient is "
            "stale. Say linear or root, or leave it out"
        )
    return ""


def check_rate(scaling: str, sums: bool) -> None:
    """Raises UsageError for what `rate_complaint` says."""
    if complaint := rate_complaint(scaling, sums):
        raise UsageError(f"--setting rate_scaling={scaling} {complaint}")


def split_setting(text: str) -> tuple[str, str]:
    """`name=value` → both. Raises UsageError."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--setting {text}: write name=value, for example heartbeat_seconds=2")
    return name.strip().replace("-", "_"), value.strip()


def values_given(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Names and texts → names and values, for `Settings`. Raises UsageError that names the setting, and those there are."""
    known = {row.name: row for row in rows(Settings)}
    values: dict[str, Any] = {}
    for name, text in pairs:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise UsageError(f"--setting {name}: no such setting; {hint}")
        values[name] = known[name].read(text)
    return values


def flags_said(arguments: argparse.Namespace, table: Iterable[Option]) -> dict[str, str]:
    """Names of these options, with what their flags were given, as `--setting` takes it. Raises UsageError."""
    given = {row: getattr(arguments, row.key.replace("-", "_"), None) for row in table if row.flag}
    return {
        row.name: row.said(written(value)) for row, value in given.items() if value is not None and value is not False
    }


def backup_said(text: str, place: Callable[[str], str]) -> dict[str, str] | None:
    """`off`, `peer`, `disk=DIR`, `peer,disk=DIR`, as settings: what is not named is off. None: it is none of these.

    Args:
        place: what DIR means to a pod; empty: not what it could find.
    """
    found = {"peer_backup": "off", "disk_backup": "off"}
    for word in text.split(",") if text != "off" else ():
        kind, equals, path = word.partition("=")
        if kind == "peer" and not equals:
            found["peer_backup"] = "on"
        elif kind == "disk" and path and (where := path if "://" in path else place(path)):
            found["disk_backup"] = where
        else:
            return None
    return found


def filled_in(ps: int, wanted_ps: int, max_ps: int | None, slots: int | None) -> tuple[int, int]:
    """Most PS and slots of a job that starts with `ps` and is known to want up to `wanted_ps`; None: nobody has said."""
    if max_ps is None:
        usual = max(wanted_ps, DEFAULT_MAX)
        max_ps = usual if slots is None else max(ps, min(usual, slots))
    return max_ps, max(DEFAULT_SLOTS, 2 * max_ps) if slots is None else slots


# ------------------------------------------------------------------------------------------- the AIMaster's specification


def specification(pairs: Iterable[tuple[str, str]], **values: Any) -> str:
    """For the AIMaster: `values` of a `JobSpec`, and settings as `--setting` takes them. Raises UsageError."""
    named = {row.name: values.pop(row.name, row.default) for row in rows(JobSpec)}
    assert not values, values
    head = {"version": SPECIFICATION_VERSION, "by": __version__}
    text = json.dumps({**head, **named, "settings": values_given(pairs)})
    read_specification(text)
    return text


def read_specification(text: str) -> JobSpec:
    """Raises UsageError: also for what another version of deeprec-ext wrote that means more than this one knows."""
    if len(text) > SPECIFICATION_MAX:
        raise _wrong(f"it has {len(text):,} characters; the most are {SPECIFICATION_MAX:,}")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong(f"no JSON: {str(error)[:200]}") from None
    if not isinstance(found, dict) or not isinstance(found.get("settings", {}), dict):
        raise _wrong("it must be an object, and its `settings` another")
    version, by, settings = found.pop("version", None), found.pop("by", "of another version"), found.pop("settings", {})
    if version != SPECIFICATION_VERSION:
        raise _other(by, f"it is of version {version!r:.40}, not {SPECIFICATION_VERSION}")
    given = _checked(Settings, settings, by)
    values = _checked(JobSpec, found, by)
    if missing := [name for name in ("name", "ps", "workers", "slots") if name not in values]:
        raise _wrong(f"it does not say {', '.join(missing)}")
    spec = JobSpec(**values, settings=Settings(**given), given=frozenset(given))
    check_rate(spec.settings.rate_scaling, spec.sums)
    if spec.ps < 1 and not spec.sums:
        raise _wrong(f"ps is {spec.ps}: a job needs at least one PS")
    if max(spec.ps, spec.max_ps) > spec.slots:
        raise _wrong(f"{max(spec.ps, spec.max_ps)} PS are more than the {spec.slots} slots")
    return spec


def _checked(table: type, values: Mapping[str, Any], by: Any) -> dict[str, Any]:
    known = {row.name: row for row in rows(table)}
    if unknown := [name[:DIGITS] for name in values if name not in known]:
        raise _other(by, f"it says {', '.join(unknown[:10])}, which is not known here")
    for name, value in values.items():
        if complaint := known[name].complaint(value):
            raise _wrong(f"{name} is {str(value)[:DIGITS]!r}: {complaint}")
    return dict(values)


def _wrong(why: str) -> UsageError:
    return UsageError(f"the specification is wrong: {why}")


def _other(by: Any, why: str) -> UsageError:
    return _wrong(
        f"{why}. deeprec-ext {str(by)[:DIGITS]} wrote it, this is {__version__}: the AIMaster and what starts it (operator, "
        "launcher) have to be of one version"
    )
