"""What becomes of a job for whose processes there is no room."""

from __future__ import annotations

import dataclasses

import pytest

from deeprec_ext.aimaster.parking.supervision import AGAIN_SECONDS_MAX, STRICT_SECONDS, Job, What, judge

LONG, SHORT = STRICT_SECONDS, STRICT_SECONDS - 1
ONE = Job(
    strict=False, max_wait_seconds=600.0, trained=False, formed=False, gang=False, at_least=False, waited_seconds=599.0,
    waiting={"ps-1": (LONG, "0/3 nodes are available: 3 Insufficient cpu.")},
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({}, What.GO_ON),  # dynamic: until it has waited for long enough
        ({"waited_seconds": 600.0}, What.LEAST),
        ({"waited_seconds": 600.0, "at_least": True}, What.FAIL),
        ({"waited_seconds": 600.0, "formed": True}, What.FAIL),  # its chief has no room
        ({"waited_seconds": 600.0, "waiting": {}}, What.GO_ON),  # it is being started
        ({"waited_seconds": 9e9, "max_wait_seconds": 0.0}, What.GO_ON),
        ({"waited_seconds": 9e9, "trained": True}, What.GO_ON),  # it has trained: with those that there are
        ({"strict": True}, What.PARK),
        ({"strict": True, "waiting": {"ps-1": (SHORT, "")}}, What.GO_ON),
        ({"strict": True, "waited_seconds": 600.0}, What.FAIL),
        ({"strict": True, "waited_seconds": 600.0, "waiting": {"ps-1": (SHORT, "")}}, What.FAIL),
        ({"strict": True, "waited_seconds": 9e9, "trained": True}, What.PARK),
        ({"strict": True, "gang": True}, What.GO_ON),  # its scheduler holds nothing for it
        ({"strict": True, "gang": True, "trained": True}, What.PARK),
        ({"strict": True, "waiting": {}}, What.GO_ON),
    ],
)
def test_what_becomes_of_it(changes: dict[str, object], what: What) -> None:
    assert judge(dataclasses.replace(ONE, **changes)).what is what  # type: ignore[arg-type]


def test_it_says_who_has_no_room_and_why_and_is_tried_ever_more_seldom() -> None:
    waiting = {f"worker-{index}": (LONG, "Insufficient cpu") for index in range(5)}
    verdicts = [judge(dataclasses.replace(ONE, strict=True, waiting=waiting, tries=tries)) for tries in (0, 1, 50)]
    assert (
        verdicts[0].why == "strict, and there is no room for worker-0, worker-1, worker-2 and 2 more (Insufficient cpu)"
    )
    assert [one.again_seconds for one in verdicts] == [60.0, 120.0, AGAIN_SECONDS_MAX]
