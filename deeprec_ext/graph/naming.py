"""Devices by the names that the script gives them become devices of the session's cluster, before anything reads the graph.

`Names` says what is meant; here it is done once per graph, each distinct device string once. What the passes, the checks
and the catalogue then see is `/job:ps/task:<slot>` and this process, however the script calls them.
"""

from __future__ import annotations

from itertools import chain

from tensorflow.core.framework.graph_pb2 import GraphDef

from deeprec_ext.errors import RefusedError
from deeprec_ext.layout import Names


def name_devices(definition: GraphDef, names: Names) -> int:
    """Changes the definition in place, also inside library functions; how many nodes.

    Raises RefusedError, with the op, for a device of another trainer.
    """
    places: dict[str, str] = {"": ""}
    changed = 0
    for node in chain(definition.node, *(function.node_def for function in definition.library.function)):
        device = node.device
        place = places.get(device)
        if place is None:
            try:
                place = places[device] = names.device(device)
            except RefusedError as error:
                raise RefusedError(f"'{node.name}' ({node.op}): {error}") from None
        if place != device:
            node.device = place
            changed += 1
    return changed
