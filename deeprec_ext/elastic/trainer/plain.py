"""Training of a script that never comes to the PS: in a session of its own, or eagerly. Seen and told; eager loops are refused.

A script that does not read TF_CONFIG, or gives nobody the target, trains on this machine while the job waits for it. What is
counted are runs of the same operations in sessions on the spot; of those that recur it is looked at, beside the training,
whether they train a variable of the model (`graph.training`). A look into the data, an evaluation or a restore does not. It is
told when no elastic session has trained after a while: what trains a little of its own first may do so. An eager loop with a
GradientTape or an optimizer that goes on and on when it was told, or that was all the script did, ends the job: nothing can
make it elastic, and each process trains alone.
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

GOES_ON_SECONDS, GOES_ON_LOOKS = 5.0, 2
"""A loop that was told is looked at so often; seen to go on so often in a row it is refused."""

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
      asked: whether the script has asked for one, perhaps in vain: others have left nothing to train.
      soon: runs a job in a thread of ours.
      clock: seconds.
    """

    def __init__(
        self, noticing: Noticing, refused: Callable[[str], None], trained: Callable[[], bool], asked: Callable[[], bool],
        soon: Callable[[Callable[[], None]], None], clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._noticing, self._refused, self._trained, self._asked = noticing, refused, trained, asked
        self._soon, self._clock = soon, clock
        self._lock = threading.Lock()
        self._runs: weakref.WeakKeyDictionary[tf.Graph, OrderedDict[tuple[str, ...], tuple[int, float]]]
        self._runs = weakref.WeakKeyDictionary()
        self._pending: list[tuple[tf.Graph, tuple[str, ...], float, tuple[str, str]]] = []
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._updates: Counter[int] = Counter()
        self._looked = 0.0
        self._since, self._what = 0.0, SESSION
        self._told_of_loop = False
        self._steps = 0  # eager ones of an optimizer, or with a GradientTape
        self._seen: list[int] = []  # how many there were, at each look since it was told
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

    def taped(self) -> None:
        """A gradient was computed eagerly."""
        if not self.over and tf.executing_eagerly():
            with self._lock:
                self._steps += 1

    def updated(self, by: Any, steps: int = 0) -> None:
        """A variable was updated eagerly, `by` itself or an optimizer, whose steps these are."""
        with self._lock:
            self._steps += steps
            self._updates[id(by)] += 1
            if self._updates[id(by)] == STEPS and not self._since:
                self._since, self._what = self._clock(), EAGER

    def applies(self, optimizer: Any) -> None:
        """Gradients are being applied, perhaps inside a function that is only being traced."""
        if self.over:
            return
        if tf.executing_eagerly():
            self.updated(optimizer, 1)
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
        elif self._told_of_loop:
            if now - self._looked >= GOES_ON_SECONDS:
                self._looked = now
                self._soon(self._look_at_loop)
        elif self._since and now - self._since >= PATIENCE_SECONDS:
            self._tell()
        elif self._optimizers and not self._since and now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self._soon(self._ask)

    def conclude(self, refuse: bool = True) -> str:
        """The script has ended: what it trained beside the PS, if it did nothing else; empty: nothing, or it is refused.

        Args:
          refuse: a script that did nothing but an eager loop is refused.
        """
        if not self.over and not self._trained():
            self._examine()
            self._ask()
            if self._since and not self._told_of_loop:
                self._tell()
            if self._told_of_loop and refuse and self._eager_steps() >= STEPS:
                self._refused(": ".join(EAGER))
                self._end()
                return ""
        return ": ".join(self._what) if self._since and not self._trained() else ""

    def _tell(self) -> None:
        self._noticing.say("local-training", *self._what)
        if self._what is EAGER:
            self._told_of_loop = True
        else:
            self._end()

    def _look_at_loop(self) -> None:
        """Whether it still goes on: a few steps before `fit` are no loop."""
        self._seen = [*self._seen, self._eager_steps()][-GOES_ON_LOOKS - 1 :]
        goes_on = all(later > before for before, later in zip(self._seen, self._seen[1:]))
        enough = len(self._seen) > GOES_ON_LOOKS and self._seen[-1] - self._seen[0] >= STEPS
        if goes_on and enough and not (self.over or self._trained() or self._asked()):
            self._refused(": ".join(EAGER))
            self._end()

    def _eager_steps(self) -> int:
        with self._lock:
            optimizers, steps = list(self._optimizers), self._steps
        return steps + sum(map(_made_here, optimizers))

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
    """Loops that apply their gradients by hand. Integers are counters."""

    def assign(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if not watch.over and self.trainable and self.dtype.is_floating and tf.executing_eagerly():
            watch.updated(self)
        return original(self, *args, **kwargs)

    def gradient(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        watch.taped()
        return original(self, *args, **kwargs)

    training.wrap_variable_updates(assign)
    wrap(tf.GradientTape, "gradient", gradient)
