"""A job around a `fit` in this process: its ledger, and what the AIMaster knows of the ends of epochs."""

from __future__ import annotations

from types import SimpleNamespace

from deeprec_ext.aimaster.ledger.ends import Ends
from deeprec_ext.proto import deeprec_ext_pb2 as pb


class Ended:
    """Answers for the AIMaster. Other processes of the job are played by the test: by dataset, epoch, what they have seen."""

    def __init__(self, host):
        self.host, self.chief = host, True
        self.of: dict[str, Ends] = {}
        self.others: dict[tuple[str, int], bytes] = {}
        self.asked: list[pb.EpochRequest] = []

    def __call__(self, request):
        self.asked.append(pb.EpochRequest.FromString(request.SerializeToString()))
        ends = self.of.setdefault(request.dataset, Ends())
        ends.begun = ends.begun or not self.chief  # else it would wait for the chief, which nobody plays
        source = self.host.inputs.find(request.dataset)
        ends.reached = max(ends.reached, source.complete if source is not None else request.epoch + 1)
        other = self.others.get((request.dataset, request.epoch))
        if other is not None:
            said = pb.EpochRequest(dataset=request.dataset, epoch=request.epoch, seen=other)
            ends.answer("other", said, False, ["me", "other"], 0.0)
        return ends.answer("me", request, self.chief, ["me"], 0.0)


def trainer(host, reported, chief=True):
    """What the door and `fit` want of the process's trainer."""
    ended = Ended(host)
    ended.chief = chief
    host.notices = []
    host.inputs.end_of_epoch = ended
    return SimpleNamespace(
        chief=chief, refused=host.refusals.append, clock=SimpleNamespace(global_step=0), leaving=host.leaving,
        report_metrics=lambda metrics, step: reported.append(metrics), inputs=host.inputs, runs_repeated=0, generation=0,
        ended=ended, asked_to_train=False, notice=lambda *words, **how: host.notices.append(words),
        wait_live=lambda seconds: True,
    )  # fmt: skip
