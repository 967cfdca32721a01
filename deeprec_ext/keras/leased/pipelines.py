"""A tf.data pipeline that is given to `fit`: its records are leased, its own stages are kept.

What can be followed is what most scripts have: files of TFRecords, lines, CSV or Parquet, one after the other or interleaved,
leased by file and range, or the rows of arrays and the numbers of a range (`slices`), leased as arrays are that are given to
`fit`; stages that make one element of each record (`map`), or none but another order (`shuffle`, `cache`, `prefetch`); `batch`;
stages that make one of a batch, of any size, or of one size where `batch` drops all others; and `repeat`. The files are read by
`elastic_dataset` instead, which also shuffles and repeats where the pipeline does; the script's own functions are applied to
the records of each of its batches. Elements of arrays and ranges may be batches by themselves, without `batch`: they are leased
one by one.
"""

from __future__ import annotations

import functools
import glob
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import tensorflow as tf

from deeprec_ext.data.dataset import elastic_dataset
from deeprec_ext.data.errors import DataError
from deeprec_ext.data.plan import SHARD_BATCHES
from deeprec_ext.data.readers import by_name
from deeprec_ext.errors import UsageError
from deeprec_ext.keras.leased.arrays import Rows, shard_of
from deeprec_ext.keras.leased.slices import CACHED, STAGES_MAX, NotSliced, Slices, is_source, slices_of
from deeprec_ext.tf_private.eager import Source, Stage, stage_of

_MAPS = frozenset({"MapDataset", "ParallelMapDataset", "ParseExampleDataset"})
_BATCHES = frozenset({"BatchDataset", "ParallelBatchDataset"})
_IN_ORDER = frozenset({"PrefetchDataset", "OptionsDataset", "AssertCardinalityDataset", "CacheDataset"})
"""They change neither elements nor their order; what is cached is made anew."""

Function = Callable[..., Any]


class NotFollowed(Exception):
    """Why the records of a pipeline cannot be leased."""


@dataclass(frozen=True)
class Pipeline:
    """From files, or rows of arrays, to batches."""

    source: Source | None
    decoded: Function | None
    """Makes elements of the records of a batch, all at once."""
    shuffled: bool
    of_records: Sequence[Function]
    """In the order in which they are applied."""
    batch_size: int
    """0: its elements are batches."""
    of_batches: Sequence[Function]
    passes: int | None = 1
    """How often it reads its files; None: without end."""
    drop_remainder: bool = False
    """It has no batch of fewer records."""
    rows: Slices | None = None
    """Instead of a source."""

    @functools.cached_property
    def _rows(self) -> Rows | None:
        return Rows(tuple(self.rows.arrays), len(self.rows.arrays[0])) if self.rows is not None else None

    @property
    def content(self) -> str:
        """What stands for the rows; empty: there are none."""
        return self._rows.content(self.shuffled) if self._rows is not None else ""

    @property
    def batches(self) -> int | None:
        """Of all passes, where that is known."""
        if self._rows is None or self.passes is None:
            return None
        full, left = divmod(self._rows.count, self.batch_size or 1)
        return self.passes * (full + bool(left and not self.drop_remainder))

    def leased(self, name: str, seed: int = 0) -> tf.data.Dataset:
        """The same with records of the ledger. Raises UsageError, and NotFollowed before anybody hears of the name.

        Args:
          name: of the dataset, in the ledger.
          seed: of the order of shuffled rows.
        """
        size = self.batch_size if self.drop_remainder else None
        spec = _spec_of(self._rows) if self._rows is not None else self._of_files.spec
        given = tf.nest.map_structure(lambda one: tf.TensorSpec([size, *one.shape[1:]], one.dtype), spec)
        nothing = tf.data.Dataset.from_generator(lambda: iter(()), output_signature=given)
        specs = tf.nest.flatten(self._stages_after(nothing).element_spec)
        sizes = {one.shape[0] if isinstance(one, tf.TensorSpec) and one.shape.rank else -1 for one in specs}
        if self.batch_size and not sizes <= {None, size}:
            raise NotFollowed(
                "its functions make batches of one size, but some batches have fewer records (drop_remainder=True in batch() "
                "leaves those out)"
            )
        if self._rows is not None:
            count, rows = self._rows.count, self.batch_size or 1
            dataset = elastic_dataset(
                count, rows, self.passes, self.shuffled, seed, self._rows.reader(self.shuffled, seed), name=name,
                shard_records=shard_of(count, rows) or self._shard, drop_remainder=self.drop_remainder,
            )  # fmt: skip
        else:
            dataset = self._read_files(name)
        return self._stages_after(dataset).prefetch(tf.data.AUTOTUNE)

    @property
    def _shard(self) -> int | None:
        """Records of a lease, where there are many. None: the default, which has at least 256."""
        return None if self.batch_size else SHARD_BATCHES

    @property
    def _of_files(self) -> Source:
        assert self.source is not None
        return self.source

    def _read_files(self, name: str) -> tf.data.Dataset:
        source = self._of_files
        options: dict[str, Any] = {"skip_lines": source.skip} if source.skip else {}
        if source.columns:
            options["columns"] = list(source.columns)
            _check_tables(source)
        paths = [path if "://" in path else glob.escape(path) for path in source.files]  # they are no patterns
        return elastic_dataset(
            paths, self.batch_size, self.passes, self.shuffled, reader=source.reader, name=name, reader_options=options,
            drop_remainder=self.drop_remainder,
        )  # fmt: skip

    def _of_rows(self, rows: Slices) -> Function:
        def of_batch(columns: Any) -> Any:
            parts = [columns[str(place)] for place in range(len(rows.arrays))]
            if not self.batch_size:
                each = [one[0] for one in parts]
                return rows.whole(each) if rows.whole is not None else rows.elements(parts).get_single_element()
            if rows.whole is not None and not self.of_records:
                return rows.whole(parts)
            return _one_by_one(rows.elements(parts), parts, self.of_records)

        return of_batch

    def _stages_after(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """
        Args:
          dataset: of batches of records: strings of shape [batch], or columns of such a shape; the size may be known.
        """
        if self.decoded is not None:
            dataset = dataset.map(self.decoded, num_parallel_calls=tf.data.AUTOTUNE)
        if self.rows is not None:
            dataset = dataset.map(self._of_rows(self.rows), num_parallel_calls=tf.data.AUTOTUNE)
        elif self.of_records:
            dataset = dataset.map(
                lambda *parts: _one_by_one(_slices(parts), parts, self.of_records), num_parallel_calls=tf.data.AUTOTUNE
            )
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
    of_batches_shuffled = cached = keeps = False
    for _ in range(STAGES_MAX):
        stage = stage_of(dataset)
        if is_source(stage):
            if of_batches_shuffled and size:
                raise NotFollowed("it shuffles batches, whose rows belong together")
            rows = _slices_of(dataset)
            if full and len(rows.arrays[0]) < size:
                raise NotFollowed("it has no full batch")
            if keeps or (cached and rows.whole is None):
                raise NotFollowed(CACHED)
            return Pipeline(
                None, None, shuffled, of_records[::-1], size, of_batches[::-1], passes if passes > 0 else None, full, rows
            )  # fmt: skip
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
            keeps = keeps or cached
            (of_records if size else of_batches).append(stage.function)
        elif stage.kind in _BATCHES and not size:
            size = stage.batch_size
            full = _sizes(dataset.element_spec) == {size}
        elif stage.kind == "ShuffleDataset":
            shuffled, of_batches_shuffled = True, of_batches_shuffled or not size
        elif stage.kind == "RepeatDataset" and stage.repeats:
            passes = passes * stage.repeats if min(passes, stage.repeats) > 0 else -1
        elif stage.kind not in _IN_ORDER:
            raise NotFollowed(
                f"its stage {_named(stage)} "
                f"{'reads no files whose records can be divided' if stage.before is None else 'is not followed'}"
            )
        if stage.before is None:
            break
        cached = cached or stage.kind == "CacheDataset"
        dataset = stage.before
    raise NotFollowed("its files are not found")


def _slices_of(dataset: Any) -> Slices:
    try:
        found = slices_of(dataset, _MAPS, _IN_ORDER)
    except NotSliced as error:
        raise NotFollowed(str(error)) from error
    if found is None:
        raise NotFollowed("its stage Zip has parts that are no rows of arrays")
    return found


def _sizes(spec: Any) -> set[int | None]:
    """Of batches; not known, unless those that are not full are dropped."""
    return {one.shape[0] for one in tf.nest.flatten(spec) if isinstance(one, tf.TensorSpec) and one.shape.rank}


def _named(stage: Stage) -> str:
    """`Repeat`, as in `RepeatDataset`."""
    return stage.kind.removesuffix("Dataset") or "of its own"


def _slices(parts: tuple[Any, ...]) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(parts if len(parts) > 1 else parts[0])


def _one_by_one(each: tf.data.Dataset, parts: Any, functions: Sequence[Function]) -> Any:
    """A batch of what the functions make of elements, of which there are as many as `parts` have rows."""
    for function in functions:
        each = each.map(function)
    first = tf.nest.flatten(parts)[0]
    if (size := first.shape[0]) is not None:
        return each.batch(size, drop_remainder=True).get_single_element()
    return each.batch(tf.shape(first, tf.int64)[0]).get_single_element()


def _spec_of(rows: Rows) -> dict[str, tf.TensorSpec]:
    """Of a batch of them, as their reader has them."""
    return {str(place): one for place, one in enumerate(rows.spec)}
