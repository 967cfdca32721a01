"""Sums that survive: each step of training sums what all members have, whoever comes, goes, hangs or dies meanwhile.

A member that waits in a sum when its generation ends does not lose its step: it goes into the next generation with what it has
to give, and sums that there. Members may have come to differ by one step, where one had its sum and another had not: the result
of the last step is kept, and who has not had it gets it, bit for bit. Who is new, or was left out while it hung, gets the state
of one that is there. So nobody computes a step twice, and what was applied anywhere is applied everywhere.

What is computed may come in buckets (`given`): the weights are summed first, then each bucket as soon as it is there. A step is
its sum of all buckets all the same; one that is lost in between is made again as a whole.

A model that begins anew is another one: who comes back with one that began before takes the new one, however many steps it had.
Which result of a step counts is told by the number of the generation that summed it: a member that hung may come back with one
that the others never had, and have summed again without it.

Where a script makes its steps itself (`Summing.place`), members may come to different ones: a newcomer begins its loop, in the
midst of which the others are. Then each sum begins with a word of all, and who is elsewhere than the first that has the newest
state waits: it hands on what passes through the ring, gives nothing and takes nothing, until the others come to where it is,
and then gets their state. Such a script may also rest, while the others go on. Who comes back knows who was there when it went:
where one of those is missed by all that have the newest state here, it may have gone on, and is waited for a while. Else two
would go on from one state, each alone, and what the one has trained would be lost. And who begins such a loop anew, because all
others rest, begins no other model (`goes_on_from`): who comes back with more steps has the one that counts.
"""

from __future__ import annotations

import json
import logging
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from deeprec_ext.allreduce.agreeing import ANY, Word, agreed, heard
from deeprec_ext.allreduce.given import Given, of
from deeprec_ext.allreduce.handing import State, digest, hand_on
from deeprec_ext.allreduce.meeting import Generations, Listener, Waiting, join
from deeprec_ext.allreduce.ring import Array, LostError, Ring
from deeprec_ext.errors import ProtocolError

WAYS_MAX = 1000
JOIN_SECONDS = 60.0
"""For all members of a generation to find each other; its end ends the wait, too."""
ELSEWHERE_SECONDS = 300.0
"""So long who is elsewhere in the script waits for the others to come there."""
ABSENT_SECONDS = 60.0
"""So long who comes back from a rest waits for those who may have gone on meanwhile, and rest now."""
LOOK_SECONDS = 0.05

log = logging.getLogger(__name__)


class OtherError(ProtocolError):
    """The others sum something else in this step: they are elsewhere in the script, or have another model.

    Attributes:
      gradients: whether theirs are a step's: not all of what they sum is `exact`.
    """

    def __init__(self, gradients: bool, text: str = "") -> None:
        alike = "this member sums numbers of other shapes or types than the others: the models are not alike"
        super().__init__(text or alike)
        self.gradients = gradients


@dataclass(frozen=True)
class Summed:
    """What a step's sum brought.

    Attributes:
      arrays: shaped as they were given: the mean of all that was given, by weight; zero where there was no weight.
      weight: of all together; step: its number, from 1; counted: whether what this member gave is in it, or in the state
        that it was given meanwhile.
      followed: whether the sum that this member had before it is in the state: not where it alone had that one when it was
        left out, and the others have summed that step again. So what was trained is known when the next sum is there.
      unanimous: whether all members voted for what they vote on; members: how many summed.
      holds: of each of them, in the order of the ring, what it has said that it holds; empty: this member had that sum from
        another one.
    """

    arrays: list[Array]
    weight: float
    step: int
    counted: bool
    followed: bool
    unanimous: bool = False
    members: int = 1
    holds: tuple[int, ...] = ()


_TAIL = 4
"""Numbers behind those that are summed: the weight, members, votes, and who asks that all have what it has."""


@dataclass(frozen=True)
class _Result:
    flat: Array
    step: int
    number: int  # of the generation that summed it
    before: int  # of the one that summed the step before
    begun: int  # of the one in which the model began
    kind: int = 0  # of what was summed
    holds: tuple[int, ...] = ()

    @property
    def kept(self) -> int:
        """Numbers that another member may be given; 0: it has to be given the state instead."""
        return self.flat.size if self.flat.size and not self.flat[-1] else 0


class Summing:
    """One member's sums, asked for by one thread.

    Args:
      state: of this member. It is taken and put within `sum`, by the thread that calls it: as the last step has left it.
      may_begin: whether its state may be everybody's where nobody has summed yet.
    """

    def __init__(
        self, listener: Listener, generations: Generations, state: State, may_begin: bool = True
    ) -> None:  # fmt: skip
        self.half = False
        """What is no `exact` number travels as float16 (`halves`)."""
        self.place = ""
        """Where in the script the next sum is, alike for all members that are there; empty: all are in the same, always."""
        self._asks: tuple[list[int], int, int, str] = ([0], 0, 0, "")
        """Of the present sum: the first number of each bucket, how many there are, how many of them are exact, their type."""
        self._passes: tuple[list[int], int, int, str] | None = None  # of the others, where they are elsewhere
        self.before: Callable[[], None] = lambda: None
        """Is called at the beginning of each sum: the state is as the last step has left it."""
        self._listener, self._generations, self._state, self._may_begin = listener, generations, state, may_begin
        self._ring: Ring | None = None
        self._number, self._trouble = -1, ""
        self._last: _Result | None = None
        self._rooms: list[Array] = []  # two: for the result of the last step and for the next one
        self._gave_in: set[int] = set()  # generations to which this step was given
        self._is_new, self._followed = True, True
        self._is_in_state = False  # what this member has given to a sum that it lost: others had that sum
        self._ways: list[tuple[int, int]] = []  # the first step of each generation that has summed one, and its number
        self._nobody = False  # of those who have met has a state, nor may begin
        self._begins: tuple[int, int] | None = None
        self._begun_before = 0  # the latest beginning of what this member had and has forgotten
        self._there: frozenset[object] = frozenset()  # names of the present generation, or addresses
        self._left: frozenset[object] = frozenset()  # of those who were there when this member went to rest
        self._waits_until = 0.0  # for those; 0: not yet
        generations.watch(self._look)

    @property
    def step(self) -> int:
        """The last one whose sum is here; 0 before the first, -1 before this member has any state."""
        return self._last.step if self._last is not None else -1

    @property
    def begun(self) -> int:
        """The generation in which the model began, or what it was said to begin with; -1 before this member has any state."""
        return self._last.begun if self._last is not None else -1

    def goes_on_from(self, begun: int, step: int) -> None:
        """Of a member without a state: what it has is no other model than those of the others, and of that beginning and step.
        So whoever has a later beginning, or the same and more steps, whenever he comes, has the state that counts. What it has
        is no older than what it has forgotten."""
        self._begins = max((begun, step), (self._begun_before, 0))

    def sum(
        self, arrays: Sequence[Array] | Given, weight: float, vote: bool = False, leads: bool = False,
        entered: Callable[[], None] = lambda: None, exact: int = 0, other: bool = False, holds: int = 0,
    ) -> Summed:  # fmt: skip
        """The next step's, of all members; waits for them, and for the next generation where this one ends meanwhile.

        What a newcomer gives does not count, for it was computed with another state.

        Args:
          arrays: of float32 or float64, alike on all members and in all steps, but for `other`; they stay as they are. Of a
            `Given` that is cut into buckets these are summed one after the other, each as soon as it is there: all members
            cut alike.
          weight: of what is given, for example its number of records.
          vote: for whatever all members vote on; it counts whatever the weight.
          leads: all have this member's state before they hear of the sum.
          entered: is called in each generation that is entered meanwhile, with the state there is in it; by raising something
            it gives up the sum, and that generation.
          exact: so many of the last arrays are no gradients, and travel as they are.
          other: these arrays may be others than those of the step before; all members sum the same in the same step.
          holds: a number that all are told; up to 2 ** 24, which is whole in float32.

        Raises OtherError where the others sum something else in this step, ProtocolError where this member's arrays or state
        are not like theirs.
        """
        given = of(arrays)
        if (kinds := {one.dtype for one in given.like}) not in ({np.dtype(np.float32)}, {np.dtype(np.float64)}):
            raise ValueError(f"sums are of float32 or of float64, not of {sorted(map(str, kinds))}")
        size = sum(one.size for one in given.like)
        if not (other or self.place) and self._last is not None and self._last.flat.size not in (0, size + _TAIL):
            raise ProtocolError(f"{size} numbers are summed, and {self._last.flat.size - _TAIL} in the step before")
        self.before()
        self._begin()
        end = 0.0  # of the wait for the others, once they are elsewhere
        exactly = sum(one.size for one in given.like[len(given.like) - exact :])
        firsts = sorted(first for _, first, _ in given.places)
        self._asks = firsts, size, exactly, given.like[0].dtype.str
        while True:
            before, number = self._ring, self._number
            with self._giving_up():
                given.check()
                if (result := self._enter(given, exact)) is not None:
                    return self._had(result, given)
            if self._ring is None:
                continue
            with self._giving_up():
                if self._passes is not None:
                    end = end or time.monotonic() + ELSEWHERE_SECONDS
                    self._pass_on(*self._passes, end)
                    continue
                if self._ring is not before or self._number != number:
                    entered()
                result = self._summed(given, 0.0 if self._is_new else weight, vote, leads, exact, holds=holds)
                return self._had(result, given)

    def give_up(self) -> None:
        """The sum that is under way in another thread, and fails (`Given.fail`), does not wait for the others."""
        if (ring := self._ring) is not None:
            ring.give_up()

    def attend(self, arrays: Sequence[Array] | Given, exact: int = 0) -> Summed | None:
        """Of a member that has nothing to sum at the moment: where another generation has begun it enters that with the others,
        who may want a result or the state of it. Returns a sum that it has missed, None if there is none.

        Args:
          arrays, exact: as of `sum`.
        """
        self._begin()
        given = of(arrays)
        for _ in range(2):  # a ring that is over is left first
            with self._giving_up():
                result = self._enter(given, exact)
                return self._had(result, given) if result is not None else None
        return None

    def look(self) -> bool:
        """The state of who has one is put here, whatever they sum; this member takes no part, and is as one that is new. False:
        nobody has one."""
        self._begin()
        self._nobody = False
        while self._last is None and not self._nobody:
            with self._giving_up():
                self._enter(of(()))
        found = self._last is not None
        self.forget()
        return found

    def forget(self) -> None:
        """This member is as one that is new: what it has is not what the others have."""
        self.close()
        self._begun_before = max(self._begun_before, self.begun)
        self._last, self._trouble, self._left, self._begins = None, "a member has begun anew", frozenset(), None

    def rest(self) -> None:
        """Nobody waits for this member; with its next sum it goes on with what it has, or gets what it has missed."""
        self.close()
        self._trouble, self._left, self._waits_until = "a member was away", self._there, 0.0

    def anew(self) -> None:
        """Other arrays are summed from now on."""
        if self._last is not None:
            self._last = replace(self._last, flat=np.empty(0))

    def _begin(self) -> None:
        self._gave_in.clear()
        self._is_in_state = False
        self._is_new = self._last is None or not self._followed

    @contextmanager
    def _giving_up(self) -> Iterator[None]:
        """The ring, where it is lost or this member fails: the others are not to wait for what does not come."""
        try:
            yield
        except LostError as error:
            self._leave(str(error))
        except BaseException as error:
            self._leave(type(error).__name__)
            raise

    def _had(self, result: _Result, given: Given) -> Summed:
        self._last, self._left = result, frozenset()
        if not self._ways or self._ways[-1][1] != result.number:
            self._ways = [*self._ways[-WAYS_MAX:], (result.step, result.number)]
        return self._shaped(result, given)

    def close(self) -> None:
        """The others get what they still need of this member, and go on without it."""
        if self._ring is not None:
            self._ring.leave()
            self._ring = None

    # ------------------------------------------------------------------------------------------------ sums

    def _pass_on(self, firsts: Sequence[int], size: int, exact: int, kind: str, end: float) -> None:
        """A sum of the others, of which this member takes nothing. Raises OtherError after `end`, a time of `monotonic`.

        Args:
          firsts: the first number of each bucket; size: of all of them; exact: of the last ones, that are no gradients.
        """
        if time.monotonic() > end:
            raise OtherError(
                True,
                f"the others have not come to {self.place} for {ELSEWHERE_SECONDS:g} s, where this process is in its script: "
                "they are past that, or make other steps",
            )
        held, last = (self._is_new, self._gave_in.copy()), self._last
        self._is_new, self._last = True, last or _Result(np.empty(0), 0, self._number, 0, 0)
        try:
            sizes = [*(stop - start for start, stop in zip(firsts, [*firsts[1:], size - exact])), exact]
            zeros = [np.zeros(one, np.dtype(kind)) for one in sizes]
            self._summed(Given.whole(zeros, range(len(firsts))), 0.0, False, False, 1, members=0)
        finally:
            (self._is_new, self._gave_in), self._last = held, last

    def _summed(
        self, given: Given, weight: float, vote: bool, leads: bool, exact: int, members: int = 1, holds: int = 0
    ) -> _Result:  # fmt: skip
        ring, last = self._ring, self._last
        assert ring is not None and last is not None
        flat = self._room(given.like)
        if not self._is_new:
            self._gave_in.add(self._number)
        words = np.zeros(_TAIL + ring.size, flat.dtype)
        words[:_TAIL] = weight, members, vote, leads
        words[_TAIL + ring.rank] = holds
        ring.sum(words)
        flat[-_TAIL:] = words[:_TAIL]
        total, rounded = float(flat[-_TAIL]), 0
        if self.half:
            rounded = sum(one.size for one in given.like[: len(given.like) - exact])
        if not total:  # there is nothing to sum
            flat[:-_TAIL] = 0
        for bucket, start, end in given.places if total else ():
            at = start
            for one in given.wait(bucket):
                if weight:
                    np.multiply(one.reshape(-1), weight, out=flat[at : at + one.size])
                else:
                    flat[at : at + one.size] = 0  # and not 0 times what may be no number
                at += one.size
            exactly = min(max(start, rounded), end)
            ring.sum(flat[start:exactly], half=True, over=total)
            ring.sum(flat[exactly:end], over=total)
        if flat[-1]:
            self._level(ring, leads)
        told = tuple(map(int, words[_TAIL:]))
        return _Result(flat, last.step + 1, self._number, last.number, last.begun, self._kind(given, exact), told)

    def _shaped(self, result: _Result, given: Given) -> Summed:
        found: list[Array] = []
        at = 0
        total, members, votes, _ = map(float, result.flat[-_TAIL:])
        for one in given.like:
            found.append(result.flat[at : at + one.size].reshape(one.shape).copy())
            at += one.size
        counted = result.number in self._gave_in or self._is_in_state
        followed, self._followed = self._followed, True
        return Summed(found, total, result.step, counted, followed, votes == members, int(members), result.holds)

    def _level(self, ring: Ring, leads: bool) -> None:
        """All have the state of the first that leads."""
        check = digest(self._state)
        told = [json.loads(one) for one in ring.gather(json.dumps((leads, check)).encode())]
        source = next(rank for rank, (leads, _) in enumerate(told) if leads)
        if any(one[1] != told[source][1] for one in told):
            self._hand_on_state(ring, source, takes=check != told[source][1])

    def _kind(self, given: Given, exact: int) -> int:
        """Of what is summed, and how it is cut; odd, where there are gradients among it."""
        if not given.like:
            return ANY
        shapes = [(one.dtype.str, one.shape) for one in given.like]
        check = zlib.crc32(repr([self.half, self.place, given.starts, *shapes]).encode())
        return check << 1 | (exact < len(given.like))

    def _room(self, arrays: Sequence[Array]) -> Array:
        size, dtype = sum(one.size for one in arrays) + _TAIL, arrays[0].dtype
        last = self._last.flat if self._last is not None else None
        self._rooms = [one for one in self._rooms if (one.size, one.dtype) == (size, dtype)]
        for one in self._rooms:
            if one is not last:
                return one
        self._rooms.append(np.empty(size, dtype))
        return self._rooms[-1]

    # ------------------------------------------------------------------------------------------------ generations

    def _look(self) -> None:
        ring = self._ring
        if ring is not None and self._generations.over(self._number):
            ring.give_up()

    def _leave(self, trouble: str) -> None:
        self._trouble = trouble
        if self._ring is not None:
            log.info("generation %d is over here: %s", self._number, trouble)
            self._ring.give_up()
            self._ring.leave()
            self._ring = None

    def _enter(self, given: Given, exact: int = 0) -> _Result | None:
        """This member is in a ring, and has what the others have; a result: of the step that it asks for, which is over."""
        if self._ring is not None:
            if self._generations.over(self._number):  # of a ring of one nobody would hear it otherwise
                raise LostError("another generation has begun")
            return self._meet(self._ring, given, self._kind(given, exact)) if self.place else None
        generation = self._generations.after(self._number, self._trouble)
        self._number = number = generation.number
        wait = Waiting(lambda: self._generations.over(number), JOIN_SECONDS, f"generation {number}")
        self._ring = join(self._listener, number, generation.rank, generation.addresses, generation.secret, wait)
        self._there = frozenset(generation.names or generation.addresses)
        if self._begins is not None and self._last is None:
            begun, step = self._begins
            self._last, self._is_new = _Result(np.empty(0), step, number, -1, begun), False
        if self._generations.over(number):  # it was told before there was anything to give up
            raise LostError("another generation has begun")
        return self._meet(self._ring, given, self._kind(given, exact))

    def _meet(self, ring: Ring, given: Given, mine_is: int) -> _Result | None:
        """What everybody has, and what who needs. All do the same with the same that was told."""
        last = self._last
        mine = self._word(given, mine_is)
        words = heard(ring.gather(mine.told()))
        found = agreed(words)
        best, source, late, waits = found.best, found.source, found.late, found.waits
        begun, step, number, before, *_ = best
        if mine.absent and found.may_be_behind:
            self._wait_for(mine.absent)
        self._passes = None
        if not found.alike[ring.rank]:
            raise OtherError(bool(found.kind & 1))
        if not all(found.alike):
            ring.leave()  # in order: it is to hear what all have said
            raise LostError("a member sums numbers of other shapes or types, and is none of us")
        if found.begins:
            if source < 0:
                self._nobody = True
                ring.leave()  # in order, as above
                raise LostError("nobody has the model, and who may begin it is not here")
            begun = number = self._number  # two beginnings are not the same
        result = None
        if any(late):
            has_it = last is not None and mine[:5] == best[:5]
            flat = last.flat if last is not None and has_it else np.empty(best.kept, np.dtype(best.type_had))
            ring.hand_on(flat, source)
            result = _Result(flat, step, number, before, begun, best.kind_had)
        if not all(is_same or is_late for is_same, is_late in zip(found.same, late)):
            takes = not found.same[ring.rank] and not late[ring.rank]
            ways = self._hand_on_state(ring, source, takes=takes)
            if takes:
                self._followed = self._followed and (
                    last is None or last.step < 1 or _summed_by(ways, last.step) == last.number
                )
                self._is_in_state = (
                    last is not None and self._followed and (last.begun, last.step) < (begun, step)
                    and last.begun == begun and _summed_by(ways, last.step + 1) in self._gave_in
                )  # fmt: skip
                self._is_new, self._ways = True, ways
                self._gave_in.clear()
                self._last = result or _Result(np.empty(0), max(step, 0), number, before, begun)
        if waits[ring.rank]:
            firsts, numbers, exact, form = words[source].asks
            self._passes = firsts, numbers, exact, form
        elif found.begins:
            self._is_new = not found.same[ring.rank]
            self._last = self._last or _Result(np.empty(0), 0, number, before, begun)
        return result if late[ring.rank] else None

    def _word(self, given: Given, kind: int) -> Word:
        last, kind_had = self._last, 0
        begun = step = number = before = -1
        kept, type_had = 0, given.like[0].dtype.str if given.like else np.dtype(np.float32).str
        if last is not None:
            begun, step, number, before, kept = last.begun, last.step, last.number, last.before, last.kept
            kind_had, type_had = last.kind, last.flat.dtype.str
        absent = len(self._left - self._there) if self.place and last is not None else 0
        may_begin = self._may_begin and bool(given.like)
        return Word(
            begun, step, number, before, kept, kind, may_begin, kind_had, type_had, bool(self.place), self._asks, absent
        )  # fmt: skip

    def _wait_for(self, absent: int) -> None:
        """So many members, who may have gone on from the newest state that is here. Raises LostError when somebody has come."""
        if not self._waits_until:
            self._waits_until = time.monotonic() + ABSENT_SECONDS
            log.info(
                "waiting up to %g s for %d of those who were there when this process went to rest: they may have gone on",
                ABSENT_SECONDS, absent,
            )  # fmt: skip
        while time.monotonic() < self._waits_until:
            if self._generations.over(self._number):
                raise LostError("others have come, who may have gone on")
            time.sleep(LOOK_SECONDS)

    def _hand_on_state(self, ring: Ring, source: int, *, takes: bool) -> list[tuple[int, int]]:
        """The state of one to all that are new. Returns which generations have summed its steps."""
        return [(first, number) for first, number in hand_on(ring, source, self._state, self._ways, takes=takes)]


def _summed_by(ways: Sequence[tuple[int, int]], step: int) -> int:
    """The generation that has summed it; -1: nobody knows any more."""
    return next((number for first, number in reversed(ways) if first <= step), -1)
