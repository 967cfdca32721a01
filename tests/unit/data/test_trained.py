"""Which visits a process has trained, as ranges."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from deeprec_ext.data.leases import Leases
from deeprec_ext.data.trained import TrainedVisits
from deeprec_ext.proto import deeprec_ext_pb2 as pb


def visits(told: list[pb.Trained]) -> set[tuple[int, int]]:
    return {(one.epoch, rank) for one in told for rank in range(one.first_rank, one.first_rank + one.count)}


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20))), st.integers(0, 3))
def test_ranges_are_the_set_of_what_was_added_and_as_few_as_can_be(added: list[tuple[int, int]], complete: int) -> None:
    trained = TrainedVisits()
    for epoch, rank in added:
        trained.add(epoch, rank)
    trained.completed(complete)
    told, expected = trained.tell(), {visit for visit in added if visit[0] >= complete}
    assert visits(told) == expected
    assert len(told) == sum((epoch, rank - 1) not in expected for epoch, rank in expected)


def lease(identifier: int, rank: int, records: int = 10) -> pb.Lease:
    return pb.Lease(id=identifier, kind=pb.Lease.DATA, shard=rank, rank=rank, records=records)


def test_a_process_tells_what_it_holds_and_what_it_has_trained() -> None:
    leases = Leases(pb.Dataset(name="train", shard_records=10), 1.0, 10)
    leases.registered(1)
    request = leases.request(0.0)
    assert request is not None
    given_ = [lease(identifier, rank) for identifier, rank in ((5, 0), (6, 1), (7, 2))]
    leases.receive(pb.DataReply(sequence=request.sequence, state=pb.DataReply.MORE, leases=given_), 0.0)
    for identifier, done in ((5, 10), (6, 10), (7, 4)):
        leases.trained(identifier, done)
    known = leases.tell()
    assert {one.id: one.done for one in known.held} == {5: 10, 6: 10, 7: 4} and not known.trained, (
        "nobody has heard of it yet"
    )
    request = leases.request(1.0)
    assert request is not None
    leases.receive(pb.DataReply(sequence=request.sequence, state=pb.DataReply.MORE), 1.0)
    known = leases.tell()
    assert {one.id: one.done for one in known.held} == {7: 4} and visits(known.trained) == {(0, 0), (0, 1)}
    assert (known.highest_lease, known.trained_records) == (7, 24)
    leases.receive(pb.DataReply(rewinds=1, state=pb.DataReply.MORE), 2.0)
    known = leases.tell()
    assert not known.held and not known.trained and not known.trained_records and known.rewinds == 1


def test_a_process_tells_how_fast_it_was_in_its_fastest_half_second_and_when_it_says_so() -> None:
    leases = Leases(pb.Dataset(name="train", shard_records=1000), 1.0, 10)
    leases.registered(1)
    told = []
    for now, done in ((0.0, 0), (1.0, 10), (2.0, 20), (2.5, 520), (3.5, 530)):
        leases.trained(5, done)
        request = leases.request(now)
        assert request is not None and request.composed_seconds == now
        told.append(request.records_per_second)
        given_ = [lease(5, 0, 1000)] if not now else []
        leases.receive(pb.DataReply(sequence=request.sequence, state=pb.DataReply.MORE, leases=given_), now)
    assert told == [0.0, 10.0, 10.0, 1000.0, 1000.0], "a mean over ten seconds would hide it"
