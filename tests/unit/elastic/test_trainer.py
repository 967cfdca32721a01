"""What a trainer makes of the AIMaster's commands; without a job."""

from __future__ import annotations

import pytest

pytest.importorskip("tensorflow")

from deeprec_ext.elastic.agent import Identity
from deeprec_ext.elastic.trainer import Trainer
from deeprec_ext.elastic.view import ClusterView
from deeprec_ext.proto import deeprec_ext_pb2 as pb


def view(epoch: int, *tasks: int) -> pb.View:
    ps = [pb.PsMember(task=task, name=f"ps-{task}", address=f"127.0.0.1:{4000 + task}") for task in sorted(set(tasks))]
    return pb.View(epoch=epoch, ps=ps, slot_map=tasks, live=True)


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    monkeypatch.setenv("DEEPREC_EXT_ROLE", "chief")
    monkeypatch.setenv("DEEPREC_EXT_NAME", "chief-0")
    made = Trainer(Identity.of_this_process("127.0.0.1:1"), ("chief", 0), "grpc://127.0.0.1:1")
    made._set_view(ClusterView.from_proto(view(1, 0, 0)))
    return made


def tell(trainer: Trainer, **command: object) -> None:
    trainer.receive(pb.MasterMessage(command=pb.Command(id=1, **command)))


def test_what_is_prepared_for_a_change_that_is_rolled_back_is_called_off(trainer: Trainer) -> None:
    there, coming = (trainer._wanted_for(ClusterView.from_proto(one), {}) for one in (view(1, 0, 0), view(2, 0, 5)))
    tell(trainer, prepare=pb.Prepare(view=view(2, 0, 5)))
    assert not trainer.called_off(coming)
    tell(trainer, resume=pb.Resume())
    assert trainer.called_off(coming) and not trainer.called_off(there)
    tell(trainer, resume=pb.Resume())  # of another one, that never came to prepare anything
    assert trainer.called_off(coming)
    tell(trainer, prepare=pb.Prepare(view=view(3, 0, 5)))  # the same PS once more
    assert not trainer.called_off(coming)
    trainer._set_view(ClusterView.from_proto(view(3, 0, 5)))
    tell(trainer, resume=pb.Resume())
    assert not trainer.called_off(coming), "it has come: marks are prepared for it"
