"""What a trainer makes of the AIMaster's commands; without a job."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("tensorflow")

from deeprec_ext.elastic.agent.agent import Identity
from deeprec_ext.elastic.runtime.view import ClusterView
from deeprec_ext.elastic.trainer.trainer import Trainer
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


def test_a_ps_that_is_neither_there_nor_coming_is_gone(trainer: Trainer) -> None:
    """Who opens a session on it may wait for ever: on a new one of a scaling that was rolled back, on one that was drained."""

    def gone(*tasks: int) -> bool:
        return trainer.dead(trainer._cluster.wanted_for(ClusterView.from_proto(view(9, *tasks)), {}))

    assert not gone(0, 0) and gone(0, 5)
    tell(trainer, prepare=pb.Prepare(view=view(2, 0, 5)))
    assert not gone(0, 5) and not gone(0, 0)
    tell(trainer, resume=pb.Resume())
    assert gone(0, 5) and not gone(0, 0)
    tell(trainer, prepare=pb.Prepare(view=view(3, 0, 5)))  # the same PS once more
    trainer._set_view(ClusterView.from_proto(view(3, 0, 5)))
    tell(trainer, resume=pb.Resume())  # of a change that never came to prepare anything
    assert not gone(0, 5)
    tell(trainer, prepare=pb.Prepare(view=view(4, 5, 5)))
    trainer._set_view(ClusterView.from_proto(view(4, 5, 5)))
    assert gone(0, 5) and not gone(5, 5)
    trainer._cluster.dead.add(5)
    assert gone(5, 5)


def test_the_step_of_a_run_that_has_just_ended_is_known_before_its_hooks_are_called(trainer: Trainer) -> None:
    """One of them made a run that waited at the gate; the lost global step was set to what had been told by then."""
    trainer.step_tensors = ("global_step_read:0", "global_step/Read:0")
    trainer.ran(("global_step/Read:0", "loss:0", "global_step_read:0"), [301, 0.5, 300])
    trainer.ran(("loss:0",), [0.5])
    trainer._lost(7)
    (ack,) = (message.ack for message in list(trainer.agent._outbox.queue) if message.HasField("ack"))
    assert (ack.command_id, ack.step) == (7, 301)


def test_when_a_ps_is_lost_the_session_of_the_survivors_is_begun_before_the_aimaster_says_who_takes_over(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[tuple[frozenset[int], bool]] = []
    pool = SimpleNamespace(prepare=lambda wanted, *, hurry: prepared.append((wanted.tasks, hurry)))
    monkeypatch.setattr(trainer, "pools", lambda: [pool])
    trainer._settings.standby_sessions_max = 4
    guarded = view(2, 0, 1)
    guarded.backup_map.extend((1, 0))
    trainer._set_view(ClusterView.from_proto(guarded))
    trainer._prepare_for_loss()
    assert not prepared and len(trainer._standby_wanted() or ()) == 2
    tell(trainer, lost=pb.Lost(tasks=[0], lease_seconds=60))
    trainer._prepare_for_loss()
    assert prepared == [(frozenset({1}), True)]
    assert trainer._standby_wanted() is None, "nothing else is begun while training stands still"
    trainer._set_view(ClusterView.from_proto(view(3, 1, 1)))
    trainer._prepare_for_loss()
    assert len(prepared) == 1 and trainer._standby_wanted() == []


def test_a_model_lives_for_its_chief_as_soon_as_it_has_said_so_and_no_more_in_another_generation(
    trainer: Trainer,
) -> None:
    def see(generation: int, live: bool) -> bool:
        trainer._set_view(ClusterView.from_proto(pb.View(epoch=generation + 1, generation=generation, live=live)))
        return trainer.model_lives

    assert not see(1, False)
    trainer.model_live(5)  # the AIMaster has not heard it yet
    assert trainer.model_lives
    assert see(1, True)
    assert not see(2, False), "the chief restores, by order"
    assert see(2, True)


def test_who_is_no_chief_initialises_nothing(trainer: Trainer) -> None:
    trainer._cluster.member = ("worker", 0)
    trainer._set_view(ClusterView.from_proto(pb.View(epoch=2, generation=1, live=False)))
    assert trainer.model_lives
    assert not trainer.new_variables(["a"])
