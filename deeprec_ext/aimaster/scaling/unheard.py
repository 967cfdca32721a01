"""A change of PS that was decided by an AIMaster which died before it told anybody. Pure.

Trainers wait for a decision as long as the lease of their pause; then they go on with the old view, on the PS that had the
slots. Whoever carried the decision out later would throw away what was trained since. So the next AIMaster looks first:
every PS that was to give slots away registers with all of them, and nobody knows the new view. Then the old view counts,
under another epoch, and the change is rolled back like one that was not decided.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from deeprec_ext.aimaster.core.records import Scaling
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.aimaster.membership.view import AgreedCluster, advance
from deeprec_ext.aimaster.scaling.machine import State


def may_be(scaling: Scaling) -> bool:
    """Whether it has to be looked at."""
    decided = scaling.role == "ps" and scaling.state == State.COMMIT.value
    return decided and bool(scaling.old_ps) and scaling.old_map != scaling.new_map


def by_all(scaling: Scaling, members: Iterable[Member]) -> bool:
    """Whether nobody has heard of it. A PS of the old view that is not here has: what it had is on its successor alone."""
    present = list(members)
    if any(member.known_epoch >= scaling.epoch for member in present):
        return False
    held = {member.incarnation: member.resident for member in present}
    for ps in scaling.old_ps:
        given = {slot for slot, task in enumerate(scaling.old_map) if task == ps.task != scaling.new_map[slot]}
        if ps.incarnation not in held or not given <= held[ps.incarnation]:
            return False
    return True


def old_view(cluster: AgreedCluster, scaling: Scaling) -> AgreedCluster:
    """The view before the change, as the next one."""
    return advance(dataclasses.replace(cluster, ps=scaling.old_ps, slot_map=scaling.old_map))
