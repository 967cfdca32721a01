"""What a process holds, summed up: as if it were added up anew each time."""

import random

import pytest

from deeprec_ext.data.hand import Hand
from deeprec_ext.proto import deeprec_ext_pb2 as pb


def test_sums_are_those_of_all_that_is_held():
    dice, hand, last = random.Random(1), Hand(), 0
    for _ in range(2000):
        held = list(hand)
        one = dice.choice(held) if held else None
        what = dice.randrange(6)
        if what == 0 or one is None:
            last += 1
            hand.add(pb.Lease(id=last, records=100, done=dice.choice([0, 0, 30])))
        elif what == 1:
            hand.read(one, dice.randint(one.read, 100))
        elif what == 2:
            before = one.trained
            done = dice.randint(0, one.read)
            assert hand.trained(one, done) == max(0, done - before)
        elif what == 3:
            hand.told(one, dice.randint(0, one.trained))
        elif what == 4 and dice.random() < 0.3:
            assert hand.remove(one.lease.id) is one and hand.remove(one.lease.id) is None
        elif what == 5 and dice.random() < 0.01:
            hand.clear()
        assert hand.unread == sum(one.lease.records - one.read for one in hand)
        assert {one.lease.id for one in hand.untold} == {one.lease.id for one in hand if one.trained > one.told}
        assert hand.any_untold == bool(hand.untold) and all(one.lease.id in hand for one in hand)


@pytest.mark.parametrize("held", [10, 5000])
def test_nothing_is_gone_through_to_know_what_is_unread(held, monkeypatch):
    hand = Hand()
    for number in range(held):
        hand.add(pb.Lease(id=number + 1, records=10))
    monkeypatch.setattr(Hand, "__iter__", None)
    assert hand.unread == 10 * held and not hand.any_untold and len(hand) == held
