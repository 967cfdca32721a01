"""For what the sessions of a trainer are made: the view, which PS are gone or coming, and whose writes are marked.

The agent's thread changes it, the thread that prepares sessions reads it, and training threads wait for its changes.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping

import tensorflow as tf

from deeprec_ext import graph as passes
from deeprec_ext.elastic.runtime.view import ClusterView, elastic_config
from deeprec_ext.elastic.session.host import Wanted

SERVING_LIMIT_SECONDS = 900.0
"""How long a run waits for a view in which every slot has a PS: a replacement may have to pull its image."""

GUARDS_LIMIT_SECONDS = 60.0
"""How long after a change of PS or marks it is expected that a view will name who has the backups."""

LOST_LIMIT_SECONDS = 10.0
"""How long a failed run waits for word that a PS was lost; after that the error is the user's."""


class ClusterState:
    """Args:
    member: job and task of this trainer in the cluster.
    address: host:port of its TensorFlow server; target: the same as a session wants it.
    moved: called, with the lock held, when the placement is about to change.
    waits: called, without it, by whoever is about to wait for the first view.
    """

    def __init__(
        self, member: tuple[str, int], address: str, target: str, moved: Callable[[], None],
        waits: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.member, self.target = member, target
        self._address, self._moved, self._waits = address, moved, waits
        self.dedup = self.cut = self.pack = self.optimise = "auto"
        self._cut_before: dict[str, int] = {}
        self.lazy, self.rate = "off", "none"
        self.view: ClusterView | None = None
        self.names: dict[int, str] = {}
        """Of the PS by task, of all that there were."""
        self.dead: set[int] = set()
        """Tasks of PS that are lost; never used again."""
        self.coming: frozenset[int] = frozenset()
        """PS of the view to be prepared; none once it is taken back."""
        self.lapsed = False
        """A pause ended without resume or commit: our view may be old."""
        self.lost_until = 0.0
        """On the monotonic clock: a PS is known to be lost, and another view will come."""
        self.tracked: Mapping[str, str] = {}
        """Variable → bitmap of those whose writes sessions mark."""
        self.marked: frozenset[int] = frozenset()
        """Slots of whose tables every run marks the dirty rows."""
        self.marks_sure = True
        """No run is under way that began with other marks."""
        self._unguarded_since = -math.inf
        self._wanted: Wanted | None = None
        self._failure: Exception | None = None
        self._changed = threading.Condition(threading.RLock())

    # -- asking

    def wait_view(self) -> ClusterView:
        """The present view; waits for the first."""
        if self.view is None:
            self._waits()
        with self._changed:
            self._wait(lambda: self.view is not None, "the AIMaster did not answer")
            assert self.view is not None
            return self.view

    def wait_live(self, timeout_seconds: float) -> bool:
        """Whether, within the time, the chief has said that the model is initialised."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._failure is not None or bool(self.view and self.view.live), timeout_seconds
            )
            if self._failure is not None:
                raise self._failure
            return self.live

    def wait_generation(self, generation: int, timeout_seconds: float) -> bool:
        """Whether, within the time, another generation than this has begun."""
        with self._changed:
            return self._changed.wait_for(lambda: self.generation != generation, timeout_seconds)

    @property
    def failed(self) -> bool:
        """Whether the job does not take this process."""
        return self._failure is not None

    @property
    def live(self) -> bool:
        return self.view is not None and self.view.live

    @property
    def epoch(self) -> int:
        return self.view.epoch if self.view is not None else 0

    @property
    def generation(self) -> int:
        return self.view.generation if self.view is not None else 0

    def wanted(self) -> Wanted:
        """For the present view and marks; waits until every slot has a PS."""
        wanted = self._wanted
        if wanted is not None:
            return wanted
        if self.view is None:
            self._waits()
        with self._changed:
            self._wait(lambda: self.view is not None and self.view.serving, "not every slot has a PS")
            assert self.view is not None
            self._wanted = self.wanted_for(self.view, self.tracked)
            return self._wanted

    def wanted_for(self, view: ClusterView, tracked: Mapping[str, str]) -> Wanted:
        job, index = self.member
        used = {task: view.ps[task] for task in sorted(set(view.slot_map))}
        context = passes.Context(
            slot_map=view.slot_map,
            tracked=dict(tracked),
            dedup=self.dedup,
            pack=self.pack,
            optimise=self.optimise,
            worker_device=f"/job:{job}/task:{index}",
            cut=self.cut,
            lazy=self.lazy,
            rate=self.rate,
            cut_by_chief=view.cut if view.live else None,
            cut_before=self._cut_before,
        )
        return Wanted(
            view.placement, context, lambda base: elastic_config(used, base, (job, index, self._address)), self.target
        )

    @property
    def moving(self) -> bool:
        """Whether sessions for other PS than those of the view have been asked for: the present ones will go."""
        return bool(self.coming) and (self.view is None or self.coming != frozenset(self.view.ps))

    @property
    def halted(self) -> bool:
        """Whether training stands still for the loss of a PS."""
        return self.lost_until > time.monotonic()

    def guards_expected_seconds(self) -> float:
        """How long it is still worth waiting to hear who would take the slots of a lost PS; 0: it is known, or nobody will."""
        view = self.view
        if view is None or len(set(view.slot_map)) < 2 or view.backup_map or not self.tracked:
            return 0.0
        return max(0.0, self._unguarded_since + GUARDS_LIMIT_SECONDS - time.monotonic())

    def gone(self, wanted: Wanted) -> bool:
        """Whether a PS that it names is lost, or neither in the view nor coming: it may never answer."""
        view = self.view
        here = frozenset(view.ps) if view is not None else wanted.tasks
        return bool(self.dead & wanted.tasks) or not wanted.tasks <= here | self.coming

    def wait_other(self, failed: Wanted, lost: bool) -> bool:
        """A run made for `failed` has failed. Whether there is another view to run it in; waits for it, bounded.

        lost: it failed as if a PS was gone.

        Raises AbortedError when variables were lost meanwhile.
        """
        generation, deadline = self.generation, time.monotonic() + LOST_LIMIT_SECONDS
        with self._changed:
            while True:
                if self.generation != generation:
                    raise tf.errors.AbortedError(None, None, "variables were lost with a PS: the session is recovered")
                view = self.view
                if view is not None and view.serving and self.wanted().key != failed.key:
                    return True
                if not lost and not self.lapsed:
                    return False
                remaining = max(deadline, self.lost_until if lost else 0.0) - time.monotonic()
                if remaining <= 0:
                    return False
                self._changed.wait(min(remaining, 0.2))

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        """With the lock held. Raises when the time is up or the agent has failed."""
        if not self._changed.wait_for(lambda: condition() or self._failure is not None, SERVING_LIMIT_SECONDS):
            raise tf.errors.DeadlineExceededError(None, None, f"{what} within {SERVING_LIMIT_SECONDS:.0f} s")
        if self._failure is not None:
            raise self._failure

    # -- changing

    def fail(self, error: Exception) -> None:
        """The job does not take this process: whoever waits gets the error."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def registered(self, tracked: Mapping[str, str], marked: frozenset[int]) -> None:
        """What the AIMaster says is marked. More marks than needed do no harm, a session that is built anew would."""
        with self._changed:
            if not set(tracked) <= set(self.tracked):
                self.tracked, self._wanted = dict(tracked), None
                self.marked = marked

    def track(self, tracked: Mapping[str, str], wanted: Wanted) -> None:
        """From now on sessions are made so."""
        with self._changed:
            self.tracked, self._wanted = dict(tracked), wanted
            self._unguarded_since = time.monotonic()

    def forget_marks(self) -> None:
        with self._changed:
            self.tracked, self.marked = {}, frozenset()

    def set(self, view: ClusterView) -> tuple[bool, ClusterView | None]:
        """(whether it is taken: older ones are not, the view before)."""
        with self._changed:
            old = self.view
            if old is not None and view.epoch < old.epoch:
                return False, old
            if old is None or view.placement != old.placement:
                self._moved()
                self._unguarded_since = time.monotonic()
            self.view, self._wanted = view, None
            self.names.update(view.names)
            if old is not None and view.generation != old.generation:
                self.forget_marks()  # the bitmaps are gone with the variables
            self._changed.notify_all()
            return True, old
