"""The environment of each process the launcher starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from deeprec_ext import env

_PACKAGE = Path(__file__).resolve().parent.parent
AUTOLOAD = _PACKAGE / "_autoload"
"""Holds a `sitecustomize.py`, which makes a script elastic that does not mention us."""

_OURS = (
    "AIMASTER",
    "JOB",
    "ROLE",
    "INDEX",
    "SLOTS",
    "CERTS",
    "WORKDIR",
    "EVALUATOR",
    "CHIEF",
    "LAYOUT",
    "OWNER",
    "ADDRESS",
    "SERVING",
    env.SPECIFICATION,
)
_ROLE_DEFAULTS = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}
"""CUDA: several processes that each take all memory of one GPU would fail; who wants GPUs says which."""


def role_environment(
    ours: Mapping[str, str], *, autoload: bool, base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Environment of a PS or a trainer.

    Args:
        ours: from `env.process_environment`.
        autoload: for processes that run the user's command; without it, it is a PS.
        base: what the launcher itself was started with.
    """
    values = _clean(base)
    values.pop("TF_CONFIG", None)  # of some other job; autoload writes the right one
    for name, value in {**_ROLE_DEFAULTS, **({} if autoload else env.SERVER_DEFAULTS)}.items():
        values.setdefault(name, value)
    values["PYTHONPATH"] = python_path(values.get("PYTHONPATH", ""), autoload=autoload)
    values.update(ours)
    return values


def aimaster_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment of the AIMaster: no role, no autoload."""
    values = _clean(base)
    values["PYTHONPATH"] = python_path(values.get("PYTHONPATH", ""), autoload=False)
    return values


def python_path(users: str, *, autoload: bool) -> str:
    """Our sitecustomize first, which runs one of the user's; then the user's own entries: a module of theirs wins over ours.

    The directory of the package itself is added unless it is a site-packages, which the interpreter finds by itself.
    """
    entries = [entry for entry in users.split(os.pathsep) if entry]
    first = [str(AUTOLOAD)] if autoload else []
    last = [] if _PACKAGE.parent.name in ("site-packages", "dist-packages") else [str(_PACKAGE.parent)]
    return os.pathsep.join(dict.fromkeys([*first, *entries, *last]))


def _clean(base: Mapping[str, str] | None) -> dict[str, str]:
    values = dict(os.environ if base is None else base)
    for name in _OURS:
        values.pop(env.PREFIX + name, None)
    values["PYTHONUNBUFFERED"] = "1"
    return values
