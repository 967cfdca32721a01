"""Loops of a script's own, with `train_on_batch`: each call is a step of all processes, whichever model it is of.

A script may train several models in turn, which share layers (a GAN). So where it is in its loop belongs to each sum
(`Summing.place`), and what a newcomer is given is all that has been trained so far (`Models`); a model that it has not called
yet gets its part when it is called. Until it has called all of them, what it gives counts nothing: its batches may be made by
one that is untrained here.

Nobody knows where such a loop ends, nor what the script does besides (it saves, draws, measures). So who does not come to its
next step for a while leaves the sums to the others, and goes on with what they have when it comes.
"""

from __future__ import annotations

import atexit
import json
import logging
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from deeprec_ext.allreduce.ring import Array
from deeprec_ext.errors import ProtocolError
from deeprec_ext.keras.in_step.home import Home
from deeprec_ext.keras.in_step.model import Course, InStep, Prepared

log = logging.getLogger("deeprec_ext")

AWAY_SECONDS, AWAY_FACTOR, LOOK_SECONDS = 5.0, 10.0, 0.5
"""The others wait so long for a process between two of its steps, or so many times what it usually takes; so often it looks."""

NAME = "train_on_batch"
"""Of what is kept of the models."""

GAPS = 20
"""Times between two steps that are remembered."""


class Models:
    """The `State` of all models that the script trains, by name; of those too to which this process has not come yet."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._courses: dict[str, Course] = {}
        self._later: dict[str, list[Array]] = {}

    @property
    def whole(self) -> bool:
        """Whether all that there is of the job's models is in the script's."""
        return not self._later

    def name(self, model: Any) -> str:
        """Alike in all processes, which come to their models in the same order."""
        if id(model) not in self._names:
            taken, name = set(self._names.values()), model.name
            while name in taken:
                name += "'"
            self._names[id(model)] = name
        return self._names[id(model)]

    def awaits(self, model: Any) -> bool:
        """Whether the others have trained it, and it is not here yet."""
        return self.name(model) in self._later

    def add(self, course: Course) -> None:
        name = self.name(course.model)
        others = [one for other, one in self._courses.items() if other != name]
        self._courses[name] = course
        if (arrays := self._later.pop(name, None)) is not None:
            newer = [[np.array(each) for each in one.variables.take()] for one in others]
            course.variables.put(arrays)
            for one, now in zip(others, newer):  # layers that it shares with these may have been trained since
                one.variables.put(now)

    def take(self) -> list[Array]:
        parts = {**self._later, **{name: course.variables.take() for name, course in self._courses.items()}}
        head = json.dumps([(name, len(arrays)) for name, arrays in parts.items()]).encode()
        return [np.frombuffer(bytearray(head), np.uint8), *(one for arrays in parts.values() for one in arrays)]

    def names(self) -> list[str]:
        later = [(name, [str(at) for at in range(len(arrays))]) for name, arrays in self._later.items()]
        parts = {**dict(later), **{name: course.variables.names() for name, course in self._courses.items()}}
        return ["_models", *(f"{name}/{one}" for name, names in parts.items() for one in names)]

    def put(self, arrays: Sequence[Array]) -> None:
        """Raises ProtocolError where they are of other models."""
        if not arrays:
            raise ProtocolError("there are no models there, and some are trained here")
        self._later.clear()
        left = iter(arrays[1:])
        for name, count in json.loads(arrays[0].tobytes()):
            mine = [one for _, one in zip(range(count), left)]  # in this order: of what is left no more is taken
            course = self._courses.get(name)
            if course is None:
                self._later[name] = mine
            else:
                course.variables.put(mine)


class Loops:
    """What `stepping.Steps` wants of a door: a step of a `fit`, or one that the script makes.

    Args:
      in_fit: whether the script is in a `fit`; begins: is called before the first step that is in none.
    """

    should_stop = False

    def __init__(self, home: Home, door: InStep, in_fit: Callable[[], bool], begins: Callable[[], None]) -> None:
        self._home, self._door, self._in_fit, self._begins = home, door, in_fit, begins
        self.generation = door.generation
        self.models = Models()
        self._on = self._registered = self._away = self._went_back = False
        self._turn = threading.Lock()
        self._since: float | None = None  # when the last step ended
        self._gaps: deque[float] = deque(maxlen=GAPS)

    def prepare(self, model: Any, kind: str, spec: Any, batches: Any) -> Prepared:
        if not self._in_fit():
            self._begin()
            if self.models.awaits(model):  # the others have traced it, and would wait
                with self._turn:
                    self._home.member.rest()
        return self._door.prepare(model, kind, spec, batches)

    def use(self, prepared: Prepared) -> None:
        self._door.use(prepared)

    def bring(self, model: Any) -> None:
        """It is here."""

    def run(self, prepared: Prepared, values: Sequence[Array], *, train: bool) -> Any:
        if self._in_fit():
            return self._door.run(prepared, values, train=train)
        self._begin()
        with self._step():
            return self._run(prepared, values)

    def end(self) -> None:
        """A `fit` begins, with the chief's model."""
        if self._on:
            with self._turn:
                self._on, self._since = False, None
                self._door.loops = self._door.silent = False
                self._door.course = None
                self._home.member.at("")
                self._home.member.pause()

    # -- inside

    def _begin(self) -> None:
        if self._on:
            return
        self._on, door, member = True, self._door, self._home.member
        self._begins()
        if member.step >= 0:  # of a `fit`, in which others may still be
            member.rest()
        door.loops, door.course, self._home.state.of = True, None, self.models
        door.heard, door.entered, door.holds = lambda summed: None, lambda: None, lambda: 0
        door.collects, door.rate.follows = False, True
        door.kept.of(NAME)
        self._home.state.called = NAME
        if not self._registered:
            self._registered = True
            atexit.register(self._script_ends)
            threading.Thread(target=self._watch, name="deeprec-loop", daemon=True).start()

    def _run(self, prepared: Prepared, values: Sequence[Array]) -> Any:
        """Raises LeaveError where this process is to leave."""
        door, member = self._door, self._home.member
        self._leave_if_told()
        self.models.add(prepared.course)
        door.use(prepared)
        member.at(f"train_on_batch of {self.models.name(prepared.course.model)}")
        if member.step < 0:
            if self._home.chief:
                # A later loop goes on with what the script has. Others may rest, and come back with more steps of it.
                found, self._went_back = not self._went_back and door.kept.back(self.models), True
                member.goes_on_from(*(door.kept.reached if found else (0, 0)))
            else:  # who has the model: else this process would begin it
                member.wait_for_somebody()
        door.records = next((len(one) for one in values if np.ndim(one)), 1)
        door.silent = not self.models.whole and member.size > 1
        while (outputs := door.run(prepared, values, train=True)) is None:  # the others were elsewhere in a step
            if door.summed is None or not door.summed.weight:
                door.silent = False  # there is nobody who knows more
            self._leave_if_told()
        return outputs

    def _leave_if_told(self) -> None:
        if self._home.leaving.is_set():
            self._home.member.leave()

    @contextmanager
    def _step(self) -> Iterator[None]:
        with self._turn:
            if self._since is not None:
                self._gaps.append(time.monotonic() - self._since)
            self._since, self._away = None, False
            try:
                yield
            finally:
                self._since = time.monotonic()

    def _watch(self) -> None:
        """Lets the others go on while the script does something else."""
        while True:
            time.sleep(LOOK_SECONDS)
            with self._turn:
                if self._since is None or self._away:
                    continue
                usual = statistics.median(self._gaps) if self._gaps else 0.0
                if time.monotonic() - self._since > max(AWAY_SECONDS, AWAY_FACTOR * usual):
                    self._away = True
                    log.info("the script makes no step at present: the others go on without this process")
                    self._home.member.rest()

    def _script_ends(self) -> None:
        if not self._on or self._home.joined is None:
            return
        with self._turn:
            self._since, member = None, self._home.joined
            member.rest()
            if self._home.chief and member.step > 0:
                self._door.kept.whole(self.models, member.step)
