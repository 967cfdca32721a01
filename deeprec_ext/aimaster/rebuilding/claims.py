"""What the agents say when they register with an AIMaster that knows nothing, and when enough of them have spoken. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from deeprec_ext.aimaster.core.records import TRAINERS, parse_name
from deeprec_ext.aimaster.pods.backend import PodState
from deeprec_ext.proto import deeprec_ext_pb2 as pb


@dataclass(frozen=True)
class Claim:
    """One registration. Whoever took part in the job says what it knows; others are new."""

    name: str
    request: pb.RegisterRequest

    @property
    def incarnation(self) -> str:
        return self.request.incarnation

    @property
    def known(self) -> pb.Known:
        return self.request.known

    @property
    def took_part(self) -> bool:
        return self.request.known_epoch > 0

    @property
    def is_ps(self) -> bool:
        return self.request.role == pb.PS

    @property
    def is_trainer(self) -> bool:
        return self.request.role in TRAINERS

    @property
    def destroyed(self) -> frozenset[int]:
        """Slots that this PS owns in the view it knows, and was told to destroy."""
        view, task = self.known.view, self.request.known_task
        owned = {slot for slot, owner in enumerate(view.slot_map) if owner == task}
        return frozenset(owned.difference(self.request.resident_slots))


def newest_view(claims: Iterable[Claim]) -> pb.View | None:
    """None: nobody knows one; the job is new."""
    views = [claim.known.view for claim in claims if claim.known.view.epoch > 0]
    return max(views, key=lambda view: view.epoch, default=None)


def members(view: pb.View) -> dict[str, str]:
    """Name → incarnation of everybody in it."""
    return {**{ps.name: ps.incarnation for ps in view.ps}, **{one.name: one.incarnation for one in view.workers}}


def still_missing(claims: Sequence[Claim], pods: Mapping[str, PodState]) -> list[str]:
    """Whose word is still to come: who is in the newest view and runs, as far as the backend knows, and has not registered,
    in this or another incarnation. While a scaling is under way, and while nobody knows a view, all PS that run as well: they
    always register (trainers do when they train).
    """
    view, here = newest_view(claims), {claim.name for claim in claims}
    expected = set(members(view)) if view is not None else set()
    if view is None or any(claim.is_trainer and claim.known.scaling for claim in claims):
        expected |= {name for name in pods if parse_name(name)[0] == pb.PS}
    return sorted(name for name in expected if name not in here and name in pods and pods[name].state == "running")
