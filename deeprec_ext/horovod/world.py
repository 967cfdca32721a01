"""The processes of a job as a script written for Horovod sees them: who they are, and what they do together.

Such a script makes its calls (a sum of gradients, a broadcast, a look for changes) in all processes, in the same order. Each
call begins with a word of everybody, so all know whether it is the same one, and go through it in one ring (`allreduce.ring`).

Where the ring is lost, or another begins, there are two ways. Within `elastic.run` the call fails as it does in Horovod, and
all begin again with the state of the one that is farthest. Elsewhere the call is made again with those who are there: who had
come through it gives the others its result, and who is new, or was away, is given the model.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn, TypeVar

import numpy as np

from deeprec_ext.allreduce.ring import Array, LostError, Ring
from deeprec_ext.allreduce.summing import Generation
from deeprec_ext.elastic.member import joined
from deeprec_ext.elastic.member.member import Member
from deeprec_ext.elastic.member.views import LeaveError
from deeprec_ext.errors import DeepRecError, UsageError
from deeprec_ext.horovod.things import decoded, encoded

log = logging.getLogger("deeprec_ext")
T = TypeVar("T")

BEGIN_SECONDS = 120.0
"""How long `init` waits, at a job's beginning, for the processes that it begins with."""
LOOK_SECONDS = 0.02
REST_SECONDS = 5.0
"""How long others may wait for a process whose `fit` is over."""
GRADIENTS = "gradients"
"""The kind of call that is made in each step, of whatever length the fits of others are."""


class HorovodInternalError(DeepRecError):
    """A process was lost in the middle of a call; `elastic.run` goes back to the last commit."""


class HostsUpdatedInterrupt(DeepRecError):
    """Processes come or go; `elastic.run` goes on with what the state is now."""


class Shared:
    """What a process needs that comes into a `fit` of the others, as `allreduce.State`; told by whoever knows the model."""

    def __init__(self) -> None:
        self.variables: Callable[[], Sequence[Any]] = list
        """What all have alike, of TensorFlow or Keras; asked when it is needed, for models are built late."""

    def take(self) -> list[Array]:
        return [np.array(one.numpy(), order="C") for one in self.variables()]

    def put(self, arrays: Sequence[Array]) -> None:
        mine = self.variables()
        if [tuple(one.shape) for one in mine] != [one.shape for one in arrays]:
            raise UsageError(f"the model here has {len(mine)} variables, not the {len(arrays)} of the others")
        for variable, array in zip(mine, arrays):
            variable.assign(array)


@dataclass(frozen=True)
class Word:
    """What each process says where a call begins."""

    kind: str  # of the call, with what has to be alike
    calls: int  # that it has come through
    number: int  # of the ring in which it came through the last one
    before: int  # and through the one before
    steps: int  # of the job, as far as it knows
    resets: bool  # it is within `elastic.run`
    stale: bool  # it has heard of a view with others
    leaves: bool
    weight: int  # 0: it has been given the model in the middle of a step, and its gradients are of another one

    def is_like(self, best: Word) -> bool:
        return (self.calls, self.number) == (best.calls, best.number)

    def is_late(self, best: Word) -> bool:
        return (self.calls, self.number) == (best.calls - 1, best.before)


ALONE = Ring(0, 1, None, None)


class World:
    """One process's part in it. Calls come from one thread at a time."""

    def __init__(self) -> None:
        self.member: Member | None = None
        self.initialised = False
        self.shared = Shared()
        self.begins_anew: list[Callable[[], None]] = []
        """Called in each process where all begin again together."""
        self.failure: BaseException | None = None
        """Why a step in TensorFlow has failed, which knows it as a text alone."""
        self.resets = False
        """Within `elastic.run`."""
        self.root = 0
        """Who has what a broadcast of rank 0 gives: while a state is handed on, one that is not new."""
        self._ring: Ring | None = None
        self._generation = Generation(-1, 0, (), b"")
        self._trouble = ""
        self._calls, self._came_in, self._before = 0, -1, -1
        self._result: Any = None
        self._steps, self._weight = 0, 1
        self._words: list[Word] = []
        self._made, self._resting = 0, threading.Timer(0, lambda: None)
        self._apart = False  # somebody has come in the middle: only gradients are summed from now on
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
            return [f"{host}:{port}" for host, port in self._generation.addresses]
        mine = (self.member.identity.name, self.member.address)
        return [address for _, address in sorted({*((one.name, one.address) for one in self.member.view.workers
                                                    if one.name != mine[0]), mine})]  # fmt: skip

    @property
    def is_alone(self) -> bool:
        """Outside of a job."""
        return self.member is None

    @property
    def counts(self) -> bool:
        """Whether what this process gives was computed with the model of the others."""
        return self._weight > 0

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

    # ------------------------------------------------------------------------------------------------ calls

    def call(self, kind: str, work: Callable[[Ring, int], T], like: str = "") -> T:
        """What `work(ring, weight)` gives in a ring of all; `weight`: how many have given something that counts.

        Args:
          kind: `GRADIENTS`, or what else is done; like: what has to be alike everywhere.

        Raises HorovodInternalError within `elastic.run` where the ring is lost, UsageError where calls are not alike,
        LeaveError where this process is to leave.
        """
        self._must_be_initialised()
        with self._lock:
            self._made += 1
            self._resting.cancel()
            while True:
                if self._apart and kind != GRADIENTS:
                    return work(ALONE, 1)
                if not self.resets and self.member is not None and self.member.leaving.is_set():
                    self._leave("it leaves")
                    self.member.leave()
                try:
                    ring = self._enter()
                    if self._words_are_told(ring, f"{kind} {like}".strip()):
                        late = self._settle(ring)
                        if late is not None:
                            return self._came_through(kind, late[0], self._best.number)
                        continue
                    self._must_be_alike(ring)
                    result = work(ring, sum(one.weight for one in self._words))
                    return self._came_through(kind, result, self._generation.number)
                except LostError as error:
                    self._leave(str(error))
                    if self.resets:
                        raise HorovodInternalError(f"a call was broken off: {error}") from error
                except BaseException as error:
                    self._leave(type(error).__name__)
                    raise

    def rest(self) -> None:
        """A `fit` is over: the others, who may have more to do, go on without this process unless it calls again soon."""
        if self.member is None or self.resets:
            return
        member, made = self.member, self._made

        def leave() -> None:
            with self._lock:
                if made == self._made and not member.leaving.is_set():
                    self._leave("")
                    member.pause()

        self._resting.cancel()
        self._resting = threading.Timer(REST_SECONDS, leave)
        self._resting.daemon = True
        self._resting.start()

    def gather(self, kind: str, said: str) -> list[str]:
        """What each says, in the order of their ranks; a line."""
        return self.call(kind, lambda ring, weight: [one.decode() for one in ring.gather(said.encode())])

    def check(self) -> None:
        """All hear at once that processes come or go. Raises HostsUpdatedInterrupt."""
        self.call("check", lambda ring, weight: None)
        if self.member is not None and any(one.leaves or one.stale for one in self._words):
            raise HostsUpdatedInterrupt("processes come or go")

    def enter(self) -> bool:
        """Into a ring, before the first call; whether this process was in none."""
        with self._lock:
            new = self._ring is None
            while self.member is not None and self._ring is None:
                try:
                    self._enter()
                except LostError as error:
                    self._leave(str(error))
            return new

    def begin_anew(self) -> None:
        """Into the next ring, from a place where all are at the same. Raises LeaveError where this process is to leave."""
        if self.member is not None and self.member.leaving.is_set():
            self._leave("it leaves")
            self.member.leave()
        with self._lock:
            self._leave("")
            self._calls, self._came_in, self._before, self._weight = 0, -1, -1, 1
            self._result, self._apart = None, False
            for begin in self.begins_anew:
                begin()
            self.enter()

    def _words_are_told(self, ring: Ring, kind: str) -> bool:
        """Whether something has to be settled before the call."""
        leaves = self.member is not None and self.member.leaving.is_set()
        mine = Word(
            kind,
            self._calls,
            self._came_in,
            self._before,
            self._steps,
            self.resets,
            bool(self._others),
            leaves,
            self._weight,
        )
        self._words = [Word(**json.loads(one)) for one in ring.gather(json.dumps(asdict(mine)).encode())]
        self._steps = max(one.steps for one in self._words)
        if any(one.resets for one in self._words):
            return False
        best = self._best
        if not best.calls:  # nobody has come through any: all begin
            self._came_in = self._generation.number
            return False
        return not all(one.is_like(best) for one in self._words)

    @property
    def _best(self) -> Word:
        return max(self._words, key=lambda one: (one.calls, one.number))

    def _must_be_alike(self, ring: Ring) -> None:
        """Raises UsageError where this process is at another call than who has trained most, LostError where others are."""
        right, mine = max(self._words, key=lambda one: one.steps), self._words[ring.rank]
        if all(one.kind == right.kind for one in self._words):
            return
        if mine.kind == right.kind:
            raise LostError("a process has come to another call, and is none of us")
        raise UsageError(
            f"processes have come to calls that are not alike: {mine.kind!r} of rank {ring.rank}, {right.kind!r} of rank "
            f"{self._words.index(right)}: give all as many steps, and the same calls in the same order"
        )

    def _settle(self, ring: Ring) -> tuple[Any] | None:
        """Who is late gets the result of its call; who is new gets the model. None: the call is to be made."""
        best, mine = self._best, self._words[ring.rank]
        source = self._words.index(best)
        late = [one.is_late(best) for one in self._words]
        new = [not one.is_like(best) and not is_late for one, is_late in zip(self._words, late)]
        found: tuple[Any] | None = None
        if any(late):
            came = hand_object(ring, self._result, source)
            if mine.is_late(best):
                found = (came,)
        if any(new):
            arrays = hand_object(ring, self.shared.take() if ring.rank == source else None, source)
            self._apart = self._apart or bool(arrays)  # else nobody can come in, and all is as it was
            if new[ring.rank]:
                self._take_model(arrays, best)
        return found

    def _take_model(self, arrays: Sequence[Array], best: Word) -> None:
        assert self.member is not None
        if not arrays:
            self.member.notice(
                "nobody-enters", "the others train in a loop that a process cannot enter, for nobody knows where its model is",
                "train in a function with @hvd.elastic.run and a state, or by fit with BroadcastGlobalVariablesCallback",
            )  # fmt: skip
            self.member.leave()
        self.shared.put(arrays)
        self._calls, self._came_in, self._before, self._weight = best.calls, best.number, best.before, 0

    def _came_through(self, kind: str, result: Any, number: int) -> Any:
        self._calls, self._came_in, self._before = self._calls + 1, number, self._came_in
        self._result, self._weight = result, 1
        if kind == GRADIENTS:
            self._steps += 1
            if self.member is not None:
                self.member.trained(self._steps)
        return result

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
        return {f"{host}:{port}" for host, port in self._generation.addresses}

    def _look(self) -> None:
        """Another view has come. Within `elastic.run` who comes waits for the next `check`; nobody waits for who is gone."""
        ring, others = self._ring, self._others
        if ring is not None and (others & self._members or (others and not self.resets)):
            ring.give_up()

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


WORLD = World()

__all__ = [
    "GRADIENTS",
    "WORLD",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "LeaveError",
    "World",
    "depart",
    "hand_object",
]
