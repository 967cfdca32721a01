"""The ordered list of graph passes and their application: GraphDef -> GraphDef.

A pass is a pure function of the graph and the `Context`. Order matters: placement first, so that what later passes add
lands on physical devices; dirty rows after the iterators; optimisations last, when the meaning of the graph is settled.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Protocol

from tensorflow.core.framework.graph_pb2 import GraphDef

from deeprec_ext import errors
from deeprec_ext.graph.constants import LeanConstants
from deeprec_ext.graph.context import Context, Report, Rewritten
from deeprec_ext.graph.dedup import Deduplicate
from deeprec_ext.graph.dirty import DirtyRows
from deeprec_ext.graph.iterators import NamedIterators
from deeprec_ext.graph.placement import Home, SlotPlacement
from deeprec_ext.graph.resources import NamedResources
from deeprec_ext.graph.rewriting import Rewriting
from deeprec_ext.graph.seeds import Seeds


class Pass(Protocol):
    """One change of a graph. Implementations keep no state between calls: several threads may apply them at once."""

    name: str
    """Unique; `register_pass` and the reports refer to it."""

    def applies(self, context: Context) -> bool:
        """Whether the pass has anything to do in this context; called before any graph is looked at."""
        ...

    def apply(self, rewriting: Rewriting) -> tuple[int, str]:
        """Changes `rewriting.definition` in place; returns how many things it changed and one line about them."""
        ...


class _Registry:
    """The one list of the process: users add to it at import time of their script, sessions read it."""

    def __init__(self, passes: tuple[Pass, ...]) -> None:
        self._lock = threading.Lock()
        self.passes = passes

    def add(self, new: Pass, before: str | None, after: str | None) -> None:
        with self._lock:
            names = [p.name for p in self.passes]
            if new.name in names:
                raise errors.UsageError(f"a graph pass '{new.name}' is registered already; give yours another name")
            if before is not None and after is not None:
                raise errors.UsageError("register_pass takes before= or after=, not both")
            anchor = before or after
            if anchor is not None and anchor not in names:
                raise errors.UsageError(f"there is no graph pass named '{anchor}'; there are: {', '.join(names)}")
            # Without a place: before the optimisation, which must see the final graph.
            at = names.index(anchor or Deduplicate.name) + (1 if after is not None else 0)
            self.passes = (*self.passes[:at], new, *self.passes[at:])

    def remove(self, name: str) -> None:
        with self._lock:
            self.passes = tuple(p for p in self.passes if p.name != name)


_OURS: tuple[Pass, ...] = (
    SlotPlacement(), Home(), LeanConstants(), NamedIterators(), NamedResources(), Seeds(), DirtyRows(), Deduplicate()
)  # fmt: skip
_registry = _Registry(_OURS)


def register_pass(p: Pass, *, before: str | None = None, after: str | None = None) -> None:
    """Adds a pass to every session prepared from now on, by default before `dedup`.

    Raises UsageError when the name is taken or the place is unknown.
    """
    _registry.add(p, before, after)


def unregister_pass(name: str) -> None:
    """Takes a pass off the list; unknown names are ignored."""
    _registry.remove(name)


def registered_passes() -> tuple[Pass, ...]:
    """The passes in the order in which they are applied."""
    return _registry.passes


def only_ours() -> bool:
    """Whether no pass was registered or taken off: of ours none asks which PS a slot is on, but the first one."""
    return _registry.passes == _OURS


def rewrite(graph_def: GraphDef, context: Context, first: Iterable[Report] = ()) -> Rewritten:
    """Applies the registered passes to a copy of `graph_def`.

    Args:
      first: told of before what they did.
    """
    definition = GraphDef()
    definition.CopyFrom(graph_def)
    rewriting = Rewriting(definition, context)
    reports = list(first)
    for one in registered_passes():
        if one.applies(context):
            start = time.perf_counter()
            changed, detail = one.apply(rewriting)
            reports.append(Report(one.name, changed, detail, time.perf_counter() - start))
    return Rewritten(definition, rewriting.drops, rewriting.initializers, rewriting.marks, reports)
