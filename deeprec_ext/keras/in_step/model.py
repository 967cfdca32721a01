"""A model that all workers train together: each computes gradients of its own batch, all apply the mean of all.

A step is Keras's own `train_step`, with one thing in it: where its optimizer applies gradients, what all have found is summed
before (`Member.sum`, in a function of Python that TensorFlow calls). So whatever the step does besides stays as it is, what it
clips or scales are the gradients of all, and who is given the model in the middle of a step (he was away for a while) applies
the sum to what he was given. Statistics that the forward pass has moved (of a normalisation) are averaged in the same sum.

Who has no batch sums nothing, and applies what the others have found.
"""

from __future__ import annotations

import logging
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.allreduce.kept import Kept
from deeprec_ext.allreduce.ring import Array
from deeprec_ext.allreduce.states import Variables
from deeprec_ext.allreduce.summing import Summed
from deeprec_ext.errors import RefusedError
from deeprec_ext.hooks.rates import scaled
from deeprec_ext.keras import ownership
from deeprec_ext.keras.in_step.home import Home
from deeprec_ext.keras.optimizers import optimizers
from deeprec_ext.keras.windows import written_by
from deeprec_ext.tf_private import keras_classes
from deeprec_ext.tf_private.wrapping import wrap

log = logging.getLogger("deeprec_ext")


class Over(Exception):
    """The epoch in which this process would make a step is over: it was away."""


@dataclass
class Course:
    """What is known of one model once a step of it was traced."""

    model: Any
    averaged: list[Any]
    """Variables that steps change besides the optimizer: statistics."""
    variables: Variables
    keys: frozenset[int]
    held: tuple[Any, ...] = ()
    """Its optimizers."""
    trained: frozenset[int] = frozenset()
    nothing: list[Array] = field(default_factory=list)
    """What who has no batch gives to a sum."""
    applied: int = 0
    made: bool = False
    """All of its variables are, those of the optimizer too."""
    apply: Callable[[Sequence[Any]], Any] | None = None
    """Of tensors, in a trace."""
    function: Callable[..., Any] | None = None
    """The same, traced."""


@dataclass(frozen=True)
class Prepared:
    """A step on batches of some form."""

    course: Course
    spec: Any
    function: Callable[[Any], Any]

    def pack(self, values: Sequence[Array]) -> Any:
        """Values of the tensors of a batch, as the step is given them."""
        left = iter(values)
        flat = [
            None if one is None else tf.convert_to_tensor(next(left), getattr(one, "dtype", None))
            for one in tf.nest.flatten(self.spec, expand_composites=True)
        ]
        return tf.nest.pack_sequence_as(self.spec, flat, expand_composites=True)


class InStep:
    """The models of one process, as `keras.stepping` and `keras.leased` want them."""

    def __init__(self, home: Home, generation: Any, kept: Kept) -> None:
        self._home, self.generation, self.kept = home, generation, kept
        self.rate = home.state.rate
        self.course: Course | None = None
        """Of the model that the job trains now."""
        self.should_stop = False  # a process that leaves does so between two batches: `Epochs.ready`
        self.summed: Summed | None = None
        """What the last sum brought."""
        self.leads = False
        """All get this process's model with the next sum."""
        self.heard: Callable[[Summed], None] = lambda summed: None
        self.entered: Callable[[], None] = lambda: None
        """Is called in each ring that this process comes into in the middle of a step."""
        self._courses: dict[int, Course] = {}
        self._watched: set[type] = set()
        self._tracing: Course | None = None
        self._within = False
        self.records = 1
        """Of the batch of the next step."""
        self._failed: BaseException | None = None

    # -- for `keras.stepping.Steps`

    def prepare(self, model: Any, kind: str, spec: Any, batches: Any) -> Prepared:
        """Traces a step."""
        held = optimizers(model)
        for one in {type(optimizer) for optimizer in held}:
            self._watch(one)
        step = self.generation.step(model, kind)
        course = self._courses.get(id(model))
        if course is None or not self._is_of(course, held):  # it was compiled anew, perhaps with other layers to train
            course = Course(model, [], Variables([]), frozenset(), tuple(held))

        @tf.autograph.experimental.do_not_convert
        def run(batch: Any) -> Any:
            assert course is not None
            course.applied = 0
            outputs = step(batch)
            if course.applied != 1:
                raise self._refused(course)
            return outputs

        with self._trace(course), keras_classes.without_xla(model, held):
            if not course.made:  # as in plain Keras, whose optimizers make variables where they apply gradients
                concrete = tf.function(run).get_concrete_function(spec)
                course.made, course.averaged = True, self._averaged(model, concrete)
            function = tf.function(run)
            function.get_concrete_function(spec)
        if self._courses.get(id(model)) is not course:
            course.trained = self._trained_by(model)
            weights = list({ownership.key(one): one for one in (
                *self.generation.weights(model), *self.generation.optimizer_variables(model), *course.averaged
            )}.values())  # fmt: skip
            course.variables, course.keys = Variables(weights), frozenset(map(ownership.key, weights))
            self._courses[id(model)] = course
        prepared = Prepared(course, spec, function)
        self.use(prepared)
        return prepared

    def use(self, prepared: Prepared) -> None:
        """It is of the model that the job trains now."""
        course = prepared.course
        if self.course is not course:
            self.course, self._home.state.of = course, course.variables
            self._home.member.anew()

    def _is_of(self, course: Course, held: Sequence[Any]) -> bool:
        same = len(held) == len(course.held) and all(one is other for one, other in zip(held, course.held))
        return same and self._trained_by(course.model) == course.trained

    def _trained_by(self, model: Any) -> frozenset[int]:
        return frozenset(map(ownership.key, self.generation.trained(model)))

    def run(self, prepared: Prepared, values: Sequence[Array], *, train: bool) -> Any:
        """One step on one batch, with all others. Raises Over where there is none to make any more."""
        self.use(prepared)
        self._failed = None
        try:
            with self._trace(prepared.course), keras_classes.without_xla(prepared.course.model, prepared.course.held):
                return prepared.function(prepared.pack(values))
        except tf.errors.OpError:
            if self._failed is not None:
                raise self._failed from None
            raise

    def bring(self, model: Any) -> None:
        """It is here."""

    # -- for `keras.leased`

    def trains(self, model: Any) -> bool:
        return id(model) in self._courses

    def has(self, variable: Any) -> bool:
        return any(ownership.key(variable) in course.keys for course in self._courses.values())

    def recover(self) -> None:
        """Nothing is lost while somebody has it."""

    changed = pass_on = forget = recover

    def enter(self) -> None:
        """Into the sums of the job; has the model of the others when it returns, unless it is the first."""
        member = self._home.member
        while member.step < 0:
            self.attend()

    def back(self) -> bool:
        """The model is as the chief has kept it last in this `fit`, but for learning rates: these are what the callbacks of
        this process have come to. False: there is nothing."""
        assert self.course is not None
        before = [(one, one.numpy()) for one in self._rates(self.course.model)]
        found = self.kept.back(self.course.variables)
        for variable, rate in before:
            variable.assign(rate)
        return found

    def keep(self) -> None:
        assert self.course is not None
        self.kept.whole(self.course.variables, self._home.member.step)

    def keep_if_due(self) -> None:
        """An epoch is over."""
        assert self.course is not None
        self.kept.epoch(self.course.variables, self._home.member.step)

    def attend(self) -> None:
        """Others may wait for this process in a new ring, and need of it what they have missed."""
        if self.course is not None:
            missed = self._home.member.attend(self.course.nothing)
            if missed is not None:
                self._take(missed)

    def idle(self, vote: bool = False) -> Summed:
        """One step without a batch. Raises Over as `run` does."""
        assert self.course is not None
        summed = self._sum(self.course.nothing, 0, vote)
        self._take(summed)
        return summed

    # -- inside

    def _sum(self, arrays: Sequence[Array], weight: float, vote: bool = False) -> Summed:
        summed = self._home.member.sum(
            arrays, weight, last=True, vote=vote, leads=self.leads, entered=lambda: self.entered()
        )
        self.leads = False
        self.summed = summed
        self.heard(summed)
        if self.course is not None and self._home.chief:
            self.kept.look(self.course.variables, summed.step - 1)
        return summed

    def _take(self, summed: Summed) -> None:
        course = self.course
        if not summed.weight or course is None:
            return
        if course.function is None:
            apply = course.apply
            assert apply is not None
            course.function = tf.function(lambda *means: apply(means), autograph=False)
        with self._trace(None), keras_classes.without_xla(course.model, course.held):
            course.function(*map(tf.constant, [*summed.arrays, self._next_rate(summed)]))

    def _next_rate(self, summed: Summed) -> Any:
        kind = self.course.nothing[0].dtype if self.course is not None else np.float32
        return np.array(self.rate.after(summed.members, self._home.member.settings), kind)

    def _summed(self, *values: Array) -> list[Array]:
        """Called by TensorFlow, within a step."""
        try:
            arrays = [np.asarray(one, order="C") for one in values]
            while not (summed := self._sum(arrays, max(1, self.records))).weight:
                pass  # nobody else had a batch, and this one did not count yet
            return [*summed.arrays, self._next_rate(summed)]
        except BaseException as error:
            self._failed = error
            raise

    @contextmanager
    def _trace(self, course: Course | None) -> Iterator[None]:
        before, self._tracing = self._tracing, course
        try:
            yield
        finally:
            self._tracing = before

    def _watch(self, kind: type) -> None:
        """What optimizers of this class apply is what all have found, in steps that are traced here."""
        if kind in self._watched:
            return
        self._watched.add(kind)

        def applied(original: Callable[..., Any], optimizer: Any, *args: Any, **words: Any) -> Any:
            if self._tracing is None or self._within:  # or by an optimizer around this one, or its class's own
                return original(optimizer, *args, **words)
            return self._applied(self._tracing, types.MethodType(original, optimizer), args, words)

        wrap(kind, self.generation.APPLIES, applied)

    def _applied(self, course: Course, original: Callable[..., Any], args: Sequence[Any], words: dict[str, Any]) -> Any:
        course.applied += 1
        if not course.made:
            self._within = True
            try:
                return original(*args, **words)
            finally:
                self._within = False
        given, call = self.generation.gradients_of(original, args, words)
        gradients = [one for one, _ in given]
        places = [at for at, one in enumerate(gradients) if one is not None]
        found = [tf.ensure_shape(tf.convert_to_tensor(gradients[at]), given[at][1]) for at in places]
        found += [one.read_value() for one in course.averaged]
        if not found:
            raise RefusedError("an optimizer is to apply no gradients at all")
        kinds, shapes = [one.dtype for one in found], [one.shape for one in found]
        kind = tf.float64 if tf.float64 in kinds else tf.float32

        def apply(means: Sequence[Any]) -> Any:
            *means, rate = means
            means = [tf.cast(tf.ensure_shape(one, shape), own) for one, shape, own in zip(means, shapes, kinds)]
            whole = list(gradients)
            for at, mean in zip(places, means):
                whole[at] = mean
            with tf.control_dependencies(means):
                for variable, mean in zip(course.averaged, means[len(places) :]):
                    variable.assign(mean)
                self._within = True
                try:
                    if self._home.member.settings.rate_scaling in ("", "none"):
                        return call(whole)
                    return scaled(self.generation.trained(course.model), rate, lambda: call(whole))
                finally:
                    self._within = False

        course.apply = apply
        if all(one.is_fully_defined() for one in shapes):
            course.nothing = [np.zeros(one.as_list(), kind.as_numpy_dtype) for one in shapes]
        else:
            raise RefusedError("gradients are of shapes that are not known before a step: they cannot be summed")
        with tf.control_dependencies(found):
            means = tf.numpy_function(self._summed, [tf.cast(one, kind) for one in found], [kind] * (len(found) + 1))
        return apply(means)

    def _averaged(self, model: Any, step: Any) -> list[Any]:
        """What a step changes besides what is trained, and learning rates: callbacks of each process may set them."""
        trained, written = self._trained_by(model), written_by(step)
        statistics = [one for one in self.generation.weights(model) if ownership.key(one) not in trained
                      and one.dtype.is_floating and ownership.key(one) in written]  # fmt: skip
        return [*statistics, *self._rates(model)]

    def _rates(self, model: Any) -> list[Any]:
        found = [one for optimizer in optimizers(model) if (one := self.generation.rate_of(optimizer)) is not None]
        return list({ownership.key(one): one for one in found}.values())

    def _refused(self, course: Course) -> RefusedError:
        what = "applies no gradients by the model's optimizer" if not course.applied else (
            f"applies gradients {course.applied} times")  # fmt: skip
        reason = (
            f"a step of {course.model.name} {what}, and what is summed over all workers has to be applied once: train it with "
            "PS (leave out --strategy), or write the loop yourself, with deeprec_ext.allreduce.join(state)"
        )
        self._home.refused(reason)
        return RefusedError(reason)
