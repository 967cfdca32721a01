"""A training process (chief or worker): its TensorFlow server, its agent, and what the AIMaster's commands do here.

The agent's thread only notes and opens or closes the gate. What takes long (building sessions) happens in one thread,
in the order of the commands; training goes on meanwhile.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping

import tensorflow as tf

from deeprec_ext import graph as passes
from deeprec_ext.elastic.agent import Agent, Identity
from deeprec_ext.elastic.building import Builder
from deeprec_ext.elastic.gate import Gate
from deeprec_ext.elastic.home import Wanted
from deeprec_ext.elastic.inputs import Inputs
from deeprec_ext.elastic.placed import Placed, retire
from deeprec_ext.elastic.runner import Runner
from deeprec_ext.elastic.session import LOST, ElasticSession
from deeprec_ext.elastic.standby import Standby
from deeprec_ext.elastic.steps import StepClock
from deeprec_ext.elastic.telling import Telling
from deeprec_ext.elastic.trainer_gazer import TrainerGazer
from deeprec_ext.elastic.view import ClusterView, elastic_config
from deeprec_ext.errors import DeepRecError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

v1 = tf.compat.v1
log = logging.getLogger("deeprec_ext")

SERVING_LIMIT_SECONDS = 900.0
"""How long a run waits for a view in which every slot has a PS: a replacement may have to pull its image."""

LOST_LIMIT_SECONDS = 10.0
"""How long a failed run waits for word that a PS was lost; after that the error is the user's."""

CLOSE_AFTER_SECONDS = 0.5
"""How long after an exchange the old session is closed: taking a large graph apart would slow down the first steps."""

MARK_LIMIT_SECONDS = 60.0
"""How long a step that began with other marks may take to end; then the AIMaster asks again."""

LOST_GRACE_SECONDS = 0.1
"""How long a run on a dead PS may take to end by itself with an error, before it is given up. A hung PS gives none."""

CATALOGUES_TOLD = 3
"""To an AIMaster that has lost its store, the first trainers of the view tell the catalogue: it is large, and one is enough."""


class Trainer:
    """The home of the elastic sessions of this process. One per process, made by `elastic.process.start`."""

    def __init__(self, identity: Identity, member: tuple[str, int], target: str) -> None:
        self.identity = identity
        self.gate = Gate()
        self.runner = Runner()
        self.clock = StepClock(gate_waits=lambda: self.gate.waits)
        self.leaving = threading.Event()
        self.agent = Agent(identity, self, tf.__version__)
        self.inputs = Inputs(self.agent, self.leaving)
        self.gazer = TrainerGazer(identity.name, self, self.agent)
        self.telling = Telling(self.agent, self.clock, self.gazer.note_pause)
        self._builder = Builder(self.agent.ack)
        self.had_session = False
        self.asked_to_train = False  # Estimator may find that all steps are done and open no session
        self.has_evaluator = False
        self.refusal: str | None = None
        self.last_step: Callable[[], int] = lambda: 0
        self._member = member
        self._target = target
        self._view: ClusterView | None = None
        self._tracked: Mapping[str, str] = {}
        self._wanted: Wanted | None = None
        self._settings = pb.AgentSettings(ps_heartbeat_limit_seconds=3.0)
        self._changed = threading.Condition(threading.RLock())
        self._sessions: weakref.WeakSet[ElasticSession] = weakref.WeakSet()
        self._live_generation = 0  # of which it was said that the model is live
        self._marked: frozenset[int] = frozenset()  # slots of whose tables every run marks the dirty rows
        self._lapsed = False  # a pause ended without resume or commit: our view may be old
        self._failure: Exception | None = None
        self._frozen = False
        self._lost_until = 0.0  # monotonic: a PS is known to be lost, and another view will come
        self._dead: set[int] = set()  # tasks of PS that are lost; never used again
        self._coming: frozenset[int] = frozenset()  # PS of the view to be prepared; none once it is taken back
        self._standby = Standby(self._builder.put, lambda: list(self._sessions), self._standby_wanted, retire)
        self._ps_names: dict[int, str] = {}  # of all that there were
        self._marks_sure = True  # no run is under way that began with other marks

    def start(self) -> None:
        """Registers and serves in the background; the first elastic session waits for the result."""
        threading.Thread(target=self._register, name="deeprec-register", daemon=True).start()
        self._builder.start()

    def _register(self) -> None:
        try:
            self.agent.start()
        except DeepRecError as error:
            log.error("%s", error)
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    # -- the home of sessions

    @property
    def view(self) -> ClusterView:
        """The present view; waits for the first."""
        with self._changed:
            self._wait(lambda: self._view is not None, SERVING_LIMIT_SECONDS, "the AIMaster did not answer")
            assert self._view is not None
            return self._view

    def wait_live(self, timeout_seconds: float) -> bool:
        """Whether, within the time, the chief has said that the model is initialised."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._failure is not None or bool(self._view and self._view.live), timeout_seconds
            )
            if self._failure is not None:
                raise self._failure
            return bool(self._view and self._view.live)

    @property
    def model_is_live(self) -> bool:
        return self._view is not None and self._view.live

    @property
    def chief(self) -> bool:
        """Whether this process initialises and checkpoints the model."""
        return self._member[0] in ("chief", "master")

    @property
    def target(self) -> str:
        return self._target

    @property
    def generation(self) -> int:
        return self._view.generation if self._view is not None else 0

    def wanted(self) -> Wanted:
        wanted = self._wanted
        if wanted is not None:
            return wanted
        with self._changed:
            self._wait(
                lambda: self._view is not None and self._view.serving, SERVING_LIMIT_SECONDS, "not every slot has a PS"
            )
            assert self._view is not None
            self._wanted = self._wanted_for(self._view, self._tracked)
            return self._wanted

    def _wanted_for(self, view: ClusterView, tracked: Mapping[str, str]) -> Wanted:
        job, index = self._member
        used = {task: view.ps[task] for task in sorted(set(view.slot_map))}
        address = self.identity.address
        context = passes.Context(
            slot_map=view.slot_map,
            tracked=dict(tracked),
            dedup=self._settings.dedup or "auto",
            worker_device=f"/job:{job}/task:{index}",
        )
        return Wanted(
            view.placement, context, lambda base: elastic_config(used, base, (job, index, address)), self._target
        )

    def _wait(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """With the lock held. Raises when the time is up or the agent has failed."""
        if not self._changed.wait_for(lambda: condition() or self._failure is not None, seconds):
            raise tf.errors.DeadlineExceededError(None, None, f"{what} within {seconds:.0f} s")
        if self._failure is not None:
            raise self._failure

    def next_view(self, error: Exception, failed: Wanted) -> bool:
        lost = isinstance(error, LOST)
        if lost:
            log.warning("a step failed: %s", str(error).splitlines()[0][:200] if str(error) else type(error).__name__)
            self.agent.send(
                pb.AgentMessage(
                    trouble=pb.PsTrouble(
                        error=str(error)[:500], epoch=self._view.epoch if self._view else 0, step=self.clock.global_step
                    )
                )
            )
        generation, deadline = self.generation, time.monotonic() + LOST_LIMIT_SECONDS
        with self.gate.waiting, self._changed:
            while True:
                if self.generation != generation:
                    raise tf.errors.AbortedError(None, None, "variables were lost with a PS: the session is recovered")
                view = self._view
                if view is not None and view.serving and self.wanted().key != failed.key:
                    return True
                if not lost and not self._lapsed:
                    return False
                remaining = max(deadline, self._lost_until if lost else 0.0) - time.monotonic()
                if remaining <= 0:
                    return False
                self._changed.wait(min(remaining, 0.2))

    def dead(self, wanted: Wanted) -> bool:
        view = self._view
        here = frozenset(view.ps) if view is not None else wanted.tasks
        return bool(self._dead & wanted.tasks) or not wanted.tasks <= here | self._coming

    def opened(self, session: ElasticSession) -> None:
        self.had_session = True
        self.clock.begin_session()
        self._sessions.add(session)

    def closed(self, session: ElasticSession) -> None:
        self._sessions.discard(session)

    def retire(self, sessions: list[Placed]) -> None:
        threading.Thread(target=retire, args=(sessions,), name="deeprec-retire", daemon=True).start()

    def refused(self, reason: str) -> None:
        self.refusal = reason
        self.agent.send(pb.AgentMessage(refusal=pb.Refusal(reason=reason)))

    # -- for Gazer

    def open_sessions(self) -> list[ElasticSession]:
        return list(self._sessions)

    def soon(self, job: Callable[[], None]) -> None:
        self._builder.put(job)

    def where(self) -> tuple[int, Mapping[int, str]]:
        return self._epoch, self._ps_names

    def size(self) -> tuple[int, int]:
        """PS and trainers of the present view."""
        view = self._view
        return (len(view.ps), view.trainers) if view is not None else (0, 0)

    # -- what the hook reports

    def model_live(self, step: int) -> None:
        """The chief's session is ready: others may attach from now on."""
        live = self.inputs.take_restored()
        live.generation, live.step = self.generation, step
        self._live_generation = self.generation
        self.agent.send(pb.AgentMessage(live=live))

    def step_completed(self, step: int) -> None:
        self.clock.completed(step)
        if self.clock.step_epoch != self._epoch:  # the first step in this view: whoever waits for it shall know at once
            self.clock.first_step(self._epoch)
            self.agent.send(pb.AgentMessage(heartbeat=self.beat()))
        if self.clock.steps == 3:
            self._builder.put(self._freeze)
        if self.clock.steps in (3, 50) or self.clock.steps % 1000 == 0:
            self._builder.put(self.send_catalogue)
            self._standby.soon()  # hooks and savers may have added to the graph

    def _freeze(self) -> None:
        """The user's graph lives as long as the job; with it, each full garbage collection stops the process for 0.2 s."""
        if not self._frozen:
            self._frozen = True
            gc.collect()
            gc.freeze()

    def send_catalogue(self) -> None:
        self.telling.variables(list(self._sessions))

    def report_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        self.telling.metrics(metrics, step)

    def settle(self) -> None:
        """Until nothing is being prepared, and nothing will be."""
        self._builder.settle()

    def finish(self) -> None:
        """The script ends."""
        self._builder.ended = True
        self.gazer.sampler.stop()
        self.inputs.finish()
        self.telling.pauses(flush=True)
        self.agent.send(pb.AgentMessage(heartbeat=self.beat()))
        self.agent.send(pb.AgentMessage(finished=pb.Finished(left=self.leaving.is_set(), had_session=self.had_session)))
        self.agent.close()

    # -- the agent's handler

    def registered(self, reply: pb.RegisterReply) -> None:
        self._settings = reply.settings
        self._standby.delay_seconds = reply.settings.standby_delay_seconds
        self.has_evaluator = reply.has_evaluator
        with self._changed:
            if not set(reply.tracked) <= set(
                self._tracked
            ):  # more marks than needed do no harm, a rebuilt session would
                self._tracked, self._wanted = dict(reply.tracked), None
                self._marked = frozenset(reply.view.marked_slots)
        self._set_view(ClusterView.from_proto(reply.view))
        self.inputs.registered(reply)
        self.gazer.follow(reply.settings)

    def fenced(self, reason: str) -> None:
        log.error("%s; this process ends", reason)
        sys.stderr.flush()
        os._exit(75)

    def tell(self, known: pb.Known) -> None:
        known.step, known.live_generation = self.clock.global_step, self._live_generation
        known.marked_slots.extend(sorted(self._marked))
        if self.identity.name in [worker.name for worker in known.view.workers][:CATALOGUES_TOLD]:
            known.catalogue.CopyFrom(self.telling.catalogue)
        self.inputs.tell(known)

    def beat(self) -> pb.Heartbeat:
        self.telling.pauses()
        steps, examples = self.clock.rates()
        return pb.Heartbeat(
            step=self.clock.global_step,
            steps_per_second=steps,
            examples_per_second=examples,
            step_seconds=self.clock.median_step_seconds(),
            gate_waits=self.gate.waits,
            training=bool(self._sessions) and self.clock.steps > 0,
            examples=self.clock.steps * self.clock.examples_per_step,
            last_step=self.last_step(),
            epoch=self._epoch,
            step_epoch=self.clock.step_epoch,
            step_age_seconds=self.clock.since_first_step(),
            preparing=self._builder.busy,
        )

    @property
    def _epoch(self) -> int:
        return self._view.epoch if self._view is not None else 0

    def receive(self, message: pb.MasterMessage) -> None:
        kind = message.WhichOneof("message")
        if kind == "publish":
            self._set_view(ClusterView.from_proto(message.publish.view))
        elif kind == "scaling":
            notice = message.scaling
            if notice.phase == pb.ScalingNotice.BEGUN:
                self.clock.begin_scaling(notice.scaling_id)
            else:
                self.clock.end_scaling(notice.scaling_id)
        elif kind == "data":
            self.inputs.receive(message.data)
        elif kind == "command":
            self._command(message.command)

    def _command(self, command: pb.Command) -> None:
        kind = command.WhichOneof("command")
        if kind == "pause":
            self._lapsed = True  # until resume or commit says otherwise
            self.gate.close(command.pause.lease_seconds)
            self._builder.obey_beside(command.id, lambda: self._paused(command.pause.lease_seconds))
        elif kind == "resume":
            self._lapsed = False
            self._coming = frozenset()
            self.gate.open()
            self._builder.obey(command.id, self._resume)
        elif kind == "commit":
            self._commit(command.id, ClusterView.from_proto(command.commit.view), command.commit.keep_marks)
        elif kind == "lost":
            self._dead |= set(command.lost.tasks)
            self._lost_until = time.monotonic() + command.lost.lease_seconds
            self.gate.close(command.lost.lease_seconds)
            threading.Thread(target=self._lost, args=(command.id,), name="deeprec-lost", daemon=True).start()
        elif kind == "mark":
            tracked, slots = dict(command.mark.tracked), frozenset(command.mark.slots)
            self._builder.obey(command.id, lambda: self._mark(tracked, slots))
        elif kind == "prepare":
            view, keep = ClusterView.from_proto(command.prepare.view), command.prepare.keep_marks
            self._coming = frozenset(view.ps)
            self._builder.obey(command.id, lambda: self._prepare(view, keep))
        elif kind == "leave":
            log.info("leaving the job: %s", command.leave.reason)
            self.leaving.set()
            self.agent.ack(command.id)
        else:
            self.agent.ack(command.id, f"{self.identity.name} does not know the command {kind!r}")

    # -- commands

    def _paused(self, lease_seconds: float) -> None:
        if not self.gate.wait_idle(lease_seconds):
            raise TimeoutError("a step did not end within the lease; is it waiting for input?")

    def _resume(self) -> None:
        for session in list(self._sessions):
            retire(session.drop_prepared())

    def _mark(self, tracked: Mapping[str, str], slots: frozenset[int]) -> None:
        """From the next run on, sessions mark the writes to these variables (or none), all of them on these slots."""
        if tracked == self._tracked and self._marks_sure:
            self._marked = slots
            return
        before: list[Placed] = []
        self._marked = frozenset()
        if tracked != self._tracked:
            self._marks_sure = False
            wanted = self._wanted_for(self.view, tracked)
            for session in list(self._sessions):
                session.prepare(wanted)
            with self._changed:
                self._tracked, self._wanted = dict(tracked), wanted
            before = [old for session in list(self._sessions) for old in session.exchange(wanted)]
        sure = self.gate.wait_past(MARK_LIMIT_SECONDS)
        self.retire(before)
        if not sure:
            raise TimeoutError(f"a step without marks did not end within {MARK_LIMIT_SECONDS:g} s")
        self._marks_sure, self._marked = True, slots

    def _prepare(self, view: ClusterView, keep_marks: bool) -> None:
        wanted = self._wanted_for(view, self._tracked if keep_marks else {})
        for session in list(self._sessions):
            session.prepare(wanted)

    def _lost(self, command_id: int) -> None:
        """A PS is gone for good: no run goes on, none begins before the next view; answers with the highest step."""
        if not self.gate.wait_past(LOST_GRACE_SECONDS):
            self.runner.abandon("a PS was lost")
        self.agent.ack(command_id, step=self.clock.global_step)

    def _standby_wanted(self) -> list[Wanted] | None:
        if self._builder.ended:
            return None
        views = self.view.after_losses()[: self._settings.standby_sessions_max]
        return [self._wanted_for(one, self._tracked) for one in views]

    def _commit(self, command_id: int, view: ClusterView, keep_marks: bool) -> None:
        """In the agent's thread: nothing here takes long when the session was prepared."""
        if not keep_marks:
            with self._changed:
                self._tracked, self._marked = {}, frozenset()
        self._set_view(view)
        wanted = self.wanted()
        before: list[Placed] = [old for session in list(self._sessions) for old in session.exchange(wanted)]
        self._lapsed = False
        self.gate.open()

        def close() -> None:
            time.sleep(CLOSE_AFTER_SECONDS)
            retire(before)
            for session in list(self._sessions):
                retire(session.drop_prepared())

        self._builder.obey_beside(command_id, close)
        self._standby.soon()

    def _set_view(self, view: ClusterView) -> None:
        with self._changed:
            old = self._view
            if old is not None and view.epoch < old.epoch:
                return
            if old is None or view.placement != old.placement:
                self._standby.placed()
            self._view, self._wanted = view, None
            self._ps_names.update(view.names)
            if old is not None and view.generation != old.generation:
                self._tracked, self._marked = {}, frozenset()  # the bitmaps are gone with the variables
            self._changed.notify_all()
        if self._lost_until and old is not None and view.placement != old.placement:
            self._lost_until = 0.0
            self.gate.open()
        if old is not None and view.generation != old.generation:
            threading.Timer(0.5, self._abandon, [view.generation]).start()
        elif view.backup_map and (old is None or view.after_losses() != old.after_losses()):
            self._standby.soon()

    def _abandon(self, generation: int) -> None:
        """Runs that still wait for a lost PS would wait for ever when it hangs."""
        count = self.runner.abandon(f"a PS was lost (generation {generation})")
        if count:
            log.warning("gave up %d runs that waited for a lost PS", count)
