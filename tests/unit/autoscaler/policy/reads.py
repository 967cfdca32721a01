"""Which fields of an observation the rules and models read: derived from their text, so that a new rule's are among them.

An attribute of some name, or the name as a string (`getattr`), counts for every class that has a field of that name: rather
too many than too few.
"""

from __future__ import annotations

import ast
import dataclasses
from functools import cache
from pathlib import Path

import deeprec_ext.autoscaler
from deeprec_ext.autoscaler.observe.observed import (
    Change,
    Host,
    Loss,
    Model,
    Observed,
    Progress,
    RoleUse,
    SlotUse,
    Window,
)

FACTS = (Observed, Window, RoleUse, Host, SlotUse, Change, Loss, Progress, Model)
ROOMS = ("policy", "model", "outcomes")
NO_RULES = ("decision.py", "record.py", "replay.py", "sane.py", "thresholds.py")
"""They pass observations on, whatever is in them, or are about what comes of them."""


@cache
def read_fields() -> dict[type, set[str]]:
    """By class."""
    read: set[str] = set()
    for room in ROOMS:
        for path in sorted((Path(deeprec_ext.autoscaler.__file__).parent / room).glob("*.py")):
            if path.name not in NO_RULES:
                nodes = list(ast.walk(ast.parse(path.read_text())))
                read |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
                read |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {kind: {field.name for field in dataclasses.fields(kind)} & read for kind in FACTS}
