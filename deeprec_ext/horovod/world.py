"""The processes of a job as a script written for Horovod sees them: who they are, and what they do together.

Such a script makes its calls (a sum of gradients, a broadcast, a look for changes) in all processes, in the same order. Each
call begins with a word of everybody, so all know whether it is the same one, and go through it in one ring (`allreduce.ring`).

Where the ring is lost, or another begins, there are two ways. Within `elastic.run` the call fails as it does in Horovod, and
all begin again with the state of the one that is farthest. Elsewhere the call is made again with those who are there: who had
come through it gives the others its result, and who is new, or was away, is given the model.

Who is new makes calls before its first step, which the others have made long ago: it hears what these gave (`before`), and
steps out of the ring until it has gradients. So the others wait for it twice, for a moment, and not while it builds its model.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

from deeprec_ext.allreduce.ring import Array, LostError, Ring
from deeprec_ext.elastic.member.views import LeaveError
from deeprec_ext.errors import DeepRecError, UsageError
from deeprec_ext.horovod.before import Before
from deeprec_ext.horovod.rings import ALONE, LOOK_SECONDS, Rings, Shared, depart, hand_object
from deeprec_ext.horovod.words import GRADIENTS, MODEL, OF_TRAINING, REST, Call, Word, best_of, common, leader_of, of

T = TypeVar("T")

GRAPH_SECONDS = 30.0
"""How long calls of one run of a graph may take to come, where none of them is at another process yet."""
ASKS_MAX, ASK_SECONDS = 8, 0.5
"""So often a process asks again, each time after twice as long, which comes before the first step of the others, where their
calls have given more than is kept."""


class HorovodInternalError(DeepRecError):
    """A process was lost in the middle of a call; `elastic.run` goes back to the last commit."""


class HostsUpdatedInterrupt(DeepRecError):
    """Processes come or go; `elastic.run` goes on with what the state is now."""


class World(Rings):
    """One process's part in it. Calls come one after the other, but for those of one run of a graph of TensorFlow 1."""

    def __init__(self) -> None:
        super().__init__()
        self.begins_anew: list[Callable[[], None]] = []
        """Called in each process where all begin again together."""
        self.failure: BaseException | None = None
        """Why a step in TensorFlow has failed, which knows it as a text alone."""
        self.root = 0
        """Who has what a broadcast of rank 0 gives: while a state is handed on, one that is not new."""
        self.was_given = False
        """In the last call, the model of the others."""
        self._calls, self._came_in, self._before = 0, -1, -1
        self._result: Any = None
        self._last = ""
        self._steps, self._own, self._weight = 0, 0, 1
        self._words: list[Word] = []
        self._apart = False  # somebody has come in the middle, or rests: only calls of training are made together
        self._has_trained, self._was_let_in = False, False
        self._earlier = Before()
        self._is_late = self._follows = False  # the others train, or are at later calls before their first step
        self._asked = 0
        self._waiting: list[Call] = []
        self._arrived = threading.Condition()
        self._unlike: float | None = None  # since when calls of a graph wait for others of it

    # ------------------------------------------------------------------------------------------------ calls

    def call(
        self, kind: str, work: Callable[[Ring, int], T], like: str = "", says: Sequence[float] = (), gathers: bool = False
    ) -> T:  # fmt: skip
        """What `work(ring, weight)` gives in a ring of all; `weight`: how many have given something that counts.

        Args:
          kind: `GRADIENTS`, or what else is done; like: what has to be alike everywhere; says: see `led`.
          gathers: other calls may come at the same time, from other threads, in another order than elsewhere: they are told
            apart by `like`, and made in the order of that.

        Raises HorovodInternalError within `elastic.run` where the ring is lost, UsageError where calls are not alike,
        LeaveError where this process is to leave.
        """
        self._must_be_initialised()
        one = Call(f"{kind} {like}".strip(), work, gathers, says)
        with self._arrived:
            self._waiting.append(one)
            self._arrived.notify_all()
        try:
            with self._lock:
                self.was_given = False
                while not one.is_over:
                    self._try(one)
            result: T = one.result()
            return result
        finally:
            with self._arrived:
                self._waiting.remove(one)

    def _try(self, one: Call) -> None:
        """The call that is next, which may be another one of this process; or what is to be done before."""
        if self._is_alone_with(one):
            return
        try:
            if not self.resets and self.member is not None and self.member.leaving.is_set():
                self._leave("it leaves")
                self.member.leave()
            ring = self._enter()
            if not self._all_are_at_one_place(ring):
                return
            chosen = self._chosen(ring)
            if chosen is not None:
                result = chosen.work(ring, sum(one.weight for one in self._words))
                self._came_through(chosen, result, self._generation.number)
        except LostError as error:
            self._leave(str(error))
            if self.resets:
                failure = HorovodInternalError(f"a call was broken off: {error}")
                failure.__cause__ = error
                self._fail(failure)
        except BaseException as error:
            self._leave(type(error).__name__)
            self._fail(error)

    def _is_alone_with(self, one: Call) -> bool:
        """Whether the others do not make it, and it is over."""
        if one.kind in OF_TRAINING or self.resets:
            return False
        follows = self._follows and self._earlier.has_more
        if not (follows or self._is_late or self._apart):
            return False
        known = self._earlier.next(one.name) if follows or self._is_late else None
        if follows and known is None:
            raise UsageError(f"the others have not come to {one.name!r} here: make the same calls in the same order")
        one.end(known[0] if known is not None else one.work(ALONE, 1))
        return True

    def _fail(self, error: BaseException) -> None:
        for one in self._now():
            one.fail(error)

    def _now(self) -> list[Call]:
        with self._arrived:
            return [one for one in self._waiting if not one.is_over]

    @property
    def counts(self) -> bool:
        """Whether what this process gives was computed with the model of the others."""
        return self._weight > 0

    @property
    def led(self) -> list[float]:
        """What the process says that has made most steps: learning rates, which each may set for itself. Within a call."""
        return leader_of(self._words).says

    def hand_model(self, root_rank: int) -> None:
        """All have the model (`shared`) of one then, also who has come in meanwhile and is at gradients. Who was given it when
        it came in has it already."""
        if not self._was_let_in:
            self.call(MODEL, self._handed, f"of rank {root_rank}")

    def _handed(self, ring: Ring, weight: int) -> list[Array]:
        there = [rank for rank, one in enumerate(self._words) if one.is_at(MODEL)]
        root = int(self._words[there[0]].kinds[0].rpartition(" ")[2])
        source = root if root in there else there[0]
        arrays = [np.array(one, order="C") for one in self.shared.take()]
        for one in arrays:
            ring.hand_on(one.reshape(-1).view(np.uint8), source)
        if ring.rank != source:
            self.shared.put(arrays)
        return arrays

    def rest(self) -> None:
        """A `fit` is over. Where it is so for all, they go on together; else the others, who have more to do, go on without
        this process until it makes a step again."""
        if self.member is None or self.resets:
            return
        with contextlib.suppress(LeaveError):  # the script goes on to its end
            self.call(REST, lambda ring, weight: None)

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
            self._calls, self._came_in, self._before, self._weight, self._own = 0, -1, -1, 1, 0
            self._result, self._last, self._apart, self._is_late, self._was_let_in = None, "", False, False, False
            for begin in self.begins_anew:
                begin()
            self.enter()

    def _all_are_at_one_place(self, ring: Ring) -> bool:
        """Each says where it is. Else that is settled, and they say it again."""
        now = self._now()
        says = next((list(one.says) for one in now if one.says), [])
        trains = self._has_trained or any(one.kind in OF_TRAINING for one in now)
        mine = Word(
            [one.name for one in now], any(one.gathers for one in now), self._last, self._calls, self._came_in, self._before,
            self._steps, self._own, self.resets, bool(self._others),
            self.member is not None and self.member.leaving.is_set(), self._weight, trains, self._apart, says,
        )  # fmt: skip
        self._words = [Word.heard(one) for one in ring.gather(mine.told())]
        self._steps = max(one.steps for one in self._words)
        if any(one.resets for one in self._words):
            return True
        self._apart = self._apart or any(one.apart for one in self._words)
        best = best_of(self._words)
        if not best.calls:  # nobody has come through any: all begin
            self._came_in = self._generation.number
            return True
        if all(one.is_like(best) for one in self._words):
            return True
        self._settle(ring, best)
        return False

    def _chosen(self, ring: Ring) -> Call | None:
        """The call that all make now. None: there is none yet. Raises as `_must_be_alike`."""
        words, now = self._words, self._now()
        if not any(one.resets for one in words):
            rest = [one.is_at(REST) for one in words]
            if any(rest) and not all(rest):
                if rest[ring.rank]:
                    self._step_out()
                    self._apart, self._was_let_in = True, False
                    now[0].end(None)
                else:
                    self._leave("")
                return None
            if self._apart and not all(one.is_at(*OF_TRAINING) for one in words):
                for one in now:
                    if one.kind not in OF_TRAINING:
                        one.end(one.work(ALONE, 1))
                return None
            if any(one.is_at(MODEL) for one in words) and all(one.is_at(MODEL, GRADIENTS) for one in words):
                return next((one for one in now if one.kind == MODEL), None) or self._guest()
        name = common(words)
        if name is not None:
            self._unlike = None
            return next(one for one in now if one.name == name)
        if any(one.gathers for one in words):
            self._unlike = self._unlike or time.monotonic()
            if time.monotonic() - self._unlike < GRAPH_SECONDS:
                with self._arrived:
                    self._arrived.wait_for(lambda: len(self._now()) > len(now), LOOK_SECONDS)
                return None
        self._must_be_alike(ring)
        return None

    def _must_be_alike(self, ring: Ring) -> None:
        """Raises UsageError where this process is at another call than who has trained most, LostError where others are."""
        right, mine = max(self._words, key=lambda one: one.steps), self._words[ring.rank]
        if mine.kinds == right.kinds:
            raise LostError("a process has come to another call, and is none of us")
        raise UsageError(
            f"processes have come to calls that are not alike: {_few(mine.kinds)} of rank {ring.rank}, {_few(right.kinds)} of "
            f"rank {self._words.index(right)}: give all as many steps, and the same calls in the same order"
        )

    def _settle(self, ring: Ring, best: Word) -> None:
        """Who is late gets the result of its call; who is new gets the model, or, before its first step, what calls have given
        that the others have made there."""
        mine, source = self._words[ring.rank], self._words.index(best)
        if any(one.is_late(best) for one in self._words):
            came = hand_object(ring, self._result, source)
            if mine.is_late(best):
                self._comes_late_through(best, came)
        if any(one.is_new(best) and not one.asks(best) for one in self._words):
            arrays = hand_object(ring, self.shared.take() if ring.rank == source else None, source)
            self._apart = self._apart or bool(arrays)  # else nobody can come in, and all is as it was
            if mine.is_new(best) and not mine.asks(best):
                self._take_model(arrays, best)
        if any(one.asks(best) for one in self._words):
            told = hand_object(ring, self._what_was_before() if ring.rank == source else None, source)
            if mine.asks(best):
                self._hear_what_was_before(told, best)
            else:
                self._leave("")  # the next is without it

    def _guest(self) -> Call:
        """Of a process that is at gradients: these are of another model than the one that is handed."""
        return Call(MODEL, self._handed)

    def _comes_late_through(self, best: Word, came: Any) -> None:
        call = next((one for one in self._now() if one.name == best.last), None)
        if of(best.last) == MODEL:
            self.shared.put(came)
            call = call or self._guest()
        if call is None:
            raise UsageError(
                f"processes have come to calls that are not alike: {_few([one.name for one in self._now()])} here, "
                f"{best.last!r} in others: give all as many steps, and the same calls in the same order"
            )
        self._came_through(call, came, best.number)

    def _take_model(self, arrays: Sequence[Array], best: Word) -> None:
        if not arrays:
            self._cannot_enter()
        self.shared.put(arrays)
        self._calls, self._came_in, self._before, self._weight = best.calls, best.number, best.before, 0
        self._has_trained, self._is_late, self._was_let_in, self.was_given = True, False, True, True
        model = next((one for one in self._now() if one.kind == MODEL), None)
        if model is not None and not best.is_at(MODEL):  # and its gradients will be of this model
            self._weight = 1
            model.end(None)

    def _what_was_before(self) -> dict[str, Any]:
        return {
            "enters": bool(self.shared.take()), "gave": self._earlier.told(), "is whole": self._earlier.is_whole
        }  # fmt: skip

    def _hear_what_was_before(self, told: dict[str, Any], best: Word) -> None:
        """The others go on without this process until it has made those calls, or its first gradients where they have."""
        assert self.member is not None
        waits = 0.0
        if best.trains:
            if not told["enters"]:
                self._cannot_enter()
            self._is_late, self._follows = True, False
            self._calls, self._came_in = (
                1,
                -1 - random.getrandbits(31),
            )  # with whoever begins after them it is not alike
        elif told["is whole"]:
            self._follows = True
            self._calls, self._came_in, self._before = best.calls, best.number, best.before
        elif self._asked < ASKS_MAX:
            waits, self._asked = ASK_SECONDS * 2**self._asked, self._asked + 1
        else:
            self._cannot_enter()
        if not waits:
            self._earlier.hear(told["gave"], told["is whole"])
        self._step_out()
        self.member.leaving.wait(waits)

    def _cannot_enter(self) -> NoReturn:
        assert self.member is not None
        self.member.notice(
            "nobody-enters", "the others train in a loop that a process cannot enter, for nobody knows where its model is",
            "train in a function with @hvd.elastic.run and a state, or by fit with BroadcastGlobalVariablesCallback, or in a "
            "session with BroadcastGlobalVariablesHook",
        )  # fmt: skip
        self.member.leave()

    def _came_through(self, call: Call, result: Any, number: int) -> None:
        self._calls, self._came_in, self._before = self._calls + 1, number, self._came_in
        self._result, self._last, self._weight = result, call.name, 1
        if call.kind == GRADIENTS:
            self._steps, self._own = self._steps + 1, self._own + 1
            if self.member is not None:
                self.member.trained(self._steps)
        if call.kind == MODEL and any(one.kind == GRADIENTS for one in self._now()):
            self._weight, self.was_given = 0, True
        if call.kind == REST:
            self._apart, self._was_let_in = False, False  # all are at one place again
        if call.kind in OF_TRAINING:
            self._has_trained, self._is_late = True, False
        elif not self._has_trained and not self.resets:
            self._earlier.made(call.name, result)
        call.end(result)


def _few(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


WORLD = World()

__all__ = [
    "GRADIENTS", "WORLD", "HorovodInternalError", "HostsUpdatedInterrupt", "LeaveError", "Shared", "World", "depart",
    "hand_object",
]  # fmt: skip
