"""The iterators of a session that read no elastic dataset: how each was started, and whether a failed run has broken it.

They live in the devices of the session that starts them: that session is kept until the end (`PlacedSession.pinned`).
TensorFlow cancels an iterator for good when a run fails while it reads; it then says that its data has ended, at once or when
what it has prefetched is used up. So what a failed run has read is suspected for a while, and begins again where it seems to
end.
"""

from __future__ import annotations

import logging
from typing import Any

import tensorflow as tf

from deeprec_ext.elastic.session.placed import PlacedSession, Signature
from deeprec_ext.elastic.session.usergraph import Facts

log = logging.getLogger("deeprec_ext")

SUSPECT_RUNS = 100
"""Batches that a pipeline may have prefetched before a failed run broke it."""


class Iterators:
    """Of one session; used with the gate held, by the runs of it."""

    def __init__(self) -> None:
        self._initialized: set[str] = set()
        self._suspects: dict[str, int] = {}  # that a failed run has read; runs until they are trusted again
        self._started: dict[str, tuple[Signature, list[Any]]] = {}  # how each was started

    def starts(self, placed: PlacedSession, facts: Facts) -> bool:
        """Whether one-shot iterators have to be started before the run."""
        return facts.one_shot and not self._initialized.issuperset(placed.initializers)

    def before(self, placed: PlacedSession, facts: Facts, signature: Signature, values: list[Any]) -> None:
        """A run is about to be made: one-shot iterators are started, and it is noted which ones the run starts."""
        if facts.one_shot:
            for name in placed.initializers:
                if name not in self._initialized:
                    placed.pinned = True
                    placed.run(Signature((), (), (name,)), ())
                    self._initialized.add(name)
        for iterator, maker in facts.starts:
            placed.pinned = True
            self._started[iterator] = Signature(signature.feeds, (), (maker,)), values

    def suspect(self, facts: Facts) -> None:
        """A run has failed: what it read from may be broken."""
        self._suspects.update(dict.fromkeys(facts.readers.values(), SUSPECT_RUNS))

    def trust(self, facts: Facts) -> None:
        """A run has succeeded; but its batch may have been prefetched before."""
        if not self._suspects:
            return
        for iterator in set(facts.readers.values()):
            left = self._suspects.pop(iterator, 0)
            if left > 1:
                self._suspects[iterator] = left - 1

    def interrupted(self, facts: Facts, error: Exception) -> bool:
        """Whether a run failed because one shortly before it broke the input.

        The true end cannot be told from that; stock TensorFlow would have begun the data again when the PS was lost.
        """
        kinds = (tf.errors.OutOfRangeError, tf.errors.CancelledError)
        return (
            isinstance(error, kinds)
            and any(iterator in self._suspects for iterator in facts.readers.values())
            and any(name in str(error) for name in facts.readers)
        )

    def start_again(self, placed: PlacedSession, facts: Facts) -> None:
        for iterator in sorted(set(facts.readers.values())):
            self._suspects.pop(iterator, None)
            log.warning(
                "a failed run interrupted the input '%s': it begins again, as after any restart of stock TensorFlow; "
                "deeprec_ext.data.elastic_dataset would go on at this batch",
                iterator,
            )
            if iterator in self._started:
                placed.pinned = True
                placed.run(*self._started[iterator])
            else:
                self._initialized.discard(iterator + "__make")
