"""Named resources: a queue, a lookup table or a reader of the trainer that outlives the session in which it was made.

Without a shared name they belong to one session (only reference variables go by the name of their node): after the next
change of the cluster view steps would wait at an empty queue for ever, and ask a table that nobody has filled. With one, the
next session, and the one that traces steps, find them as they are.
"""

from __future__ import annotations

from functools import lru_cache

from tensorflow.core.framework import types_pb2

from deeprec_ext.graph.attributes import text
from deeprec_ext.graph.context import Context
from deeprec_ext.graph.index import on_ps
from deeprec_ext.graph.rewriting import Rewriting
from deeprec_ext.graph.writes import RESOURCE_VARIABLES
from deeprec_ext.tf_private.operations import op_def


class NamedResources:
    """Pass after the iterators, which have their names by then. What a script has named keeps its name.

    Nothing destroys them with the session: a runner that is still about would fail with NotFoundError, where it expects to be
    cancelled. They end with the process.
    """

    name = "resources"

    def applies(self, context: Context) -> bool:
        return context.slot_map is not None

    def apply(self, rewriting: Rewriting) -> tuple[int, str]:
        named: dict[str, int] = {}
        for node in rewriting.definition.node:
            if holds_state(node.op) and not node.attr["shared_name"].s and not on_ps(node.device):
                node.attr["shared_name"].CopyFrom(text(rewriting.context.resource_scope + node.name))
                named[node.op] = named.get(node.op, 0) + 1
        return sum(named.values()), ", ".join(f"{count} {op}" for op, count in sorted(named.items())) or "none"


@lru_cache(maxsize=4096)
def holds_state(op: str) -> bool:
    """Whether it gives the handle of a resource that is looked up by its shared name, and is no variable."""
    definition = op_def(op)
    if definition is None or op in RESOURCE_VARIABLES or len(definition.output_arg) != 1:
        return False
    output = definition.output_arg[0]
    handle = output.type == types_pb2.DT_RESOURCE or (output.type == types_pb2.DT_STRING and output.is_ref)
    return handle and any(attribute.name == "shared_name" for attribute in definition.attr)
