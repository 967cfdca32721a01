"""`deeprec-ext predict`: a model's outputs for all records, in files, each record exactly once.

A lease is a shard: records `first` to `first + count - 1` of a file. Its predictions become one file, named after the shard,
which is there as a whole or not at all (it is renamed), and only then is the shard acknowledged. Who dies leaves no part of
one; a shard that is done twice, because its first word was lost, gives the same file again. At the end the names are looked
through: no shard may be missing between others, and none may overlap another.

In a job the steps are shards, counted by the one variable that lies on the PS; the model itself is in each process.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext import env
from deeprec_ext.data import streams
from deeprec_ext.data.errors import DataError
from deeprec_ext.data.readers.base import Columns
from deeprec_ext.data.shards import ShardFeeder
from deeprec_ext.errors import UsageError
from deeprec_ext.modeldef import model as models
from deeprec_ext.modeldef import records, stream
from deeprec_ext.modeldef.definition import Definition
from deeprec_ext.modeldef.training import sample
from deeprec_ext.modeldef.words import Mode

SUMMARY = "predictions.json"
_PART = re.compile(r"part-(\d{5})-(\d{12})-(\d{7})\.jsonl")


@dataclass(frozen=True)
class Prediction:
    data: str
    weights: str = ""
    output: str = ""
    reader: str = "auto"
    skip_lines: int = 0
    batch_size: int = 256
    shard_records: int | None = None


@dataclass(frozen=True)
class Shard:
    """Of one file: its number, its first record and how many there are."""

    file: int
    first: int
    records: int

    @property
    def name(self) -> str:
        return f"part-{self.file:05d}-{self.first:012d}-{self.records:07d}.jsonl"


def predict(definition: Definition, asked: Prediction) -> int:
    """Writes the predictions of this process; returns how many records all parts have, 0 where others look that through.

    Raises UsageError, and DataError where records cannot be read.
    """
    if not asked.weights:
        raise UsageError("predict: --weights names what predicts: what `deeprec-ext train --output` has written")
    home = streams.trainer()
    chief = home is None or home.chief
    output = asked.output or (os.path.join(run, "predictions") if (run := env.workdir()) else "")
    if not output and definition.processor is None:
        raise UsageError("predict: --output names the directory for the predictions")
    source = records.source(asked.data, asked.reader, asked.skip_lines)
    model = models.make(definition, "predict")
    definition = models.suited(definition, model)
    models.build(model, next(iter(sample(definition, source, Mode.PREDICTION, 2))))
    models.load_weights(model, asked.weights)
    made = stream.leased(source, asked.batch_size, 1, False, 0, asked.shard_records, "predict")
    made = replace(made, batch_size=made.declaration.shard_records, whole_shards=True)
    settings = {
        "files": [[file.path, file.bytes] for file in made.declaration.files],
        "shard_records": made.declaration.shard_records, "weights": _which(asked.weights),
    }  # fmt: skip
    if output:
        _claim(output, settings, chief)
    processor = definition.processor() if definition.processor is not None else None
    shards = Shards(stream.open_feeder(made))  # type: ignore[arg-type]
    assert definition.feed is not None
    dataset = stream.through_feed(shards, made, source, definition.feed, Mode.PREDICTION, asked.batch_size)
    progress = _Steps(home) if home is not None else None
    try:
        for shard, outputs in _of_shards(model, dataset, shards, definition.module):
            if processor is not None:
                for one in outputs:
                    processor.process(tf.nest.map_structure(tf.convert_to_tensor, one), _number())
            if output:
                _write(os.path.join(output, shard.name), [line for one in outputs for line in lines(one)])
            if progress is not None and progress.step():
                break
    except tf.errors.OpError as error:
        if shards.feeder.failure:
            raise DataError(shards.feeder.failure) from error
        raise
    finally:
        if progress is not None:
            progress.close()
        if home is None:
            shards.feeder.close()
    if not output or not chief:
        return 0
    count = checked(tf.io.gfile.listdir(output))
    _write(os.path.join(output, SUMMARY), [json.dumps({**settings, "records": count, "complete": True})])
    print(f"{count} records are predicted, in {output}", flush=True)
    return count


@dataclass
class Shards:
    """The shards that this process has leased, one after the other."""

    feeder: ShardFeeder
    given: int = field(default=0, init=False)
    shard: Shard = field(default=Shard(0, 0, 0), init=False)
    """That was given last."""

    def __call__(self) -> Iterator[Columns]:
        while not self.feeder.exhausted:
            for batch in self.feeder.batches():
                lease = self.feeder.shard
                self.given, self.shard = self.given + 1, Shard(lease.file, lease.first_record, lease.records)
                yield batch


def _of_shards(
    model: Any, dataset: tf.data.Dataset, shards: Shards, module: str
) -> Iterator[tuple[Shard, Sequence[Any]]]:
    """(shard, its outputs batch by batch), when it is complete, and before the next one is asked for. Raises UsageError."""
    outputs: list[Any] = []
    count, number, done = 0, 0, 0
    of = shards.shard
    for batch in dataset:
        if number != shards.given:
            _complete(of, count, module, skipped=shards.given - done > 1)
            number, of, count, outputs = shards.given, shards.shard, 0, []
        features = models.features_of(batch)
        outputs.append(model.predict_on_batch(features))
        count += len(tf.nest.flatten(outputs[-1])[0])
        if count == of.records:
            done = number
            yield of, outputs
    _complete(of, count, module, skipped=shards.given > done)


def _complete(shard: Shard, count: int, module: str, *, skipped: bool) -> None:
    if count != shard.records or skipped:
        raise UsageError(
            f"{module}: feed gives {count} of the {shard.records} records of {shard.name} in Mode.PREDICTION: it must give "
            "each record once, in order, so let it filter and repeat for training alone"
        )


def lines(outputs: Any) -> list[str]:
    """JSON, one for each record: what the model gives of it. A row of one number is that number."""
    leaves = [np.asarray(one) for one in tf.nest.flatten(outputs)]
    plain = [one.reshape(len(one)) if one.ndim == 2 and one.shape[1] == 1 else one for one in leaves]
    rows = zip(*(one.tolist() for one in plain))
    if isinstance(outputs, Mapping):
        names = tf.nest.flatten(dict(zip(outputs, outputs)))  # in the order of the leaves
        return [json.dumps(dict(zip(names, row)), default=_text) for row in rows]
    several = isinstance(outputs, (list, tuple))
    return [json.dumps(list(row) if several else row[0], default=_text) for row in rows]


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def checked(names: Sequence[str]) -> int:
    """How many records parts with these names have. Raises UsageError where one is missing or two overlap."""
    ends: dict[int, int] = {}
    total = 0
    for name in sorted(names):
        match = _PART.fullmatch(name)
        if match is None:
            continue
        file, first, count = map(int, match.groups())
        if first != ends.get(file, 0):
            raise UsageError(
                f"{name} begins at record {first}, and what is before it ends at {ends.get(file, 0)}: the directory has parts "
                "of another run; give another --output, or empty it"
            )
        ends[file], total = first + count, total + count
    return total


def _claim(output: str, settings: Mapping[str, Any], chief: bool) -> None:
    """Raises UsageError when the directory holds predictions of other data, or in other shards."""
    tf.io.gfile.makedirs(output)
    path = os.path.join(output, SUMMARY)
    if tf.io.gfile.exists(path):
        with tf.io.gfile.GFile(path) as file:
            before = json.loads(file.read())
        if any(before.get(name) != value for name, value in settings.items()):
            raise UsageError(
                f"--output {output}: holds predictions of other data, weights or shards; give another directory, or empty it"
            )
    if chief:
        _write(path, [json.dumps({**settings, "complete": False})])


def _which(weights: str) -> list[Any]:
    """What tells weights of one name from others; a directory by itself."""
    found = tf.io.gfile.stat(weights) if tf.io.gfile.exists(weights) else None
    return [weights, found.length, found.mtime_nsec] if found is not None else [weights]


def _write(path: str, text: Sequence[str]) -> None:
    """Whole, or not at all."""
    directory, name = os.path.split(path)
    draft = os.path.join(directory, f".{name}.{uuid.uuid4().hex}")
    with tf.io.gfile.GFile(draft, "w") as file:
        file.write("".join(line + "\n" for line in text))
    tf.io.gfile.rename(draft, path, overwrite=True)


def _number() -> int:
    return env.index() + 1 if env.role() == "worker" else 0


class _Steps:
    """A shard is a step of the job: the AIMaster sees that it goes on, and a process that it wants to leave is told."""

    def __init__(self, trainer: Any) -> None:
        from deeprec_ext.hooks import ElasticTrainingHook

        v1 = tf.compat.v1
        self._graph = tf.Graph()
        with self._graph.as_default():
            with tf.device("/job:ps/task:0"):
                self._next = v1.assign_add(v1.train.get_or_create_global_step(), 1)
            self._session = v1.train.MonitoredTrainingSession(
                master=trainer.target, is_chief=trainer.chief, hooks=[ElasticTrainingHook()], save_summaries_steps=None,
                save_summaries_secs=None, log_step_count_steps=None,
            )  # fmt: skip

    def step(self) -> bool:
        """Whether this process leaves."""
        with self._graph.as_default():
            self._session.run(self._next)
        return bool(self._session.should_stop())

    def close(self) -> None:
        with self._graph.as_default():
            self._session.close()
