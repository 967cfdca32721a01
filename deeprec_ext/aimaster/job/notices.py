"""What trains beside the PS, or would go on unseen: kept for status, report and summary, and with `strict` the end of the job.

Every process with the same trouble says the same; it is kept once, with the roles that have said it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deeprec_ext.aimaster.core.records import parse_name
from deeprec_ext.aimaster.state.shared import JobState
from deeprec_ext.decoding import built
from deeprec_ext.proto import deeprec_ext_pb2 as pb

KEPT_MAX = 20
ROLES_MAX = 20
TEXT_MAX = 1000
KEY = "notices"
WORDS_KEY = "strict_words"
"""Role -> incarnation of a process that alone said, with `strict`, what would end the job."""
UNUSED_PS = frozenset({"no-variable-on-ps", "local-training"})
"""What is trained reaches no PS at all; told by an event of its own as well."""


@dataclass(frozen=True)
class Notice:
    """One kind of trouble."""

    code: str
    text: str
    remedy: str = ""
    mended: bool = False
    """Nothing is wrong any more: the user shall only know."""
    roles: tuple[str, ...] = ()
    time: float = 0.0
    """Unix seconds of when it was first said."""

    def __str__(self) -> str:
        return f"{self.text}: {self.remedy}" if self.remedy else self.text

    def to_proto(self) -> pb.NoticeStatus:
        notice = pb.Notice(code=self.code, text=self.text, remedy=self.remedy, mended=self.mended)
        return pb.NoticeStatus(notice=notice, roles=self.roles, time=self.time)


def notices_of(values: Mapping[str, Any]) -> tuple[Notice, ...]:
    """From everything that a store keeps by key."""
    return tuple(built(Notice, one) for one in values.get(KEY) or ())


class Notices:
    def __init__(self, job: JobState) -> None:
        self._job = job
        self.kill: Callable[[str], None] = lambda name: None  # and start it again
        self.all: tuple[Notice, ...] = job.store.read(KEY, lambda value: notices_of({KEY: value}), ())

    def add(self, role: str, said: pb.Notice, incarnation: str = "") -> None:
        """Idempotent: processes say it again after each registration. `incarnation`: of who says it; empty: the AIMaster."""
        self._keep_it(role, said)
        if self._job.settings.strict and not said.mended and not self._job.ending:
            self._be_strict(role, said, incarnation)

    def _be_strict(self, role: str, said: pb.Notice, incarnation: str) -> None:
        """The end of the job, unless it is the word of one worker alone: then of its next process, if that says the same."""
        key = said.code[:TEXT_MAX], said.text[:TEXT_MAX]
        if self._is_believed(role, key, incarnation):
            self._job.end("failed", str(Notice(*key, said.remedy[:TEXT_MAX])))
            return
        words: dict[str, str] = self._job.store.get(WORDS_KEY, {})
        if role in words:
            return
        self._job.store.put(**{WORDS_KEY: {**words, role: incarnation}})
        text = (
            f"with strict: {role} alone says that {key[1]}; it is started again, and believed if it still says so then"
        )
        self._job.event("warning", role, text=text)
        self.kill(role)

    def _is_believed(self, role: str, key: tuple[str, str], incarnation: str) -> bool:
        job = self._job
        if not incarnation or parse_name(role)[0] == pb.CHIEF:
            return True
        if any({*one.roles} - {role} for one in self.all if (one.code, one.text) == key):
            return True
        if key[0] in UNUSED_PS and job.cluster.live and not job.catalogue.variables:
            return True  # seen here: nobody has a variable on a PS
        before = job.store.get(WORDS_KEY, {}).get(role)
        return before is not None and before != incarnation

    def _keep_it(self, role: str, said: pb.Notice) -> None:
        found = {(one.code, one.text): one for one in self.all}
        key = said.code[:TEXT_MAX], said.text[:TEXT_MAX]
        known = found.get(key)
        if (known is None and len(found) >= KEPT_MAX) or (
            known and (role in known.roles or len(known.roles) >= ROLES_MAX)
        ):
            return
        if known is None:
            known = Notice(*key, said.remedy[:TEXT_MAX], said.mended, (), self._job.clock.wall())
            self._job.event("notice", role, code=key[0], text=key[1], remedy=known.remedy, mended=known.mended)
            if known.code in UNUSED_PS:
                self._job.event("unused_ps", role, code=known.code, text=known.text, remedy=known.remedy)
        found[key] = dataclasses.replace(known, roles=tuple(sorted({*known.roles, role})))
        self._keep(tuple(found.values()))

    def forget(self) -> None:
        """A run that is resumed may be another script's."""
        if self.all:
            self._keep(())
        self._job.store.put(**{WORDS_KEY: {}})

    def _keep(self, notices: Sequence[Notice]) -> None:
        self.all = tuple(notices)
        self._job.store.put(**{KEY: [dataclasses.asdict(one) for one in notices]})
