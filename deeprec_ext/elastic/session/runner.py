"""Runs that can be abandoned.

A run that waits for a hung PS blocks inside TensorFlow; nothing in Python can interrupt it. So runs happen in a thread of
ours, and the caller waits for either the result or the word that the run has been given up. The stuck thread stays
behind (it ends when the PS dies or answers), and the next run gets a new one. Costs two hand-overs between threads.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any


class AbandonedError(Exception):
    """The run was given up because a PS it waits for is hung."""


class _Thread:
    """One worker thread and the two queues to it."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]] | None] = queue.SimpleQueue()
        self.results: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="deeprec-run", daemon=True).start()

    def _work(self) -> None:
        while (call := self.calls.get()) is not None:
            function, arguments = call
            try:
                result = True, function(*arguments)
            except BaseException as error:  # handed to the caller, who raises it
                result = False, error
            self.results.put(result)
            del call, function, arguments, result  # a waiting thread must not keep tensors alive


class Runner:
    """Executes one call at a time per calling thread, each of which `abandon` can give up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Thread] = []
        self._busy: set[_Thread] = set()

    def call(self, function: Callable[..., Any], *arguments: Any, hopeless: Callable[[], bool] = lambda: False) -> Any:
        """`function(*arguments)` with its result or its error; AbandonedError when given up meanwhile.

        hopeless: whether what it needs is known to be gone, so that it must not begin. Who learns that first notes it, and
        then calls `abandon`: a call that was not yet here then does not begin any more, and would have been given up else.
        """
        with self._lock:
            if hopeless():
                raise AbandonedError("a PS that it needs is gone")
            thread = self._idle.pop() if self._idle else _Thread()
            self._busy.add(thread)
        thread.calls.put((function, arguments))
        good, result = thread.results.get()
        with self._lock:
            self._busy.discard(thread)
            abandoned = isinstance(result, AbandonedError)
            if abandoned:
                thread.calls.put(None)  # ends when its run does
            else:
                if not thread.results.empty():  # given up when it had just ended: not the word for the next run
                    thread.results.get_nowait()
                self._idle.append(thread)
        if good:
            return result
        try:
            raise result
        finally:
            del result

    def abandon(self, reason: str) -> int:
        """Gives up every run under way; returns how many there were."""
        with self._lock:
            stuck = [thread for thread in self._busy if thread.results.empty()]  # the others have just ended
            for thread in stuck:
                thread.results.put((False, AbandonedError(reason)))
            return len(stuck)
