"""A model that all workers train together: each computes gradients of its own batch, all apply the mean of all.

A step is Keras's own `train_step`, with one thing in it: where its optimizer applies gradients, what all have found is summed
before (`Member.sum`, in a function of Python that TensorFlow calls). So whatever the step does besides stays as it is, what it
clips or scales are the gradients of all, and who is given the model in the middle of a step (he was away for a while) applies
the sum to what he was given. Where gradients are large, more of these functions bring them in buckets (`allreduce.given`) as
soon as they are computed, and the one that sums waits for what was begun. Statistics that the forward pass has moved (of a
normalisation) are averaged in the same sum.

Who has no batch sums nothing, and applies what the others have found. A worker whose part of a step is larger than it may have
in memory computes it in several batches: until the last of them nothing is summed, and nothing applied.

A step that applies gradients several times (of a GAN) has as many sums, one after the other. Which of them is next is part of
what all have alike: who comes in between them makes the rest without a batch, and then begins a step.
"""

from __future__ import annotations

import functools
import logging
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.allreduce.given import Given, cut
from deeprec_ext.allreduce.kept import Kept
from deeprec_ext.allreduce.ring import Array
from deeprec_ext.allreduce.states import Variables
from deeprec_ext.allreduce.summing import Summed
from deeprec_ext.errors import RefusedError
from deeprec_ext.hooks.rates import scaled
from deeprec_ext.keras import ownership
from deeprec_ext.keras.in_step.home import Home
from deeprec_ext.keras.optimizers import optimizers, rate_of
from deeprec_ext.keras.windows import written_by
from deeprec_ext.tf_private import keras_classes
from deeprec_ext.tf_private.wrapping import wrap

log = logging.getLogger("deeprec_ext")


class Over(Exception):
    """The epoch in which this process would make a step is over: it was away."""


class _Elsewhere(Exception):
    """The others are at another sum of a step: this process was away."""

    def __init__(self, summed: Summed) -> None:
        super().__init__()
        self.summed = summed


@dataclass
class Site:
    """Where a step applies gradients.

    Attributes:
      like: zeros as are summed there, the statistics among them where they are: at the last one of a step.
      apply: of tensors, in a trace; function: the same, traced.
    """

    like: list[Array]
    apply: Callable[[Sequence[Any]], Any]
    function: Callable[..., Any] | None = None


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
    sites: list[Site] = field(default_factory=list)
    starts: tuple[int, ...] = (0,)
    """Of buckets of what is summed (`given.cut`), where there is one site."""
    count: int = 0
    """Of its sites."""
    applied: int = 0
    made: bool = False
    """All of its variables are, those of the optimizer too."""

    def given(self, arrays: Sequence[Array]) -> Sequence[Array] | Given:
        """As they are summed: in buckets, where there are some."""
        return arrays if len(self.starts) == 1 else Given.whole(arrays, self.starts)

    def pack(self, site: int, arrays: Sequence[Array]) -> list[Array]:
        """As they are summed: alike for all sites, where there are several."""
        if self.count == 1:
            return list(arrays)
        packed, last = [np.zeros_like(one) for one in self.nothing], site == self.count - 1
        own = len(arrays) - len(self.averaged) * last
        at = 0
        for one in arrays[:own]:
            packed[0][at : at + one.size] = one.reshape(-1)
            at += one.size
        kind = packed[0].dtype
        return [packed[0], *(np.asarray(one, kind) for one in arrays[own:])] if last else packed

    def unpack(self, site: int, packed: Sequence[Array]) -> list[Array]:
        if self.count == 1:
            return list(packed)
        like, last, at = self.sites[site].like, site == self.count - 1, 0
        found = []
        for one in like[: len(like) - len(self.averaged) * last]:
            found.append(packed[0][at : at + one.size].reshape(one.shape))
            at += one.size
        return [np.asarray(one, like[0].dtype) for one in (*found, *(packed[1:] if last else ()))]


class Collected:
    """What batches of one step have found, as one.

    Args:
      version: of the model with which they were computed; statistics: so many of the last arrays are no gradients: those of the
        last batch count.
    """

    def __init__(self, version: int, statistics: int) -> None:
        self.version, self._statistics = version, statistics
        self.weight = 0
        self._arrays: list[Array] = []

    def add(self, arrays: Sequence[Array], weight: int) -> None:
        gradients = len(arrays) - self._statistics
        if not self._arrays:
            self._arrays = [np.multiply(one, weight, dtype=one.dtype) for one in arrays]
        else:
            for mine, one in zip(self._arrays[:gradients], arrays):
                mine += np.multiply(one, weight, dtype=one.dtype)
        self._arrays[gradients:] = map(np.array, arrays[gradients:])
        self.weight += weight

    def mean(self) -> list[Array]:
        gradients = len(self._arrays) - self._statistics
        means = [np.divide(one, self.weight, dtype=one.dtype) for one in self._arrays[:gradients]]
        return [*means, *self._arrays[gradients:]]


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
        self.holds: Callable[[], int] = lambda: 0
        """What this process has, for the steps after the present one."""
        self.entered: Callable[[], None] = lambda: None
        """Is called in each ring that this process comes into in the middle of a step."""
        self._courses: dict[int, Course] = {}
        self._watched: set[type] = set()
        self._tracing: Course | None = None
        self._within = False
        self.records = 1
        """Of the batch of the next step."""
        self.collects = False
        """The batch is not the last one of this process's part of a step."""
        self._collected: Collected | None = None
        self._given: Given | None = None  # of the step that is being computed
        self.loops = self.silent = False
        """The script makes its steps itself (`loops`); and what this process gives to them does not count."""
        self._failed: BaseException | None = None
        self._void = False  # what this process gives to the present step does not count

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
            if not course.applied or (course.count and course.applied != course.count):
                raise self._refused(course)
            return outputs

        with self._trace(course), keras_classes.without_xla(model, held):
            if not course.made:  # as in plain Keras, whose optimizers make variables where they apply gradients
                concrete = tf.function(run).get_concrete_function(spec)
                course.made, course.averaged, course.count = True, self._averaged(model, concrete), course.applied
            function = tf.function(run)
            function.get_concrete_function(spec)
        course.nothing = _nothing(course)
        if self._courses.get(id(model)) is not course:
            course.trained = self._trained_by(model)
            weights = self._state(course)
            course.variables = Variables(weights, [ownership.name(one).removesuffix(":0") for one in weights])
            course.keys = frozenset(map(ownership.key, weights))
            self._courses[id(model)] = course
        prepared = Prepared(course, spec, function)
        self.use(prepared)
        return prepared

    def _state(self, course: Course) -> list[Any]:
        """Variables that steps leave behind."""
        model = course.model
        every = (*self.generation.weights(model), *self.generation.optimizer_variables(model), *course.averaged)
        return list({ownership.key(one): one for one in every}.values())

    def use(self, prepared: Prepared) -> None:
        """It is of the model that the job trains now."""
        course = prepared.course
        if self.course is not course:
            self.course = course
            if not self.loops:
                self._home.state.of = course.variables
                self._home.member.anew()

    def _is_of(self, course: Course, held: Sequence[Any]) -> bool:
        same = len(held) == len(course.held) and all(one is other for one, other in zip(held, course.held))
        return same and self._trained_by(course.model) == course.trained

    def _trained_by(self, model: Any) -> frozenset[int]:
        return frozenset(map(ownership.key, self.generation.trained(model)))

    def run(self, prepared: Prepared, values: Sequence[Array], *, train: bool) -> Any:
        """One step on one batch, with all others. Raises Over where there is none to make any more."""
        self.use(prepared)
        self._failed, self._void = None, self.silent
        course = prepared.course
        self._given = given = Given(course.nothing, course.starts) if len(course.starts) > 1 else None
        try:
            with self._trace(course), keras_classes.without_xla(course.model, course.held):
                return prepared.function(prepared.pack(values))
        except tf.errors.OpError:
            if isinstance(self._failed, _Elsewhere):
                self._take(self._failed.summed)
                while self.between:
                    self.idle()
                assert self.summed is not None
                self.summed = replace(self.summed, counted=False)
                return None
            if self._failed is not None:
                raise self._failed from None
            raise
        finally:
            self._given = None
            if given is not None:  # where the step has failed before it asked for its sum
                self._home.member.drop()

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
            missed = self._home.member.attend(self.course.given(self.course.nothing))
            if missed is not None:
                self._take(missed)

    def idle(self, vote: bool = False) -> Summed:
        """One step without a batch, but for those that were collected. Raises Over as `run` does."""
        assert self.course is not None
        arrays, records = self.course.nothing, 0
        if self._collected is not None:
            arrays, records = self._collected.mean(), self._collected.weight
        summed = self._sum(self.course.given(arrays), records, vote)
        self._take(summed)
        return summed

    @property
    def between(self) -> bool:
        """The next sum is not the first of a step."""
        return bool(self._home.state.site)

    @property
    def sums_once(self) -> bool:
        return self.course is None or self.course.count == 1

    @property
    def stale(self) -> bool:
        """What was collected is of a model that is not here any more."""
        return self._collected is not None and self._collected.version != self._home.state.version

    def drop(self) -> None:
        """What was collected counts nothing."""
        self._collected = None

    # -- inside

    def _how(self) -> dict[str, Any]:
        """A sum is made."""
        exact = len(self.course.averaged) if self.course is not None else 0
        return {"leads": self.leads, "entered": lambda: self.entered(), "exact": exact, "holds": self.holds()}

    def _sum(self, arrays: Sequence[Array] | Given, weight: float, vote: bool = False) -> Summed:
        share = 1 / self.course.count if self.course is not None else 1.0
        summed: Summed = self._home.member.sum(arrays, weight, last=True, vote=vote, share=share, **self._how())
        self.leads, self._collected = False, None
        self.summed = summed
        self.heard(summed)
        if self.course is not None and self._home.chief and not self.between:
            self.kept.look(self._home.state.of, summed.step - 1)
        return summed

    def _take(self, summed: Summed) -> None:
        course = self.course
        if course is None or not (summed.weight or self.between):
            return
        at = self._home.state.site
        if not summed.weight:  # whoever began the step is gone
            self._applies(course)
            return
        site = course.sites[at]
        if site.function is None:
            site.function = tf.function(lambda *means: site.apply(means), autograph=False)
        self._applies(course)
        with self._trace(None), keras_classes.without_xla(course.model, course.held):
            site.function(*map(tf.constant, [*course.unpack(at, summed.arrays), self._next_rate(summed)]))

    def _applies(self, course: Course) -> None:
        """What was summed is in the model in a moment."""
        self._home.state.version += 1
        self._home.state.site = (self._home.state.site + 1) % course.count

    def _next_rate(self, summed: Summed) -> Any:
        kind = self.course.nothing[0].dtype if self.course is not None else np.float32
        return np.array(self.rate.after(summed.members, self._home.member.settings), kind)

    def _summed(self, site: int, *values: Array) -> list[Array]:
        """Called by TensorFlow, within a step."""
        course = self.course
        assert course is not None
        try:
            arrays = [np.asarray(one, order="C") for one in values]
            if (given := self._given) is not None:
                given.put(0, arrays)
                arrays = given.arrays()
            records = max(1, self.records)
            if self.collects or self._collected is not None:
                self._collect(arrays, records)
                if self.collects:
                    return [np.array(False), *(np.empty(0, arrays[0].dtype) for _ in range(len(arrays) + 1))]
                assert self._collected is not None
                arrays, records, given = self._collected.mean(), self._collected.weight, None
            packed = given or course.given(course.pack(site, arrays))
            while not (summed := self._sum(packed, 0 if self._void else records)).weight and not (
                self.between or self.loops
            ):
                self._void = False  # nobody else had a batch, and this one did not count yet
            self._void = (
                self._void or not summed.counted
            )  # what its batch gives to the rest of the step does not count either
            self.summed = replace(summed, counted=not self._void)
            if self._home.state.site != site or not summed.weight:
                raise _Elsewhere(summed)
            self._applies(course)
            return [np.array(True), *course.unpack(site, summed.arrays), self._next_rate(summed)]
        except BaseException as error:
            self._failed = error
            raise

    def _came(self, bucket: int, *values: Array) -> Array:
        """Called by TensorFlow as soon as these gradients are computed."""
        try:
            given = self._given
            assert given is not None
            given.put(bucket, [np.asarray(one, order="C") for one in values])
            if bucket == len(given.starts) - 1 and not self.collects and self._collected is None:
                self._home.member.begin(given, 0 if self._void else max(1, self.records), **self._how())
            return np.array(True)
        except BaseException as error:
            self._failed = error
            raise

    def _collect(self, arrays: Sequence[Array], records: int) -> None:
        assert self.course is not None
        if self._collected is None:
            self._collected = Collected(self._home.state.version, len(self.course.averaged))
        self._collected.add(arrays, records)

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
        number = course.applied - 1
        averaged = course.averaged if course.applied == course.count else []
        given, call = self.generation.gradients_of(original, args, words)
        gradients = [one for one, _ in given]
        places = [at for at, one in enumerate(gradients) if one is not None]
        found = [tf.ensure_shape(tf.convert_to_tensor(gradients[at]), given[at][1]) for at in places]
        found += [one.read_value() for one in averaged]
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
                for variable, mean in zip(averaged, means[len(places) :]):
                    variable.assign(mean)
                self._within = True
                try:
                    if self._home.member.settings.rate_scaling in ("", "none"):
                        return call(whole)
                    return scaled(self.generation.trained(course.model), rate, lambda: call(whole))
                finally:
                    self._within = False

        if not all(one.is_fully_defined() for one in shapes):
            raise RefusedError("gradients are of shapes that are not known before a step: they cannot be summed")
        like = [np.zeros(one.as_list(), kind.as_numpy_dtype) for one in shapes]
        course.sites[number : number + 1] = [Site(like, apply)]
        given = [tf.cast(one, kind) for one in found]
        came: list[Any] = []
        first = len(given)
        if course.count == 1:
            course.starts = cut(like, len(averaged))
            for bucket in range(len(course.starts) - 1, 0, -1):
                last, first = first, course.starts[bucket]
                with tf.control_dependencies(came):
                    came.append(tf.numpy_function(functools.partial(self._came, bucket), given[first:last], tf.bool))
        # What the update before has written is there, whatever these gradients are of: others may be given the state here.
        before = [one.read_value() for one in self._state(course)] if number else []
        with tf.control_dependencies([*found, *before, *came]):
            whole, *means = tf.numpy_function(
                functools.partial(self._summed, number), given[:first], [tf.bool, *[kind] * (len(found) + 1)]
            )
        if not self._home.member.settings.worker_batch_max or course.count > 1:
            return apply(means)

        def applied() -> Any:
            apply(means)
            return tf.constant(True)

        return tf.cond(tf.reshape(whole, []), applied, lambda: tf.constant(False))

    def _averaged(self, model: Any, step: Any) -> list[Any]:
        """What a step changes besides what is trained, and learning rates: callbacks of each process may set them."""
        trained, written = self._trained_by(model), written_by(step)
        statistics = [one for one in self.generation.weights(model) if ownership.key(one) not in trained
                      and one.dtype.is_floating and ownership.key(one) in written]  # fmt: skip
        return [*statistics, *self._rates(model)]

    def _rates(self, model: Any) -> list[Any]:
        found = [one for optimizer in optimizers(model) if (one := rate_of(optimizer)) is not None]
        return list({ownership.key(one): one for one in found}.values())

    def _refused(self, course: Course) -> RefusedError:
        what = "applies no gradients by an optimizer of the model" if not course.applied else (
            f"applies gradients {course.applied} times, and {course.count} times before")  # fmt: skip
        reason = (
            f"a step of {course.model.name} {what}: what is applied is summed over all workers, so all have to do it alike; "
            "train it with PS (leave out --strategy), or write the loop yourself, with deeprec_ext.allreduce.join(state)"
        )
        self._home.refused(reason)
        return RefusedError(reason)


def _nothing(course: Course) -> list[Array]:
    """What who has no batch gives to a sum: where there are several in a step, one array for the gradients of each of them."""
    likes = [site.like for site in course.sites]
    if course.count == 1:
        return likes[0]
    kind = np.result_type(*(one.dtype for like in likes for one in like))
    statistics = len(course.averaged)
    ends = [len(like) for like in likes[:-1]] + [len(likes[-1]) - statistics]
    most = max(sum(one.size for one in like[:end]) for like, end in zip(likes, ends))
    return [np.zeros(most, kind), *(one.astype(kind) for one in likes[-1][ends[-1] :])]
