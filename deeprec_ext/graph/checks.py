"""What cannot be made elastic is refused by name: on a PS, only variables can be moved to another PS."""

from __future__ import annotations

import re
from functools import lru_cache

from tensorflow.core.framework.graph_pb2 import GraphDef

from deeprec_ext import errors
from deeprec_ext.graph.index import GraphIndex, on_ps

_ON_WORKER = "place it on the worker (with tf.device('/job:worker') or outside the replica device setter)"

# (op pattern, what it is called, what to do instead); the first that matches.
_REFUSED = (
    (
        r"(Sparse|Resource)?ConditionalAccumulator$|ResourceAccumulator\w*$",
        "an accumulator, as SyncReplicasOptimizer makes it",
        "train asynchronously: pass the inner optimizer itself instead of SyncReplicasOptimizer",
    ),
    (r"(FIFO|RandomShuffle|PaddingFIFO|Priority)Queue(V2)?$", "a queue", "use tf.data for the input, or " + _ON_WORKER),
    (r"Barrier$", "a barrier", _ON_WORKER),
    (r"Stack(V2)?$", "a stack", _ON_WORKER),
    (
        r"Mutable(Dense)?HashTable(OfTensors)?(V2)?$",
        "a mutable hash table",
        _ON_WORKER + ", or hash the keys into the rows of a variable",
    ),
    (r"(Anonymous)?(Mutable)?HashTable(V2)?$", "a lookup table", _ON_WORKER),
    (
        r"BoostedTrees\w*ResourceHandleOp$",
        "a boosted-trees ensemble",
        "boosted trees cannot be trained elastically; use stock TensorFlow",
    ),
    (r"(Iterator(V2)?|OneShotIterator)$", "a dataset iterator", _ON_WORKER),
)
_COMPILED = tuple((re.compile(pattern), what, remedy) for pattern, what, remedy in _REFUSED)
_TOKENS = re.compile(r"sync_token_q|sync_replicas")


@lru_cache(maxsize=4096)
def _verdict(op: str) -> tuple[str, str] | None:
    for pattern, what, remedy in _COMPILED:
        if pattern.match(op):
            return what, remedy
    return None


def check(graph_def: GraphDef | GraphIndex) -> None:
    """Raises RefusedError with the op, its place and the remedy if a PS slot would hold state other than variables."""
    nodes = graph_def.nodes.values() if isinstance(graph_def, GraphIndex) else graph_def.node
    refused = [node for node in nodes if _verdict(node.op) and on_ps(node.device)]
    if not refused:
        return
    # SyncReplicasOptimizer makes queues as well: name the cause, not the first symptom.
    worst = min(refused, key=lambda node: "ConditionalAccumulator" not in node.op)
    what, remedy = _verdict(worst.op) or ("", "")
    if _TOKENS.search(worst.name) or _TOKENS.search(worst.attr["shared_name"].s.decode()):
        kind = "the token queue" if "Queue" in worst.op else "an accumulator"
        what, remedy = f"{kind} of SyncReplicasOptimizer", _REFUSED[0][2]
    raise errors.RefusedError(
        f"'{worst.name}' ({worst.op}) on {worst.device} is {what}; "
        f"its state cannot move when parameter servers change: {remedy}"
    )
