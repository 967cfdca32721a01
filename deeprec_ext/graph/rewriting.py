"""The working state that is handed from pass to pass."""

from __future__ import annotations

from functools import cached_property

from tensorflow.core.framework.graph_pb2 import GraphDef

from deeprec_ext.graph.context import Context
from deeprec_ext.graph.index import GraphIndex


class Rewriting:
    """A graph under change: the definition, its index, and what the session must know about the result.

    A pass that adds nodes or changes inputs does so through `index`, or the passes after it see an old graph.
    """

    def __init__(self, definition: GraphDef, context: Context) -> None:
        self.definition = definition
        self.context = context
        self.drops: list[str] = []
        self.initializers: list[str] = []
        self.marks: dict[str, list[str]] = {}

    @cached_property
    def index(self) -> GraphIndex:
        """Built when the first pass asks for it."""
        return GraphIndex(self.definition)
