"""Somebody who looks at the dashboard all the while: the page, its JSON, its live stream, and Prometheus at /metrics."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

EVERY_SECONDS = 0.5
ANSWER_SECONDS = 15.0
"""An answer that takes longer is a failure: on two busy cores everything may take some seconds."""

END_SECONDS = 8.0
"""When the job ends, its dashboard goes some seconds before the launcher."""


@dataclass(frozen=True)
class Missed:
    """One request that was not answered well."""

    time: float  # Unix seconds
    path: str
    why: str


class Reader:
    """Two threads, from the first answer on: one asks for pages in turns, one reads the stream."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._over = threading.Event()
        self._begun = threading.Event()
        self._lock = threading.Lock()
        self.answers: dict[str, int] = {}
        self.missed: list[Missed] = []
        self._last = 0.0  # when something was answered
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._ask, self._listen)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(2 * ANSWER_SECONDS)

    def complaints(self, outages: list[tuple[float, float]], ended: float) -> list[str]:
        """What was missed, but for times in which the AIMaster was dead, and after the end of the job."""
        found = []
        for path in PAGES:
            if not self.answers.get(path):
                found.append(f"dashboard: {path} was never answered")
        if not self.answers.get(LIVE):
            found.append("dashboard: nothing came over the live stream")
        for one in self.missed:
            dead = any(begin - 1.0 <= one.time <= end for begin, end in outages)
            over = one.time > self._last - 1.0 and one.time > ended - END_SECONDS
            if not dead and not over:
                found.append(f"dashboard: {one.path} failed at {one.time:.1f}: {one.why}")
        return found

    # ------------------------------------------------------------------------------------------------ threads

    def _ask(self) -> None:
        while not self._over.wait(EVERY_SECONDS):
            for path, good in PAGES.items():
                if not self._over.is_set():
                    self._tried(path, lambda path=path, good=good: self._get(path, good))

    def _listen(self) -> None:
        while not self._over.wait(EVERY_SECONDS):
            if self._begun.is_set():
                self._tried(LIVE, self._stream)

    def _tried(self, path: str, read: Callable[[], None]) -> None:
        try:
            read()
        except (OSError, http.client.HTTPException, ValueError) as error:
            if self._begun.is_set() and not self._over.is_set():
                with self._lock:
                    self.missed.append(Missed(time.time(), path, f"{type(error).__name__}: {error}"))

    def _answered(self, path: str) -> None:
        with self._lock:
            self.answers[path] = self.answers.get(path, 0) + 1
            self._last = time.time()
        self._begun.set()

    def _get(self, path: str, good: Callable[[bytes], object]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_SECONDS)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != 200 or not good(body):
            raise ValueError(f"{answer.status} {body[:100]!r}")
        self._answered(path)

    def _stream(self) -> None:
        """Until it ends; messages come once a second."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_SECONDS)
        try:
            connection.request("GET", LIVE)
            answer = connection.getresponse()
            while not self._over.is_set():
                line = answer.readline()
                if not line:
                    raise ValueError("the stream ended")
                if line.startswith(b"data:"):
                    json.loads(line[5:])
                    self._answered(LIVE)
        finally:
            connection.close()


LIVE = "/api/live"
PAGES: dict[str, Callable[[bytes], object]] = {
    "/": lambda body: b"<html" in body.lower(),
    "/api/status": lambda body: isinstance(json.loads(body), dict),
    "/metrics": lambda body: b"deeprec_job_info" in body,
    "/healthz": lambda body: True,
    "/api/events": lambda body: json.loads(body) is not None,
    "/api/history": lambda body: json.loads(body) is not None,
    "/api/decisions": lambda body: json.loads(body) is not None,
    "/api/edges": lambda body: json.loads(body) is not None,
}
