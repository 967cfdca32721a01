"""When this trainer traces a step, and what becomes of what was recorded.

The training thread does nothing for it but look at a flag. The sampler's thread decides when; the thread that prepares
sessions compiles; one step records (`probe`); the sampler's thread reads what it recorded.
"""

from __future__ import annotations

import logging
import queue
import statistics
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from deeprec_ext import graph as passes
from deeprec_ext.elastic.agent.background import GivenUpError, politely, without_collections
from deeprec_ext.elastic.agent.gate import Gate
from deeprec_ext.elastic.agent.steps import StepClock
from deeprec_ext.elastic.session.host import Wanted
from deeprec_ext.elastic.session.placed import PlacedSession, Signature
from deeprec_ext.elastic.session.probe import Probe, Recorded
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.tf_private.master import MasterSession
from deeprec_ext.tf_private.transfers import Transfers

v1 = tf.compat.v1
log = logging.getLogger("deeprec_ext")

SETTLE_SECONDS = 5.0
"""How long a session has to be the present one, undisturbed, before its probe is compiled and a step traced."""

DELAYS_MAX = 4
"""Where trainers come and go all the time, a probe is compiled after so many delays all the same."""

SETTLE_STEPS = 20
"""And how many steps it has to have made."""

COMPILE_LIMIT_SECONDS = 5.0
"""Where compiling a run of this graph took longer, nothing is compiled once more for traces."""

COSTS_KEPT = 5
"""Traced steps over whose cost the mean is taken."""

PACK_SECONDS = 60.0
"""So long the costliest run is waited for, which is packed once there is time for it: what is traced is what is run."""


@dataclass(frozen=True)
class Traceable:
    """A run of a session, and what it takes to compile it once more."""

    placed: PlacedSession
    signature: Signature
    definition: v1.GraphDef
    index: passes.GraphIndex
    context: passes.Context
    wanted: Wanted
    config: v1.ConfigProto
    told: passes.Told = lambda tensor: None


class Sessions(Protocol):
    """The `SessionPool` of an `ElasticSession`."""

    present: PlacedSession | None

    def traceable(self) -> Traceable | None: ...


class Host(Protocol):
    """The trainer."""

    clock: StepClock
    gate: Gate

    def pools(self) -> Sequence[Sessions]:
        """Of the sessions that are open."""

    def soon(self, job: Callable[[], None]) -> None:
        """In the thread that prepares sessions."""

    def dead(self, wanted: Wanted) -> bool:
        """See `host.SessionHost`."""

    def where(self) -> tuple[int, Mapping[int, str]]:
        """The present epoch, and the names of the PS by task number (those that are gone, too)."""


@dataclass(frozen=True)
class _Waiting:
    recorded: Recorded
    step: int
    epoch: int


class Tracing:
    """One per trainer. `tick` and `take` are called by the sampler's thread alone."""

    def __init__(self, name: str, host: Host, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._host, self._clock = name, host, clock
        self.seconds = 0.0
        """Between two traced steps, at least; 0: none."""
        self.budget = 0.0
        """Share of the time that traced steps may cost."""
        self.delay_seconds = 0.0
        """From a change of the view until a probe is compiled for it, where that is more than `SETTLE_SECONDS`."""
        self.trouble = ""
        """Why there are no traces, one line; set once."""
        self._recorded: queue.Queue[_Waiting] = queue.Queue(1)
        self._costs: deque[float] = deque(maxlen=COSTS_KEPT)
        self._placed: weakref.ref[PlacedSession] | None = None
        self._epoch = 0
        self._since = self._viewed_at = 0.0
        self._steps = 0
        self._asked = False
        self._due = 0.0

    @property
    def spacing_seconds(self) -> float:
        """Between two traced steps, so that what they cost more than others keeps to the budget. Without one none is traced,
        but one may have been before it was taken away."""
        mean, budget = statistics.fmean(self._costs) if self._costs else 0.0, self.budget
        return max(self.seconds, mean / budget) if budget > 0 else self.seconds

    # -- the sampler's thread

    def tick(self) -> None:
        """Compiles a probe, or arms it, when it is time."""
        if self.seconds <= 0 or self.budget <= 0:
            return
        pool = next((one for one in self._host.pools() if one.present is not None), None)
        placed = pool.present if pool is not None else None
        if pool is None or placed is None:
            return
        now, steps = self._clock(), self._host.clock.steps
        epoch, _ = self._host.where()
        if epoch != self._epoch:
            self._epoch, self._viewed_at = epoch, now
        if self._placed is None or self._placed() is not placed:
            self._placed, self._asked = weakref.ref(placed), False
            self._since, self._steps = now, steps
        elif self._host.gate.closed or self._host.clock.scaling:
            self._since = now
        elif now - self._since < SETTLE_SECONDS or steps - self._steps < SETTLE_STEPS:
            return
        elif placed.probe is None and not self._asked:
            if placed.is_unpacked and now - self._since < PACK_SECONDS:
                return
            if now - self._viewed_at >= self.delay_seconds or now - self._since >= DELAYS_MAX * self.delay_seconds:
                self._asked = True
                self._host.soon(lambda: self._prepare(pool))
        elif placed.probe is not None and now >= self._due:
            self._due = now + self.spacing_seconds
            placed.probe.arm()

    def take(self) -> pb.Trace | None:
        """The trace of the step that was recorded last, if there is a new one. Raises for metadata that make no sense."""
        try:
            waiting = self._recorded.get_nowait()
        except queue.Empty:
            return None
        recorded, began = waiting.recorded, time.thread_time()
        _, names = self._host.where()
        metadata = config_pb2.RunMetadata.FromString(recorded.metadata)
        trace = passes.read_trace(metadata, recorded.known, self._name, passes.role_by_view(self._name, names))
        trace.step, trace.epoch = waiting.step, waiting.epoch
        trace.usual_seconds = self._host.clock.median_step_seconds()
        self._costs.append(max(0.0, recorded.seconds - recorded.ordinary_seconds) + time.thread_time() - began)
        self._due = self._clock() + self.spacing_seconds
        return trace

    # -- the thread that prepares sessions

    def _prepare(self, pool: Sessions) -> None:
        found = pool.traceable()
        if found is None:
            return
        seconds = found.placed.compile_seconds + found.placed.optimise_seconds
        if seconds > COMPILE_LIMIT_SECONDS:
            self._say(f"no step is traced: compiling one of this graph takes {seconds:.0f} s")
            return
        given_up = threading.Event()

        def make() -> Probe:
            probe = make_probe(found, self._record)
            if given_up.is_set():
                probe.close()
            return probe

        try:
            probe = politely(make, give_up=lambda: self._host.dead(found.wanted))
        except GivenUpError:
            given_up.set()  # scalings wait for this thread; another view brings another session and another probe
            raise
        except tf.errors.OpError as error:
            self._say(f"no step is traced: {type(error).__name__}: {str(error)[:200]}")
            return
        if not found.placed.attach(probe):
            probe.close()

    def _say(self, line: str) -> None:
        if not self.trouble:
            self.trouble = line
            log.info("%s", line)

    # -- the thread of the step

    def _record(self, recorded: Recorded) -> None:
        epoch, _ = self._host.where()
        if not self._recorded.full():
            self._recorded.put_nowait(_Waiting(recorded, self._host.clock.global_step, epoch))


def make_probe(found: Traceable, record: Callable[[Recorded], None]) -> Probe:
    """Compiles a run once more, to be traced. Slow; runs nothing. Raises tf.errors.OpError."""
    with without_collections():
        rewritten = passes.rewrite(found.definition, found.context)
        signature, marks = found.signature, found.placed.marks_of(found.signature)
        definition = rewritten.definition
        if found.placed.is_packed(signature):  # what is traced is packed as what is run is
            packed = passes.pack(
                definition, found.placed.run_of(signature), found.context.worker_device, found.context.pack, found.told
            )
            definition = packed.definition or definition
        known = passes.sites(found.index, passes.GraphIndex(definition), [*signature.names, *marks])
        session = MasterSession(found.wanted.target, definition, found.config)
    options = config_pb2.CallableOptions(
        feed=signature.feeds, fetch=signature.fetches, target=[*signature.targets, *marks]
    )
    options.run_options.trace_level = config_pb2.RunOptions.FULL_TRACE
    transfers = Transfers(
        address for job in found.config.cluster_def.job if job.name == "ps" for address in job.tasks.values()
    )
    try:
        number = session.compile(options)
        transfers.connect()
        return Probe(signature, session, number, transfers, known, record)
    except BaseException:
        transfers.close()
        session.close()
        raise
