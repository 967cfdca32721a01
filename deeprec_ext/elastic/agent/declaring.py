"""What this process tells the AIMaster of the variables that its graphs have on the PS.

Twice: before the first run that can make them (the stream to the AIMaster keeps the order, so a change of PS that pauses this
process has heard of everything that it has made), and once more when it is known how steps update them. What the AIMaster has
of this generation, perhaps from another trainer of the same script, is not sent again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from deeprec_ext.proto import deeprec_ext_pb2 as pb

GRAPHS_MAX = 16
"""Catalogues that are kept for an AIMaster that has not got them, the latest ones."""


class Declaring:
    """Args:
    send: puts a message into the stream; the stream may break before it is read.
    generation: of the model, at present.
    """

    def __init__(self, send: Callable[[pb.AgentMessage], None], generation: Callable[[], int]) -> None:
        self._send, self._generation = send, generation
        self._mine: OrderedDict[str, pb.Catalogue] = OrderedDict()
        self._told: tuple[int, set[str]] = 0, set()  # generation, fingerprints
        self._lock = threading.Lock()
        self.catalogue = pb.Catalogue()
        """The last one that says how steps update the variables."""

    def declare(self, catalogue: pb.Catalogue) -> None:
        """Of a graph whose steps are not known yet."""
        with self._lock:
            self._tell(catalogue)

    def complete(self, catalogue: pb.Catalogue) -> bool:
        """Of a graph that has made steps; whether it is another one than before."""
        with self._lock:
            new = catalogue.fingerprint != self.catalogue.fingerprint
            self.catalogue = catalogue
            self._tell(catalogue)
            return new

    def trained(self) -> None:
        """A first step in another view, perhaps of a model that has begun anew."""
        with self._lock:
            if self.catalogue.fingerprint:
                self._tell(self.catalogue)

    def registered(self, reply: pb.RegisterReply) -> None:
        """What was on its way when a stream broke, or the AIMaster with it, may be lost."""
        with self._lock:
            self._told = reply.view.generation, set(reply.catalogues)
            if self._generation() == reply.view.generation:
                for catalogue in list(self._mine.values()):
                    self._tell(catalogue)

    def slot_bytes(self) -> dict[int, int]:
        """Bytes of the variables by slot, as far as they are known: of the graph that was declared last."""
        with self._lock:
            found: dict[int, int] = {}
            for catalogue in list(self._mine.values())[-1:]:
                for variable in catalogue.variables:
                    found[variable.slot] = found.get(variable.slot, 0) + variable.bytes
            return found

    def _tell(self, catalogue: pb.Catalogue) -> None:
        generation = self._generation()
        if self._told[0] != generation:
            self._told = generation, set()
        self._mine[catalogue.fingerprint] = catalogue
        self._mine.move_to_end(catalogue.fingerprint)
        if len(self._mine) > GRAPHS_MAX:
            self._mine.popitem(last=False)
        if catalogue.fingerprint not in self._told[1]:
            self._told[1].add(catalogue.fingerprint)
            self._send(pb.AgentMessage(catalogue=catalogue))
