"""A tf.data pipeline over files that is given to `fit`: its records are leased by file and range, its own stages are kept.

What can be followed is what most scripts have: files of TFRecords, lines, CSV or Parquet, one after the other or interleaved;
stages that make one element of each record (`map`), or none but another order (`shuffle`, `cache`, `prefetch`); `batch`; stages
that make one element of each batch, of any size, or of one where `batch` drops all others; and `repeat`. The files are read by
`elastic_dataset` instead, which also shuffles and repeats where the pipeline does; the script's own functions are applied to
the records of each of its batches.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import tensorflow as tf

from deeprec_ext.data.dataset import elastic_dataset
from deeprec_ext.data.errors import DataError
from deeprec_ext.data.readers import by_name
from deeprec_ext.errors import UsageError
from deeprec_ext.tf_private.eager import Source, Stage, stage_of

_MAPS = frozenset({"MapDataset", "ParallelMapDataset", "ParseExampleDataset"})
_BATCHES = frozenset({"BatchDataset", "ParallelBatchDataset"})
_IN_ORDER = frozenset({"PrefetchDataset", "OptionsDataset", "AssertCardinalityDataset", "CacheDataset"})
"""They change neither elements nor their order; what is cached is made anew."""

STAGES_MAX = 100

Function = Callable[..., Any]


class NotFollowed(Exception):
    """Why the records of a pipeline cannot be leased."""


@dataclass(frozen=True)
class Pipeline:
    """From files to batches."""

    source: Source
    decoded: Function | None
    """Makes elements of the records of a batch, all at once."""
    shuffled: bool
    of_records: Sequence[Function]
    """In the order in which they are applied."""
    batch_size: int
    of_batches: Sequence[Function]
    passes: int | None = 1
    """How often it reads its files; None: without end."""
    drop_remainder: bool = False
    """It has no batch of fewer records."""

    def leased(self, name: str) -> tf.data.Dataset:
        """The same with records of the ledger. Raises UsageError, and NotFollowed before anybody hears of the name.

        Args:
          name: of the dataset, in the ledger.
        """
        size = self.batch_size if self.drop_remainder else None
        given = tf.nest.map_structure(lambda one: tf.TensorSpec([size, *one.shape[1:]], one.dtype), self.source.spec)
        nothing = tf.data.Dataset.from_generator(lambda: iter(()), output_signature=given)
        specs = tf.nest.flatten(self._stages_after(nothing).element_spec)
        if not all(isinstance(one, tf.TensorSpec) and one.shape.rank and one.shape[0] in (None, size) for one in specs):
            raise NotFollowed(
                "its functions make batches of one size, but some batches have fewer records (drop_remainder=True in batch() "
                "leaves those out)"
            )
        options: dict[str, Any] = {"skip_lines": self.source.skip} if self.source.skip else {}
        if self.source.columns:
            options["columns"] = list(self.source.columns)
            _check_tables(self.source)
        paths = [path if "://" in path else glob.escape(path) for path in self.source.files]  # they are no patterns
        dataset = elastic_dataset(
            paths, self.batch_size, self.passes, self.shuffled, reader=self.source.reader, name=name,
            reader_options=options, drop_remainder=self.drop_remainder,
        )  # fmt: skip
        return self._stages_after(dataset).prefetch(tf.data.AUTOTUNE)

    def _stages_after(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """
        Args:
          dataset: of batches of records: strings of shape [batch], or columns of such a shape; the size may be known.
        """
        if self.decoded is not None:
            dataset = dataset.map(self.decoded, num_parallel_calls=tf.data.AUTOTUNE)
        if self.of_records:
            dataset = dataset.map(_one_by_one(self.of_records), num_parallel_calls=tf.data.AUTOTUNE)
        for function in self.of_batches:
            dataset = dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE)
        return dataset


def _check_tables(source: Source) -> None:
    """Whether our reader reads these columns, and by row groups, which tensorflow-io does not tell. Raises NotFollowed."""
    if find_spec("pyarrow") is None:
        raise NotFollowed("Parquet files are read in parts by pyarrow alone, which is not installed")
    try:
        by_name(source.reader, columns=list(source.columns)).sample(source.files[0])
    except (DataError, UsageError) as error:
        raise NotFollowed(str(error)) from error


def followed(dataset: tf.data.Dataset) -> Pipeline:
    """Raises NotFollowed."""
    if not all(isinstance(one, tf.TensorSpec) and one.shape.rank for one in tf.nest.flatten(dataset.element_spec)):
        raise NotFollowed("it gives elements that are no batches of tensors")
    of_batches: list[Function] = []
    of_records: list[Function] = []
    size, shuffled, passes, full = 0, False, 1, False
    for _ in range(STAGES_MAX):
        stage = stage_of(dataset)
        if stage.source is not None:
            if not size:
                raise NotFollowed("it has no batch()")
            if stage.source.skip < 0 or (stage.source.skip and stage.source.reader == "tfrecord"):
                raise NotFollowed("it leaves out records of its files")
            return Pipeline(
                stage.source, stage.function, shuffled, of_records[::-1], size, of_batches[::-1],
                passes if passes > 0 else None, full,
            )  # fmt: skip
        if stage.kind in _MAPS and stage.function is not None:
            (of_records if size else of_batches).append(stage.function)
        elif stage.kind in _BATCHES and not size:
            size = stage.batch_size
            full = _sizes(dataset.element_spec) == {size}
        elif stage.kind == "ShuffleDataset":
            shuffled = True
        elif stage.kind == "RepeatDataset" and stage.repeats:
            passes = passes * stage.repeats if min(passes, stage.repeats) > 0 else -1
        elif stage.kind not in _IN_ORDER:
            raise NotFollowed(
                f"its stage {_named(stage)} "
                f"{'reads no files whose records can be divided' if stage.before is None else 'is not followed'}"
            )
        if stage.before is None:
            break
        dataset = stage.before
    raise NotFollowed("its files are not found")


def _sizes(spec: Any) -> set[int | None]:
    """Of batches; not known, unless those that are not full are dropped."""
    return {one.shape[0] for one in tf.nest.flatten(spec) if isinstance(one, tf.TensorSpec) and one.shape.rank}


def _named(stage: Stage) -> str:
    """`Repeat`, as in `RepeatDataset`."""
    return stage.kind.removesuffix("Dataset") or "of its own"


def _one_by_one(functions: Sequence[Function]) -> Function:
    def of_batch(*parts: Any) -> Any:
        each = tf.data.Dataset.from_tensor_slices(parts if len(parts) > 1 else parts[0])
        for function in functions:
            each = each.map(function)
        first = tf.nest.flatten(parts)[0]
        if (size := first.shape[0]) is not None:
            return each.batch(size, drop_remainder=True).get_single_element()
        return each.batch(tf.shape(first, tf.int64)[0]).get_single_element()

    return of_batch
