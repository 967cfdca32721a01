"""Graph passes (GraphDef -> GraphDef), the variable catalogue, and what else is read off a graph.

Everything here is pure: no session, no cluster, no state besides the list of passes. `rewrite` is called when a session
is prepared, in a background thread while training runs.
"""

from __future__ import annotations

from deeprec_ext.graph.batch import batch_size
from deeprec_ext.graph.catalogue import Saved, build_catalogue, declare, saved_names
from deeprec_ext.graph.checks import check
from deeprec_ext.graph.context import Context, Report, Rewritten
from deeprec_ext.graph.describing import describe
from deeprec_ext.graph.index import GraphIndex, op_name
from deeprec_ext.graph.lazy import make_lazy
from deeprec_ext.graph.learning_rates import follow_trainers
from deeprec_ext.graph.naming import name_devices
from deeprec_ext.graph.overwriting import ASSIGNMENTS, Model, Overwrite, model_of, overwriting
from deeprec_ext.graph.packing import Packed, Run, Told, is_of_packing, pack, told_by
from deeprec_ext.graph.partitioning import (
    Partitioning,
    Partitions,
    agree,
    divided_of,
    join,
    partition,
    tell_cuts,
    told_cuts,
)
from deeprec_ext.graph.passes import Pass, register_pass, registered_passes, rewrite, unregister_pass
from deeprec_ext.graph.rewriting import Rewriting
from deeprec_ext.graph.seeds import Seeded, seed_apart
from deeprec_ext.graph.sites import Site, sites
from deeprec_ext.graph.sources import Feed, feeds, pulls, readers, record_tensors
from deeprec_ext.graph.spreading import TurnBySize
from deeprec_ext.graph.trace import read_trace, role_by_view
from deeprec_ext.graph.training import Training, training, updates
from deeprec_ext.graph.writes import variables_on_ps

__all__ = [
    "ASSIGNMENTS",
    "Context",
    "Feed",
    "GraphIndex",
    "Model",
    "Overwrite",
    "Packed",
    "Partitioning",
    "Partitions",
    "Pass",
    "Report",
    "Rewriting",
    "Rewritten",
    "Run",
    "Saved",
    "Seeded",
    "Site",
    "Told",
    "Training",
    "TurnBySize",
    "agree",
    "batch_size",
    "build_catalogue",
    "check",
    "declare",
    "describe",
    "divided_of",
    "feeds",
    "follow_trainers",
    "is_of_packing",
    "join",
    "make_lazy",
    "model_of",
    "name_devices",
    "op_name",
    "overwriting",
    "pack",
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
    "seed_apart",
    "sites",
    "tell_cuts",
    "told_by",
    "told_cuts",
    "training",
    "unregister_pass",
    "updates",
    "variables_on_ps",
]
