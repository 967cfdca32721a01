"""What this process tells the user through the AIMaster: something of the script's that trains beside the PS.

Nothing here changes what the script does. A notice names what is wrong and the one line to change; it is said once, and again
after each registration, since the AIMaster may have lost it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

from deeprec_ext.elastic.session.session import ElasticSession
from deeprec_ext.graph import training
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.units import few

log = logging.getLogger("deeprec_ext")

SETTER = "with tf.compat.v1.device(tf.compat.v1.train.replica_device_setter(cluster=cluster)):"

LOOK_STEPS = (3, 50)
"""Steps after which it is looked at what they train: a script may do something else first, so twice."""

LOOK_SECONDS = 30.0
"""After the first step it is looked at as well, however slow the others are: it is to be told within a minute."""

AGAIN_SECONDS = 5.0
"""After which it is looked at again where nothing had recurred yet, that being the training loop."""

NAMED_MAX = 3
"""Variables that are named in a notice."""


class Noticing:
    """Args:
    send: takes a message to the AIMaster, at any time.
    clock: seconds.
    """

    def __init__(self, send: Callable[[pb.AgentMessage], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._send, self._clock, self._lock = send, clock, threading.Lock()
        self._steps_left: tuple[int, ...] = LOOK_STEPS
        self._look_at: float | None = None  # by time; None: no step has been made yet
        self._said: dict[str, pb.Notice] = {}

    def say(self, code: str, text: str, remedy: str, *, mended: bool = False) -> None:
        """One of each code; any thread."""
        notice = pb.Notice(code=code, text=text, remedy=remedy, mended=mended)
        with self._lock:
            if code in self._said:
                return
            self._said[code] = notice
        (log.info if mended else log.warning)("%s: %s", text, remedy)
        self._send(pb.AgentMessage(notice=notice))

    def again(self) -> None:
        with self._lock:
            said = list(self._said.values())
        for notice in said:
            self._send(pb.AgentMessage(notice=notice))

    def due(self, steps: int) -> bool:
        """Whether to look now, after so many steps; asked after each, and now and then between two. Any thread."""
        if not self._steps_left or not steps:
            return False
        with self._lock:
            now = self._clock()
            if self._look_at is None:
                self._look_at = now + LOOK_SECONDS
            left = tuple(one for one in self._steps_left if one > steps)
            if left == self._steps_left and now < self._look_at:
                return False
            self._steps_left = left
            if now >= self._look_at:
                self._look_at = now + AGAIN_SECONDS
            return True

    def look(self, sessions: Iterable[ElasticSession]) -> None:
        """After some steps: whether what they train is on the PS."""
        for session in sessions:
            if (known := session.trains()) is not None:
                self._looked()
                found = training(*known, trainable_in(session.graph))
                if found.beside:
                    self._beside(found.on_ps, found.beside)

    def _looked(self) -> None:
        with self._lock:
            if self._look_at is not None and self._clock() >= self._look_at - AGAIN_SECONDS:  # it was time
                self._look_at = math.inf

    def _beside(self, on_ps: Sequence[str], beside: Sequence[str]) -> None:
        if not on_ps:
            self.say(
                "no-variable-on-ps", "no variable that is trained is on a PS: each process trains a model of its own",
                f"make the model under `{SETTER}`, with the cluster of TF_CONFIG",
            )  # fmt: skip
            return
        self.say(
            "variables-beside-ps",
            f"{len(beside)} of {len(on_ps) + len(beside)} variables that are trained are on no PS "
            f"({few(beside, NAMED_MAX)}): each process trains its own",
            f"make them too under `{SETTER}`",
        )  # fmt: skip


def trainable_in(graph: tf.Graph) -> frozenset[str]:
    """Names of the nodes of its trainable variables; of local ones each process is to have its own."""
    keys = tf.compat.v1.GraphKeys
    trainable, local, shared = (
        {variable.op.name for variable in graph.get_collection(key) if getattr(variable, "op", None) is not None}
        for key in (keys.TRAINABLE_VARIABLES, keys.LOCAL_VARIABLES, keys.GLOBAL_VARIABLES)
    )
    return frozenset(trainable - (local - shared))
