"""The end of the script of this process: with which exit code, and that the process follows it.

Python ends in this order: the script's last line (or `sys.exit`, or an exception), its non-daemon threads, `atexit` handlers
(the last registered first), and then finalisers, while modules are taken apart. From there on a thread that is started never
runs and whoever waits for it waits for ever, and a thread that comes back from C++ is ended there. So

- what is registered here before the script begins runs after every handler of the script's own: only then has it *ended*;
- whatever hangs later is ended by the kernel's timer, with the exit code that the script would have given. The timer runs
  `_exit` in a native thread, so it needs neither the interpreter nor a supervisor: a pod's own process has none but itself.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import opcode
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from deeprec_ext.tracebacks import error_line

UNKNOWN_EXIT_CODE = 1
"""Told of a process that had to be ended after a `raise SystemExit(…)`, whose argument nobody can ask for: not a success."""

_SIGEV_THREAD, _CLOCK_MONOTONIC = 2, 1


class _Event(ctypes.Structure):
    """`struct sigevent` of Linux, 64 bytes."""

    _fields_ = (
        ("value", ctypes.c_int64), ("signal", ctypes.c_int), ("notify", ctypes.c_int), ("function", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p), ("rest", ctypes.c_char * 32),
    )  # fmt: skip


class _Times(ctypes.Structure):
    """`struct itimerspec`: interval and value, each seconds and nanoseconds."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("every", "every_nanoseconds", "after", "after_nanoseconds"))


class Guard:
    """Ends this process with `exit_code` when it still lives after `seconds`, whatever it hangs in; `cancel` takes it back.

    Where there is no such timer (not Linux, another C library) it does nothing, and `armed` is False.
    """

    def __init__(self, seconds: float, exit_code: int, said: str = "") -> None:
        self._timers: list[tuple[ctypes.CDLL, ctypes.c_void_p]] = []
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None)
            if said:  # a moment before; the text is never freed: it has to outlive Python's own memory
                libc.strdup.restype = ctypes.c_void_p
                self._after(seconds - 0.2, libc.warnx, libc.strdup(said.replace("%", "%%").encode()))
            self._after(seconds, libc._exit, exit_code)

    @property
    def armed(self) -> bool:
        return bool(self._timers)

    def cancel(self) -> None:
        for library, timer in self._timers:
            library.timer_delete(timer)
        self._timers.clear()

    def _after(self, seconds: float, function: Any, argument: int) -> None:
        library = ctypes.CDLL(None)
        if not hasattr(library, "timer_create"):  # glibc before 2.34
            library = ctypes.CDLL("librt.so.1")
        event = _Event(value=argument, notify=_SIGEV_THREAD, function=ctypes.cast(function, ctypes.c_void_p).value)
        timer, seconds = ctypes.c_void_p(), max(0.001, seconds)
        if library.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)) != 0:
            raise OSError("timer_create")
        times = _Times(after=int(seconds), after_nanoseconds=int(seconds % 1 * 1e9))
        if library.timer_settime(timer, 0, ctypes.byref(times), None) != 0:
            raise OSError("timer_settime")
        self._timers.append((library, timer))


def skip_static_destructors() -> None:
    """From now on the process ends right after the interpreter, with the code that it was given: threads that are left behind
    in TensorFlow must not meet C++ objects that are being destroyed."""
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        libc = ctypes.CDLL(None)
        libc.on_exit(
            ctypes.cast(libc._exit, ctypes.c_void_p), None
        )  # called with the status, before all that came earlier


_CODE: Any = SystemExit.code


class _Exit(SystemExit):
    """What `sys.exit` raises in the main thread: notices when nobody has caught it. The interpreter asks for its `code` then,
    and no Python function is running."""

    def __reduce__(self) -> Any:
        return SystemExit, self.args

    @property
    def code(self) -> Any:  # type: ignore[override]
        value = _CODE.__get__(self)
        try:
            sys._getframe(1)
        except ValueError:
            SCRIPT.exits_with(value)
        return value

    @code.setter
    def code(self, value: Any) -> None:
        _CODE.__set__(self, value)


_Exit.__name__ = _Exit.__qualname__ = SystemExit.__name__
_Exit.__module__ = SystemExit.__module__


class Script:
    """One per process, as `sys.exit` is."""

    def __init__(self) -> None:
        self._pid = 0
        self._main: FrameType | None = None
        self._noted: int | None = None
        self._last: Callable[[], None] | None = None

    def watch(self) -> None:
        """Before the script begins, once."""
        self._pid = os.getpid()
        leave = sys.exit

        def exit(status: str | int | None = None, /) -> None:
            if threading.current_thread() is threading.main_thread():
                raise _Exit(status)
            leave(status)

        sys.exit = exit  # type: ignore[assignment]
        atexit.register(self._ended)

    def running(self) -> None:
        """Somewhere in the script: remembers its outermost frame."""
        if threading.current_thread() is threading.main_thread():
            self._main = sys._getframe()
            while self._main.f_back is not None:
                self._main = self._main.f_back

    def at_last(self, function: Callable[[], None]) -> None:
        """Called when the script has ended: after its non-daemon threads and its own `atexit` handlers."""
        if not self._pid:
            self.watch()  # not by autoload: handlers that were registered before come later
        self._last = function

    def _ended(self) -> None:
        if self._last is not None and os.getpid() == self._pid:  # not in a child that the script has forked
            self._last()

    def exits_with(self, value: object) -> None:
        self._noted = 0 if value is None else value & 0xFF if isinstance(value, int) else 1

    @property
    def exit_code(self) -> int | None:
        """That the process is going to have, once the script has ended; None: it raised SystemExit itself, with something."""
        error = getattr(sys, "last_type", None)
        if self._noted is not None:
            return self._noted
        if error is not None and not issubclass(error, SystemExit):
            return 128 + signal.SIGINT if issubclass(error, KeyboardInterrupt) else 1
        return None if self._main is not None and not _returned(self._main) else 0

    @property
    def error(self) -> str:
        """The exception that has ended it, in one line."""
        error = getattr(sys, "last_value", None)
        if error is None or isinstance(error, SystemExit):
            return ""
        return error_line("".join(traceback.format_exception(type(error), error, error.__traceback__)).splitlines())

    @property
    def failed(self) -> bool:
        """Whether it has ended with anything else than success, as far as that can be known."""
        return self.exit_code not in (0, None)


def _returned(frame: FrameType) -> bool:
    """Whether a frame that is over ended by `return`."""
    at = frame.f_lasti
    return at < 0 or opcode.opname[frame.f_code.co_code[at]].startswith("RETURN")


SCRIPT = Script()


@contextlib.contextmanager
def bounded(seconds: float, said: str) -> Iterator[None]:
    """What is done inside takes no longer, or the process ends with the exit code of the script."""
    code = SCRIPT.exit_code
    guard = Guard(seconds, UNKNOWN_EXIT_CODE if code is None else code, said)
    try:
        yield
    finally:
        guard.cancel()
