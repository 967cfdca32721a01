"""From a plan to batches: in a job through the AIMaster's ledger, elsewhere through a local one with the same order."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator
from typing import Any

from deeprec_ext import env
from deeprec_ext.data.feeder import Feeder
from deeprec_ext.data.local import LocalLedger
from deeprec_ext.data.plan import Plan
from deeprec_ext.data.readers.base import Columns
from deeprec_ext.data.shards import ShardFeeder
from deeprec_ext.errors import UsageError
from deeprec_ext.options import Settings
from deeprec_ext.proto import deeprec_ext_pb2 as pb

_passes = itertools.count(1)
_making = threading.Lock()


class LocalLink:
    """To a ledger in this process, which answers at once."""

    def __init__(self, ledger: LocalLedger, feeder: Feeder) -> None:
        self._ledger, self._feeder = ledger, feeder

    def send(self, request: pb.DataRequest) -> None:
        self._feeder.receive(self._ledger.answer(request))


def trainer() -> Any:
    """The trainer of this process, or the member of a job without PS; None outside a job.

    Raises UsageError where the member has not joined: it would read everything by itself."""
    if env.sums() and env.is_elastic_process():
        from deeprec_ext.elastic.member import joined

        if (member := joined.member()) is None:
            raise UsageError(
                "with --strategy allreduce, call deeprec_ext.allreduce.join(state) before records are read"
            )
        return member
    if "deeprec_ext.elastic.trainer.process" not in sys.modules and not env.is_elastic_process():
        return None
    from deeprec_ext.elastic.trainer import process

    return process.trainer()


def prepare(plan: Plan) -> None:
    """Registers a training dataset of a job, so that sessions find it. Raises UsageError when its name is taken."""
    home = trainer()
    if home is not None and plan.declaration.purpose == "train":
        shared(plan, home.inputs)


def batches(plan: Plan) -> Iterator[Columns]:
    """The batches of one pass. In a job, all passes over a training dataset are one: what was trained does not come again."""
    home = trainer()
    if home is None:
        feeder = alone(plan)
    elif plan.declaration.purpose == "train":
        yield from (home.inputs.instead.get(plan.declaration.name) or shared(plan, home.inputs)).batches()
        return
    else:
        declaration = pb.Dataset()
        declaration.CopyFrom(plan.declaration)
        identity = home.identity
        declaration.name += f"@{identity.name}-{identity.public[:6]}-{next(_passes)}"
        feeder = _feeder(plan, declaration)
        feeder.connect(home.inputs)
        home.inputs.add(feeder)
    try:
        yield from feeder.batches()
    finally:
        if home is not None:
            feeder.finish()
            home.inputs.remove(feeder)
        feeder.close()


def _feeder(plan: Plan, declaration: pb.Dataset) -> Feeder:
    home = trainer()
    ahead = 2.0
    if declaration.purpose == "train":
        ahead = home.inputs.lease_ahead_seconds if home is not None else Settings.lease_ahead_seconds
    bad_records = home.inputs.bad_records if home is not None else Settings.bad_records
    if plan.with_ids:
        from deeprec_ext.data.ids import IdFeeder  # knows names that are written into graphs

        return IdFeeder(declaration, plan.reader, plan.batch_size, ahead, bad_records)
    kind = ShardFeeder if plan.whole_shards else Feeder
    return kind(
        declaration, plan.reader, plan.batch_size, ahead, bad_records, drop_remainder=plan.drop_remainder
    )  # fmt: skip


def alone(plan: Plan) -> Feeder:
    """A feeder with a ledger of its own, in this process. Whoever asks for it closes it."""
    feeder = _feeder(plan, plan.declaration)
    feeder.registered(1)
    feeder.connect(LocalLink(LocalLedger(plan.declaration), feeder))
    return feeder


def shared(plan: Plan, inputs: Any) -> Feeder:
    """The one feeder of this training dataset in this process."""
    with _making:
        found = inputs.find(plan.declaration.name)
        if found is None:
            found = _feeder(plan, plan.declaration)
            found.connect(inputs)
            inputs.add(found)
        elif (found.declaration, found.batch_size, found.drop_remainder) != (
            plan.declaration, plan.batch_size, plan.drop_remainder
        ):  # fmt: skip
            raise UsageError(
                f"two elastic datasets of this process are called {plan.declaration.name!r} and differ: give each a name="
            )
        return found
