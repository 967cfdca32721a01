"""Who has said what cannot be true (`job.suspects`): named in status, table, page, summary and events.

The stream on which it was said is closed, and the role is *quarantined*: it goes on with its own work, but its word ends no
job, changes no wish and counts against nobody else. It stays so until its process has been replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from deeprec_ext.aimaster.core.clock import Clock
from deeprec_ext.aimaster.membership.members import Member, Members
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.decoding import built
from deeprec_ext.proto.bounds import Violation
from deeprec_ext.security.credentials import is_own

KEY = "suspects"
KEPT_MAX = 1000
EVENTS_EVERY = 10
"""An event for the first offence of a process, the 10th, the 100th, and so on: a liar does not fill the log."""


@dataclass(frozen=True)
class Suspect:
    name: str
    incarnation: str  # public
    what: str  # of the first offence, one line
    offences: int
    time: float  # Unix seconds, of the first

    def __str__(self) -> str:
        more = f" (and {self.offences - 1} more)" if self.offences > 1 else ""
        return f"{self.what}{more}"


def suspects_of(values: Mapping[str, Any]) -> list[Suspect]:
    """From everything that a store keeps by key."""
    return [built(Suspect, one) for one in values.get(KEY) or ()]


class Suspects:
    """By name; in the store."""

    def __init__(self, members: Members, store: Store, clock: Clock, event: Callable[..., None]) -> None:
        self._members, self._store, self._clock, self._event = members, store, clock, event
        self.distrusted: Callable[[str], None] = lambda name: None  # whose word counts against nobody else from now on
        self._all: dict[str, Suspect] = {}
        none: list[Suspect] = []
        for suspect in store.read(KEY, lambda value: suspects_of({KEY: value}), none):
            self._all[suspect.name] = suspect

    @property
    def all(self) -> list[Suspect]:
        """Whose process takes part, or did so last."""
        return [one for one in self._all.values() if self._is_present(one)]

    def _is_present(self, one: Suspect) -> bool:
        record = self._members.record(one.name)
        return record is not None and record.incarnation == one.incarnation

    def of(self, name: str) -> str:
        """Why the present process of this name is suspect, one line; empty: it is not."""
        one = self._all.get(name)
        return str(one) if one is not None and self._is_present(one) else ""

    def has(self, member: Member) -> bool:
        one = self._all.get(member.name)
        return one is not None and one.incarnation == member.incarnation

    def offended(self, certificate: str, incarnation: str, violation: Violation) -> str:
        """Notes it; returns who it was, as far as that is sure: by its secret, or by a certificate of its own."""
        member = self._members.by_incarnation(incarnation) if incarnation else None
        if member is not None:
            self.note(member, str(violation))
            return member.name
        if is_own(certificate) and (present := self._members.get(certificate)) is not None:
            self.note(present, str(violation))
            return certificate
        who = certificate or "a process that has not registered"
        self._event("suspect", certificate if is_own(certificate) else "", what=str(violation), certificate=certificate)
        return who

    def withdraw(self, name: str, what: str) -> None:
        """What was noted of this role turns out to be so of others as well."""
        before = self._all.get(name)
        if before is not None and before.what == what and before.offences == 1:
            del self._all[name]
            self._keep()

    def note(self, member: Member, what: str) -> None:
        before = self._all.get(member.name)
        if before is None or before.incarnation != member.incarnation:
            before = Suspect(member.name, member.incarnation, what, 0, self._clock.wall())
        self._all[member.name] = replace(before, offences=(offences := before.offences + 1))
        self.distrusted(member.name)
        if not _is_power(offences):
            return
        self._event("suspect", member.name, what=what, offences=offences)
        self._keep()

    def _keep(self) -> None:
        kept: list[dict[str, Any]] = [asdict(suspect) for suspect in list(self._all.values())[-KEPT_MAX:]]
        self._store.put(**{KEY: kept})


def _is_power(number: int) -> bool:
    """Of ten."""
    while number % EVENTS_EVERY == 0:
        number //= EVENTS_EVERY
    return number == 1
