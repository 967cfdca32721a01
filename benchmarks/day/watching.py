"""The events of a running job as they come, without reading the file anew: a state of a scaling lasts for milliseconds."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.job import Job

POLL_SECONDS = 0.001


class Tail:
    """New events of events.jsonl, from the moment it was made."""

    def __init__(self, job: Job) -> None:
        self._job, self._path = job, job.workdir / "events.jsonl"
        self._at = self._path.stat().st_size
        self._rest = b""

    def new(self) -> Iterator[dict[str, Any]]:
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        self._at += len(data)
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError:
                continue  # torn by a kill

    def until_state(self, scaling: int, state: str, seconds: float) -> bool:
        """Whether the scaling enters it; False when it ends before. Raises RuntimeError when neither happens."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._job.process.poll() is None:
            for event in self.new():
                if event.get("scaling") == scaling and event["type"] == "scaling_state" and event["state"] == state:
                    return True
                if event.get("scaling") == scaling and event["type"] == "scaling_ended":
                    return False
            time.sleep(POLL_SECONDS)
        raise RuntimeError(
            f"scaling {scaling} neither came to {state} nor ended within {seconds:g} s; see {self._path}"
        )


def states(path: Path, scaling: int) -> list[str]:
    """All that a scaling has entered."""
    found = []
    for line in path.read_text().splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event["type"] == "scaling_state" and event["scaling"] == scaling:
            found.append(event["state"])
    return found
