"""The graph on slots in which captured steps are run: one of a process, which grows with what the script asks for.

A variable of the model is a variable of TensorFlow 1 here, on its slot, that begins with the value which Keras's own has in the
chief. What belongs to the process is given to each run and taken back from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.graph import GraphIndex
from deeprec_ext.graph.marks import FED, READS, ROWS, ROWS_BY_PART, STATE
from deeprec_ext.graph.writes import find_writes
from deeprec_ext.keras import ownership
from deeprec_ext.keras.captured import Captured
from deeprec_ext.keras.files.rows import Rows
from deeprec_ext.keras.given import fix, give
from deeprec_ext.keras.placing import HERE, place, uses
from deeprec_ext.keras.rewriting.between import go_on_with_what_was_written
from deeprec_ext.keras.rewriting.lean import make_lean
from deeprec_ext.keras.rewriting.wholes import done_by_rows
from deeprec_ext.keras.unmade import first_of, is_large
from deeprec_ext.tf_private.eager import raw_value

v1 = tf.compat.v1

_GENERATES = ("Rng", "Stateful")
"""How ops begin that draw from a random generator whose handle they take."""


class GrowingGraph(tf.Graph):
    """MonitoredSession finalizes the graph that it trains; evaluation adds to this one later."""

    def finalize(self) -> None:
        pass


@dataclass(frozen=True)
class Batches:
    """What is known of the batches of a step that the graph alone would not tell."""

    records: int | None = None
    reads: Sequence[str] = ()
    """Of the dataset behind them, as `graph.marks.READS` has it."""


NOTHING = Batches()


@dataclass(frozen=True)
class Shared:
    """A variable on a PS."""

    variable: Any
    """Keras's."""
    here: Any
    """In the graph."""
    read: Any
    value: Any
    """Placeholder, for `write`."""
    write: Any


@dataclass(frozen=True)
class Imported:
    """A captured step in the graph."""

    captured: Captured
    feeds: Sequence[Any]
    """Placeholders of the batch."""
    given: Sequence[tuple[Any, Any]]
    """Variable of the process, placeholder of its value."""
    taken: Sequence[tuple[Any, Any]]
    """Variable of the process, tensor of its value after the step."""
    outputs: Sequence[Any]
    done: Any
    """What has to run besides."""


class StepGraph:
    """Args:
    slots: how many the job has.
    """

    def __init__(self, slots: int) -> None:
        self.graph = GrowingGraph()
        self.shared: dict[int, Shared] = {}
        self.loading: dict[int, Rows] = {}
        """What is being written into large variables, by their keys."""
        self.beginnings: list[Rows] = []
        """What a script has loaded into variables that begin with it, until they have."""
        self._somes: dict[int, tuple[Any, Any]] = {}
        self._loads: dict[int, Any] = {}
        self._slots = ownership.Slots(slots)
        self.step: Any = None
        """The global step: counts the training steps of all workers, whichever model and optimizer they are of."""

    def add(
        self, captured: Captured, weights: Sequence[Any], optimizers: Sequence[Any], counters: Sequence[Any], name: str,
        trains: bool, batches: Batches = NOTHING,
    ) -> Imported:  # fmt: skip
        """
        Args:
          weights: of the model, in their order; each gets its place, whether the step uses it or not.
          optimizers: their variables.
          counters: of batches, in this process.
          name: of the step, as its ops are called.
          trains: it is a training step, which counts.
          batches: what is known of them.
        """
        shapes = {inside: _dimensions(variable) for inside, variable in captured.variables.items()}
        feeds = [inside for inside, _, _ in captured.feeds]
        wanted = (*captured.outputs, *captured.targets, *feeds, *captured.constants)
        state = {ownership.key(one) for one in optimizers if one.shape.rank}
        inside_state = [inside for inside, variable in captured.variables.items() if ownership.key(variable) in state]
        index = done_by_rows(captured.definition, shapes, wanted)
        unused = go_on_with_what_was_written(index, inside_state)  # but for rows that are looked up
        targets = make_lean(index, captured.outputs, captured.targets)
        remote, local = self._divide(index, captured, weights, optimizers, counters, unused)
        kept = {ownership.key(one) for one in optimizers}
        with self.graph.as_default():
            self._make([*weights, *remote.values()], weights, kept)
            if trains:
                self._note(index, captured, batches)
            if self.step is None:
                used = {ownership.key(one) for one in captured.variables.values()}
                own = [one for one in optimizers if ownership.key(one) in used]  # of a model inside it another may be
                self.step = _global_step(own, self._slots)
            homes = {inside: self._device(variable) for inside, variable in remote.items()}
            place(
                index, homes, [inside for inside in inside_state if inside in remote],
                [inside for inside, variable in captured.variables.items() if variable.shape.rank == 0],
                {one.split(":")[0] for one in captured.outputs},
            )  # fmt: skip
            with tf.name_scope(name):
                return self._import(index, captured, targets, remote, local, trains)

    # -- large variables, by rows: ops that are added when they are wanted, for all at once, since most processes never do

    def some_of(self, variable: Any) -> tuple[Any, Any]:
        """(its rows [from, to), placeholder of both)"""
        with self.graph.as_default():
            for key, shared in self._large(self._somes).items():
                name = ownership.plain_name(shared.variable) + "/Some"
                with tf.device(HERE):
                    between = v1.placeholder(tf.int64, [2], name=name + "/Between")
                    ids = tf.range(between[0], between[1], name=name + "/Range")
                with tf.device(self._device(shared.variable)):  # of one that is cut, each part its own
                    rows = tf.raw_ops.ResourceGather(
                        resource=shared.here.handle, indices=ids, dtype=shared.variable.dtype, name=name
                    )
                self._somes[key] = rows, between
        return self._somes[ownership.key(variable)]

    def load_of(self, variable: Any) -> Any:
        """Writes what is `loading`."""
        with self.graph.as_default():
            for key, shared in self._large(self._loads).items():
                name = f"{ownership.plain_name(shared.variable)}/Load/{ROWS_BY_PART}"
                with tf.device(HERE):
                    given = _by_rows(partial(self._loaded, key), shared.variable, name)
                with tf.device(self._device(shared.variable)):
                    self._loads[key] = tf.raw_ops.AssignVariableOp(resource=shared.here.handle, value=given)
        return self._loads[ownership.key(variable)]

    def _large(self, known: Collection[int]) -> dict[int, Shared]:
        return {key: one for key, one in self.shared.items() if key not in known and is_large(one.variable)}

    def _loaded(self, key: int, begin: int, end: int) -> np.ndarray:
        return self.loading[key].between(begin, end)

    def _divide(
        self, index: GraphIndex, captured: Captured, weights: Sequence[Any], optimizers: Sequence[Any],
        counters: Sequence[Any], unused: Collection[str],
    ) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
        """Placeholder of a handle -> variable: those on PS, those of the process. Places the former.

        Args:
          unused: placeholders of those that the step does without.
        """
        writes = find_writes(index, captured.variables)
        keys = [{ownership.key(one) for one in some} for some in (weights, optimizers, counters)]
        known = ownership.Known(*keys)
        remote: dict[str, Any] = {}
        local: dict[str, Any] = {}
        for inside, variable in captured.variables.items():
            if inside in unused and ownership.key(variable) not in self.shared:
                continue
            ops = {write.node.op for write in writes if inside in write.variables}
            generates = any(index.nodes[one].op.startswith(_GENERATES) for one in uses(index, inside).takers)
            written = ownership.Written(bool(ops), ops == {"AssignVariableOp"}, generates)
            here = ownership.is_local(variable, known, written) and ownership.key(variable) not in self.shared
            (local if here else remote)[inside] = variable
        state = known.state
        self._slots.weights([*weights, *(one for one in remote.values() if ownership.key(one) not in state)])
        beside: dict[int, list[Any]] = {}
        for write in writes:
            of_write = [captured.variables[inside] for inside in write.variables]
            for one in of_write:
                beside.setdefault(ownership.key(one), []).extend(other for other in of_write if other is not one)
        self._slots.state(list(remote.values()), lambda one: beside.get(ownership.key(one), ()))
        return remote, local

    def _device(self, variable: Any) -> str:
        return f"/job:ps/task:{self._slots.known(variable)}"

    def _note(self, index: GraphIndex, captured: Captured, batches: Batches) -> None:
        """Of its batches, for whoever reads what the model is like off the graph."""
        for name, _, _ in captured.feeds if batches.records else ():
            index.nodes[name].attr[FED].i = batches.records
        for text in batches.reads:
            self.graph.add_to_collection(READS, text)

    def _make(self, variables: Sequence[Any], weights: Collection[Any], state: Collection[int]) -> None:
        trainable = {ownership.key(one) for one in weights if one.trainable}
        for variable in variables:
            if ownership.key(variable) not in self.shared:
                first = first_of(variable)
                if first is not None and first.loaded is not None:
                    self.beginnings.append(first.loaded)
                made = _make(variable, self._device(variable), ownership.key(variable) in trainable)
                self.shared[ownership.key(variable)] = made
                if ownership.key(variable) in state:
                    self.graph.add_to_collection(STATE, made.here.op.name)

    def _import(
        self, index: GraphIndex, captured: Captured, targets: Sequence[str], remote: dict[str, Any],
        local: dict[str, Any], trains: bool,
    ) -> Imported:  # fmt: skip
        scope = self.graph.unique_name("own", mark_as_used=True) + "/"
        given = give(index, local, targets, scope)
        fix(index, captured.constants)
        tensors = [*captured.outputs, *(name + ":0" for name, _, _ in captured.feeds)]
        tensors += [name + ":0" for one in given for name in (one.value, one.after) if name]
        wanted = list(dict.fromkeys((*tensors, *targets)))
        found = v1.import_graph_def(
            index.definition, name="step", return_elements=wanted,
            input_map=_taken(index, {inside: self.shared[ownership.key(one)].here.handle for inside, one in remote.items()}),
        )  # fmt: skip
        by_name = dict(zip(wanted, found))
        besides = [by_name[name] for name in targets]
        if trains:
            besides.append(self.step.assign_add(1, read_value=False))
        return Imported(
            captured,
            [by_name[name + ":0"] for name, _, _ in captured.feeds],
            [(one.variable, by_name[one.value + ":0"]) for one in given],
            [(one.variable, by_name[one.after + ":0"]) for one in given if one.after],
            [by_name[name] for name in captured.outputs],
            tf.group(*besides, name="done"),  # one fetch for all, and one message from each PS
        )


def _dimensions(variable: Any) -> tuple[int, ...] | None:
    return tuple(variable.shape) if variable.shape.is_fully_defined() else None


def _taken(index: GraphIndex, inputs: dict[str, Any]) -> dict[str, Any]:
    """Without those that no op takes: TensorFlow refuses them."""
    return {name: tensor for name, tensor in inputs.items() if index.consumers(name)}


def _here(variable: Any) -> np.ndarray:
    value = np.asarray(raw_value(variable))
    if not variable.shape.is_compatible_with(value.shape):
        raise RuntimeError(
            f"{ownership.name(variable)} has no value in this process, but {value.shape} of {variable.shape}"
        )
    return value


def _make(variable: Any, device: str, trainable: bool) -> Shared:
    keys = v1.GraphKeys
    collections = [keys.GLOBAL_VARIABLES, *([keys.TRAINABLE_VARIABLES] if trainable else [])]

    name, first = ownership.plain_name(variable), first_of(variable)
    rows = first.loaded if first is not None else None
    if first is not None and rows is None:
        with tf.device(device):
            begin = first.again(name + "/Begin")
    with tf.device(HERE):  # the script's own process has it
        if rows is not None:
            begin = _by_rows(rows.between, variable, f"{name}/Begin/{ROWS}")
        elif first is None:
            begin = tf.numpy_function(lambda: _here(variable), [], variable.dtype, name=name + "/Begin")
            begin.set_shape(variable.shape)
        value = v1.placeholder(variable.dtype, variable.shape, name=name + "/Written")
    with tf.device(device):
        here = v1.Variable(begin, trainable=trainable, collections=collections, name=name, use_resource=True)
        read = here.read_value()
        write = tf.raw_ops.AssignVariableOp(resource=here.handle, value=value)
    return Shared(variable, here, read, value, write)


def _by_rows(between: Callable[[int, int], np.ndarray], variable: Any, name: str) -> Any:
    """All rows; of a variable that is cut, those of each part."""
    ends = [tf.constant(row, tf.int64) for row in (0, variable.shape[0])]
    given = tf.numpy_function(between, ends, variable.dtype, name=name)
    given.set_shape(variable.shape)
    return given


def _global_step(optimizers: Sequence[Any], slots: ownership.Slots) -> Any:
    """Begins where the optimizer is: a model that was loaded goes on."""
    keys = v1.GraphKeys
    counts = [
        one for one in optimizers
        if one.dtype == tf.int64 and one.shape.rank == 0 and "iter" in ownership.name(one).rpartition("/")[2]
    ]  # fmt: skip
    begin = max((int(raw_value(one)) for one in counts), default=0)
    with tf.device("/job:ps/task:0"):
        return v1.Variable(
            tf.constant(begin, tf.int64), trainable=False, name=keys.GLOBAL_STEP, use_resource=True,
            collections=[keys.GLOBAL_VARIABLES, keys.GLOBAL_STEP],
        )  # fmt: skip
