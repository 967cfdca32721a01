"""The rings of a job as one process for Horovod's scripts is in them: who is there, and what it has for who comes."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from deeprec_ext.allreduce.meeting import Generation, written
from deeprec_ext.allreduce.ring import Array, LostError, Ring
from deeprec_ext.elastic.member import joined
from deeprec_ext.elastic.member.member import Member
from deeprec_ext.errors import UsageError
from deeprec_ext.horovod.things import decoded, encoded

BEGIN_SECONDS = 120.0
"""How long `init` waits, at a job's beginning, for the processes that it begins with."""
LOOK_SECONDS = 0.02


class Shared:
    """What a process needs that comes into a `fit` of the others, as `allreduce.State`; told by whoever knows the model."""

    def __init__(self) -> None:
        self.variables: Callable[[], Sequence[Any]] = list
        """What all have alike, of TensorFlow or Keras; asked when it is needed, for models are built late."""
        self.settings: Callable[[], Sequence[Any]] = list
        """Of these, learning rates and the like, which callbacks of each process set."""

    def take(self) -> list[Array]:
        return [np.array(one.numpy(), order="C") for one in self.variables()]

    def put(self, arrays: Sequence[Array]) -> None:
        """Raises UsageError where they are of other variables."""
        mine = self.variables()
        if [tuple(one.shape) for one in mine] != [one.shape for one in arrays]:
            raise UsageError(f"the model here has {len(mine)} variables, not the {len(arrays)} of the others")
        for variable, array in zip(mine, arrays):
            variable.assign(array)


ALONE = Ring(0, 1, None, None)


class Rings:
    """One process's place among the others."""

    def __init__(self) -> None:
        self.member: Member | None = None
        self.initialised = False
        self.shared = Shared()
        self.resets = False
        """Within `elastic.run`."""
        self._ring: Ring | None = None
        self._generation = Generation(-1, 0, (), b"")
        self._trouble = ""
        self._lock = threading.RLock()

    # ------------------------------------------------------------------------------------------------ who is there

    def init(self) -> None:
        """Into the job; at its beginning waits for the others. Can be called again."""
        if self.initialised:
            return
        if self.member is None:
            one = joined.join(self.shared)
            if isinstance(one, Member):
                self.member = one
                one.watch(self._look)
        self.initialised = True
        if self.member is not None and self.member.begins_with > 1:
            self._wait_for(self.member, self.member.begins_with)

    def _wait_for(self, member: Member, count: int) -> None:
        member.take_part()
        end = time.monotonic() + BEGIN_SECONDS
        while len(member.view.workers) < count and time.monotonic() < end:
            if member.leaving.wait(LOOK_SECONDS):
                member.leave()

    def shutdown(self) -> None:
        """The others go on without this process."""
        with self._lock:
            self.initialised = False
            self._leave("it was shut down")
            if self.member is not None:
                self.member.pause()

    @property
    def addresses(self) -> list[str]:
        """host:port of all, in the order of their ranks; of the ring, or the one that this process would be in."""
        self._must_be_initialised()
        if self.member is None:
            return [""]
        if self._ring is not None:
            return [written(*one) for one in self._generation.addresses]
        mine = (self.member.identity.name, self.member.address)
        return [address for _, address in sorted({*((one.name, one.address) for one in self.member.view.workers
                                                    if one.name != mine[0]), mine})]  # fmt: skip

    @property
    def is_alone(self) -> bool:
        """Outside of a job."""
        return self.member is None

    @property
    def rank(self) -> int:
        mine = self.member.address if self.member is not None else ""
        return self.addresses.index(mine)

    @property
    def hosts(self) -> list[str]:
        """Of each rank."""
        return [one.rpartition(":")[0] for one in self.addresses]

    def _must_be_initialised(self) -> None:
        if not self.initialised:
            raise ValueError("Horovod has not been initialized; use hvd.init().")

    # ------------------------------------------------------------------------------------------------ rings

    def _enter(self) -> Ring:
        if self.member is None:
            return ALONE
        if self._ring is None:
            self._generation = self.member.generation(self._generation.number, self._trouble)
            self._trouble = ""
            self._ring = self.member.ring(self._generation)
        if not self.resets and self._others:
            raise LostError("another ring begins")
        return self._ring

    @property
    def _others(self) -> set[str]:
        """Addresses that are either in this ring or in the newest view."""
        if self.member is None or self.member.view.epoch <= self._generation.number:
            return set()
        return {one.address for one in self.member.view.workers} ^ self._members

    @property
    def _members(self) -> set[str]:
        return {written(*one) for one in self._generation.addresses}

    def _look(self) -> None:
        """Another view has come. Within `elastic.run` who comes waits for the next `check`; nobody waits for who is gone."""
        ring, others = self._ring, self._others
        if ring is not None and (others & self._members or (others and not self.resets)):
            ring.give_up()

    def _step_out(self) -> None:
        """The others go on without this process, until its next call."""
        assert self.member is not None
        self._leave("")
        self.member.pause()
        while not self.member.leaving.wait(LOOK_SECONDS):
            view = self.member.view
            if view.epoch > self._generation.number and self.member.address not in {
                one.address for one in view.workers
            }:
                return

    def _leave(self, trouble: str) -> None:
        self._trouble = self._trouble or trouble
        if self._ring is not None:
            ring, self._ring = self._ring, None
            ring.leave()


def depart(member: Member) -> NoReturn:
    """Ends the process where nothing can be raised, in a step of TensorFlow, as if its script had ended."""
    member.finish(0)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def hand_object(ring: Ring, thing: Any, source: int) -> Any:
    """What `source` has, to all; see `things`."""
    said = encoded(thing) if ring.rank == source else b""
    length = int(ring.gather(str(len(said)).encode())[source])
    buffer = np.frombuffer(bytearray(said), np.uint8) if ring.rank == source else np.empty(length, np.uint8)
    ring.hand_on(buffer, source)
    return thing if ring.rank == source else decoded(buffer.tobytes())
