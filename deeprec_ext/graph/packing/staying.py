"""What ties a run to the session in which it was: a packed run has one of its own, so such a run is not packed.

Variables, and what has a shared name, are the same in every session. A queue or a table without one is found by the session
that made it alone, and an iterator lives in the devices of the session that starts it, which must end last (`iterators.py`).
"""

from __future__ import annotations

from collections.abc import Collection

from deeprec_ext.graph.index import GraphIndex
from deeprec_ext.graph.resources import holds_state

_STARTS = frozenset({
    "MakeIterator", "MultiDeviceIteratorInit", "OneShotIterator", "AnonymousIterator", "AnonymousIteratorV2",
    "AnonymousIteratorV3",
})  # fmt: skip
_KEPT = frozenset({"GetSessionHandle", "GetSessionHandleV2", "GetSessionTensor", "DeleteSessionTensor"})
"""What they put aside is of one session."""


def tie(index: GraphIndex, names: Collection[str]) -> str:
    """The op that ties a run of these nodes to its session; empty: none does."""
    for name in names:
        node = index.nodes[name]
        if node.op in _STARTS or node.op in _KEPT:
            return node.op
        if holds_state(node.op) and not ("shared_name" in node.attr and node.attr["shared_name"].s):
            return node.op
    return ""
