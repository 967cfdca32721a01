"""Which of the private names this TensorFlow lacks: a release may rename them, and nobody says so. `doctor` asks.

What each is for stands where it is used. Estimator is looked at where there is one, and of Keras the names of its generation:
TensorFlow 2.16 and later come with whichever release of Keras 3 is the newest.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import io
import tempfile
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.eager import context

from deeprec_ext.tf_private import bare

v1 = tf.compat.v1

_DEFINED = {
    "tensorflow.python.client.session": "Session BaseSession._run BaseSession._do_run BaseSession._do_call "
    "BaseSession._extend_graph BaseSession._make_callable_from_options BaseSession._Callable",
    "tensorflow.python.client.pywrap_tf_session": "TF_GraphImportGraphDefWithResults "
    "TF_ImportGraphDefOptionsAddInputMapping TF_ImportGraphDefOptionsAddReturnOperation "
    "TF_ImportGraphDefOptionsAddReturnOutput TF_ImportGraphDefOptionsRemapControlDependency "
    "TF_ImportGraphDefOptionsSetValidateColocationConstraints TF_ImportGraphDefResultsReturnOperations "
    "TF_ImportGraphDefResultsReturnOutputs",
    "tensorflow.python.data.ops.iterator_ops": "OwnedIterator",
    "tensorflow.python.eager.polymorphic_function.concrete_function": "ConcreteFunction._call_flat",
    "tensorflow.python.framework.c_api_util": "ScopedTFImportGraphDefOptions ScopedTFImportGraphDefResults tf_buffer",
    "tensorflow.python.framework.convert_to_constants": "_run_inline_graph_optimization",
    "tensorflow.python.framework.op_def_registry": "get",
    "tensorflow.python.framework.ops": "get_stats_for_node_def",
    "tensorflow.python.grappler.cluster": "Cluster",
    "tensorflow.python.grappler.tf_optimizer": "OptimizeGraph",
    "tensorflow.python.profiler.internal": "flops_registry",
    "tensorflow.python.lib.io._pywrap_record_io": "RandomRecordReader",
    "tensorflow.python.ops.resource_variable_ops": "ResourceVariable.assign_add ResourceVariable.assign_sub "
    "BaseResourceVariable._restore_from_tensors BaseResourceVariable._serialize_to_tensors UninitializedVariable",
    "tensorflow.python.ops.io_ops": "save_v2",
    "tensorflow.python.ops.variable_v1": "default_variable_creator",
    "tensorflow.python.ops.variables": "default_variable_creator_v2",
    "tensorflow.python.training.device_setter": "_RoundRobinStrategy replica_device_setter",
    "tensorflow.python.training.monitored_session": "MonitoredTrainingSession _MonitoredSession",
    "tensorflow.python.training.server_lib": "Server _make_server_def",
    "tensorflow.python.training.session_manager": "session SessionManager._restore_checkpoint "
    "SessionManager._try_run_local_init_op SessionManager.prepare_session SessionManager.recover_session "
    "SessionManager.wait_for_session",
    "tensorflow.python.training.supervisor": "Supervisor.prepare_or_wait_for_session",
    "tensorflow.python.training.training_util": "_get_or_create_global_step_read get_or_create_global_step",
    "tensorflow_estimator.python.estimator.estimator": "maybe_overwrite_model_dir_and_session_config",
    "tensorflow_estimator.python.estimator.training": "_DELAY_SECS_PER_WORKER _MAX_DELAY_SECS "
    "_TrainingExecutor._Evaluator _TrainingExecutor._start_distributed_training _TrainingExecutor._start_std_server",
}
"""Module → what it defines."""

_KERAS = {
    2: {
        "keras.src.engine.training": "Model.fit", "keras.src.optimizers.optimizer": "_BaseOptimizer.apply_gradients",
        "keras.src.optimizers.legacy.optimizer_v2": "OptimizerV2.apply_gradients",
        "keras.src.saving.saving_lib": "H5IOStore.get H5IOStore.close",
    },
    3: {
        "keras.src.models.model": "Model.fit Model.make_train_function Model.make_test_function "
        "Model.make_predict_function Model._flatten_layers",
        "keras.src.optimizers.base_optimizer": "BaseOptimizer.apply",
        "keras.src.backend": "Variable.assign Variable._deferred_initialize convert_to_numpy",
        "keras.src.saving.saving_lib": "H5IOStore.get H5IOStore.close",
    },
}  # fmt: skip


def _made() -> Iterator[tuple[str, Callable[[], Any], str]]:
    """(name, how one is made, what it has) of objects whose attributes their classes do not tell."""
    yield "Graph", tf.Graph, "_c_graph _add_new_tf_operations"
    yield "Session", v1.Session, "_closed _session _target"
    yield "Session._Callable", _callable, "_handle"
    yield "Variable", lambda: v1.get_variable("one", []), "_get_save_slice_info"
    yield (
        "SessionManager", v1.train.SessionManager,
        "_graph _local_init_op _ready_for_local_init_op _ready_op _recovery_wait_secs",
    )  # fmt: skip
    yield "ChiefSessionCreator", v1.train.ChiefSessionCreator, "_checkpoint_dir _master"
    yield "StopAtStepHook", lambda: v1.train.StopAtStepHook(num_steps=1), "_last_step _num_steps"
    yield (
        "CheckpointSaverHook", lambda: v1.train.CheckpointSaverHook(tempfile.gettempdir(), save_steps=1),
        "_listeners _save _save_path",
    )  # fmt: skip
    yield "tf.function", _attributes, "_XlaMustCompile _lower_using_switch_merge _noinline"
    yield "OwnedIterator", _iterator, "_dataset _flat_output_shapes _flat_output_types _iterator_resource"
    yield "Operation", v1.no_op, "_update_input"
    yield "Dataset", lambda: tf.data.Dataset.range(1), "_functions _inputs"
    yield "Dataset.from_tensors", lambda: tf.data.Dataset.from_tensors(1, name="one"), "_inputs _name"
    # `_filename` is tensorflow-io's, which is not imported for this: a dataset without it is not followed.
    yield "Dataset.map", lambda: tf.data.Dataset.range(1).map(abs), "_input_dataset _map_func"
    yield "Dataset.map._map_func", lambda: tf.data.Dataset.range(1).map(abs)._map_func, "_func"
    yield "Dataset.batch", lambda: tf.data.Dataset.range(1).batch(1), "_batch_size _input_dataset"
    yield "Dataset.from_tensor_slices", lambda: tf.data.Dataset.from_tensor_slices([1]), "_tensors"
    yield "Dataset.range", lambda: tf.data.Dataset.range(1), "_start _stop _step"
    yield "Dataset.shuffle", lambda: tf.data.Dataset.range(1).shuffle(1), "_seed _seed2 _buffer_size _input_dataset"
    yield "Dataset.take", lambda: tf.data.Dataset.range(1).take(1), "_count"
    yield "Dataset.zip", lambda: tf.data.Dataset.zip((tf.data.Dataset.range(1), tf.data.Dataset.range(1))), "_datasets"
    yield "Dataset.skip", lambda: tf.data.Dataset.range(1).skip(1), "_count"
    yield "TextLineDataset", lambda: tf.data.TextLineDataset("a"), "_compression_type _filenames"
    yield "TFRecordDataset", lambda: tf.data.TFRecordDataset("a"), "_compression_type _filenames"
    yield (
        "CsvDataset", lambda: tf.data.experimental.CsvDataset("a", [0.0]),
        "_compression_type _exclude_cols _field_delim _filenames _header _na_value _record_defaults _select_cols "
        "_use_quote_delim",
    )  # fmt: skip
    yield (
        "parse_example_dataset",
        lambda: tf.data.Dataset.from_tensors(["a"]).apply(
            tf.data.experimental.parse_example_dataset({"a": tf.io.FixedLenFeature([], tf.float32)})
        ),
        "_features",
    )
    if _generation_of_keras() == 2:
        yield (
            "Model", _model, "_jit_compile _predict_counter _steps_per_execution _test_counter _train_counter",
        )  # fmt: skip
        yield "AutoCastVariable", lambda: _model().weights[0], "_variable"
    elif _generation_of_keras() == 3:
        late = (
            " _initialize_with_initializer" if _version_of_keras() >= (3, 5) else ""
        )  # `keras_classes.fill_late` without
        yield "Variable of Keras", _variable, "_initializer _shape _value" + late
        yield "Optimizer of Keras", _optimizer, "_trainable_variables"
        store = importlib.import_module("keras.src.saving.saving_lib").H5IOStore
        if "__getitem__" in vars(store):  # older ones give what h5py does
            yield "H5IOStore", lambda: store(io.BytesIO(), mode="w"), "_h5_entry_group"


def _callable() -> Any:
    options = config_pb2.CallableOptions(target=[v1.no_op().name])
    return v1.Session()._make_callable_from_options(options)


def _attributes() -> Any:
    """Of a function that asks for XLA, and of a condition, as a graph has them."""
    compiled = tf.function(lambda number: number + 1.0, jit_compile=True)
    with context.eager_mode():
        chosen = tf.function(lambda number: tf.cond(number > 0.0, lambda: compiled(number), lambda: number))
        definition = chosen.get_concrete_function(tf.TensorSpec([])).graph.as_graph_def()
    functions = definition.library.function
    nodes = [*definition.node, *(node for function in functions for node in function.node_def)]
    return SimpleNamespace(**{name: True for one in (*nodes, *functions) for name in one.attr})


def _iterator() -> Any:
    with context.eager_mode():
        return iter(tf.data.Dataset.range(1))


def _variable() -> Any:
    with context.eager_mode():
        return importlib.import_module("keras").Variable(0.0)


def _optimizer() -> Any:
    with context.eager_mode():
        return importlib.import_module("keras").optimizers.SGD()


def _model() -> Any:
    with context.eager_mode():  # in a graph it would be one of TensorFlow 1
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,), dtype="mixed_bfloat16")])
        model.compile(loss="mse")
    return model


def missing() -> list[str]:
    """Their names, those of modules where a whole one is missing; empty: all are there."""
    expected = {**_DEFINED, **_KERAS.get(_generation_of_keras(), {})}
    found = [name for module, names in expected.items() for name in _lacking(module, names.split())]
    found += [f"tensorflow.{name}" for name in bare.unknown()]
    for kind, make, names in _made():
        with tf.Graph().as_default():
            one = make()
        found += [f"{kind}.{name}" for name in names.split() if not hasattr(one, name)]
    return found


def _generation_of_keras() -> int:
    """Its major version; 0: there is none."""
    return _version_of_keras()[0]


def _version_of_keras() -> tuple[int, int]:
    """Major and minor; zeros: there is none."""
    try:
        major, minor = importlib.metadata.version("keras").split(".")[:2]
    except importlib.metadata.PackageNotFoundError:
        return 0, 0
    return int(major), int(minor)


def _lacking(module: str, names: list[str]) -> Iterator[str]:
    top = module.partition(".")[0]
    if importlib.util.find_spec(top) is None:
        return
    try:
        home = importlib.import_module(module)
    except ImportError:
        yield module
        return
    for name in names:
        value: Any = home
        for part in name.split("."):
            value = getattr(value, part, None)
        if value is None:
            yield f"{module}.{name}"
