"""What a member gives to a sum: arrays that are all there, or that come in buckets while the rest is computed.

A backward pass has the gradients of the last layers first, so buckets are summed from the last one to the first. Where they
begin, and their order, follow from shapes alone: they are alike on all members, whatever becomes ready first in each of them
(Li et al., "PyTorch Distributed: experiences on accelerating data parallel training", 2020).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from deeprec_ext.allreduce.ring import Array

BUCKET_BYTES = 4 << 20
"""What is less travels in a moment, beside what a round costs."""
BUCKETS_MAX = 8


def cut(arrays: Sequence[Array], exact: int = 0) -> tuple[int, ...]:
    """Where the buckets of these arrays begin: (0,) where one is enough.

    Args:
      exact: so many of the last ones are no gradients. They are in the last bucket.
    """
    sizes = [one.nbytes for one in arrays]
    least = max(BUCKET_BYTES, -(-sum(sizes) // (BUCKETS_MAX - 1)))
    starts, held = [], sum(sizes[len(sizes) - exact :])
    for at in range(len(sizes) - exact - 1, 0, -1):
        held += sizes[at]
        if held >= least:
            starts.append(at)
            held = 0
    return (0, *reversed(starts))


class Given:
    """Of one step. Whoever computes puts buckets, in any order and from any thread; who sums waits for one after the other.

    They are kept as they are until the step is over, for a sum that is lost is made again.

    Args:
      like: arrays of the shapes and types of those that come.
      starts: where buckets begin (`cut`).
    """

    def __init__(self, like: Sequence[Array], starts: Sequence[int] = (0,)) -> None:
        self.like, self.starts = list(like), tuple(starts)
        self._ends = (*self.starts[1:], len(self.like))
        self._came: dict[int, list[Array]] = {}
        self._changed = threading.Condition()
        self._failed: BaseException | None = None

    @classmethod
    def whole(cls, arrays: Sequence[Array], starts: Sequence[int] = (0,)) -> Given:
        """All of them are there."""
        one = cls(arrays, starts)
        for bucket, (start, end) in enumerate(zip(one.starts, one._ends)):
            one.put(bucket, one.like[start:end])
        return one

    @property
    def places(self) -> list[tuple[int, int, int]]:
        """(bucket, its first number, the one behind its last), in the order in which they are summed."""
        sizes = [one.size for one in self.like]
        ends = [sum(sizes[:end]) for end in self._ends]
        return list(zip(range(len(ends)), [0, *ends], ends))[::-1]

    def put(self, bucket: int, arrays: Sequence[Array]) -> None:
        """They are there."""
        with self._changed:
            self._came[bucket] = list(arrays)
            self._changed.notify_all()

    def wait(self, bucket: int) -> list[Array]:
        """The arrays of one bucket. Raises what `fail` was told."""
        with self._changed:
            self._changed.wait_for(lambda: bucket in self._came or self._failed is not None)
            self._check()
            return self._came[bucket]

    def arrays(self) -> list[Array]:
        """Of all buckets."""
        return [one for bucket in range(len(self.starts)) for one in self.wait(bucket)]

    def fail(self, error: BaseException) -> None:
        """The rest will not come."""
        with self._changed:
            self._failed = error
            self._changed.notify_all()

    def check(self) -> None:
        """Raises what `fail` was told."""
        with self._changed:
            self._check()

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed


def of(arrays: Sequence[Array] | Given) -> Given:
    return arrays if isinstance(arrays, Given) else Given.whole([np.asarray(one) for one in arrays])
