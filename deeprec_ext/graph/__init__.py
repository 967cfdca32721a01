"""Graph passes (GraphDef -> GraphDef), the variable catalogue, and what else is read off a graph.

Everything here is pure: no session, no cluster, no state besides the list of passes. `rewrite` is called when a session
is prepared, in a background thread while training runs.
"""

from __future__ import annotations

from collections.abc import Collection

from tensorflow.core.framework.graph_pb2 import GraphDef

from deeprec_ext.graph.batch import batch_size
from deeprec_ext.graph.catalogue import Saved, build_catalogue, declare, saved_names
from deeprec_ext.graph.checks import check
from deeprec_ext.graph.context import Context, Report, Rewritten
from deeprec_ext.graph.index import GraphIndex, on_ps
from deeprec_ext.graph.naming import name_devices
from deeprec_ext.graph.overwriting import ASSIGNMENTS, Model, Overwrite, model_of, overwriting
from deeprec_ext.graph.partitioning import Partitioning, Partitions, divided_of, partition
from deeprec_ext.graph.passes import Pass, register_pass, registered_passes, rewrite, unregister_pass
from deeprec_ext.graph.rewriting import Rewriting
from deeprec_ext.graph.sites import Site, sites
from deeprec_ext.graph.sources import Feed, feeds, pulls, readers, record_tensors
from deeprec_ext.graph.trace import read_trace, role_by_view
from deeprec_ext.graph.training import Training, training
from deeprec_ext.graph.writes import variables_on_ps


def touches_ps(graph_def: GraphDef | GraphIndex, names: Collection[str]) -> bool:
    """Whether running these ops or fetching these tensors needs a parameter server."""
    index = graph_def if isinstance(graph_def, GraphIndex) else GraphIndex(graph_def)
    return any(on_ps(index.nodes[name].device) for name in index.upstream(names))


__all__ = [
    "ASSIGNMENTS",
    "Context",
    "Feed",
    "GraphIndex",
    "Model",
    "Overwrite",
    "Partitioning",
    "Partitions",
    "Pass",
    "Report",
    "Rewriting",
    "Rewritten",
    "Saved",
    "Site",
    "Training",
    "batch_size",
    "build_catalogue",
    "check",
    "declare",
    "divided_of",
    "feeds",
    "model_of",
    "name_devices",
    "overwriting",
    "partition",
    "pulls",
    "read_trace",
    "readers",
    "record_tensors",
    "register_pass",
    "registered_passes",
    "rewrite",
    "role_by_view",
    "saved_names",
    "sites",
    "touches_ps",
    "training",
    "unregister_pass",
    "variables_on_ps",
]
