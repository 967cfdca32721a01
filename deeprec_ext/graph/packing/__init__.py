"""Packing: what crosses from one process to another, and is ready together, crosses as one message.

Each tensor between two processes is a request of its own, at a tenth of a millisecond of a core on both sides, and a step of a
model with 26 tables has some two hundred: ids go to a PS table by table, rows come back, gradients and their ids go there. Here
they are put together where they are made and taken apart where they are used. The values are copied, never computed with, so
every result is bitwise what it was.

A message leaves when the last of its tensors is there. So tensors travel together only if they have waited for the same
messages and for the same input anyhow (`readiness`), and no tensor waits for the network for longer than before.

Unlike the other passes this one is about a *run*: whoever fetches one look-up alone must not be made to do all. So it is
applied when a run that trains is compiled, to a copy of what that run reaches, which gets a session of its own
(`PlacedSession`); other runs have the graph as it was. It comes after the placement, of each view anew, and the user's graph
knows nothing of it.
"""

from __future__ import annotations

from deeprec_ext.graph.packing.messages import is_of_packing
from deeprec_ext.graph.packing.pack import LEAST_SAVED, NAME, Packed, pack
from deeprec_ext.graph.packing.reaching import Run
from deeprec_ext.graph.packing.shapes import Told, told_by

__all__ = ["LEAST_SAVED", "NAME", "Packed", "Run", "Told", "is_of_packing", "pack", "told_by"]
