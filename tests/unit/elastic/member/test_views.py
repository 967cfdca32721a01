"""Which view is whose generation."""

from __future__ import annotations

import threading

import pytest

from deeprec_ext.elastic.member.views import LeaveError, Views
from deeprec_ext.proto import deeprec_ext_pb2 as pb


def view(epoch: int, *names: str) -> pb.View:
    workers = [
        pb.WorkerMember(name=name, incarnation=f"of {name}", address=f"10.0.0.{at}:70{at}")
        for at, name in enumerate(names)
    ]
    return pb.View(epoch=epoch, workers=workers)


@pytest.fixture
def views() -> Views:
    found = Views("worker-0", "of worker-0", lambda epoch, why: found.said.append((epoch, why)))  # type: ignore[attr-defined]
    found.said = []  # type: ignore[attr-defined]
    found.secret = b"of the job"
    return found


def test_a_generation_has_the_members_of_the_newest_view_in_their_order(views):
    views.take(view(3, "chief-0", "worker-0"))
    one = views.after(-1, "")
    assert (one.number, one.rank, one.addresses) == (3, 1, (("10.0.0.0", 700), ("10.0.0.1", 701)))
    views.take(view(5, "worker-0"))
    views.take(view(4, "chief-0", "worker-0"))  # late
    another = views.after(3, "")
    assert (another.number, another.rank) == (5, 0) and another.secret != one.secret
    assert views.over(3) and not views.over(5)


def test_all_know_each_other_by_the_same_secret_that_nobody_else_has(views):
    views.take(view(3, "chief-0", "worker-0"))
    other = Views("chief-0", "of chief-0", lambda epoch, why: None)
    other.take(view(3, "chief-0", "worker-0"))
    assert other.after(-1, "").secret != views.after(-1, "").secret
    other.secret = b"of the job"
    assert other.after(-1, "").secret == views.after(-1, "").secret


def test_who_is_not_in_the_view_waits_for_one_that_it_is_in(views):
    views.take(view(1, "chief-0"))
    views.take(pb.View(epoch=2, workers=[pb.WorkerMember(name="worker-0", incarnation="of another process")]))
    found = []
    thread = threading.Thread(target=lambda: found.append(views.after(-1, "")))
    thread.start()
    thread.join(0.2)
    assert not found
    views.take(view(3, "chief-0", "worker-0"))
    thread.join(10)
    assert found[0].number == 3


def test_a_ring_that_is_lost_is_told_unless_another_view_is_there(views):
    views.take(view(3, "chief-0", "worker-0"))
    heard = []
    views.watch(lambda: heard.append(views.newest.epoch))
    thread = threading.Thread(target=views.after, args=(3, "the member after this one is gone"))
    thread.start()
    for _ in range(1000):
        if views.said:
            break
        thread.join(0.01)
    assert views.said == [(3, "the member after this one is gone")] and thread.is_alive()
    views.take(view(4, "worker-0"))
    thread.join(10)
    assert not thread.is_alive() and heard == [4]
    views.after(3, "what nobody asks for any more")
    assert len(views.said) == 1


def test_who_is_to_leave_ends_as_a_script_that_is_through(views):
    views.take(view(3, "chief-0", "worker-0"))
    views.leave("scaling 7")
    assert not views.over(3) and views.after(-1, "").number == 3  # as long as it is in a view
    views.take(view(4, "chief-0"))
    with pytest.raises(LeaveError) as raised:
        views.after(3, "another generation has begun")
    assert isinstance(raised.value, SystemExit) and raised.value.code == 0 and "scaling 7" in str(raised.value)
    assert not views.said
