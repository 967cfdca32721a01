"""What an elastic session asks of the process it lives in, and for what that wants sessions made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import tensorflow as tf

from deeprec_ext import graph as passes
from deeprec_ext.elastic.agent.gate import Gate
from deeprec_ext.elastic.agent.inputs import Inputs
from deeprec_ext.elastic.session.placed import PlacedSession
from deeprec_ext.elastic.session.runner import Runner
from deeprec_ext.layout import Names
from deeprec_ext.proto import deeprec_ext_pb2 as pb

v1 = tf.compat.v1


@dataclass(frozen=True)
class Wanted:
    """What sessions are to be made for. Two equal ones need no exchange."""

    placement: object
    context: passes.Context
    config: Callable[[v1.ConfigProto | None], v1.ConfigProto]
    target: str

    @property
    def key(self) -> object:
        return self.placement, frozenset(self.context.tracked.items())

    @property
    def tasks(self) -> frozenset[int]:
        """Of the PS that the session names."""
        return frozenset(self.context.slot_map or ())


class SessionHost(Protocol):
    """The process that an elastic session lives in (`Trainer`)."""

    gate: Gate
    runner: Runner
    inputs: Inputs

    @property
    def chief(self) -> bool:
        """Whether this process initialises the model."""

    @property
    def model_lives(self) -> bool:
        """Whether it is initialised, or another process is to do that: no script sets it back."""

    @property
    def generation(self) -> int:
        """Grows when variables were lost: older sessions end with AbortedError, and MonitoredSession makes a new one."""

    def rate(self) -> float:
        """What the next run that trains multiplies its learning rates by."""

    def wanted(self) -> Wanted:
        """For the present view; waits, with a deadline, until every slot has a PS."""

    def names(self) -> Names:
        """How the script calls this process and the PS."""

    def next_view(self, error: Exception, failed: Wanted) -> bool:
        """A run failed with LOST or STALE. Waits for another view; True: run it again, False: raise the error."""

    def ran(self, fetches: Sequence[str], results: Sequence[Any]) -> None:
        """A run has ended, and nobody knows it yet: called before the gate says that it is over."""

    def declare(self, catalogue: pb.Catalogue) -> None:
        """Runs that may make these variables on the PS follow."""

    def new_variables(self, names: Sequence[str]) -> frozenset[str]:
        """Of what nobody has initialised on the PS, that which this process may: by order of the AIMaster, which is asked."""

    def notice(self, code: str, text: str, remedy: str, *, mended: bool = False) -> None:
        """Tells the user, once of each code."""

    def dead(self, wanted: Wanted) -> bool:
        """Whether a PS that it names is gone for good, lost or scaled away: it may never answer who opens a session."""

    def opened(self, session: v1.Session) -> None: ...

    def closed(self, session: v1.Session) -> None: ...

    def dropped(self, close: Callable[[], None]) -> None:
        """A session was forgotten without being closed. Called by a finaliser: only notes what is to be done."""

    def retire(self, sessions: list[PlacedSession]) -> None:
        """Closes sessions that are no longer used, beside training."""

    def refused(self, reason: str) -> None:
        """The graph cannot be made elastic."""
