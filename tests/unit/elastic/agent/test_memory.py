"""What a process has heard, as it tells an AIMaster that has lost its store."""

from __future__ import annotations

import pytest

from deeprec_ext.elastic.agent import memory
from deeprec_ext.elastic.agent.memory import Memory
from deeprec_ext.proto import deeprec_ext_pb2 as pb


def view(epoch: int, slot_map: list[int], *workers: str) -> pb.View:
    ps = [pb.PsMember(task=task, name=f"ps-{task}", incarnation=f"inc{task}") for task in sorted(set(slot_map))]
    return pb.View(epoch=epoch, ps=ps, slot_map=slot_map, workers=[pb.WorkerMember(incarnation=one) for one in workers])


def publish(one: pb.View) -> pb.MasterMessage:
    return pb.MasterMessage(publish=pb.Publish(view=one))


def command(**body: object) -> pb.MasterMessage:
    return pb.MasterMessage(command=pb.Command(**body))  # type: ignore[arg-type]


def copy(phase: pb.Copy.Phase, *slots: int) -> pb.MasterMessage:
    moves = [pb.Move(variable=pb.Variable(name=f"v{slot}", slot=slot), source_task=0) for slot in slots]
    return command(copy=pb.Copy(phase=phase, scaling_id=3, moves=moves))


def test_the_newest_view_counts_and_the_highest_numbers_are_of_all() -> None:
    one = Memory("me")
    one.registered(pb.RegisterReply(view=view(2, [0, 1]), task=7))
    assert not one.tell().served
    one.heard(publish(view(5, [0, 3], "me")))
    one.heard(publish(view(4, [0, 1])))
    one.heard(command(prepare=pb.Prepare(view=view(9, [0, 8]))))
    known = one.tell()
    assert known.view.epoch == 5 and known.served
    assert (known.highest_epoch, known.highest_task) == (9, 8)


@pytest.mark.parametrize("end", [command(resume=pb.Resume()), command(commit=pb.Commit(view=view(9, [0, 2]))),
                                 publish(view(10, [0, 1]))])  # fmt: skip
def test_a_prepared_view_is_told_until_it_is_used_or_taken_back(end: pb.MasterMessage) -> None:
    one = Memory("me")
    one.heard(publish(view(5, [0, 1])))
    one.heard(command(prepare=pb.Prepare(view=view(9, [0, 2]))))
    assert one.tell().prepared.epoch == 9
    one.heard(end)
    assert not one.tell().HasField("prepared")


def test_a_worker_that_was_told_to_leave_says_so() -> None:
    one = Memory("me")
    assert not one.tell().leaving
    one.heard(command(leave=pb.Leave(reason="scaled away")))
    assert one.tell().leaving


def test_a_trainer_knows_which_scaling_has_begun_and_not_ended() -> None:
    one = Memory("me")
    notice = pb.ScalingNotice
    one.heard(pb.MasterMessage(scaling=notice(scaling_id=3, phase=notice.BEGUN)))
    one.heard(pb.MasterMessage(scaling=notice(scaling_id=2, phase=notice.COMMITTED)))
    assert one.tell().scaling == 3
    one.heard(pb.MasterMessage(scaling=notice(scaling_id=3, phase=notice.ROLLED_BACK)))
    assert one.tell().scaling == 0


def test_a_target_holds_what_its_final_copy_brought_until_it_is_told_to_abort() -> None:
    one = Memory("inc1")
    one.heard(publish(view(5, [0, 1, 0])))
    one.heard(copy(pb.Copy.ARM, 0, 2))
    assert one.resident_slots(1) == [1] and [move.variable.slot for move in one.tell().moves] == [0, 2]
    one.has_arrived(2)
    assert one.resident_slots(1) == [1], "of another scaling"
    one.has_arrived(3)
    assert one.resident_slots(1) == [0, 1, 2]
    one.heard(copy(pb.Copy.ABORT, 0, 2))
    assert one.resident_slots(1) == [1] and not one.tell().moves


def test_what_an_owner_was_told_to_destroy_it_has_not_any_more() -> None:
    one = Memory("inc0")
    one.heard(publish(view(5, [0, 1, 0])))
    one.heard(command(destroy=pb.Destroy(variables=[pb.Variable(slot=2)])))
    assert one.resident_slots(0) == [0]
    one.heard(publish(view(6, [0, 1, 1])))
    one.heard(publish(view(7, [0, 1, 0])))
    assert one.resident_slots(0) == [0, 2], "it came back with a later view"


def test_a_slot_that_came_by_one_scaling_and_goes_by_the_next_is_gone() -> None:
    one = Memory("inc0")
    one.heard(publish(view(5, [0, 1])))
    one.heard(copy(pb.Copy.ARM, 1))
    one.has_arrived(3)
    one.heard(publish(view(6, [0, 0])))
    assert one.resident_slots(0) == [0, 1]
    one.heard(command(destroy=pb.Destroy(variables=[pb.Variable(slot=1)])))
    assert one.resident_slots(0) == [0]


def test_the_newest_value_of_a_key_is_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "REMEMBERED_BYTES_MAX", 10)
    one = Memory("me")

    def told(key: str, number: int, value: bytes) -> dict[str, bytes]:
        one.heard(pb.MasterMessage(remember=pb.Remember(key=key, number=number, value=value)))
        return {kept.key: kept.value for kept in one.tell().remembered}

    assert told("a", 2, b"new") == {"a": b"new"}
    assert told("a", 1, b"old") == {"a": b"new"}
    assert told("b", 3, b"12345678") == {"a": b"new"}, "too large"
    assert told("b", 4, b"1234567") == {"a": b"new", "b": b"1234567"}
    assert told("a", 5, b"") == {"b": b"1234567"}
