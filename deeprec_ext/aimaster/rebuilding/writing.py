"""A store made of the rebuilt state: all of it in one transaction, so an AIMaster that dies meanwhile begins anew."""

from __future__ import annotations

from deeprec_ext.aimaster.ledger import ledger, replica, tables
from deeprec_ext.aimaster.pods.recovery import REBUILT_KEY
from deeprec_ext.aimaster.rebuilding.state import RebuiltState
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.proto import deeprec_ext_pb2 as pb


def write(store: Store, found: RebuiltState, wall: float) -> None:
    cluster, kept = found.cluster, found.kept
    with store.transaction(durable=True):
        store.put(**kept.meta)
        store.put(
            aimaster_incarnation=found.aimaster, cluster=cluster.to_json(), step=found.step, marks=found.marks,
            scalings=max((scaling.id for scaling in found.scalings), default=int(kept.meta.get("scalings", 0))),
            **{REBUILT_KEY: {"told": found.told, "missing": found.missing}, tables.LEASE_KEY: found.last_lease},
        )  # fmt: skip
        view = pb.View(workers=found.workers)
        view.MergeFrom(cluster.to_proto())
        store.save_view(cluster.epoch, wall, view.SerializeToString())
        store.put_blob("catalogue", found.catalogue.SerializeToString())
        store.put_blob("backup_wish", kept.wish)
        store.put_blob(replica.RECALLED_KEY, replica.pack(found.datasets))
        store.put_blob(ledger.UNUSED_KEY, found.unused_positions)
        for record in found.roles:
            store.save_role(record)
        for incarnation, name in found.fenced.items():
            store.fence(incarnation, name)
        for scaling in found.scalings:
            moved = found.moved.get(scaling.id)
            store.save_scaling(scaling, None if moved is None else moved.SerializeToString())
        for failure in kept.failures:
            store.insert_failure(failure)
        store.save_totals(kept.examples.items())
