"""A thread that sums while the rest is computed: it lives as long as its member, and does one thing at a time."""

from __future__ import annotations

import concurrent.futures
import queue
import threading
from collections.abc import Callable
from typing import Any

_CLOSE_SECONDS = 1.0


class Ahead:
    """What it does is begun and ended by one caller at a time."""

    def __init__(self) -> None:
        self._works: queue.SimpleQueue[tuple[concurrent.futures.Future[Any], Callable[[], Any]] | None]
        self._works = queue.SimpleQueue()  # one, at the most
        self._thread: threading.Thread | None = None
        self._doing: concurrent.futures.Future[Any] | None = None

    @property
    def busy(self) -> bool:
        """It works, or has, and nobody has asked for the result."""
        return self._doing is not None

    def begin(self, work: Callable[[], Any]) -> None:
        """`result` ends it."""
        if self.busy:
            raise RuntimeError("what was begun before has not been ended")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="deeprec-sums", daemon=True)
            self._thread.start()
        self._doing = concurrent.futures.Future()
        self._works.put((self._doing, work))

    def result(self, seconds: float | None = None) -> Any:
        """Waits; raises what the work has raised, TimeoutError where it takes longer than so many seconds: it goes on then."""
        assert self._doing is not None
        try:
            found = self._doing.exception(seconds)
        except concurrent.futures.TimeoutError:
            raise TimeoutError from None
        doing, self._doing = self._doing, None
        if found is not None:
            raise found
        return doing.result()

    def close(self) -> None:
        self._works.put(None)
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while (one := self._works.get()) is not None:
            doing, work = one
            try:
                doing.set_result(work())
            except BaseException as error:  # for whoever asks for the result
                doing.set_exception(error)
            del doing, work, one  # what was summed is not kept until the next step
