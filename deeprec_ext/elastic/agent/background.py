"""Work beside training: in a thread of lower priority, so that steps get the processor first.

Only the thread is made nicer, and what TensorFlow starts from it (placing and optimising a graph); kernels run in
TensorFlow's own threads as always, which must have been started before (`starting.start_server`). A thread cannot take its
niceness back without privileges, hence one thread a task. Where there are privileges, `hasten` takes it back for who waits.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from deeprec_ext.errors import DeepRecError

T = TypeVar("T")

_collecting = threading.Lock()
_holders = 0
_were_on = True


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """No cyclic garbage collection meanwhile: building a session makes many objects, and a full collection among them
    holds the interpreter for a fifth of a second, in which no step can begin."""
    global _holders, _were_on
    with _collecting:
        if not _holders:
            _were_on = gc.isenabled()
        _holders += 1
        gc.disable()
    try:
        yield
    finally:
        with _collecting:
            _holders -= 1
            if not _holders and _were_on:
                gc.enable()


PASSING = {
    "deeprec-background": 20.0,
    "deeprec-close": 10.0,
    "deeprec-retire": 10.0,
    "deeprec-drop": 10.0,
    "deeprec-ack": 3.0,
    "deeprec-holder": 3.0,
    "deeprec-guard": 3.0,
}
"""Threads that have one thing to do: name -> seconds. Preparing takes long for a large graph; closing a session that names
a dead PS may never end, but on a busy machine it may take seconds to close one, and a process that ends meanwhile crashes."""

QUIET_SECONDS, QUIET_SHARE, LATE_SECONDS = 2.0, 0.02, 0.1
"""A close is not waited for any longer when this process has done nothing for so long (less than that share of a core), and
woke up in time: then it is not the processor that is short. One iterator in three to eight that has lived for a while takes up
to a minute to end: TensorFlow tells its autotuning thread to end before it marks it as cancelled (tensorflow/core/framework/
model.cc, cancellation.cc), and who looks in between sleeps on until its next turn."""

NICENESS = 5
"""Above that of the process: a third of the processor time of a step, where both want it. With 10 it is a tenth: a change of a
large graph then took half as long again, its longest gaps were no shorter, and the steps lost as much time in the end."""

STEADY_NICENESS = 10
"""Of what goes on all the time, as copies do: a tenth."""

IDLE_NICENESS = 7
"""Of what nobody waits for at all: less than that, and never hastened."""

GIVE_UP_SECONDS = 0.1
"""How often somebody who waits looks whether the wait has become pointless."""


class GivenUpError(DeepRecError):
    """What was done in the background hangs on a PS that is dead; its thread is left behind."""


def _nicer_by(niceness: int) -> int:
    """A process may have been made nicer itself (nice(1))."""
    return min(19, os.getpriority(os.PRIO_PROCESS, os.getpid()) + niceness)


class Polite(Generic[T]):
    """`function(*arguments)`, under way in a nicer thread.

    niceness: of the thread, above that of the process; None: as the process.
    then: called in that thread when it has ended.
    """

    def __init__(
        self, function: Callable[..., T], *arguments: object, niceness: int | None = NICENESS,
        then: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._results: list[T] = []
        self._errors: list[BaseException] = []

        def work() -> None:
            if niceness is not None:
                with contextlib.suppress(OSError, AttributeError):  # not Linux: at the usual priority
                    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _nicer_by(niceness))
            try:
                self._results.append(function(*arguments))
            except BaseException as error:  # raised again by who asks for the result
                self._errors.append(error)
            then()

        self._thread = threading.Thread(target=work, name="deeprec-background", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        return bool(self._results or self._errors)

    def wait(self, timeout_seconds: float) -> None:
        """Until it has ended, or the time is up."""
        self._thread.join(timeout_seconds)

    def result(self, give_up: Callable[[], bool] | None = None) -> T:
        """Its result or its error, once it has ended.

        `give_up`: when it says so, the thread is left behind, and GivenUpError raised.
        """
        while self._thread.is_alive() and not self.ended:
            self._thread.join(GIVE_UP_SECONDS if give_up is not None else None)
            if give_up is not None and not self.ended and give_up():
                self._thread.name = "deeprec-left-behind"
                raise GivenUpError("a PS that it needs is gone")
        if self._errors:
            raise self._errors[0]
        return self._results[0]


def politely(
    function: Callable[..., T], *arguments: object, give_up: Callable[[], bool] | None = None,
    niceness: int | None = NICENESS,
) -> T:  # fmt: skip
    """`function(*arguments)` in a nicer thread; its result or its error.

    `give_up`: when it says so, the thread is left behind, and GivenUpError raised. A session that is being opened on a PS that
    dies at this moment waits for ever.
    """
    return Polite(function, *arguments, niceness=niceness).result(give_up)


class _Usual:
    """A thread that was begun at the usual priority, and does what it is given, one after the other."""

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.pid = os.getpid()  # of a process that is forked it is not a thread
        self.thread = threading.Thread(target=self._work, name="deeprec-usual", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        while True:
            self._given.get()()

    def call(self, function: Callable[[], T]) -> T:
        results: list[T] = []
        errors: list[BaseException] = []
        done = threading.Event()

        def work() -> None:
            try:
                results.append(function())
            except BaseException as error:
                errors.append(error)
            finally:
                done.set()

        self._given.put(work)
        done.wait()
        if not errors:
            return results[0]
        error = errors.pop()
        try:
            raise error
        finally:
            del error  # else it holds itself, by this frame


_usual: _Usual | None = None


def offer_usual_priority() -> None:
    """For `at_usual_priority`; called in a thread that has it: others inherit theirs."""
    global _usual
    if _usual is None:
        _usual = _Usual()


def at_usual_priority(function: Callable[[], T]) -> T:
    """What a nicer thread does in Python, as `function`: whoever works in the interpreter holds it, and on a full machine
    a nicer thread gets no processor to give it back with, so that the next step would wait for it."""
    if _usual is None or _usual.pid != os.getpid() or threading.current_thread() is _usual.thread or not _is_nicer():
        return function()
    return _usual.call(function)


def _is_nicer() -> bool:
    try:
        here = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        return here > os.getpriority(os.PRIO_PROCESS, os.getpid())
    except (OSError, AttributeError):  # not Linux: all are alike
        return False


def hasten() -> bool:
    """Somebody waits for what is done politely in this process: its threads get the usual priority. Also those that TensorFlow
    has started from them, in which most of the work is done; they are known by their niceness.

    Returns whether the system allows it: it takes privileges, and without them they go on as they are.
    """
    try:
        usual, nicer = os.getpriority(os.PRIO_PROCESS, os.getpid()), _nicer_by(NICENESS)
        for thread in map(int, os.listdir("/proc/self/task")):
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                if os.getpriority(os.PRIO_PROCESS, thread) == nicer:
                    os.setpriority(os.PRIO_PROCESS, thread, usual)
    except (OSError, AttributeError):  # not allowed; not Linux
        return False
    return True


def wait_for_threads(limits: Mapping[str, float] = PASSING, longest_seconds: float = math.inf) -> list[str]:
    """Until none of our threads that end by themselves is left; the names of those that are, when their time is up.

    For the end of the process: a thread that comes back from TensorFlow while the interpreter is being taken down brings the
    whole process down ("terminate called"), and a training that succeeded ends with SIGABRT.
    """
    began, quiet = time.monotonic(), _Quiet()
    passing = [thread for thread in threading.enumerate() if thread.name in limits]
    for thread in sorted(passing, key=lambda thread: limits[thread.name]):
        if thread is not threading.current_thread():
            limit = min(limits[thread.name], longest_seconds)
            while thread.is_alive() and (left := began + limit - time.monotonic()) > 0:
                if thread.name == "deeprec-close" and quiet.seconds > QUIET_SECONDS:
                    break
                quiet.join(thread, min(0.2, left))
    return sorted({thread.name for thread in passing if thread.is_alive()})


def outlive() -> None:
    """From now on a thread that comes back from TensorFlow while the interpreter is being taken down stops there.

    CPython 3.9 to 3.13 ends such a thread by unwinding its stack, on which C++ functions stand that nothing may leave: C++ then
    calls its terminate handler, which ends the process. Ours waits instead, until the process ends as it should.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C++ library, or none: as it was before
        handler = ctypes.cast(ctypes.CDLL(None).pause, ctypes.c_void_p)
        ctypes.CDLL("libstdc++.so.6")["_ZSt13set_terminatePFvvE"](handler)


class _Quiet:
    """How long nothing in this process has worked, nor wanted to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def join(self, thread: threading.Thread, timeout_seconds: float) -> None:
        """Waits for it, and looks at the process meanwhile."""
        began, worked = time.monotonic(), time.process_time()
        thread.join(timeout_seconds)
        took, worked = time.monotonic() - began, time.process_time() - worked
        idle = worked <= QUIET_SHARE * took and took <= timeout_seconds + LATE_SECONDS
        self.seconds = self.seconds + took if idle else 0.0
