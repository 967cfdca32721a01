"""The global step, as far as the words of trainers can be true. Pure: time is an argument.

It is one number for all, on a PS, and every trainer sees it. What a trainer tells lies at most so much beyond what is known as
could have been trained since then. Beyond that it is believed when another trainer tells the same (a script has set the step),
or when it is the chief's and nobody else has told any, or makes any meanwhile: only the chief knows which checkpoint it
restored. That stands until another trainer makes steps that lie below it: then those are the step.

After a model went back, trainers go on telling the step of before until they have made one: that is neither a step nor a lie.
"""

from __future__ import annotations

from deeprec_ext.aimaster.membership.plausible import GRACE_SECONDS, STEPS_PER_SECOND_MAX, Count

AGREED_SECONDS = 10.0
"""So long the word of a chief waits for another trainer's, before those who make other steps speak against it,
or nobody does."""

Doubt = tuple[str, str]
"""Who has said what cannot be true, and what."""


class GlobalStep:
    """Of one job. `highest`: ever, for the summary."""

    def __init__(self, highest: int) -> None:
        self._count = Count(STEPS_PER_SECOND_MAX, highest)
        self.highest = highest
        self._passed = 0  # since the model was live; a worker that leaves takes its last report with it
        self._before: int | None = None  # the highest before a chief alone told what cannot be checked; None: all agree
        self._told: dict[str, int] = {}  # trainer -> its highest that was believed, since the model was live
        self._beyond: dict[str, tuple[int, float, float]] = {}  # what is not: step, when, when it was first so
        self._old: dict[str, int] = {}  # trainer -> what it told before the model went back, and may still tell
        self._trained: dict[str, float] = {}  # trainer -> when it was heard last that it had made a step

    @property
    def value(self) -> int:
        """The highest since the model was live; before one was told, the highest ever."""
        return self._passed or self.highest

    def restored(self, step: int, now: float) -> None:
        """The model is live from this step, which may be before what was reached, as its chief says."""
        self._old = {who: told for who, told in {**self._old, **self._told}.items() if told > step}
        self._told, self._beyond, self._trained = {}, {}, {}
        self._before = None if step <= self._count.most(now) else self.highest
        self._count.value, self._count.at, self._passed = step, now, step

    def hear(self, name: str, step: int, now: float, *, chief: bool) -> tuple[bool, list[Doubt]]:
        """Whether it is believed, and whose words are doubted because of it."""
        if self._is_old(name, step):
            return True, []
        if step > self._count.most(now):
            return self._hear_beyond(name, step, now, chief=chief)
        doubts: list[Doubt] = []
        trains = self._told.get(name, step) < step
        if self._before is not None and not chief:
            if step >= self._count.value - _reach(0.0):
                self._before = None  # it has seen the same
            elif trains:
                doubts += self._contradict(step, now)
        if trains:
            self._trained[name] = now
            doubts += self._not_agreed(name, now)
        self._accept(name, step, now)
        return True, doubts

    def _is_old(self, name: str, step: int) -> bool:
        """A clock that has not gone on since the model went back: one word, and the same again."""
        old = self._old.get(name)
        if old is None:
            return False
        if step == old:
            return True
        del self._old[name]
        return False

    def _hear_beyond(self, name: str, step: int, now: float, *, chief: bool) -> tuple[bool, list[Doubt]]:
        claims = [one for who, one in self._beyond.items() if who != name]
        if any(abs(step - told) <= _reach(now - at) for told, at, _ in claims):
            self._before, self._beyond = None, {}
        elif chief and self._alone(name, now):
            self._beyond.pop(name, None)
            self._before = self.highest if self._before is None else self._before
        else:
            first = self._beyond[name][2] if name in self._beyond else now
            self._beyond[name] = step, now, first
            return False, [] if chief else [(name, _too_much(step))]
        self._accept(name, step, now)
        return True, []

    def _alone(self, name: str, now: float) -> bool:
        """Nobody else has told a step; or nobody has made one while this one waited for others to tell the same."""
        if not self._told.keys() - {name}:
            return True
        if name not in self._beyond or now - (first := self._beyond[name][2]) <= AGREED_SECONDS:
            return False
        return all(at < first for who, at in self._trained.items() if who != name)

    def _accept(self, name: str, step: int, now: float) -> None:
        self._told[name] = max(step, self._told.get(name, 0))
        if step > self._count.value:
            self._count.value, self._count.at = step, now
        self.highest, self._passed = max(self.highest, step), max(self._passed, step)

    def _contradict(self, step: int, now: float) -> list[Doubt]:
        """Somebody makes steps here, and the chief has told one far above: nobody has made that."""
        limit = step + _reach(0.0)
        doubts = [(who, _too_much(told)) for who, told in self._told.items() if told > limit]
        self._told = {who: told for who, told in self._told.items() if told <= limit}
        self.highest, self._passed, self._before = max(self._before or 0, step), step, None
        self._count.value, self._count.at = step, now
        return doubts

    def _not_agreed(self, name: str, now: float) -> list[Doubt]:
        """Claims of others that had their time, while this one makes steps."""
        late = [who for who, (_, _, first) in self._beyond.items() if who != name and now - first > AGREED_SECONDS]
        return [(who, _too_much(self._beyond.pop(who)[0])) for who in late]


def _reach(seconds: float) -> int:
    """Steps that can lie between two words with so much time between them."""
    return int((max(0.0, seconds) + GRACE_SECONDS) * STEPS_PER_SECOND_MAX)


def _too_much(step: int) -> str:
    return f"the step {step} is more than can have been made"
