"""The user's graph with all passes applied, on slots: what the sessions of all views have in common.

A pass that has looked at slots, each as a process of its own, has done nothing that would be wrong where two of them are on one
PS. So a session for another view is a copy with other device names.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable
from itertools import chain

from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.protobuf.config_pb2 import GraphOptions

from deeprec_ext.graph.context import Context, Report
from deeprec_ext.graph.index import GraphIndex
from deeprec_ext.graph.optimising import NAME, Optimised, Usually, optimise_run, place
from deeprec_ext.graph.packing.reaching import Run
from deeprec_ext.graph.passes import only_ours, rewrite
from deeprec_ext.graph.placement import SlotPlacement, physical, target_of
from deeprec_ext.graph.seeds import Seeds, seeded

log = logging.getLogger("deeprec_ext")

OPTIMISED_MAX, ASKED_MAX = 64, 512
"""Runs of which it is remembered what the optimiser made of them, and that it was asked: a script that makes new ones for ever
must not fill the memory, nor have it asked for ever."""


class OnSlots:
    """Args:
    definition: the user's graph; not changed.
    context: of any view.
    """

    def __init__(self, definition: GraphDef, context: Context) -> None:
        assert context.slot_map is not None
        slots = tuple(range(len(context.slot_map)))
        rewritten = rewrite(definition, dataclasses.replace(context, slot_map=slots, swaps=0))
        self._serialised = rewritten.definition.SerializeToString()  # a third of what it takes otherwise
        self.drops, self.initializers, self.marks = rewritten.drops, rewritten.initializers, rewritten.marks
        self._reports = rewritten.reports
        functions = (function.node_def for function in rewritten.definition.library.function)
        self._devices = Counter(node.device for node in chain(rewritten.definition.node, *functions))
        self._seeded = sum(
            bool(node.attr["seed"].i or node.attr["seed2"].i) for node in rewritten.definition.node if seeded(node.op)
        )
        self._optimising = threading.Lock()
        self._asked: OrderedDict[Run, None] = OrderedDict()
        self._optimised: dict[Run, Optimised] = {}
        self._uses, self._used = itertools.count(1), dict[Run, int]()
        self._report: Report | None = None
        self._most = 0  # operations of the run that it is of

    @staticmethod
    def serves(context: Context) -> bool:
        """Whether the graph of such a context is a copy of one on slots: not without a cluster, nor where a pass that is not
        ours may ask which PS a slot is on."""
        return context.slot_map is not None and only_ours()

    @staticmethod
    def key(context: Context) -> object:
        """Equal for views that have all but the PS in common."""
        common = dataclasses.replace(
            context, slot_map=tuple(range(len(context.slot_map or ()))), swaps=0, tracked={}, cut_before={}, cut_by_chief=None
        )  # fmt: skip
        return repr(common), frozenset(context.tracked.items())

    def of(self, context: Context, first: Iterable[Report] = ()) -> OfView:
        """The graph of a view.

        Args:
          first: told of before what the passes did.
        """
        return OfView(self, context, first)

    def definition(self, context: Context) -> GraphDef:
        """The graph of a view; made anew each time."""
        copy = GraphDef.FromString(self._serialised)
        assert context.slot_map is not None
        place(copy, context.slot_map, context.swaps)
        return copy

    def reports(self, context: Context) -> list[Report]:
        """Of the passes, as if each had been applied to the graph of the view."""
        moved = sum(count for device, count in self._devices.items() if physical(device, context.slot_map) != device)
        found = []
        for one in self._reports:
            if one.name == SlotPlacement.name:
                devices = len(self._devices.keys() - {""})
                one = Report(one.name, moved, f"{devices} device strings, {target_of(context.slot_map)}", one.seconds)
            found.append(one)
        if context.swaps and self._seeded:
            found.append(Report(Seeds.name, self._seeded, f"swap {context.swaps}", 0.0))
        return found

    @property
    def report(self) -> Report | None:
        """Of the run that has most operations; None: the optimiser was not asked yet."""
        return self._report

    def known(self, run: Run) -> Optimised | None:
        """What the optimiser has made of the run; None: nothing, or it was not asked yet. Never slow."""
        found = self._optimised.get(run)
        if found is not None:
            self._used[run] = next(self._uses)
        return found

    def is_asked(self, run: Run) -> bool:
        """Whether the optimiser was asked of it, whatever it said."""
        return run in self._asked

    def optimised(self, run: Run, options: GraphOptions, usually: Usually = lambda work: work()) -> Optimised | None:
        """Asks the optimiser of a run, and gives what became of it; None: it is left to the optimiser of its session."""
        self.optimise([run], options, usually)
        return self.known(run)

    def optimise(self, runs: Iterable[Run], options: GraphOptions, usually: Usually = lambda work: work()) -> None:
        """Asks the optimiser, once for each run: that may take seconds, without the interpreter's lock.

        Args:
          options: what the session's ConfigProto says of graphs.
          usually: by whom what is done in Python is done.
        """
        index: GraphIndex | None = None
        for run in runs:
            with self._optimising:
                if run in self._asked:
                    continue
                if index is None:
                    index = usually(lambda: GraphIndex(GraphDef.FromString(self._serialised)))
                found = self._ask(index, run, options, usually)
                if isinstance(found, Optimised):
                    self._optimised[run] = found
                    self._used[run] = next(self._uses)
                self._asked[run] = None
                while len(self._optimised) > OPTIMISED_MAX:  # what nobody asks for any more is forgotten first
                    oldest = min(self._optimised, key=lambda one: self._used.get(one, 0))
                    del self._optimised[oldest]
                    self._used.pop(oldest, None)
                while len(self._asked) > ASKED_MAX:
                    self._asked.popitem(last=False)

    def _ask(self, index: GraphIndex, run: Run, options: GraphOptions, usually: Usually) -> Optimised | str:
        began = time.perf_counter()
        found: Optimised | str
        try:
            found = optimise_run(index, run, options, usually)
        except Exception as error:  # whatever TensorFlow says of it: its session can do it
            found = f"TensorFlow's optimiser did not take the run: {str(error)[:200]}"
        seconds = time.perf_counter() - began
        if isinstance(found, str):
            log.info("a run is optimised by each of its sessions: %s", found)
            self._report = self._report or Report(NAME, 0, found, seconds)
        elif found.before > self._most:
            self._most = found.before
            text = f"{found.operations} operations of {found.before} are left of a run, for all views"
            self._report = Report(NAME, found.before - found.operations, text, seconds)
        return found


class OfView:
    """A copy of such a graph for one view, as `Rewritten`; made each time it is asked for, and not kept."""

    def __init__(self, on_slots: OnSlots, context: Context, first: Iterable[Report] = ()) -> None:
        self._on_slots, self._context = on_slots, context
        self.drops, self.initializers, self.marks = on_slots.drops, on_slots.initializers, on_slots.marks
        self.reports = [*first, *on_slots.reports(context)]

    @property
    def definition(self) -> GraphDef:
        return self._on_slots.definition(self._context)
