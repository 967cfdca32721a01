"""Graphs of runs that have a session of their own beside that of their view: optimised once for all views, packed for this."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import tensorflow as tf

from deeprec_ext import graph as passes
from deeprec_ext.elastic.agent.background import at_usual_priority, without_collections
from deeprec_ext.graph.on_slots import OnSlots
from deeprec_ext.graph.optimising import Optimised

v1 = tf.compat.v1

OWN_NODES_MIN = 64
"""A run of fewer operations is no training step that anything could be packed in, and needs no optimiser."""


class Own(NamedTuple):
    """What a run's own session is made of."""

    definition: v1.GraphDef
    report: passes.Report | None
    """Of packing; None: it was not looked at."""


class Exported(Protocol):
    """A version of the user's graph (`usergraph.Exported`)."""

    @property
    def index(self) -> passes.GraphIndex: ...
    @property
    def updates(self) -> frozenset[str]: ...


class RunMaker:
    """Of the sessions of one view.

    Args:
      exported: the version of the user's graph that they are made of.
      context: of the view.
      on_slots: None where each session of a run is made by itself.
      options: what the script's ConfigProto says of graphs.
    """

    def __init__(
        self, exported: Exported, context: passes.Context, on_slots: OnSlots | None, told: passes.Told,
        options: v1.GraphOptions,
    ) -> None:  # fmt: skip
        self._exported, self._context, self._told, self._options = exported, context, told, options
        self._on_slots = on_slots if context.optimise != "off" else None

    @property
    def report(self) -> passes.Report | None:
        """Of the optimiser; None: it was not asked yet."""
        return self._on_slots.report if self._on_slots is not None else None

    def learn(self, runs: Iterable[passes.Run]) -> None:
        """Asks the optimiser, so that the runs can be made in haste for this view and any other. Slow, once."""
        if self._on_slots is not None:
            self._on_slots.optimise(runs, self._options, at_usual_priority)

    def is_to_learn(self, run: passes.Run) -> bool:
        """Whether nobody has asked the optimiser of it yet."""
        return self._on_slots is not None and not self._on_slots.is_asked(run)

    def is_ready(self, run: passes.Run) -> bool:
        """Whether it can be made in haste: the optimiser was asked before, by whichever session."""
        return self._on_slots is not None and self._on_slots.known(run) is not None

    def in_haste(self, run: passes.Run, packs: bool) -> Own | None:
        """To be compiled without TensorFlow's optimiser: it takes a tenth of the time, and steps up to a tenth more.

        Args:
          packs: what crosses in it, if that pays.
        """
        found = self._on_slots.known(run) if self._on_slots is not None else None
        if found is None:
            return None
        if not packs or not self._packs(run):
            return Own(at_usual_priority(lambda: self._placed(found)), None)
        return at_usual_priority(lambda: self._packed(lambda: self._placed(found), run, found.told(self._told)))

    def settled(self, definition: Callable[[], v1.GraphDef], run: passes.Run) -> Own | None:
        """To be compiled with TensorFlow's optimiser, for what packing has added; None: nothing is packed.

        Args:
          definition: makes the graph of the view.
        """
        if not self._packs(run):
            return None
        found = self._on_slots.known(run) if self._on_slots is not None else None
        made, told = definition, self._told
        if found is not None:
            made, told = (lambda: self._placed(found)), found.told(self._told)
        own = at_usual_priority(lambda: self._packed(made, run, told))
        return own if own.report is not None and own.report.changed else None

    def _packs(self, run: passes.Run) -> bool:
        """Whether it is looked at how it could be packed."""
        if self._context.pack == "off":
            return False
        needed = self._exported.index.upstream((*run.fetches, *run.targets))
        if len(needed) < OWN_NODES_MIN:
            return False
        return self._context.pack == "on" or not needed.isdisjoint(self._exported.updates)

    def _placed(self, found: Optimised) -> v1.GraphDef:
        assert self._context.slot_map is not None
        return found.placed(self._context.slot_map, self._context.swaps)

    def _packed(self, make: Callable[[], v1.GraphDef], run: passes.Run, told: passes.Told) -> Own:
        with without_collections():
            definition = make()
            packed = passes.pack(definition, run, self._context.worker_device, self._context.pack, told)
            return Own(packed.definition if packed.definition is not None else definition, packed.report)
