"""What `deeprec-ext run` is going to start: built purely, printed by `--dry-run`, executed by `job`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deeprec_ext import env
from deeprec_ext.arbiter.observed import Count
from deeprec_ext.autoscaler.history.start import Start
from deeprec_ext.errors import UsageError
from deeprec_ext.history.client import Service
from deeprec_ext.history.places import Place
from deeprec_ext.launch.environment import aimaster_environment, role_environment
from deeprec_ext.launch.events import ScriptedEvent
from deeprec_ext.launch.limits import Limits
from deeprec_ext.launch.pool.entry import Asked
from deeprec_ext.launch.pool.places import PoolDirectory
from deeprec_ext.launch.records.history import bounds_of, size_of
from deeprec_ext.launch.resources import Ceilings, Requests
from deeprec_ext.launch.roles.runner import Command
from deeprec_ext.layout import CHIEF, Choice
from deeprec_ext.options import Settings, Sizes, backup_said, rows, specification, values_given
from deeprec_ext.rundir import RunDirectory

NAMED_MAX = 8
"""So many of a kind are shown by name, more as a range."""


@dataclass(frozen=True)
class RunPlan:
    """One job on this machine. A port of 0 means: any free one, chosen at the start; no `dashboard_port`: no web page."""

    job: str
    command: tuple[str, ...]
    limits: Limits
    directory: RunDirectory
    events: tuple[ScriptedEvent, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    requests: Requests = field(default_factory=Requests)
    ceilings: Ceilings = field(default_factory=Ceilings)
    resume: bool = False
    aimaster_port: int = 0
    dashboard_port: int | None = None
    isolate: str = "off"  # one of isolation.MODES
    backend: str = "local"  # by whom roles are run: one of `roles.registry`
    backend_arguments: tuple[str, ...] = ()  # for it alone
    umask: int | None = None  # of processes that run the user's code; None: as the launcher's
    script: str = ""  # what tells jobs of one script from others, in the history
    history: Place | None = None
    start: Start | None = None  # how the first size was estimated; None: it was given
    grown: tuple[str, ...] = ()  # limits above their defaults that no flag has asked for, a line each
    pool: Asked | None = None  # with whose jobs it shares the machine; None: with nobody it knows of
    allowed: Count | None = None  # by the pool, to start with; None: what was asked for
    layout: Choice = field(default_factory=lambda: Choice(CHIEF, "nothing else was said"))
    aimaster_program: tuple[str, ...] = (sys.executable, "-m", "deeprec_ext.aimaster")
    ps_program: tuple[str, ...] = (sys.executable, "-m", "deeprec_ext.elastic.serve")

    @property
    def values(self) -> Settings:
        """The settings as an object."""
        return Settings(**values_given(self.settings))

    @property
    def first(self) -> Count:
        """The size with which it starts."""
        size, allowed = Count(self.limits.ps, self.limits.workers), self.allowed
        return size if allowed is None else Count(min(size.ps, allowed.ps), min(size.workers, allowed.workers))

    def roles(self) -> list[str]:
        """Names of what runs at first."""
        limits = self.limits
        names = [
            "aimaster",
            *(f"ps-{i}" for i in range(limits.ps)),
            "chief-0",
            *(f"worker-{i}" for i in range(limits.workers)),
        ]
        return [*names, "evaluator-0"] if limits.evaluator else names

    def roles_shown(self) -> str:
        """The same for people: `aimaster, ps-0 to ps-9999 (10,000), chief-0, worker-0`."""
        names = ["aimaster", *_range("ps", self.limits.ps), "chief-0", *_range("worker", self.limits.workers)]
        return ", ".join([*names, *(["evaluator-0"] if self.limits.evaluator else [])])


def _range(kind: str, count: int) -> list[str]:
    if count <= NAMED_MAX:
        return [f"{kind}-{index}" for index in range(count)]
    return [f"{kind}-0 to {kind}-{count - 1} ({count:,})"]


def aimaster_command(
    plan: RunPlan,
    aimaster: str,
    launcher: str,
    *,
    resume: bool = False,
    http: str | None = None,
    elsewhere: bool = False,
) -> Command:
    """How the AIMaster is started: what concerns its process as arguments, what the job is as its specification."""
    words = [
        *plan.aimaster_program, "--listen", aimaster, "--workdir", str(plan.directory.path), "--launcher", launcher,
        "--certs", str(plan.directory.certificates), *(["--resume"] if resume else []), *(["--http", http] if http else []),
        *(_history_flags(plan.history) if plan.start is not None else []),
    ]  # fmt: skip
    limits = plan.limits
    sizes = {
        **vars(bounds_of(limits, plan.ceilings)), **vars(size_of(plan.requests, limits.ps, limits.workers)),
        "slots": limits.slots, "evaluator": limits.evaluator,
    }  # fmt: skip
    text = specification(
        (*plan.settings, *pool_settings(plan)), **{row.name: sizes[row.name] for row in rows(Sizes)}, name=plan.job,
        elsewhere=elsewhere,
        start=plan.start.reason if plan.start is not None else "", script=plan.script,
    )  # fmt: skip
    return Command(tuple(words), {**aimaster_environment(), env.PREFIX + env.SPECIFICATION: text})


def pool_settings(plan: RunPlan) -> list[tuple[str, str]]:
    """Where the AIMaster says what sizes are worth to the job, and reads what it may have."""
    if plan.pool is None:
        return []
    pool, job = PoolDirectory.of(plan.pool.name), str(plan.directory.path)
    return [("bid_file", str(pool.bid(job))), ("allowance_file", str(pool.told(job)))]


def _history_flags(place: Place | None) -> list[str]:
    """From where the AIMaster takes finished jobs, when it estimates the first size."""
    certificates = ["--history-certs", str(place.certificates)] if isinstance(place, Service) else []
    return [] if place is None else ["--history", str(place), *certificates]


def role_command(
    plan: RunPlan, aimaster: str, role: str, index: int, base: Mapping[str, str] | None = None,
    namespaces: tuple[int, ...] = (),
) -> Command:  # fmt: skip
    """How a PS or a trainer is started. A PS never runs the user's script."""
    ours = env.process_environment(
        aimaster=aimaster, job=plan.job, role=role, index=index, slots=plan.limits.slots,
        certificates=str(plan.directory.certificates), workdir=str(plan.directory.path), evaluator=plan.limits.evaluator,
        layout=plan.layout.layout, workers=0 if plan.limits.slots else plan.first.workers,
    )  # fmt: skip
    return Command(
        plan.ps_program if role == "ps" else plan.command,
        role_environment(ours, autoload=role != "ps", base=base),
        namespaces,
        plan.umask,
    )


def describe_plan(plan: RunPlan) -> dict[str, Any]:
    """What a dry run prints."""
    return {
        "job": plan.job,
        "directory": str(plan.directory.path),
        "roles": plan.roles(),
        "command": list(plan.command),
        "layout": plan.layout.layout,
        "layout_reason": plan.layout.reason,
        "limits": dataclasses.asdict(plan.limits),
        "grown": list(plan.grown),
        "requests": dataclasses.asdict(plan.requests),
        "ceilings": dataclasses.asdict(plan.ceilings),
        "start": start_values(plan.start),
        "events": [str(event) for event in plan.events],
        "settings": dict(plan.settings),
        "resume": plan.resume,
        "port": plan.aimaster_port or None,
        "dashboard_port": plan.dashboard_port,
        "isolate": plan.isolate,
        "backend": plan.backend,
        "backend_arguments": list(plan.backend_arguments),
        "pool": dataclasses.asdict(plan.pool) if plan.pool is not None else None,
    }


def start_values(start: Start | None) -> dict[str, Any] | None:
    """How the first size was estimated, for job.json; None: it was given."""
    if start is None:
        return None
    return {
        "reason": start.reason, "confidence": round(start.confidence, 3), "jobs": start.jobs,
        "examples_per_second": round(start.examples_per_second, 3),
    }  # fmt: skip


def backup_settings(text: str | None) -> dict[str, str]:
    """`--backup` as settings. None: nothing was said, the defaults and the script's BackupHook count. Raises UsageError."""
    if text is None:
        return {}
    if (found := backup_said(text, lambda path: str(Path(path).absolute()))) is None:
        raise UsageError(f"--backup {text}: write off, peer, disk=DIR or peer,disk=DIR")
    return found


def check_autoscale(said: Mapping[str, str]) -> dict[str, str]:
    """Settings as their flags said them, with the objective. Raises UsageError when they contradict each other."""
    objective, deadline = said.get("objective"), said.get("deadline_seconds")
    if "autoscale" not in said:
        if objective or deadline:
            raise UsageError("--objective and --deadline say what --autoscale is after: add --autoscale")
        return dict(said)
    objective = objective or ("deadline" if deadline else "fastest")
    if (objective == "deadline") != bool(deadline):
        given = f"--objective {objective} knows no --deadline" if deadline else "--objective deadline has no --deadline"
        raise UsageError(f"{given}: --objective deadline and --deadline DURATION belong together")
    return {**said, "objective": objective}


def new_job_name(directory: Path) -> str:
    """The run directory's name: unique enough on a machine, and what the user knows the job by."""
    return directory.name or "job"
