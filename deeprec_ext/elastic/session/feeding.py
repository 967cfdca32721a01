"""How the runs of one session are fed by elastic datasets: wait before the run, acknowledge after it, give again what failed.

MECHANISM: a run that waits for data can be neither paused nor timed out. So a run begins only when its batches are there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.elastic.agent.inputs import Inputs, Source, Ticket
from deeprec_ext.elastic.session.placed import PlacedSession, Signature
from deeprec_ext.elastic.session.restarting import Restart
from deeprec_ext.errors import RefusedError, one_line
from deeprec_ext.graph import Feed

log = logging.getLogger("deeprec_ext")

LOOK_SECONDS = 0.2
"""While it waits, a run looks so often whether it should wait no longer."""

EARLY_SECONDS = 0.01
"""A run that came before its iterator was in place is made again so much later."""

TELL_SECONDS = 30.0
"""And says so often what it waits for."""


class Feeding:
    """One per session."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self.made: dict[str, tuple[Signature, Sequence[Any]]] = {}  # how each dataset's iterator was started
        self.restarts: dict[str, Restart] = {}  # of the datasets whose iterator was made anew, the last one
        self.lock = threading.Lock()
        self._used: dict[str, Source] = {}

    def source(self, name: str) -> Source:
        source = self._used.get(name)
        if source is None:
            source = self.inputs.find(name)
            if source is None:
                raise RefusedError(
                    f"the elastic dataset {name!r} was not made in this process: call elastic_dataset here"
                )
            self._used[name] = source
            source.claim()
        return source

    def run(
        self,
        pulls: Sequence[tuple[str, int]],
        makes: Sequence[tuple[str, str]],
        records: Sequence[tuple[str, str]],
        signature: Signature,
        values: Sequence[Any],
    ) -> Run:
        """Args:
        pulls: dataset and batches that the run reads; makes: dataset and op that starts its iterator; records: dataset and
          tensor (the last fetches of the signature) that tells which records were read.
        """
        for name, maker in makes:
            self.source(name).renew()
            self.made[name] = Signature(signature.feeds, (), (maker,)), values
        return Run(self, pulls, [name for name, _ in records])

    def close(self) -> None:
        """The session ends: whoever still reads its iterators gets the end of the data."""
        for source in self._used.values():
            source.renew()
            source.release()
        self._used.clear()


class Run:
    """One run with its repetitions; a context manager around each attempt."""

    def __init__(self, feeding: Feeding, pulls: Sequence[tuple[str, int]], records: Sequence[str]) -> None:
        self._feeding = feeding
        self._with_records = records
        self._records: dict[str, np.ndarray] = {}
        self.goes_on = False  # the stream ended, not the data
        self._pulls = [(feeding.source(name), batches) for name, batches in pulls]
        self._tickets: list[tuple[Source, Ticket]] = []

    def wait(self, check: Callable[[], None]) -> None:
        """Until its batches can be read without waiting (with ids: until there are some); `check` raises to end the wait.

        Raises OutOfRangeError in a process that leaves the job, so that the training loop ends.
        """
        self._release()
        for source, batches in self._pulls:
            since = told = time.monotonic()
            source.end_late()
            while True:
                if self._feeding.inputs.leaving.is_set():
                    self._release()
                    raise tf.errors.OutOfRangeError(None, None, "this process leaves the job")
                check()
                with self._feeding.inputs.waiting:
                    ticket = source.begin(batches, LOOK_SECONDS)
                if ticket is not None:
                    self._tickets.append((source, ticket))
                    break
                if time.monotonic() - told > TELL_SECONDS:
                    told = time.monotonic()
                    log.info("waiting for data since %.0f s; %s", told - since, source.waits_for())

    @property
    def valid(self) -> bool:
        """Whether the batches are still there: the ledger may have been rewound meanwhile."""
        return all(source.valid(ticket) for source, ticket in self._tickets)

    @property
    def restarts(self) -> bool:
        """Whether an iterator has to be made anew before the run."""
        return any(one.restart_needed for one, _ in self._pulls)

    def restart(self, placed: PlacedSession, feeds: Mapping[str, Feed]) -> None:
        """Makes iterators anew, in this session, that have to give batches again."""
        restarts = self._feeding.restarts
        with self._feeding.lock:  # another thread's run must not read the old one meanwhile
            due = [one for one, _ in self._pulls if one.restart_needed]
            for source in due:
                if source.name in restarts:
                    restarts[source.name].wait()
                placed.pinned = True
                feed = next(one for one in feeds.values() if one.source == source.name)
                source.restarted()
                # the pass that converts one-shot iterators adds this op
                make, values = self._feeding.made.get(source.name, (Signature((), (), (feed.iterator + "__make",)), ()))
                restarts[source.name] = Restart(source, placed, make, values, feed.get)
            for source, _ in self._pulls:
                restart = restarts.get(source.name)
                if restart is None:
                    continue
                try:
                    restart.check()
                except BaseException:
                    self._release()
                    if restart.over:
                        del restarts[source.name]
                        source.restart()
                    raise

    def _early(self, source: Source) -> bool:
        """Whether the run was made before the new iterator was in place, and has found the end of the one before."""
        if source.name not in self._feeding.restarts or source.begun:
            return False
        time.sleep(EARLY_SECONDS)
        return True

    def without_records(self, results: list[Any]) -> list[Any]:
        """The results of the run without what was fetched to know its records."""
        if not self._with_records:
            return results
        count = len(self._with_records)
        self._records = {}
        for name, ids in zip(self._with_records, results[-count:]):
            before = self._records.get(name)
            self._records[name] = ids if before is None else np.concatenate([before.reshape(-1, 2), ids.reshape(-1, 2)])
        return results[:-count]

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.goes_on = False
        for source, ticket in self._tickets:
            if error is None:
                source.trained(ticket, self._records.get(source.name))
            elif isinstance(error, tf.errors.OutOfRangeError):
                self.goes_on = source.unused(ticket) or self._early(source) or self.goes_on
            elif isinstance(error, tf.errors.OpError) and "IteratorGetNext" in str(error):
                source.broken(ticket, one_line(error))
            else:
                source.failed(ticket)
        self._tickets.clear()

    def _release(self) -> None:
        for source, ticket in self._tickets:
            source.withdraw(ticket)
        self._tickets.clear()
