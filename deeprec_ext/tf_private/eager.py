"""Eager TensorFlow: functions as one graph, the stages of a tf.data pipeline, and variables that tell before they are read and
after they are written.

Whatever reads or writes a variable takes its `handle`; so do saving and `tf.function`, when it traces. A watched object gets
another class, a subclass of the one that it has: its identity, by which Keras and optimizers know it, stays.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Any, Protocol

import tensorflow as tf
from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework import convert_to_constants
from tensorflow.python.ops import io_ops, resource_variable_ops, variable_v1, variables

_DATASETS_MAX, _TEXTS_MAX = 1000, 10_000
"""Datasets of one input that are looked at, and texts of one tensor."""

_OVERWRITES = ("assign", "_restore_from_tensors")
_CHANGES = tuple(
    "assign_add assign_sub scatter_add scatter_sub scatter_max scatter_min scatter_mul scatter_div scatter_update "
    "batch_scatter_update scatter_nd_add scatter_nd_sub scatter_nd_update scatter_nd_max scatter_nd_min".split()
)


def not_converted(function: Callable[..., Any]) -> Callable[..., Any]:
    """AutoGraph leaves it as it is, but not what it calls through Keras's layers: as if it were Keras's own."""
    function.autograph_info__ = None  # type: ignore[attr-defined]
    return function


def inlined(concrete: Any, without_xla: bool = False) -> tf.compat.v1.GraphDef:
    """Of a concrete function: no calls, and no loops and conditions but those of TensorFlow 1 (Switch and Merge), so that
    passes see every operation and each can be placed. Names of inputs and outputs stay.

    Args:
      without_xla: also functions that are `compiled`, which would be one operation each.
    """
    if without_xla:
        definition = _without_xla(concrete.graph.as_graph_def())
        concrete.graph.as_graph_def = lambda *_, **__: definition
    return convert_to_constants._run_inline_graph_optimization(
        concrete, lower_control_flow=True, aggressive_inlining=True
    )


_XLA, _ALONE, _LOWERED = "_XlaMustCompile", "_noinline", "_lower_using_switch_merge"
"""Attributes of functions and calls: to be compiled, and therefore not to be inlined; of loops and conditions, which have it
unless they are compiled: to be those of TensorFlow 1."""

_FUNCTIONAL = frozenset({"While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"})


def compiled(concrete: Any) -> Sequence[str]:
    """Names of the functions in it that ask for XLA, as the script has them."""
    functions = concrete.graph.as_graph_def().library.function
    found = [one.signature.name for one in functions if _XLA in one.attr and one.attr[_XLA].b]
    return sorted({re.sub(r"^__[a-z]+_|(_\d+)+$", "", name) for name in found})


def _without_xla(definition: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    functions = definition.library.function
    for node in (*definition.node, *(node for function in functions for node in function.node_def)):
        node.attr.pop(_XLA, None)
        if node.op in _FUNCTIONAL:
            node.attr[_LOWERED].b = True
    for function in functions:
        if _XLA in function.attr:
            function.attr.pop(_XLA)
            function.attr.pop(_ALONE, None)
    return definition


def calls_by(call: Callable[..., Any]) -> Callable[[], None]:
    """`call(run, concrete, given)` makes each call in eager mode of a function that has been traced.

    Args:
      call: `run()` makes it, and gives its results; `given` are the tensors and variables that it takes, also from its
        surroundings, in the order of `concrete.inputs`.

    Returns what undoes it.
    """
    kind = concrete_function.ConcreteFunction
    before = kind._call_flat

    def made(self: Any, tensor_inputs: Any, captured_inputs: Any) -> Any:
        if not tf.executing_eagerly():
            return before(self, tensor_inputs, captured_inputs)
        given = [*tensor_inputs, *captured_inputs]
        return call(lambda: before(self, tensor_inputs, captured_inputs), self, given)

    def undo() -> None:
        kind._call_flat = before

    kind._call_flat = made
    return undo


def captured(concrete: Any) -> Sequence[tuple[Any, Any]]:
    """(tensor outside, placeholder inside) of what it takes from its surroundings."""
    return [(outside, inside) for outside, inside in concrete.graph.captures]


def watched(concrete: Any) -> Sequence[Any]:
    """The variables that it has met, as far as they live."""
    return list(concrete.graph.variables)


def control_outputs(concrete: Any) -> Sequence[str]:
    """Names of the operations that have to run besides its results."""
    return [operation.name for operation in concrete.graph.control_outputs]


def is_flat(iterator: Any) -> bool:
    """Whether it is a dataset's, whose elements are of tensors alone: none that is ragged, sparse or a dataset."""
    kinds = {type(one) for one in tf.nest.flatten(getattr(iterator, "element_spec", None))}
    return isinstance(iterator, iterator_ops.OwnedIterator) and kinds <= {tf.TensorSpec}


def next_flat(iterator: Any) -> Sequence[Any]:
    """The tensors of its next element, in the order of `tf.nest`. To make the structure takes as long as all the rest.

    Raises StopIteration.
    """
    try:
        tensors: Sequence[Any] = tf.raw_ops.IteratorGetNext(
            iterator=iterator._iterator_resource, output_types=iterator._flat_output_types,
            output_shapes=iterator._flat_output_shapes,
        )  # fmt: skip
    except tf.errors.OutOfRangeError:
        raise StopIteration from None
    return tensors


def reads(iterator: Any) -> Sequence[str]:
    """Of the datasets behind an iterator: `op:` and the name of each, in their functions too, and `text:` with each text that
    one is made of or that is constant in a function: paths are among them. Empty, where it is not a dataset's."""
    waiting, seen = [getattr(iterator, "_dataset", None)], dict[str, None]()
    for _ in range(_DATASETS_MAX):
        if not waiting:
            break
        dataset = waiting.pop()
        if not isinstance(dataset, tf.data.Dataset):
            continue
        seen[f"op:{type(dataset).__name__.lstrip('_')}"] = None
        for one in _parts(dataset):
            if tf.is_tensor(one) and one.dtype == tf.string and hasattr(one, "numpy") and tf.size(one) <= _TEXTS_MAX:
                texts = tf.reshape(one, [-1]).numpy()  # of a single one it would be bytes
                seen.update((f"text:{os.fsdecode(text)}", None) for text in texts)
        for function in dataset._functions():
            body = function.function.graph.as_graph_def()
            for node in (*body.node, *(node for called in body.library.function for node in called.node_def)):
                seen[f"op:{node.op}"] = None
                if node.op == "Const" and node.attr["dtype"].type == tf.string.as_datatype_enum:
                    values = tf.make_ndarray(node.attr["value"].tensor).ravel()[:_TEXTS_MAX]
                    seen.update((f"text:{os.fsdecode(text)}", None) for text in values)
        waiting += dataset._inputs()
    return list(seen)


def _parts(dataset: Any) -> Sequence[Any]:
    """Values that it is made of: `from_tensor_slices` of a list of paths has them as tensors."""
    return [
        part for value in vars(dataset).values() for part in (value if isinstance(value, (list, tuple)) else [value])
    ]


def first_names(dataset: Any) -> Sequence[str]:
    """What the first stages of a dataset are called, of those that have a name."""
    found, stack = [], [dataset]
    while stack:
        one = stack.pop()
        before = list(one._inputs())
        stack += before
        if not before and getattr(one, "_name", None):  # a CsvDataset has none
            found.append(one._name)
    return found


def is_a_share(dataset: Any) -> bool:
    """Whether it says that it is each process's own: it has a `shard`, or a `take(-1)`, which takes all."""
    kinds = [(_kind(one), one) for one in _behind_it(dataset)]
    return any(kind == "ShardDataset" or (kind == "TakeDataset" and int(one._count) < 0) for kind, one in kinds)


def is_by_chance(dataset: Any) -> bool:
    """Whether its elements are others, or all of them in another order, in each process: they are a generator's, or shuffled
    in a buffer that has room for all."""
    behind = _behind_it(dataset)
    functions = [function for one in behind for function in one._functions()]
    if any(node.op == "GeneratorDataset" for one in functions for node in one.function.graph.as_graph_def().node):
        return True
    shuffles = [one for one in behind if _kind(one) == "ShuffleDataset"]
    return any(
        not int(one._seed) and not int(one._seed2)
        and 0 <= int(one._input_dataset.cardinality()) <= int(one._buffer_size)
        for one in shuffles
    )  # fmt: skip


_REBATCH = frozenset({"UnbatchDataset", "WindowDataset", "RebatchDataset", "GroupByWindowDataset"})


def batch_size_of(dataset: Any) -> int | None:
    """Of its elements, as its last `batch` has it. None: there is none, or stages after it make other elements of several."""
    for _ in range(_DATASETS_MAX):
        kind = _kind(dataset)
        if (size := getattr(dataset, "_batch_size", None)) is not None:
            return int(size)
        dataset = getattr(dataset, "_input_dataset", None)
        if dataset is None or kind in _OVER_FILES or kind in _REBATCH:
            return None
    return None


def _behind_it(dataset: Any) -> Sequence[Any]:
    """It, and the datasets that it is made of."""
    found: list[Any] = []
    waiting = [dataset]
    while waiting and len(found) < _DATASETS_MAX:
        found.append(waiting.pop())
        waiting += found[-1]._inputs()
    return found


# -- stages of a pipeline

READERS = {"TFRecordDataset": "tfrecord", "TFRecordDatasetV2": "tfrecord", "TextLineDataset": "lines"}
"""Op, or class -> reader of `deeprec_ext.data`."""

_NAMES = frozenset({"TensorSliceDataset", "ShuffleDataset", "PrefetchDataset", "OptionsDataset", "CacheDataset"})
"""Stages of a dataset of paths that give all processes the same ones."""

_OVER_FILES = frozenset({"FlatMapDataset", "InterleaveDataset", "ParallelInterleaveDataset"})
_OF_ONE_FILE = frozenset({
    "Placeholder", "Const", "Reshape", "TensorSliceDataset", "FlatMapDataset", "LegacyParallelInterleaveDatasetV2",
    "SkipDataset", "Identity", "NoOp",
})  # fmt: skip
"""Ops of a function that gives the records of one path: TensorFlow makes a list of it, over which it maps `_READ`."""
_READ = frozenset({"Const", "Identity", "NoOp", *READERS})
_CSV = frozenset({"CSVDataset", "CSVDatasetV2"})
_OF_CSV = frozenset({"Placeholder", "Const", "Identity", "Reshape", "NoOp", *_CSV})
"""Ops of a function that gives the columns of the records of one path."""

_OF_PARQUET = frozenset({
    "Placeholder", "Const", "Identity", "NoOp", "IO>ParquetReadableInfo", "StridedSlice", "Shape", "Reshape", "Pack", "Prod",
    "ConcatV2", "Where", "Squeeze", "GatherV2", "Equal", "GreaterEqual", "MapDataset", "ZipDataset", "RangeDataset",
    "SkipDataset", "TensorSliceDataset", "ConcatenateDataset", "UnbatchDataset",
})  # fmt: skip
"""Ops of a function that gives the rows of one path, as tensorflow-io makes them of its own datasets."""

FILES_OF_A_PIPELINE = 10_000


@dataclass(frozen=True)
class Source:
    """Files that are read record by record."""

    files: Sequence[str]
    reader: str
    skip: int = 0
    """Records at the beginning of each file that are left out."""
    columns: Mapping[str, tf.DType] = field(default_factory=dict)
    """Those that are read; none: records are texts."""

    @property
    def spec(self) -> Any:
        """Of a batch of records."""
        each = {name: tf.TensorSpec([None], dtype) for name, dtype in self.columns.items()}
        return each or tf.TensorSpec([None], tf.string)


@dataclass(frozen=True)
class Stage:
    kind: str
    """As its class is called: `MapDataset`, `ShuffleDataset`."""
    before: Any = None
    """The dataset that it takes; None: none, or several."""
    function: Callable[..., Any] | None = None
    """As the script has given it; of a source, what makes an element of a record, and as many of as many at once."""
    batch_size: int = 0
    source: Source | None = None
    repeats: int = 1
    """How often it gives what is before it; less than 0: without end."""
    slices: Sequence[Any] = ()
    """Of `from_tensor_slices`: the tensors, whose rows are its elements."""
    numbers: range | None = None
    """Of `range`."""
    zipped: Any = None
    """Of `zip`: the datasets, in the structure of its elements."""


def stage_of(dataset: Any) -> Stage:
    """Its last stage."""
    kind, before = _kind(dataset), getattr(dataset, "_input_dataset", None)
    if kind == "CsvDataset":
        names = tf.data.Dataset.from_tensor_slices(tf.reshape(dataset._filenames, [-1]))
        return _of_columns(kind, None, names, _csv_of(dataset))
    if kind in _OVER_FILES and (told := _csv_in(dataset._map_func.function.graph.as_graph_def())) is not None:
        return _of_columns(kind, before, before, told)
    if kind == "ParquetIODataset":
        name = getattr(dataset, "_filename", None)
        names = tf.data.Dataset.from_tensor_slices(tf.reshape(name, [-1])) if name is not None else None
        return _of_parquet(kind, None, names, dataset.element_spec)
    if kind in _OVER_FILES and _reads_parquet(dataset._map_func.function.graph.as_graph_def(), dataset.element_spec):
        return _of_parquet(kind, before, before, dataset.element_spec)
    function = getattr(getattr(dataset, "_map_func", None), "_func", None)
    if kind == "ParseExampleDataset":
        function = _parsed(dataset._features)
    size = getattr(dataset, "_batch_size", None)
    source = _source(dataset, kind, before)
    repeats = int(dataset._count) if kind == "RepeatDataset" else 1
    slices = [one for one in dataset._tensors if hasattr(one, "numpy")] if kind == "TensorSliceDataset" else ()
    numbers = (
        range(*(int(one) for one in (dataset._start, dataset._stop, dataset._step))) if kind == "RangeDataset" else None
    )
    return Stage(
        kind, before, function if source is None else None, int(size) if size is not None else 0, source, repeats, slices,
        numbers, dataset._datasets if kind == "ZipDataset" else None,
    )  # fmt: skip


def _kind(dataset: Any) -> str:
    return type(dataset).__name__.lstrip("_").removesuffix("V2") if isinstance(dataset, tf.data.Dataset) else ""


def _source(dataset: Any, kind: str, before: Any) -> Source | None:
    if kind in READERS and not getattr(dataset, "_compression_type", None):
        return _of_names(getattr(dataset, "_filenames", None), READERS[kind], 0)
    if kind in _OVER_FILES:
        read = _one_file(dataset._map_func.function.graph.as_graph_def())
        return _of_names(before, *read) if read is not None else None
    if kind == "SkipDataset":
        stage = stage_of(before)
        found = stage.source if stage.function is None else None  # of columns, its lines have been read already
        if found is not None and len(found.files) == 1 and not found.skip and found.reader == "lines":
            return Source(found.files, found.reader, int(dataset._count))
    return None


@dataclass(frozen=True)
class _Csv:
    """As the op takes it. `defaults`: of each column that is asked for, an empty array where it has none."""

    compression: str
    header: bool
    delimiter: str
    quotes: bool
    missing: str
    columns: Sequence[int]
    defaults: Sequence[tuple[Any, tf.DType]]
    left_out: Sequence[int]


def _csv_of(dataset: Any) -> _Csv:
    given = (dataset._field_delim, dataset._use_quote_delim, dataset._na_value, dataset._select_cols)
    delimiter, quotes, missing, columns = (value.numpy() for value in given)
    return _Csv(
        str(getattr(dataset, "_compression_type", None) or ""), bool(dataset._header), os.fsdecode(delimiter),
        bool(quotes), os.fsdecode(missing), [int(one) for one in columns],
        [(one.numpy(), one.dtype) for one in dataset._record_defaults], [int(one) for one in dataset._exclude_cols],
    )  # fmt: skip


def _csv_in(body: Any) -> _Csv | None:
    """Of a function of a path, as in `make_csv_dataset`; None: it does something else."""
    nodes = {node.name: node for node in body.node}
    kinds = [node.op for node in nodes.values()]
    reads = [node for node in nodes.values() if node.op in _CSV]
    if not set(kinds) <= _OF_CSV or kinds.count("Placeholder") != 1 or len(reads) != 1:
        return None
    behind = [_behind(nodes, tensor) for tensor in reads[0].input if not tensor.startswith("^")]
    if behind[0].op != "Placeholder" or any(node.op != "Const" for node in behind[1:]):
        return None
    values = [tf.make_ndarray(node.attr["value"].tensor) for node in behind[1:]]
    compression, _, header, delimiter, quotes, missing, columns = values[:7]
    types = [tf.as_dtype(one) for one in reads[0].attr["output_types"].list.type]
    return _Csv(
        os.fsdecode(compression.item()), bool(header), os.fsdecode(delimiter.item()), bool(quotes),
        os.fsdecode(missing.item()), columns.tolist(), list(zip(values[7 : 7 + len(types)], types)),
        [one for value in values[7 + len(types) :] for one in value.tolist()],
    )  # fmt: skip


def _of_columns(kind: str, before: Any, names: Any, told: _Csv) -> Stage:
    """Records are decoded by the op of lines; a column without a default has an empty tensor there."""
    if told.compression or told.left_out:
        return Stage(kind, before)

    def decoded(lines: tf.Tensor) -> tuple[tf.Tensor, ...]:
        defaults = [tf.constant(value, dtype) for value, dtype in told.defaults]
        columns = list(told.columns) or None
        return tuple(tf.io.decode_csv(lines, defaults, told.delimiter, told.quotes, told.missing, columns))

    source = _of_names(names, "csv" if told.quotes else "lines", int(told.header))
    return Stage(kind, before, decoded if source is not None else None, 0, source)


def _reads_parquet(body: Any, spec: Any) -> bool:
    """Whether a function of a path gives the columns `spec` of its rows, and does nothing else."""
    kinds = [node.op for node in body.node]
    inside = {node.op for function in body.library.function for node in function.node_def}
    texts = {
        os.fsdecode(text)
        for node in body.node if node.op == "Const" and node.attr["dtype"].type == tf.string.as_datatype_enum
        for text in tf.make_ndarray(node.attr["value"].tensor).ravel()
    }  # fmt: skip
    if not isinstance(spec, Mapping) or texts != {os.fsdecode(name) for name in spec}:
        return False
    of_a_column = {"MapDataset": 2, "SkipDataset": 1, "UnbatchDataset": 1, "ZipDataset": 1}
    expected = {kind: number * len(spec) for kind, number in of_a_column.items()}
    expected["ZipDataset"] += 1
    return (
        all(kinds.count(kind) == number for kind, number in expected.items())
        and kinds.count("IO>ParquetReadableInfo") == kinds.count("Placeholder") == 1
        and set(kinds) <= _OF_PARQUET and inside <= {"IO>ParquetReadableRead", "Identity"}
    )  # fmt: skip


def _of_parquet(kind: str, before: Any, names: Any, spec: Any) -> Stage:
    """Without a list of columns tensorflow-io calls them by bytes, and so do the script's functions."""
    if any(one.shape.rank for one in spec.values()):
        return Stage(kind, before)
    texts = {name: os.fsdecode(name) for name in spec}

    def decoded(columns: Mapping[str, tf.Tensor]) -> Mapping[Any, tf.Tensor]:
        return OrderedDict((name, columns[text]) for name, text in texts.items())

    source = _of_names(names, "parquet", 0)
    if source is not None:
        source = replace(source, columns={texts[name]: one.dtype for name, one in spec.items()})
    return Stage(kind, before, decoded if source is not None else None, 0, source)


def _parsed(features: Any) -> Callable[..., Any] | None:
    """As `parse_example_dataset` does it to each batch; None: TensorFlow has changed what it was given."""
    if any(isinstance(one, tf.io.FixedLenSequenceFeature) for one in features.values()):
        return None
    return lambda records: tf.io.parse_example(records, features)


def _one_file(body: Any) -> tuple[str, int] | None:
    """(reader, records left out) of a function of a path; None: it does something else."""
    nodes = {node.name: node for node in body.node}
    kinds = [node.op for node in nodes.values()]
    if not set(kinds) <= _OF_ONE_FILE or len(body.library.function) != 1 or kinds.count("Placeholder") != 1:
        return None
    inside = {node.name: node for node in body.library.function[0].node_def}
    readers = [node for node in inside.values() if node.op in READERS]
    names = [node for node in nodes.values() if node.op == "TensorSliceDataset"]
    skips = [node for node in nodes.values() if node.op == "SkipDataset"]
    if not {node.op for node in inside.values()} <= _READ or len(readers) != 1 or len(names) != 1 or len(skips) > 1:
        return None
    if _behind(nodes, names[0].input[0]).op != "Placeholder" or _constant(_behind(inside, readers[0].input[1])):
        return None
    count = _behind(nodes, skips[0].input[1]) if skips else None
    if count is not None and count.op != "Const":
        return None
    return READERS[readers[0].op], int(_constant(count)) if count is not None else 0


def _behind(nodes: Any, tensor: str) -> Any:
    node = nodes[tensor.split(":")[0]]
    while node.op in ("Identity", "Reshape"):
        node = nodes[node.input[0].split(":")[0]]
    return node


def _constant(node: Any) -> Any:
    return tf.make_ndarray(node.attr["value"].tensor).item()


def _of_names(names: Any, reader: str, skip: int) -> Source | None:
    """Files that are listed in another order each time are sorted: all processes have to name the same. None: they do not, as
    where each takes a share of them."""
    if not isinstance(names, tf.data.Dataset) or names.element_spec != tf.TensorSpec([], tf.string):
        return None
    stage = names
    while stage is not None:
        if _kind(stage) not in _NAMES:
            return None
        stage = getattr(stage, "_input_dataset", None)
    found = [os.fsdecode(name) for name in islice(names.as_numpy_iterator(), FILES_OF_A_PIPELINE + 1)]
    if not found or len(found) > FILES_OF_A_PIPELINE or len(set(found)) < len(found):
        return None
    listed = _kind(names) != "TensorSliceDataset"
    return Source(sorted(found) if listed else found, reader, skip)


_SCRATCH = re.compile(r"(keras_graph|scratch_graph)(_\d+)?$")


class Watcher(Protocol):
    """Of one variable."""

    def looked_at(self) -> None:
        """It is about to be read, in eager mode or by the trace of a function."""

    def overwritten(self) -> None:
        """It is about to be written whole, in eager mode."""

    def changed(self) -> None:
        """It was written, in eager mode."""

    def not_overwritten(self) -> None:
        """It was not: the write has failed."""

    def takes(self, value: Any) -> bool:
        """Of what it is assigned in eager mode: whether it is its value from now on, and nobody else has to read it."""

    def rows(self) -> Any:
        """What gives its value a piece at a time (`pieces()`), to whoever asks for it in NumPy or to save it, in eager mode.
        None: it is read."""


def is_eager(variable: Any) -> bool:
    """Whether it is a variable that can be watched: no wrapper of one, and of no graph."""
    return isinstance(variable, resource_variable_ops.BaseResourceVariable) and hasattr(variable._handle, "numpy")


def watch(variable: Any, watcher: Watcher) -> None:
    """From now on, and nobody else."""
    known = watcher_of(variable) is not None
    variable._deeprec_ext_watcher = watcher
    if not known:
        kind: Any = type(variable)
        variable.__class__ = _watched(kind)


def watcher_of(variable: Any) -> Watcher | None:
    """None: nobody watches it."""
    return getattr(variable, "_deeprec_ext_watcher", None)


class _Nobody:
    def looked_at(self) -> None: ...
    def overwritten(self) -> None: ...
    def changed(self) -> None: ...
    def not_overwritten(self) -> None: ...
    def takes(self, value: Any) -> bool:
        return False

    def rows(self) -> None: ...


def forget_watcher(variable: Any) -> None:
    """Nobody watches it any more."""
    variable._deeprec_ext_watcher = _Nobody()


def variables_by(create: Callable[..., Any]) -> Callable[[], None]:
    """`create(make, **words)` makes every variable from now on, below all creators that scopes set: those are of a graph, and
    gone with it when Keras clears its session. Returns what undoes it."""
    places = (variables, "default_variable_creator_v2"), (variable_v1, "default_variable_creator")
    before = [(module, name, getattr(module, name)) for module, name in places]

    def around(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda next_creator=None, **words: create(lambda **more: original(None, **more), **words)

    def undo() -> None:
        for module, name, original in before:
            setattr(module, name, original)

    for module, name, original in before:
        setattr(module, name, around(original))
    return undo


def writer_of_checkpoints() -> tuple[Any, str]:
    """(module, function) by which TensorFlow 2 writes one: of its prefix, names, slices (`shape_and_slice`) and tensors."""
    return io_ops, "save_v2"


def eagerly() -> Any:
    """A context in which ops are run at once, whatever graph is built around it."""
    return context.eager_mode()


def without_storage(shape: tf.TensorShape, dtype: tf.DType, **words: Any) -> Any:
    """A variable that has a handle and no value."""
    words = {name: value for name, value in words.items() if value is not None}
    return resource_variable_ops.UninitializedVariable(shape=shape, dtype=dtype, **words)


def in_scratch_graph() -> bool:
    """Whether what is built now is never run: Keras calls its layers in such graphs to learn what shapes they give."""
    if tf.executing_eagerly():
        return False
    graph = tf.compat.v1.get_default_graph()
    return _SCRATCH.search(str(getattr(graph, "name", ""))) is not None


def has_handle(thing: Any) -> bool:
    """Whether it is a variable: Keras 2 lists the vocabulary of a text layer among the weights."""
    return hasattr(thing, "_handle")


def raw_handle(variable: Any) -> Any:
    """Asked for without telling."""
    return variable._handle


def raw_value(variable: Any) -> Any:
    """Its value in this process, as an array, whatever it is elsewhere."""
    with context.eager_mode():
        return tf.raw_ops.ReadVariableOp(resource=variable._handle, dtype=variable.dtype).numpy()


def set_raw(variable: Any, value: Any) -> None:
    """Its value in this process alone."""
    with context.eager_mode():
        tf.raw_ops.AssignVariableOp(resource=variable._handle, value=tf.convert_to_tensor(value, variable.dtype))


@lru_cache(maxsize=64)
def _watched(kind: Any) -> type:
    def handle(self: Any) -> Any:
        self._deeprec_ext_watcher.looked_at()
        return self._handle

    def device(self: Any) -> Any:  # optimizers put theirs beside it: no look at its value
        return self._handle.device

    def numpy(self: Any) -> Any:
        rows = self._deeprec_ext_watcher.rows() if tf.executing_eagerly() else None
        return kind.numpy(self) if rows is None else rows

    members: dict[str, Any] = {
        "handle": property(handle), "device": property(device), "numpy": numpy, "__module__": kind.__module__,
        "_serialize_to_tensors": _by_rows(kind._serialize_to_tensors),
    }  # fmt: skip
    for name in _OVERWRITES:
        members[name] = _telling(getattr(kind, name), before=True)
    for name in _CHANGES:
        members[name] = _telling(getattr(kind, name), before=False)
    return type(kind.__name__, (kind,), members)


def _by_rows(original: Callable[..., Any]) -> Callable[..., Any]:
    """Of what is written into a checkpoint."""

    def serialize(self: Any) -> Any:
        given = original(self)
        rows = self._deeprec_ext_watcher.rows() if tf.executing_eagerly() else None
        if rows is None:
            return given
        return {key: _given_by(rows, one) for key, one in given.items()}

    return serialize


def _given_by(rows: Any, spec: Any) -> Any:
    """What TensorFlow asks for the value that it writes; while it traces a function, for a tensor."""
    return type(spec)(lambda: rows if tf.executing_eagerly() else spec.tensor, dtype=spec.dtype, device=spec.device)


def _telling(original: Callable[..., Any], before: bool) -> Callable[..., Any]:
    def write(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not tf.executing_eagerly():
            return original(self, *args, **kwargs)
        if before and args and self._deeprec_ext_watcher.takes(args[0]):
            return self
        if before:
            self._deeprec_ext_watcher.overwritten()
        try:
            result = original(self, *args, **kwargs)
        except BaseException:
            if before:
                self._deeprec_ext_watcher.not_overwritten()
            raise
        self._deeprec_ext_watcher.changed()
        return result

    return write
