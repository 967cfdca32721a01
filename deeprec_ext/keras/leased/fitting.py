"""`fit` of a process of the job: whether its records can be leased, and how Keras is called then.

Arrays are leased by row, an `elastic_dataset` as it says, a pipeline over files by file and range (`pipelines`). Anything else
each process reads by itself; where the script or the input says how many steps an epoch has, these are leased (`counted`), else
each process trains a pass of its own.
"""

from __future__ import annotations

import inspect
import logging
import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext import env
from deeprec_ext.data import streams
from deeprec_ext.data.dataset import reads_of
from deeprec_ext.data.plan import Plan
from deeprec_ext.elastic.agent.alike import ALIKE
from deeprec_ext.errors import RefusedError
from deeprec_ext.graph.marks import DIVIDED, parse
from deeprec_ext.graph.sources import source_of_dataset
from deeprec_ext.keras.leased import roles
from deeprec_ext.keras.leased.arrays import BATCH, RowReader, Rows, rows_of
from deeprec_ext.keras.leased.counted import Counted, plan_of_steps
from deeprec_ext.keras.leased.epochs import STEPS_MAX, Epochs, Home, Model
from deeprec_ext.keras.leased.pipelines import NotFollowed, followed
from deeprec_ext.keras.leased.sequences import content_of, element, hooks_of, length_of, of_steps, turned, workers_of
from deeprec_ext.keras.leased.weights import by_class
from deeprec_ext.keras.milestones import Milestones
from deeprec_ext.tf_private import eager
from deeprec_ext.units import format_bytes

log = logging.getLogger("deeprec_ext")


LARGE_BYTES = 1 << 30
"""Of a model: with less nobody minds who has all of it in memory."""

SWAPPED = (
    "SwapEMAWeights exchanges all weights for a while, and where each process trains a pass of its own over the input of fit "
    "others train them meanwhile: give fit arrays, a tf.data pipeline over files, or steps_per_epoch, or leave the callback out"
)


@dataclass(frozen=True)
class Input:
    """Records that can be leased."""

    plan: Plan | None
    """Of this `fit` alone. None: of an input of each process."""
    spec: Any = None
    make: Callable[[Any], Iterator[Any]] | None = None
    """An iterator of the batches of a source."""
    passes: int = 1
    """How often an epoch reads the records."""
    batches: int | None = None
    """Of an epoch, for the progress bar."""
    reads: Sequence[str] = ("format:memory",)
    """What is known of where they come from, as `graph.marks.READS` has it."""
    instead: str = ""
    """Dataset of the script whose batches these are."""
    one_by_one: bool = False
    """A record of the ledger is a batch."""
    records: int | None = None
    """Of a batch, where that is known."""
    own: bool = False
    """Each process reads the input by itself."""
    steps: int | None = None
    """Of an epoch, where the script does not say it, but the input."""
    of_steps: Callable[[Iterator[Any]], Iterator[Any]] | None = None
    """Batches of the numbers of the steps."""
    content: str = ""
    """Of the batches of steps; see `Plan.of_its_own`."""


@dataclass(frozen=True)
class Asked:
    """How much a call of `fit` is to train."""

    first: int
    """Number of the first epoch."""
    epochs: int
    """From that on."""
    steps: int | None
    """Of an epoch. None: as many as its records have batches."""

    def of(self, plan: Plan, name: str, content: str = "") -> Plan:
        """The records of it. Where steps are counted, passes have nothing to do with epochs."""
        passes = plan.declaration.epochs
        if self.steps is not None:
            return plan.of_its_own(name, passes, content, in_turn=False)
        return plan.of_its_own(name, passes * self.epochs, content)


def asked(words: Mapping[str, Any]) -> Asked | None:
    """None: it is for Keras to say what it makes of these."""
    first, epochs, steps = words.get("initial_epoch") or 0, _whole(words.get("epochs")), words.get("steps_per_epoch")
    if epochs is None or epochs - first < 1:
        return None
    if steps is None:
        return Asked(first, epochs - first, None)
    number = not isinstance(steps, bool) and isinstance(steps, (int, float, np.integer, np.floating))
    return Asked(first, epochs - first, math.ceil(steps)) if number and 0 < steps < STEPS_MAX else None


class Fitting:
    """Of one process.

    Args:
      home: its trainer.
      model: on the PS.
      milestones: what the chief's script has done so far, for which others wait.
      kind: what is made for each `fit`.
      alone: whether a process may train a pass of its own.
    """

    def __init__(
        self, home: Home, model: Model, milestones: Milestones, kind: type[Epochs] = Epochs,
        alone: bool = True,
    ) -> None:  # fmt: skip
        self._home, self._model, self._milestones = home, model, milestones
        self._kind, self._may_be_alone = kind, alone
        self.alone = ""
        """Why what Keras trains in the `fit` under way would be this process's own; empty: it is not."""
        self.last: Epochs | None = None
        """Of the newest `fit`; None: it had none."""
        self._count = self._under_way = 0
        self._told_of_batches = self._begun = False
        self.ended_together = False
        """The last `fit` was one of the job, in which all have its end."""
        self.trained_last = False
        """And the job trained in it while this process was in it: else all of it was over before."""
        self.by_batches = False
        """The script makes its steps itself since then, in no `fit`, each process for its own."""
        self._running: dict[int, Epochs] = {}
        self._fitted: weakref.WeakSet[Any] = weakref.WeakSet()
        self._read: list[RowReader] = []  # of calls of `fit` that have ended, with arrays that nobody needs

    def epochs(self, model: Any) -> Epochs | None:
        """Of the `fit` under way, whose loop is about to train a batch."""
        running = self._running.get(id(model))
        return running if running is not None and running.within_batch else None

    @property
    def is_past(self) -> bool:
        """Whether a `fit` goes through an epoch that the others have had before."""
        return any(running.replayed for running in self._running.values())

    @property
    def is_under_way(self) -> bool:
        """Whether the script is in a `fit`: what calls is a callback of it."""
        return self._under_way > 0

    @property
    def has_begun(self) -> bool:
        """Whether the script has called `fit`."""
        return self._begun

    def has_fitted(self, model: Any) -> bool:
        """Whether the job trains it, though this process may have had no batch of it."""
        return model in self._fitted

    def fit(self, original: Callable[..., Any], model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As Keras's `fit`, with records leased where they can be."""
        self._home.asked_to_train = self._begun = True  # there may be nothing left for it
        self._under_way += 1
        self.by_batches = False
        self.last = None
        self._milestones.begins()
        self.ended_together = False
        left: BaseException | None = None
        try:
            with ALIKE.apart("" if self._home.chief else f"{env.role()} {env.index()}"):
                return self._fit(original, model, args, kwargs)
        except BaseException as error:
            left = error
            raise
        finally:
            self._under_way -= 1
            self._milestones.ends(left)

    def tell_of_batches(self) -> None:
        """The script calls `train_on_batch`: what it trains is nobody's to divide."""
        ALIKE.end("" if self._home.chief else f"{env.role()} {env.index()}")
        if self._home.chief and not self._told_of_batches:
            self._told_of_batches = True
            self._home.notice(
                "own-batches", "each process trains all batches that the script gives to train_on_batch",
                "give each process its part (TF_CONFIG says which of how many it is), or call fit, whose records are divided "
                "among the processes", mended=True,
            )  # fmt: skip

    def begin_batches(self) -> None:
        """The script begins to make its steps itself, in step with the other processes, on batches of its own."""
        self._home.asked_to_train = self._begun = self.by_batches = True
        self._milestones.begins()  # who comes late writes nothing that the others read
        ALIKE.end("" if self._home.chief else f"{env.role()} {env.index()}")

    def _tell_of_weights(self, model: Any, callbacks: Any) -> None:
        """What is kept of the best epoch comes to the chief whole, however large it is."""
        if not self._home.chief or not model.built or not roles.keep_weights(callbacks):
            return
        shapes = [(tf.TensorShape(one.shape).num_elements() or 0, tf.as_dtype(one.dtype)) for one in model.weights]
        if (size := sum(count * kind.size for count, kind in shapes)) >= LARGE_BYTES:
            self._home.notice(
                "keeps-weights", f"EarlyStopping(restore_best_weights=True) takes all weights, {format_bytes(size)}, into the "
                "chief's memory at each better epoch, and puts them back at the end",
                "leave restore_best_weights out, and keep the best by ModelCheckpoint(save_best_only=True), which is written "
                "a piece at a time", mended=True,
            )  # fmt: skip

    def _fit(self, original: Callable[..., Any], model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            given = inspect.signature(original).bind(model, *args, **kwargs)
        except TypeError:
            return original(model, *args, **kwargs)  # which says what is wrong
        given.apply_defaults()
        words = dict(given.arguments)
        words.pop(next(iter(words)))
        as_given = dict(words)
        self._tell_of_weights(model, words.get("callbacks"))
        while self._read:
            self._read.pop().release()
        wanted = asked(words)
        found = self._input(words, wanted) if wanted is not None else None
        if wanted is None or found is None:
            self.alone = self.alone or "how its records would be divided is not known"
            if wanted is not None and self._home.chief and self._may_be_alone:
                self._tell_alone(as_given)
            if not self._home.chief and as_given.get("callbacks"):
                as_given["callbacks"] = roles.of_a_worker(as_given["callbacks"])
            try:
                return original(model, **as_given)
            finally:
                self.alone = ""
        return self._leased(original, model, words, replace(wanted, steps=found.steps or wanted.steps), found)

    def _tell_alone(self, words: Mapping[str, Any]) -> None:
        """Each process trains a pass of its own: what is one decision for all elsewhere. Raises RefusedError."""
        callbacks = words.get("callbacks")
        if roles.has(callbacks, roles.SWAPS):
            self._home.refused(SWAPPED)
            raise RefusedError(SWAPPED)
        validates = words.get("validation_data") is not None or bool(words.get("validation_split"))
        if validates or roles.has(callbacks, roles.DECIDE):
            divided = isinstance(words["x"], tf.data.Dataset) and DIVIDED in eager.first_names(words["x"])
            self._home.notice(
                "own-decisions",
                "each process validates, stops and changes its learning rate by the epochs and figures of its own pass, also "
                "one that comes later",
                "decide by the step, as with a schedule of keras.optimizers.schedules, not by epochs" if divided
                else "give fit arrays, a tf.data pipeline over files, elastic_dataset(files, ...), or steps_per_epoch: the "
                "chief validates and decides for all then", mended=True,
            )  # fmt: skip

    def _input(self, words: dict[str, Any], wanted: Asked) -> Input | None:
        """Changes `words` to what Keras is still told of them."""
        if isinstance(words["x"], tf.data.Dataset):
            if any(words.get(name) is not None for name in ("y", "sample_weight")) or words.get("validation_split"):
                return None  # Keras says that a dataset has its own
            return self._of_dataset(words["x"], words.get("class_weight"), wanted)
        if isinstance(words["x"], tf.keras.utils.Sequence):
            return self._of_sequence(words, wanted)
        return self._of_arrays(words, wanted)

    def _of_sequence(self, words: dict[str, Any], wanted: Asked) -> Input | None:
        x, weights, number = words["x"], words.get("class_weight"), self._model.generation.NUMBER
        if any(words.get(name) is not None for name in ("y", "sample_weight")) or words.get("validation_split"):
            return None  # Keras says that it has its own
        count = length_of(x)
        if count is not None and wanted.steps in (None, count):
            weigh = by_class(weights, number, of_any=True) if weights else None
            first = element(x[0], weigh)
            if (spec := _of_first(first)) is not None:
                threads = workers_of(x, words)
                made = [[np.asarray(one) for one in tf.nest.flatten(each)] for each in (first, element(x[0], weigh))]
                return Input(
                    None, spec, records=_rows_of(first), steps=count, content=content_of(*made),
                    of_steps=lambda numbers: of_steps(x, numbers, spec, threads, weigh),
                )  # fmt: skip
        return self._own(x, wanted, "it is a Sequence of another length, or of other than arrays")

    def _of_arrays(self, words: dict[str, Any], wanted: Asked) -> Input | None:
        y, weights = words.get("y"), words.get("sample_weight")
        rows, held = rows_of(words["x"], y, weights), None
        if rows is None:
            return self._own(words["x"], wanted, "it is neither arrays of as many rows each, nor an elastic_dataset")
        if (share := words.get("validation_split")) and words.get("validation_data") is None:
            parts = rows.split(share)
            if parts is None:
                return None  # Keras says so
            rows, held = parts
        batch = _whole(words.get("batch_size") or (math.ceil(rows.count / wanted.steps) if wanted.steps else BATCH))
        if batch is None:
            return None  # nor what it makes of that
        if (wanted.steps or 0) > math.ceil(rows.count / batch):
            return self._own(words["x"], wanted, "steps_per_epoch is more than it has batches")
        if held is not None:
            words["validation_data"] = _validation(held.structure)
        if words.get("class_weight"):
            if y is None:
                return None
            labels, given = rows.structure[1], rows.structure[2] if len(rows.structure) > 2 else None
            weigh = by_class(words["class_weight"], self._model.generation.NUMBER, labels)
            _, _, weighed = weigh(None, labels, given)
            rows = Rows((*rows.structure[:2], weighed.numpy()), rows.count)
        shuffle = bool(words.get("shuffle", True))
        plan = rows.plan(batch, None if wanted.steps else 1, shuffle, self._count)
        plan = wanted.of(plan, self._name(), rows.content(shuffle))
        batches = math.ceil(rows.count / batch)
        return Input(plan, rows.spec, lambda source: map(rows.pack, source.batches()), batches=batches, records=batch)

    def _of_dataset(self, dataset: tf.data.Dataset, class_weight: Any, wanted: Asked) -> Input | None:
        if DIVIDED in eager.first_names(dataset):
            return None
        given, content, batches, one_by_one = dataset, "", None, False
        mark = next((one for name in eager.first_names(dataset) if (one := parse(name)) is not None), None)
        if mark is None:
            try:
                pipeline = followed(self._without_end(dataset, wanted) if wanted.steps is not None else dataset)
                if pipeline.passes is None and wanted.steps is None:
                    return None  # Keras says what is missing
                dataset = pipeline.leased(
                    f"{'files' if pipeline.rows is None else 'rows'} of {self._name()}", self._count
                )
                content, batches, one_by_one = pipeline.content, pipeline.batches, not pipeline.batch_size
            except NotFollowed as error:
                return self._own(given, wanted, f"of its tf.data pipeline, {error}")
            mark = next(one for name in eager.first_names(dataset) if (one := parse(name)) is not None)
        source = self._home.inputs.find(mark.dataset)
        if source is None or source.declaration.purpose != "train":
            return None
        if mark.with_ids or not (source.declaration.epochs or wanted.steps):
            log.info(
                "the elastic_dataset given to fit has %s: its records count as trained when they are read%s",
                "ids" if mark.with_ids else "no end",
                "" if wanted.steps else ", and epochs end for each process by itself",
            )
            return Input(None) if wanted.steps else None
        name = self._name()
        if dataset is given:  # of the script's own making
            name = f"{name} {mark.dataset}"
            definition = tf.raw_ops.DatasetToGraphV2(
                input_dataset=tf.data.experimental.to_variant(dataset), external_state_policy=1
            )
            source_of_dataset(tf.compat.v1.GraphDef.FromString(definition.numpy()))
        if not all(isinstance(one, tf.TensorSpec) and one.shape.rank for one in tf.nest.flatten(dataset.element_spec)):
            return self._own(given, wanted, "its elastic_dataset gives elements that are no batches of tensors")
        if class_weight:
            dataset = dataset.map(by_class(class_weight, self._model.generation.NUMBER))
        plan = Plan(source.declaration, source.reader, source.batch_size, drop_remainder=source.drop_remainder)
        plan = wanted.of(plan, name, content)
        passes, reads = source.declaration.epochs, reads_of(plan)
        return Input(
            plan, dataset.element_spec, lambda _: iter(dataset), passes, batches, reads, mark.dataset,
            one_by_one, _size_of(dataset.element_spec) if one_by_one else source.batch_size,
        )  # fmt: skip

    def _own(self, x: Any, wanted: Asked, why: str) -> Input | None:
        """Each process reads its input by itself."""
        counts = wanted.steps is not None and isinstance(x, (tf.data.Dataset, Iterator, tf.keras.utils.Sequence))
        steps = length_of(x) if wanted.steps is None else None  # as many as a pass of its own would have
        counts = counts or steps is not None
        if not (counts or self._may_be_alone):
            self.alone = why
            return None
        log.info(
            "%s: %s; give fit arrays, or deeprec_ext.data.elastic_dataset(files, ...), and its records are divided among the "
            "processes",
            "the steps of fit are divided among the processes, each of which reads its input by itself" if counts
            else "each process trains a pass of its own over the input of fit", why,
        )  # fmt: skip
        if self._home.chief and not counts:  # whoever adds workers expects something else
            self._home.notice(
                "own-pass", f"each process trains a pass of its own over the input of fit ({why})",
                "give fit arrays, a tf.data pipeline over files, or deeprec_ext.data.elastic_dataset(files, ...): their rows "
                "are divided among the processes", mended=True,
            )  # fmt: skip
        return Input(None, own=True, steps=steps) if counts else None

    def _without_end(self, x: Any, wanted: Asked) -> Any:
        """An input of the process's own, where Keras begins it anew once it is through, or has no need to: it would count the
        steps of this process alone."""
        third = self._model.generation.NUMBER == 3
        if isinstance(x, tf.data.Dataset):
            count = int(x.cardinality())
            again = count == wanted.steps or count >= (wanted.steps or 0) * wanted.epochs
            return x.repeat() if count >= 0 and (again or third) else x
        return x

    def _name(self) -> str:
        return f"fit {self._count + 1}"

    def _leased(
        self, original: Callable[..., Any], model: Any, words: dict[str, Any], wanted: Asked, found: Input
    ) -> Any:
        home, inputs = self._home, self._home.inputs
        records = streams.shared(found.plan, inputs) if found.plan is not None else None
        source: Any = records
        if wanted.steps is not None:
            shuffled = found.of_steps is not None and bool(words.get("shuffle", True))
            name = f"steps of {self._name()}"
            steps = plan_of_steps(name, wanted.steps, wanted.epochs, shuffled, self._count, found.content)
            source = Counted(streams.shared(steps, inputs), records)
        self._count += 1

        def make() -> Any:
            if found.of_steps is not None:
                return found.of_steps(epochs.in_turn(source.batches(None)))
            batches = found.make(records) if found.make is not None else None
            return source.batches(batches) if wanted.steps is not None else batches

        passes = 1 if wanted.steps is not None else found.passes
        epochs = self.last = self._kind(
            home, self._model, source, make, found.spec, wanted.first, passes, found.reads, found.one_by_one,
            wanted.steps if found.own and _in_one_order(words["x"]) else None,
        )  # fmt: skip
        epochs.left = self._milestones.left
        dividing = found.plan is not None and not found.one_by_one and not found.plan.drop_remainder
        if wanted.steps is None and found.plan is not None and dividing:
            epochs.batch = found.plan.batch_size
        epochs.writes = roles.write(words.get("callbacks")) or roles.keep_weights(words.get("callbacks"))
        if found.of_steps is not None:
            epochs.begins, epochs.ends = hooks_of(words["x"])
        verbose = _verbose(words.get("verbose", "auto"))
        callbacks = roles.in_the_job(words.get("callbacks"))
        if not home.chief:
            callbacks = roles.of_a_worker(callbacks)
        params = {"verbose": verbose, "epochs": words["epochs"], "steps": wanted.steps or found.batches}
        words.update(
            steps_per_epoch=STEPS_MAX, verbose=verbose,
            validation_batch_size=words.get("validation_batch_size") or words.get("batch_size"),
            callbacks=roles.job_callbacks(epochs, callbacks, model, verbose != 0, params),
        )  # fmt: skip
        spec, size = found.spec, found.records
        if found.spec is None:
            spec, words["x"], size = _spec_of(words["x"])
            if isinstance(words["x"], tf.keras.utils.Sequence):
                words["x"], words["class_weight"] = turned(
                    words["x"], words, self._model.generation.NUMBER, self._count
                )
            else:
                words["x"] = self._without_end(words["x"], wanted)
        else:
            words.update(
                x=_stand_in(found.spec), y=None, sample_weight=None, batch_size=None, class_weight=None,
                validation_split=0.0, shuffle=False,
            )  # fmt: skip
        if found.spec is not None or not words.get(
            "class_weight"
        ):  # which Keras makes a part of the batches, of some shape
            epochs.attach = lambda: model.train_function.attach(epochs, spec, size)
        if not home.chief:
            words["validation_data"] = None
        self._fitted.add(model)
        before, self._running[id(model)] = self._running.get(id(model)), epochs
        if found.instead:
            inputs.instead[found.instead] = records
        try:
            result = original(model, **words)
        finally:
            inputs.instead.pop(found.instead, None)
            epochs.close()
            if found.plan is not None and isinstance(found.plan.reader, RowReader):
                self._read.append(found.plan.reader)  # a thread may be reading
            if before is None:
                del self._running[id(model)]
            else:
                self._running[id(model)] = before
        if home.chief:
            if self._milestones.made_before:  # by a chief before this one, and others may have trained on since
                self._model.forget()
            else:
                self._model.pass_on()  # what callbacks have written at the end of the training, the best weights perhaps
        else:
            self._model.forget()
            self._milestones.wait_end()
            self._model.changed()
        epochs.ended()
        self.ended_together, self.trained_last = True, epochs.lived
        return result


def _spec_of(x: Any) -> tuple[Any, Any, int | None]:
    """(of the batches of an input that Keras reads, the input, records of a batch). None: nobody knows before Keras takes
    one."""
    if isinstance(x, tf.data.Dataset):
        return x.element_spec, x, eager.batch_size_of(x)
    if isinstance(x, tf.keras.utils.Sequence):
        first = x[0]
        return _of_first(first), x, _rows_of(first)
    if isinstance(x, Iterator) and not isinstance(x, tf.data.Iterator):
        first = next(x, None)
        return _of_first(first), _again(first, x), _rows_of(first)
    return None, x, None


def _in_one_order(x: Any) -> bool:
    """Whether all processes read the same batches one after the other."""
    return isinstance(x, tf.data.Dataset) and not eager.is_a_share(x) and not eager.is_by_chance(x)


def _size_of(spec: Any) -> int | None:
    """Records of a batch, where all have as many."""
    sizes = {one.shape[0] for one in tf.nest.flatten(spec) if isinstance(one, tf.TensorSpec) and one.shape.rank}
    return sizes.pop() if len(sizes) == 1 else None


def _rows_of(batch: Any) -> int | None:
    first = tf.nest.flatten(batch)[:1]
    return int(first[0].shape[0]) if first and len(getattr(first[0], "shape", ())) else None


def _again(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    if first is not None:
        yield first
        yield from rest


def _of_first(batch: Any) -> Any:
    """As Keras takes it: records, what is to be learnt of them, and their weights."""
    if not isinstance(batch, (list, tuple)) or not 2 <= len(batch) <= 3:
        return None
    if not all(
        isinstance(one, (np.ndarray, np.generic, tf.Tensor)) and len(one.shape) for one in tf.nest.flatten(batch)
    ):
        return None

    def spec(one: Any) -> Any:
        array = np.asarray(one)
        kind = tf.keras.backend.floatx() if np.issubdtype(array.dtype, np.floating) else array.dtype
        return tf.TensorSpec([None, *array.shape[1:]], tf.string if array.dtype.kind in "OSU" else tf.as_dtype(kind))

    return tf.nest.map_structure(spec, tuple(batch))


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value > 0 else None


def _validation(structure: Any) -> tuple[Any, ...]:
    """As `validation_data`."""
    parts = structure if isinstance(structure, tuple) else (structure,)
    return parts if len(parts) > 1 else (*parts, None)


def _verbose(verbose: Any) -> int:
    if verbose != "auto":
        return int(verbose)
    shows = getattr(tf.keras.utils, "is_interactive_logging_enabled", lambda: True)
    return 1 if shows() else 2


def _stand_in(spec: Any) -> tf.data.Dataset:
    """For Keras, which makes iterators of what it is given; the batches come from elsewhere."""

    def one() -> Iterator[Any]:
        while True:
            yield tf.nest.map_structure(_empty, spec)

    return tf.data.Dataset.from_generator(one, output_signature=spec)


def _empty(spec: tf.TensorSpec) -> Any:
    shape = [1 if size is None else size for size in spec.shape]
    return np.full(shape, b"", object) if spec.dtype == tf.string else np.zeros(shape, spec.dtype.as_numpy_dtype)
