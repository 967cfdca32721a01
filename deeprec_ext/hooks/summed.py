"""Sessions of TensorFlow 1 in a job without PS: each process trains in its own, and all make each step together.

Where an optimizer applies gradients, it applies the mean of all workers' instead: a script's `apply_gradients` gets stand-ins,
and when a MonitoredTrainingSession is made (Estimator makes one, too) all of its graph's are put behind one function of Python,
which sums (`Member.sum`). So a step with several optimizers is one sum. Statistics that are no trainable variables (of a
normalisation) are averaged in it. What is large comes in buckets, by other functions of Python, the first of which are summed
while the rest is computed. The chief alone restores, writes checkpoints and summaries; who comes later is given all variables
by those who are there.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from deeprec_ext import env
from deeprec_ext.allreduce.given import Given, cut
from deeprec_ext.allreduce.ring import Array
from deeprec_ext.elastic.agent.rate import Rate
from deeprec_ext.elastic.member import joined
from deeprec_ext.elastic.member.member import Member
from deeprec_ext.elastic.member.views import LeaveError
from deeprec_ext.elastic.runtime.model_directory import share_model_directory
from deeprec_ext.errors import ProtocolError, RefusedError
from deeprec_ext.hooks import alone
from deeprec_ext.hooks.rates import scaled
from deeprec_ext.tf_private import estimators, keras_classes, training
from deeprec_ext.tf_private.operations import exchange_input
from deeprec_ext.tf_private.wrapping import seen, wrap
from deeprec_ext.units import few

v1 = tf.compat.v1
log = logging.getLogger("deeprec_ext")

NO_SESSION = (
    "a plain tf.compat.v1.Session would make a step that no other process makes: run the steps in "
    "tf.compat.v1.train.MonitoredTrainingSession, where all make them together (the variables are initialised, restored and "
    "saved by it), or sum by yourself: deeprec_ext.allreduce.join(state) before the optimizer is made"
)

CHECKPOINT_SECONDS, LOOK_SECONDS = 600.0, 0.5
"""How long a worker that wants to evaluate waits for the chief's checkpoint of what they have trained."""


_HERE = v1.RunOptions(inter_op_thread_pool=-1)
"""A run within a run: in the thread that asks, for there may be no other on a machine with one core."""


class _Site:
    """One call of `apply_gradients`."""

    def __init__(self, given: Sequence[Any], means: Sequence[Any], rate: Any) -> None:
        self.given, self.means, self.rate = given, means, rate


_sites: weakref.WeakKeyDictionary[Any, list[_Site]] = weakref.WeakKeyDictionary()
_statistics: weakref.WeakKeyDictionary[Any, list[tuple[Any, Any]]] = weakref.WeakKeyDictionary()
"""Graph -> (variable, its value after the forward pass)."""


def tensorflow_imported(tensorflow: Any) -> None:
    wrap(v1.train.Optimizer, "apply_gradients", _apply)
    training.exchange_monitored_training_session(tensorflow, _train)


def keras_optimizers_imported(module: Any) -> None:
    """One of `imports.KERAS_OPTIMIZERS`: Estimators of TensorFlow 2 train by them, in graphs."""
    for kind, method in keras_classes.optimizers(module):
        if method == "apply_gradients" and not seen(kind):
            wrap(kind, method, _apply)
        elif method == "apply" and not seen(kind):  # of Keras 3, which trains eagerly, or in functions, alone
            wrap(kind, method, _applied)


def _applied(original: Callable[..., Any], optimizer: Any, *args: Any, **words: Any) -> Any:
    alone.WATCH.applies(optimizer)
    return original(optimizer, *args, **words)


def estimator_imported(module: Any) -> None:
    """`tensorflow_estimator.python.estimator.training`: in a worker, what needs a checkpoint waits for the chief's."""
    estimators.wrap_sessions(module, _train)
    share_model_directory(module.estimator_lib, SUMS)
    if env.role() == "chief":
        return
    kind = module.estimator_lib.EstimatorV2
    for name in ("evaluate", "predict"):
        wrap(kind, name, _when_there_is_a_checkpoint)
    for name in ("export_saved_model", "export_savedmodel"):
        if hasattr(kind, name):
            wrap(kind, name, lambda original, estimator, *args, **words: log.info("the chief exports the model"))


def _when_there_is_a_checkpoint(original: Callable[..., Any], estimator: Any, *args: Any, **words: Any) -> Any:
    member, deadline = joined.member(), time.monotonic() + CHECKPOINT_SECONDS
    told = False
    while member is not None and not member.leaving.is_set() and time.monotonic() < deadline:
        newest = tf.train.latest_checkpoint(estimator.model_dir)
        step = (newest or "").rpartition("-")[2]
        if newest is not None and not (step.isdigit() and int(step) < SUMS.step):
            break
        if not told:
            told = True
            log.info("waiting for the chief's checkpoint of step %d", SUMS.step)
        time.sleep(LOOK_SECONDS)
    return original(estimator, *args, **words)


def _apply(original: Callable[..., Any], optimizer: Any, grads_and_vars: Any, *args: Any, **words: Any) -> Any:
    pairs = list(grads_and_vars)
    if tf.executing_eagerly() or tf.inside_function() or not any(one is not None for one, _ in pairs):
        alone.WATCH.applies(optimizer)
        return original(optimizer, pairs, *args, **words)
    if not SUMS.join():  # the script sums by itself
        return original(optimizer, pairs, *args, **words)
    if isinstance(optimizer, v1.train.SyncReplicasOptimizer):
        _refuse(
            "SyncReplicasOptimizer waits for gradients on parameter servers: leave it out, in a job without PS the "
            "gradients of all workers are in each step"
        )
    graph = v1.get_default_graph()
    if graph not in _statistics:
        trained = {id(one) for one in v1.trainable_variables()}
        kept = [one for one in v1.global_variables() if id(one) not in trained and one.dtype.is_floating]
        _statistics[graph] = [(one, tf.identity(one.read_value())) for one in kept]
    given, means, new = [], [], []
    for gradient, variable in pairs:
        mean = None
        if gradient is not None:
            dense = tf.convert_to_tensor(gradient)
            dense.set_shape(variable.shape)
            given.append(tf.identity(dense))
            mean = tf.numpy_function(_not_here, [], dense.dtype)  # until MonitoredTrainingSession is made
            mean.set_shape(variable.shape)
            mean = tf.identity(mean)
            means.append(mean)
        new.append((mean, variable))
    rate = tf.identity(tf.constant(1.0))  # until then as well
    _sites.setdefault(graph, []).append(_Site(given, means, rate))
    with tf.control_dependencies(means):
        if not SUMS.scales:
            return original(optimizer, new, *args, **words)
        changed = [variable for mean, variable in new if mean is not None]
        return scaled(changed, rate, lambda: original(optimizer, new, *args, **words))


def _train(make: Callable[..., Any], *args: Any, **words: Any) -> Any:
    """MonitoredTrainingSession."""
    given = inspect.signature(make).bind(*args, **words)
    given.apply_defaults()
    named, graph = given.arguments, v1.get_default_graph()
    if not SUMS.join():
        return make(*args, **words)
    if named["master"]:
        _refuse(
            f"the script trains on a cluster of its own ({named['master']}), and a job without PS has none: leave master out "
            "of MonitoredTrainingSession, and let no TF_CONFIG or flag make a server"
        )
    sites = _sites.pop(graph, [])
    if not sites and graph not in SUMS.finished:
        _refuse(
            "nothing in the graph of MonitoredTrainingSession is trained by an optimizer of tf.compat.v1.train: its gradients "
            "could not be summed; train it with PS (leave out --strategy)"
        )
    hooks = list(named["hooks"] or ())
    if env.role() != "chief":
        named.update(checkpoint_dir=None, summary_dir=None, chief_only_hooks=None)
        hooks = [one for one in hooks if not isinstance(one, (v1.train.CheckpointSaverHook, v1.train.SummarySaverHook))]
    SUMS.finish(graph, sites)
    SUMS.ends = training.last_steps(hooks)
    named.update(is_chief=True, hooks=[_Joining(), *hooks])
    return make(*given.args, **given.kwargs)


def _not_here() -> NoReturn:
    """Called by TensorFlow, in a session of another kind."""
    _refuse(NO_SESSION)


def _refuse(reason: str) -> NoReturn:
    joined.give_up(reason)


class _Sums:
    """Of this process."""

    def __init__(self) -> None:
        self.member: Member | None = None
        self._unsaid: dict[str, tuple[str, str, bool]] = {}
        self.step = 0
        """The global step, as far as a session of this process has come."""
        self.ends: Callable[[], int] | None = None
        """The global step at which the present session stops, once it is known."""
        self.session: Any = None
        self._like: list[Array] = []
        self._exact = 0
        """The last ones of these are statistics."""
        self._starts: tuple[int, ...] = (0,)  # of buckets
        self._given: Given | None = None  # of the step that is being computed
        self.finished: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        """Graph -> names of (variable, its read, a placeholder, its write), their shapes and types, arrays as are summed, how
        many of them are statistics, where buckets of them begin."""
        self._rate = Rate(follows=True)
        self._variables: list[tuple[str, str, str, str]] = []
        self._shapes: list[tuple[tuple[int, ...], Any]] = []

    def finish(self, graph: Any, sites: Sequence[_Site]) -> None:
        """The graph is complete: its gradients are put behind one sum."""
        if graph not in self.finished:
            self._sum_in(graph, sites)
            every = v1.global_variables()
            kinds = [(tuple(one.shape.as_list()), one.dtype.base_dtype.as_numpy_dtype) for one in every]
            names = [
                (one.name, one.read_value().name, value.name, v1.assign(one, value).op.name)
                for one in every for value in [v1.placeholder(one.dtype.base_dtype, one.shape)]
            ]  # fmt: skip
            self.finished[graph] = names, kinds, self._like, self._exact, self._starts
        self._variables, self._shapes, self._like, self._exact, self._starts = self.finished[graph]

    def _sum_in(self, graph: Any, sites: Sequence[_Site]) -> None:
        means = [mean for site in sites for mean in site.means]
        found = [one for site in sites for one in site.given]
        if _reaches(found, {one.op for one in means}):
            _refuse(
                "an optimizer's gradients are computed of what another one has updated in the same step: they cannot be summed "
                "as one; train it with PS (leave out --strategy)"
            )
        kept = _statistics.pop(graph, [])
        self._exact = len(kept)
        every = [*found, *(value for _, value in kept)]
        if not all(one.shape.is_fully_defined() for one in every):
            _refuse("gradients are of shapes that are not known before a step: they cannot be summed")
        kind = tf.float64 if any(one.dtype == tf.float64 for one in every) else tf.float32
        self._like = [np.zeros(one.shape.as_list(), kind.as_numpy_dtype) for one in every]
        self._starts = cut(self._like, self._exact)
        with tf.control_dependencies(None):
            given, last = [tf.cast(one, kind) for one in every], len(every)
            brought: list[Any] = []
            for bucket in range(len(self._starts) - 1, 0, -1):
                start, end, last = self._starts[bucket], last, self._starts[bucket]
                with tf.control_dependencies(brought):
                    brought.append(tf.numpy_function(functools.partial(self._came, bucket), given[start:end], tf.bool))
            with tf.control_dependencies(brought):
                came = tf.numpy_function(self._summed, given[:last], [kind] * (len(every) + 1))
            rate = tf.identity(tf.reshape(came.pop(), []))
            for site in sites:
                exchange_input(site.rate.op, 0, rate if kind == tf.float32 else tf.cast(rate, tf.float32))
            came = [tf.cast(tf.reshape(new, one.shape), one.dtype) for new, one in zip(came, every)]
            writes = [v1.assign(variable, new).op for (variable, _), new in zip(kept, came[len(found) :])]
            with tf.control_dependencies(writes):
                new = [tf.identity(one) for one in came[: len(found)]]
        for mean, one in zip(means, new):
            exchange_input(mean.op, 0, one)

    def join(self) -> bool:
        """Whether steps of this process are made together; not where the script has joined, and sums, by itself."""
        if self.member is None and joined.member() is None:
            member = joined.join(self, may_begin=env.role() == "chief")
            if not isinstance(member, Member):
                raise RefusedError("a process that a role has started trains by itself")
            self.member = member
            for code, (text, remedy, mended) in self._unsaid.items():
                member.notice(code, text, remedy, mended=mended)
        return self.member is not None

    def say(self, code: str, text: str, remedy: str, *, mended: bool = False) -> None:
        """A notice; told once the AIMaster is."""
        self._unsaid[code] = text, remedy, mended
        if self.member is not None:
            self.member.notice(code, text, remedy, mended=mended)

    @property
    def scales(self) -> bool:
        """Whether the learning rate may be another than the script's."""
        return self.member is not None and self.member.settings.rate_scaling not in ("", "none")

    def enter(self, session: Any) -> None:
        """The session's variables are those of the job."""
        self.session, self._given = session, None
        assert self.member is not None
        self.member.pause()  # a session begins with what the others have
        if env.role() != "chief":
            self.member.wait_for_somebody()  # who has the model: else this process would begin it
        while self.member.step < 0:
            self.member.attend(Given.whole(self._like, self._starts) if len(self._starts) > 1 else self._like)

    def last_step(self, ahead: int) -> int:
        """Of sums, which are so far ahead of the global step; 0: not known."""
        last = self.ends() if self.ends is not None else 0
        return max(0, last + ahead) if last else 0

    # ---- the state

    called = ""

    def names(self) -> list[str]:
        """As checkpoints have them."""
        return [*(read_of.rpartition(":")[0] for read_of, *_ in self._variables), "_rate"]

    def take(self) -> Sequence[Array]:
        values = self.session.run([read for _, read, _, _ in self._variables], options=_HERE)
        return [*map(np.asarray, values), self._rate.take()]

    def put(self, arrays: Sequence[Array]) -> None:
        *arrays, rate = arrays
        if [(one.shape, one.dtype) for one in arrays] != self._shapes:
            raise ProtocolError(
                f"{len(arrays)} variables there are not the {len(self._shapes)} here "
                f"({few([one for one, *_ in self._variables], 3)}): the models are not alike"
            )
        writes = [write for *_, write in self._variables]
        feeds = {value: one for (_, _, value, _), one in zip(self._variables, arrays)}
        self.session.run(writes, feeds, options=_HERE)
        self._rate.put(rate)

    def _came(self, bucket: int, *values: Array) -> Array:
        """Called by TensorFlow as soon as these gradients are computed, of the last bucket first."""
        assert self.member is not None
        arrays = [np.asarray(one, order="C") for one in values]
        if bucket == len(self._starts) - 1:
            self.member.drop()  # of a run that has failed
            self._given = Given(self._like, self._starts)
            self.member.begin(self._given, 1.0, exact=self._exact)
        assert self._given is not None
        self._given.put(bucket, arrays)
        return np.array(True)

    def _summed(self, *values: Array) -> list[Array]:
        """Called by TensorFlow, within a step."""
        assert self.member is not None
        try:
            arrays: Any = [np.asarray(one, order="C") for one in values]
            if self._given is not None:
                self._given.put(0, arrays)
                arrays, self._given = self._given, None
            while not (summed := self.member.sum(arrays, 1.0, last=True, exact=self._exact)).weight:
                pass  # all are new
        except LeaveError as error:  # the others have gone on without this process
            log.info("%s", error)
            self.member.finish(0)
            sys.stdout.flush()
            os._exit(0)
        rate = self._rate.after(summed.members, self.member.settings)
        return [*summed.arrays, np.array(rate, self._like[0].dtype)]


SUMS = _Sums()


class _Joining(v1.train.SessionRunHook):  # type: ignore[misc]
    """Of a session that trains: it begins with what the others have, and stops when this process is to leave."""

    def begin(self) -> None:
        self._step = v1.train.get_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        SUMS.enter(session)
        if self._step is not None:
            SUMS.step = int(session.run(self._step))
            if (member := SUMS.member) is not None:
                member.last_step = functools.partial(SUMS.last_step, member.step - SUMS.step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if SUMS.member is not None and SUMS.member.leaving.is_set():
            run_context.request_stop()

    def end(self, session: Any) -> None:
        if self._step is not None:
            SUMS.step = int(session.run(self._step))
        if SUMS.member is not None:
            SUMS.member.pause()  # the others may go on


def _reaches(tensors: Sequence[Any], ops: set[Any]) -> bool:
    """Whether one of them is computed by these."""
    seen, left = set(), [one.op for one in tensors]
    while left:
        op = left.pop()
        if op in seen:
            continue
        seen.add(op)
        if op in ops:
            return True
        left += [one.op for one in op.inputs] + list(op.control_inputs)
    return False
