"""What the chief has declared of its model before the first view, and what was estimated from it: in the store, for
whoever reads the job when it has ended."""

from __future__ import annotations

import dataclasses
import logging

from google.protobuf.message import DecodeError

from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.autoscaler.history.estimates import Estimates
from deeprec_ext.decoding import built
from deeprec_ext.proto import bounds
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger(__name__)

BLOB, HEARD, ESTIMATED = "declaration", "declared", "estimated"


class Declared:
    """`model`: None where the chief has declared none (yet: `heard`)."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.heard = bool(store.get(HEARD, False))
        self.why_not = ""  # why the chief has none
        self.model = declaration_in(store)

    def hear(self, model: pb.Declaration | None, why_not: str = "") -> None:
        with self._store.transaction():
            self._store.put(**{HEARD: True})
            if model is not None:
                self._store.put_blob(BLOB, model.SerializeToString())
        self.heard, self.model, self.why_not = True, model, why_not

    def foretell(self, estimates: Estimates) -> None:
        with self._store.transaction():
            self._store.put(**{ESTIMATED: dataclasses.asdict(estimates)})


def estimates_in(store: Store) -> Estimates | None:
    """None: there are none, or they cannot be read."""
    if (values := store.get(ESTIMATED)) is None:
        return None
    try:
        return built(Estimates, values, "estimates", newer=True)
    except (TypeError, ValueError) as error:
        log.warning("what was estimated of the job cannot be read: %s", error)
        return None


def declaration_in(store: Store) -> pb.Declaration | None:
    """As an AIMaster has kept it; None: there is none, or it cannot be read."""
    try:
        found = pb.Declaration.FromString(store.blob(BLOB))
    except DecodeError as error:
        log.warning("what was declared of the model cannot be read: %s", error)
        return None
    return found if found.ByteSize() and bounds.check(found, "declaration.") is None else None
