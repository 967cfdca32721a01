"""The AIMaster's directory as a run directory: commands such as `deeprec-ext status` work on it in the AIMaster's pod.

On one machine the launcher writes the description and holds the lock; here it is the AIMaster itself, for as long as it lives.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import time
from pathlib import Path
from typing import IO, Any

from deeprec_ext import __version__
from deeprec_ext.aimaster.core.records import Requests
from deeprec_ext.errors import UsageError
from deeprec_ext.options import JobSpec, Settings
from deeprec_ext.rundir import RunDirectory

log = logging.getLogger(__name__)

_LIMITS = ("ps", "workers", "slots", "min_ps", "max_ps", "min_workers", "max_workers", "evaluator")


def occupy(spec: JobSpec, listen: str, certs: str | None, began: float = 0.0) -> IO[str] | None:
    """Makes the directory one that commands accept; the lock, to be kept open as long as the job runs.

    Args:
        began: since when the job runs, as an earlier AIMaster knew it, whose disk is gone.

    None where the volume has no locks or links: then commands do not work. Training does not depend on them. Raises OSError
    when nothing can be written there at all.
    """
    directory = RunDirectory(spec.workdir)
    directory.path.mkdir(parents=True, exist_ok=True)
    lock = None
    try:
        if certs is not None and not os.path.lexists(directory.certificates):
            directory.certificates.symlink_to(Path(certs).resolve())
        lock = directory.lock()
    except (UsageError, OSError) as error:
        log.warning("the commands of deeprec-ext do not work in this pod: %s", error)
    directory.describe(describe(spec, listen, began or _began(directory)))
    return lock


def describe(spec: JobSpec, listen: str, started: float) -> dict[str, Any]:
    """job.json, with the keys that the launcher writes."""
    usual, settings = dataclasses.asdict(Settings()), dataclasses.asdict(spec.settings)
    asked = Requests.of(spec)
    return {
        "job": spec.name, "aimaster": _reachable(listen), "command": [], "started": started, "resumed": False,
        "limits": {name: getattr(spec, name) for name in _LIMITS},
        "requests": {
            role: {"cpu": getattr(asked, f"{role}_cpu"), "memory_bytes": getattr(asked, f"{role}_memory_bytes")}
            for role in ("ps", "worker")
        },
        "settings": {name: value for name, value in settings.items() if value != usual[name]},
        "versions": {"deeprec-ext": __version__},
    }  # fmt: skip


def _began(directory: RunDirectory) -> float:
    """As an earlier AIMaster on the same volume has it: a report tells the whole run."""
    with contextlib.suppress(UsageError, KeyError, TypeError, ValueError):
        return float(directory.read_description()["started"])
    return time.time()


def _reachable(listen: str) -> str:
    """`[::]:2223` → `127.0.0.1:2223`: commands run in the same pod, and a loopback of IPv4 has every one."""
    host, _, port = listen.rpartition(":")
    loopback = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "[::]": "127.0.0.1"}  # nosec B104 # a pod's own address
    return f"{loopback.get(host, host)}:{port}"
