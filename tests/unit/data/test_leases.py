"""What a process holds and owes, when answers are lost or come from an AIMaster that has never heard of the dataset."""

from __future__ import annotations

import math

from deeprec_ext.data.leases import REPORT_SECONDS, RESEND_SECONDS, Leases
from deeprec_ext.proto import deeprec_ext_pb2 as pb

MORE = pb.DataReply.MORE


def begun(aimaster: int = 1) -> Leases:
    leases = Leases(pb.Dataset(name="train", shard_records=10), ahead_seconds=1.0, least_records=10)
    leases.registered(aimaster)
    return leases


def sent(leases: Leases, now: float) -> pb.DataRequest:
    request = leases.request(now)
    assert request is not None
    return request


def lease(number: int) -> pb.Lease:
    return pb.Lease(id=number, kind=pb.Lease.DATA, records=10, rank=number)


def answer(request: pb.DataRequest, *leases: pb.Lease, **fields: object) -> pb.DataReply:
    return pb.DataReply(sequence=request.sequence, dataset="train", state=MORE, leases=leases, **fields)  # type: ignore[arg-type]


def test_who_does_not_know_the_dataset_has_taken_no_progress_in() -> None:
    leases = begun()
    leases.receive(answer(sent(leases, 0.0), lease(1)), 0.0)
    assert leases.trained(1, 10)
    told = sent(leases, 1.0)  # it waits for a stream to the next AIMaster
    assert not told.HasField("declare") and told.progress[0].done == 10
    leases.receive(answer(told, undeclared=True), 1.1)
    assert 1 in leases.held, "nobody has heard that it is trained"
    again = sent(leases, 1.1)
    assert again.sequence == told.sequence and again.HasField("declare") and list(again.progress) == list(told.progress)
    leases.receive(answer(again), 1.2)
    assert not leases.held


def test_a_declaration_is_not_sent_again_and_again_to_who_refuses_it() -> None:
    leases = begun()
    first = sent(leases, 0.0)
    assert first.HasField("declare")
    leases.receive(answer(first, undeclared=True), 0.1)
    assert leases.request(0.2) is None
    assert sent(leases, RESEND_SECONDS).HasField("declare")


def test_who_holds_nothing_says_so_only_when_no_answer_can_bring_it_any() -> None:
    leases = begun()
    first = sent(leases, 0.0)
    assert first.holds_none
    leases.receive(answer(first, lease(1), lease(2)), 0.0)
    leases.trained(1, 10)
    assert not sent(leases, 1.0).holds_none
    last = leases.last_request(1.1)  # without the answer to that
    assert last is not None and not last.holds_none and list(last.returned) == [1, 2]


def test_who_rests_takes_nothing_and_asks_how_far_the_others_are_until_somebody_wants_a_batch() -> None:
    leases = begun()
    leases.receive(answer(sent(leases, 0.0), lease(1)), 0.0)
    leases.asleep = leases.listens = True
    last = leases.last_request(1.0)
    assert last is not None and list(last.returned) == [1]
    leases.receive(answer(last), 1.0)
    assert leases.request(1.0 + REPORT_SECONDS / 2) is None
    asks = sent(leases, 1.0 + REPORT_SECONDS)
    assert asks.want == 0 and not asks.returned
    leases.receive(answer(asks, complete=1), 1.6)
    assert leases.complete == 1
    leases.listens = False
    assert leases.request(60.0) is None, "it sleeps"
    leases.asleep = False
    assert sent(leases, 60.0).want > 0


def test_who_rests_declares_to_an_aimaster_that_has_lost_its_store() -> None:
    """Nobody else may be left to do so, and all wait for what the last epoch came to."""
    leases = begun()
    leases.receive(answer(sent(leases, 0.0), lease(1)), 0.0)
    leases.asleep = True
    last = leases.last_request(1.0)
    assert last is not None
    ended = answer(last)
    ended.state = pb.DataReply.END
    leases.receive(ended, 1.0)
    assert leases.due_in(60.0) == math.inf
    leases.registered(8)
    assert leases.due_in(60.0) == 0 and sent(leases, 60.0).HasField("declare")


def test_a_lease_that_is_given_back_is_owed_until_that_is_answered() -> None:
    leases = begun()
    leases.receive(answer(sent(leases, 0.0), lease(1)), 0.0)
    leases.trained(1, 4)
    leases.give_back()
    returned = sent(leases, 1.0)
    assert not returned.holds_none and [(one.lease, one.done) for one in returned.progress] == [(1, 4)]
    leases.receive(answer(returned), 1.1)
    assert sent(leases, 2.0).holds_none
