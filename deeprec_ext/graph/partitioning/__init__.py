"""Partitioning: a variable too large for one PS becomes several ordinary ones, each with a range of its rows, on slots of
their own.

The pass comes before all others, on the user's graph, when it is exported: catalogue, placement, marks, dedup, migration and
backups see the parts and never the whole. What the user can name stays: a read or a look-up keeps its name and gives what it
gave, an update is there under its name and waits for the updates of the parts, a checkpoint has the whole under its one
name (as slices, like a variable that `tf.compat.v1` has partitioned), and is restored from one.

How a variable is cut depends on its share of all bytes and on the number of slots (`layout.py`): as far as the slots need it to
have alike. The chief says into how many parts it has cut what, so every role cuts alike. What the script has partitioned
itself is one again where together it would not be cut (`joining.py`); else it is left as it is, unless a part of it is larger
than any of ours. An
optimizer's slots have the shape of their variable, and lie on its slot, so part i of each is beside part i of the
others. A variable that some op uses as nobody here knows (a handle in the body of a function that does more than read it)
stays whole with all that are updated together with it, and the report names it.

Ids are sent to their parts (`routing.py`), gradients by rows with them; dense values are sliced. What is computed on the PS
from a whole variable, value by value, as Adam does, is computed part by part where the parts are (`values.py`).
"""

from __future__ import annotations

from deeprec_ext.graph.partitioning.joining import Joined, join
from deeprec_ext.graph.partitioning.layout import Partitioning, divided_of
from deeprec_ext.graph.partitioning.partition import Part, Partitions, agree, partition, tell_cuts, told_cuts

__all__ = [
    "Joined",
    "Part",
    "Partitioning",
    "Partitions",
    "agree",
    "divided_of",
    "join",
    "partition",
    "tell_cuts",
    "told_cuts",
]
