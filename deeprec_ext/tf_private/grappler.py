"""TensorFlow's graph optimiser by itself, outside of a session: what a session does with a run before it partitions it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.protobuf import config_pb2, device_properties_pb2, meta_graph_pb2
from tensorflow.python.grappler import cluster as grappler_cluster
from tensorflow.python.grappler import tf_optimizer

v1 = tf.compat.v1


def question(definition: GraphDef, feeds: Mapping[str, int], wanted: Iterable[str]) -> Any:
    """What `optimise` is asked.

    Args:
      definition: of a graph whose ops have full device names.
      feeds: tensor → its type (DataType).
      wanted: tensors and operations; they keep their names.
    """
    meta = meta_graph_pb2.MetaGraphDef(graph_def=definition)
    signature = meta.signature_def["run"]
    for number, (tensor, kind) in enumerate(feeds.items()):
        fed = signature.inputs[str(number)]
        fed.name, fed.dtype = tensor, kind
        fed.tensor_shape.unknown_rank = True
    for number, name in enumerate(wanted):
        signature.outputs[str(number)].name = name
    return meta


def optimise(meta: Any, devices: Iterable[str], options: config_pb2.GraphOptions) -> GraphDef:
    """What is wanted of a graph, as TensorFlow's optimiser would have it run. Takes seconds, without the interpreter's lock.

    Args:
      meta: see `question`.
      devices: full names of all, which are taken for processors.
      options: what the session's ConfigProto says of graphs.

    Raises tf.errors.OpError, or what the bindings raise, where the optimiser does not take the graph.
    """
    config = config_pb2.ConfigProto(graph_options=options)
    config.graph_options.rewrite_options.min_graph_nodes = -1
    cluster = grappler_cluster.Cluster(devices=[_processor(name) for name in devices])
    try:
        return tf_optimizer.OptimizeGraph(config, meta, verbose=False, cluster=cluster)
    finally:
        cluster.Shutdown()


@functools.cache
def only_processors() -> bool:
    """Whether this process has no other devices: then where an op runs in a process needs no session to be known."""
    return {device.device_type for device in tf.config.list_physical_devices()} <= {"CPU", "XLA_CPU"}


def _processor(name: str) -> device_properties_pb2.NamedDevice:
    device = device_properties_pb2.NamedDevice(name=name)
    device.properties.type = "CPU"
    device.properties.num_cores = 1
    device.properties.frequency = 1000
    return device
