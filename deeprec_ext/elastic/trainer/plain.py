"""Training of a script that never comes to the PS: in a session of its own, or eagerly. Seen and told; eager loops are refused.

A script that does not read TF_CONFIG, or gives nobody the target, trains on this machine while the job waits for it. What is
counted are runs of the same operations in sessions on the spot; of those that recur it is looked at, beside the training,
whether they train a variable of the model (`graph.training`). A look into the data, an evaluation or a restore does not. It is
told when no elastic session has trained after a while: what trains a little of its own first may do so. An eager loop that goes
on when it was told, or that was all the script did, ends the job: nothing can make it elastic, and each process trains alone.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from deeprec_ext.elastic.session.session import ElasticSession
from deeprec_ext.elastic.trainer.noticing import Noticing, trainable_in
from deeprec_ext.errors import RefusedError
from deeprec_ext.graph import GraphIndex
from deeprec_ext.graph import training as trained_in
from deeprec_ext.tf_private import eager, keras_classes, sessions, training
from deeprec_ext.tf_private.wrapping import wrap

STEPS = 3
"""Runs of the same operations are a training loop; eager updates of variables, too."""

PATIENCE_SECONDS = 10.0
"""From the first local step until it is told, if nothing was trained on the PS."""

LOOK_SECONDS = 2.0
"""How often optimizers in functions are asked for their steps."""

RUNS_MAX = 64
"""Different runs of a graph that are counted, least recently used first to go."""

SESSION = (
    "the script trains in a session of its own on this machine, not on the PS",
    "make cluster and server from TF_CONFIG and train in `tf.compat.v1.train.MonitoredTrainingSession(master=server.target, "
    "is_chief=is_chief)`; an Estimator reads TF_CONFIG when its config is `tf.estimator.RunConfig()`",
)
KERAS = (
    "the script trains with Keras in a graph on this machine, not on the PS",
    "leave out `disable_eager_execution()` and `disable_v2_behavior()`: `Model.fit` then trains on the PS; or wrap the model "
    "with `tf.keras.estimator.model_to_estimator` and call `tf.estimator.train_and_evaluate`",
)
EAGER = (
    "the script trains in eager TensorFlow 2, in a loop of its own, on this machine and not on the PS, and that cannot be made "
    "elastic",
    "put what the loop does with its GradientTape into `train_step` of a keras.Model and call `fit`; or train with "
    "tf.estimator or tf.compat.v1.train.MonitoredTrainingSession",
)
RAW = (
    "tf.compat.v1.Session(server.target) cannot be made elastic, since nothing tells of its steps and nobody restores what is "
    "lost: use tf.compat.v1.train.MonitoredTrainingSession with the same server.target"
)


class Watch:
    """Of one process.

    Args:
      noticing: tells the AIMaster.
      refused: is told why a script cannot be elastic.
      trained: whether an elastic session of this process has made a step.
      soon: runs a job in a thread of ours.
      clock: seconds.
    """

    def __init__(
        self, noticing: Noticing, refused: Callable[[str], None], trained: Callable[[], bool],
        soon: Callable[[Callable[[], None]], None], clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._noticing, self._refused, self._trained, self._soon, self._clock = noticing, refused, trained, soon, clock
        self._lock = threading.Lock()
        self._runs: weakref.WeakKeyDictionary[tf.Graph, OrderedDict[tuple[str, ...], tuple[int, float]]]
        self._runs = weakref.WeakKeyDictionary()
        self._pending: list[tuple[tf.Graph, tuple[str, ...], float, tuple[str, str]]] = []
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._updates: Counter[int] = Counter()
        self._looked = 0.0
        self._since, self._what = 0.0, SESSION
        self._loops = 0  # eager steps soon after they were told of; -1: nobody has counted; 0: they were not told of
        self.opened = False
        """MonitoredSession has made a session on the spot."""
        self.over = False
        """Nothing is watched any more: it was told, or the script trains on the PS."""

    # -- what the script does

    def ran(self, graph: tf.Graph, names: Iterable[str], what: tuple[str, str] = SESSION) -> None:
        """A run in a session on the spot; any thread."""
        if self.over:
            return
        key, now = tuple(names), self._clock()
        with self._lock:
            runs = self._runs.setdefault(graph, OrderedDict())
            count, began = runs.pop(key, (0, now))
            runs[key] = count + 1, began
            if len(runs) > RUNS_MAX:
                runs.popitem(last=False)
            if count + 1 != STEPS:
                return
            self._pending.append((graph, key, began, what))
        self._soon(self._examine)

    def updated(self, by: Any) -> None:
        """A variable was updated eagerly, `by` itself or an optimizer."""
        with self._lock:
            self._updates[id(by)] += 1
            if self._updates[id(by)] == STEPS and not self._since:
                self._since, self._what = self._clock(), EAGER

    def applies(self, optimizer: Any) -> None:
        """Gradients are being applied, perhaps inside a function that is only being traced."""
        if self.over:
            return
        if tf.executing_eagerly():
            self.updated(optimizer)
        elif tf.compat.v1.executing_eagerly_outside_functions() and hasattr(optimizer, "iterations"):
            with self._lock:
                self._optimizers.add(optimizer)

    # -- what follows

    def beat(self) -> None:
        """Now and then, in the agent's thread: takes no time."""
        if self.over:
            return
        now = self._clock()
        if self._trained():
            self._end()
        elif self._loops:
            if now - self._looked >= LOOK_SECONDS:
                self._looked = now
                self._soon(self._refuse_loop)
        elif self._since and now - self._since >= PATIENCE_SECONDS:
            self._tell()
        elif self._optimizers and not self._since and now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self._soon(self._ask)

    def conclude(self) -> str:
        """The script has ended: what it trained beside the PS, if it did nothing else; empty: nothing, or it is refused."""
        if not self.over and not self._trained():
            self._examine()
            self._ask()
            if self._since and not self._loops:
                self._tell()
            if self._loops:
                self._refused(": ".join(EAGER))
                self._end()
                return ""
        return ": ".join(self._what) if self._since and not self._trained() and self._what is not EAGER else ""

    def _tell(self) -> None:
        self._noticing.say("local-training", *self._what)
        if self._what is EAGER:
            self._loops = -1
        else:
            self._end()

    def _refuse_loop(self) -> None:
        """If it still goes on: weights that a script sets before it calls `fit` are no loop."""
        before, self._loops = self._loops, self._eager_steps()
        if 0 <= before < self._loops and not self.over and not self._trained():
            self._refused(": ".join(EAGER))
            self._end()

    def _eager_steps(self) -> int:
        with self._lock:
            optimizers, updates = list(self._optimizers), sum(self._updates.values())
        return updates + sum(map(_made_here, optimizers))

    def _end(self) -> None:
        with self._lock:
            self.over = True
            self._runs.clear()
            self._pending.clear()
            self._optimizers.clear()
            self._updates.clear()

    def _examine(self) -> None:
        while True:
            with self._lock:
                if not self._pending or self._since:
                    return
                graph, names, began, what = self._pending.pop(0)
            try:
                definition = graph.as_graph_def()
            except ValueError:
                continue  # larger than 2 GB
            found = trained_in(GraphIndex(definition), names, trainable_in(graph))
            if found.beside or found.on_ps:  # a session on the spot has no PS, whatever the devices say
                self._since, self._what = began, what

    def _ask(self) -> None:
        with self._lock:
            optimizers = list(self._optimizers)
        if not self._since and any(_made_here(one) >= STEPS for one in optimizers):
            self._since, self._what = self._clock(), EAGER


def _made_here(optimizer: Any) -> int:
    """Its steps; 0 where their number lies on a PS: what `fit` trains there is not beside."""
    counter = optimizer.iterations
    if not isinstance(counter, tf.Variable):
        counter = keras_classes.value(counter)
    return 0 if counter is None or eager.watcher_of(counter) is not None else int(counter)


class LocalSession(ElasticSession):
    """Of MonitoredSession without a master: evaluation, prediction, or training that is watched.

    Args:
      watch: is told of each run.
    """

    def __init__(self, graph: Any, config: Any, watch: Watch) -> None:
        self._watch = watch
        watch.opened = True
        super().__init__("", graph, config)

    def run_names(self, feeds: dict[str, Any], targets: tuple[str, ...], fetches: tuple[str, ...], *more: Any) -> Any:
        self._watch.ran(self.graph, (*targets, *fetches))
        return super().run_names(feeds, targets, fetches, *more)


def watch_sessions(watch: Watch, refuses: Callable[[str], bool], refused: Callable[[str], None]) -> None:
    """Sessions that are not ours are watched.

    Args:
      refuses: whether a session on this target is refused.
      refused: is told why, before RefusedError is raised.
    """

    def opens(target: str) -> None:
        if refuses(target):
            refused(RAW)
            raise RefusedError(RAW)

    sessions.watch_sessions(opens, watch.ran, lambda graph, names: watch.ran(graph, names, KERAS))


def watch_optimizer(kind: Any, watch: Watch, method: str = "apply_gradients") -> None:
    """A class of optimizers, and its method that applies gradients: eager training is watched."""

    def apply(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        watch.applies(self)
        return original(self, *args, **kwargs)

    wrap(kind, method, apply)


def watch_variables(watch: Watch) -> None:
    """Loops that apply their gradients by hand."""

    def assign(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if not watch.over and self.trainable and tf.executing_eagerly():
            watch.updated(self)
        return original(self, *args, **kwargs)

    training.wrap_variable_updates(assign)
