"""A training process (chief or worker): its TensorFlow server, its agent, and what the AIMaster's commands do here.

The agent's thread only notes and opens or closes the gate. What takes long (building sessions) happens in one thread,
in the order of the commands; training goes on meanwhile.
"""

from __future__ import annotations

import gc
import logging
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from deeprec_ext.elastic.agent.agent import Agent, Identity
from deeprec_ext.elastic.agent.building import Builder
from deeprec_ext.elastic.agent.causes import LOST as LOST_PS
from deeprec_ext.elastic.agent.causes import causes
from deeprec_ext.elastic.agent.commands import ELSEWHERE, Table, carry_out
from deeprec_ext.elastic.agent.declaring import Declaring
from deeprec_ext.elastic.agent.gate import Gate
from deeprec_ext.elastic.agent.inputs import Inputs
from deeprec_ext.elastic.agent.leaving import leaves
from deeprec_ext.elastic.agent.rate import RateOfTrainer
from deeprec_ext.elastic.agent.steps import StepClock
from deeprec_ext.elastic.ps.trainer_backup import TrainerBackup
from deeprec_ext.elastic.runtime.view import ClusterView
from deeprec_ext.elastic.session.host import Wanted
from deeprec_ext.elastic.session.losses import unreachable
from deeprec_ext.elastic.session.placed import PlacedSession, retire
from deeprec_ext.elastic.session.pool import SessionPool
from deeprec_ext.elastic.session.runner import Runner
from deeprec_ext.elastic.session.session import LOST, ElasticSession
from deeprec_ext.elastic.session.standby import Standby
from deeprec_ext.elastic.trainer.announcing import Announcing
from deeprec_ext.elastic.trainer.attaching import await_order, new_variables
from deeprec_ext.elastic.trainer.calling import Calling
from deeprec_ext.elastic.trainer.cluster_state import ClusterState
from deeprec_ext.elastic.trainer.noticing import Noticing
from deeprec_ext.elastic.trainer.plain import Watch
from deeprec_ext.elastic.trainer.reporting import Reporter
from deeprec_ext.elastic.trainer.trainer_gazer import TrainerGazer
from deeprec_ext.errors import DeepRecError, one_line
from deeprec_ext.layout import Names
from deeprec_ext.options import Settings
from deeprec_ext.proto import deeprec_ext_pb2 as pb

v1 = tf.compat.v1
log = logging.getLogger("deeprec_ext")

CLOSE_AFTER_SECONDS = 0.5
"""How long after an exchange the old session is closed: taking a large graph apart would slow down the first steps."""

MARK_LIMIT_SECONDS = 60.0
"""How long a step that began with other marks may take to end; then the AIMaster asks again."""

LOST_GRACE_SECONDS = 0.1
"""How long a run on a dead PS may take to end by itself with an error, before it is given up. A hung PS gives none."""

CATALOGUES_TOLD = 3
"""To an AIMaster that has lost its store, the first trainers of the view tell the catalogue: it is large, and one is enough."""


class Trainer:
    """The host of the elastic sessions of this process. One per process, made by `elastic.trainer.process.start`."""

    def __init__(self, identity: Identity, member: tuple[str, int], target: str) -> None:
        self.identity, self.pid = identity, os.getpid()
        self.gate = Gate()
        self.runner = Runner()
        self.clock = StepClock(gate_waits=lambda: self.gate.waits)
        self.leaving = threading.Event()
        self.agent = Agent(identity, self, tf.__version__)
        self.inputs = Inputs(self.agent, self.leaving)
        self.gazer = TrainerGazer(identity.name, self, self.agent)
        self.declaring = Declaring(self.agent.send, lambda: self._cluster.generation)
        self.noticing = Noticing(self.agent.send)
        self.reporter = Reporter(self.agent, self.clock, self.declaring, self.gazer.note_pause, self._note_slow)
        self.plain = Watch(
            self.noticing, self.refused, lambda: self.clock.steps > 0, lambda: self.asked_to_train, self.soon
        )  # fmt: skip
        self.backup = TrainerBackup(target, self.agent, lambda: self._settings.copy_chunk_bytes or 8 << 20)
        self._builder = Builder(self.agent.ack)
        self.had_session = False
        self.asked_to_train = False  # Estimator may find that all steps are done and open no session
        self.has_evaluator = False
        self.runs_repeated = 0  # since a PS was lost under them, or their view changed
        self.refusal: str | None = None
        self.last_step: Callable[[], int] = lambda: 0
        self.checkpoints: bool | None = None
        """Whether a hook of the session under way writes them; None: nobody knows."""
        self.step_tensors: tuple[str, ...] = ()
        """Names of the tensors by which runs fetch the global step; of two in one run one may be of before it, one of after."""
        self.calling = Calling(*member)
        self._cluster = ClusterState(
            member, identity.address, target, lambda: self._standby.placed(), lambda: self.announcing.tell(None)
        )
        self.announcing = Announcing(
            self.agent, self._cluster, self.calling.names, lambda: self.reporter.examples_given,
            lambda: self.checkpoints,
        )  # fmt: skip
        self._settings = pb.AgentSettings(ps_heartbeat_limit_seconds=3.0)
        self._rate = RateOfTrainer(lambda: self.size()[1])
        self._sessions: weakref.WeakSet[ElasticSession] = weakref.WeakSet()
        self._live_generation = 0  # of which it was said that the model is live
        self._frozen = False
        self._standby = Standby(
            self._builder.put, self.pools, self._standby_wanted, retire, self._hold_seconds, self.send_catalogue
        )

        self._table: Table = {
            "pause": self._pause, "resume": self._resume, "commit": self._commit, "lost": self._lose, "mark": self._mark,
            "prepare": self._prepare, "leave": self._leave, **dict.fromkeys(TrainerBackup.COMMANDS, self._hold_backup),
        }  # fmt: skip

    def start(self) -> None:
        """Registers and serves in the background; the first elastic session waits for the result."""
        threading.Thread(target=self._register, name="deeprec-register", daemon=True).start()
        self._builder.start()

    def _register(self) -> None:
        try:
            self.agent.start()
        except DeepRecError as error:
            log.error("%s", error)
            self._cluster.fail(error)

    # -- the host of sessions

    @property
    def view(self) -> ClusterView:
        """The present view; waits for the first."""
        return self._cluster.wait_view()

    def wait_live(self, timeout_seconds: float) -> bool:
        """Whether, within the time, the chief has said that the model is initialised."""
        return self._cluster.wait_live(timeout_seconds)

    @property
    def model_is_live(self) -> bool:
        return self._cluster.live

    @property
    def chief(self) -> bool:
        """Whether this process initialises and checkpoints the model."""
        return self._cluster.member[0] == "chief"

    @property
    def model_lives(self) -> bool:
        """Also while the AIMaster has not yet heard it from this chief. Who is no chief initialises nothing at any time."""
        cluster = self._cluster
        return not self.chief or cluster.live or 0 < self._live_generation == cluster.generation

    @property
    def target(self) -> str:
        return self._cluster.target

    @property
    def generation(self) -> int:
        return self._cluster.generation

    def wanted(self) -> Wanted:
        return self._cluster.wanted()

    def rate(self) -> float:
        return self._rate.next(self._settings)

    def names(self) -> Names:
        return self.calling.names()

    def next_view(self, error: Exception, failed: Wanted) -> bool:
        lost = isinstance(error, LOST)
        if lost:
            log.warning("a step failed: %s", one_line(error))
            trouble = pb.PsTrouble(
                tasks=unreachable(error), error=str(error)[:500], epoch=self._cluster.epoch, step=self.clock.global_step
            )
            self.agent.send(pb.AgentMessage(trouble=trouble))
        with self.gate.waiting, causes.during(LOST_PS):
            another = self._cluster.wait_other(failed, lost)
            again = another or (not lost and await_order(error, failed, self.agent, self._cluster))
        self.runs_repeated += lost and again  # of others a part may have been done, of those that find nothing none
        return again

    def wait_generation(self, generation: int, timeout_seconds: float) -> bool:
        """Whether, within the time, the model has begun anew since this generation."""
        return self._cluster.wait_generation(generation, timeout_seconds)

    def ran(self, fetches: Sequence[str], results: Sequence[Any]) -> None:
        """The global step is known before anybody is told that the run is over. Its hooks may come much later: one of them
        makes a run of its own, which waits at the gate, and meanwhile a PS is lost and the step that was seen is asked for.
        """
        for name in self.step_tensors:
            if name in fetches:
                self.clock.reached(int(results[fetches.index(name)]))

    def declare(self, catalogue: pb.Catalogue) -> None:
        self.declaring.declare(catalogue)

    def new_variables(self, names: Sequence[str]) -> frozenset[str]:
        return new_variables(names, self.agent, self._cluster) if self.chief else frozenset()

    def notice(self, code: str, text: str, remedy: str, *, mended: bool = False) -> None:
        self.noticing.say(code, text, remedy, mended=mended)

    def _note_slow(self, text: str, remedy: str) -> None:
        if self.chief:  # of all processes the same
            self.notice("slow-updates", text, remedy, mended=True)

    def dead(self, wanted: Wanted) -> bool:
        return self._cluster.gone(wanted)

    def opened(self, session: ElasticSession) -> None:
        self.had_session = True
        self.clock.begin_session()
        self._sessions.add(session)

    def closed(self, session: ElasticSession) -> None:
        self._sessions.discard(session)

    def dropped(self, close: Callable[[], None]) -> None:
        """By a finaliser, in any thread, which may hold any lock: `Builder.put` takes none."""
        if not sys.is_finalizing():
            self._builder.put(close)

    def close_sessions(self, limit_seconds: float) -> None:
        """Those that the script has left open, at its end. What cannot be closed within the time is left behind."""
        sessions = list(self._sessions)

        def close() -> None:
            for session in sessions:
                session.close()

        if not sessions:
            return
        thread = threading.Thread(target=close, name="deeprec-close", daemon=True)
        thread.start()
        thread.join(limit_seconds)
        if thread.is_alive():
            log.info(
                "sessions that the script left open could not be closed within %.0f s; they are left behind",
                limit_seconds,
            )
            for session in sessions:
                session.pool.leave_behind()

    def pools(self) -> list[SessionPool]:
        """Of the sessions that are open now."""
        return [session.pool for session in list(self._sessions)]

    def retire(self, sessions: list[PlacedSession]) -> None:
        threading.Thread(target=retire, args=(sessions,), name="deeprec-retire", daemon=True).start()

    def refused(self, reason: str) -> None:
        self.refusal = reason
        self.agent.send(pb.AgentMessage(refusal=pb.Refusal(reason=reason)))

    # -- for Gazer

    def soon(self, job: Callable[[], None]) -> None:
        self._builder.put(job)

    def where(self) -> tuple[int, Mapping[int, str]]:
        return self._cluster.epoch, self._cluster.names

    def size(self) -> tuple[int, int]:
        """PS and trainers of the present view."""
        view = self._cluster.view
        return (len(view.ps), view.trainers) if view is not None else (0, 0)

    # -- what the hook reports

    def model_live(self, step: int) -> None:
        """The chief's session is ready: others may attach from now on."""
        live = self.inputs.take_restored()
        live.generation, live.step = self.generation, step
        live.cut.extend(sorted({name for session in list(self._sessions) for name in session.cut()}))
        self._live_generation = self.generation
        self.agent.send(pb.AgentMessage(live=live))

    def step_completed(self, step: int) -> None:
        self.clock.completed(step)
        epoch = self._cluster.epoch
        if self.clock.step_epoch != epoch:  # the first step in this view: whoever waits for it shall know at once
            self.clock.first_step(epoch)
            self.declaring.trained()
            self.agent.send(pb.AgentMessage(heartbeat=self.beat()))
            self._standby.soon()
        if self.clock.steps == 3:
            self._builder.put(self._freeze)
        if self.clock.steps in (3, 50, 250) or self.clock.steps % 1000 == 0:
            self._builder.put(self.send_catalogue)
            self._standby.soon()  # hooks and savers may have added to the graph, and summaries have been made twice
        if self.clock.steps == 50:
            self._builder.put(self._declare)
        self._notice()

    def _declare(self) -> None:
        """Unless the first view has waited for it."""
        for session in list(self._sessions)[:1]:
            self.announcing.tell_later(session.graph)

    def _notice(self) -> None:
        if self.noticing.due(self.clock.steps):
            self._builder.put(lambda: self.noticing.look(list(self._sessions)))

    def _freeze(self) -> None:
        """The user's graph lives as long as the job; with it, each full garbage collection stops the process for 0.2 s."""
        if not self._frozen:
            self._frozen = True
            gc.collect()
            gc.freeze()

    def send_catalogue(self) -> None:
        self.reporter.variables(list(self._sessions))

    def report_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        self.reporter.metrics(metrics, step)

    def settle(self, limit_seconds: float) -> None:
        """Until nothing is being prepared, and nothing will be."""
        self._builder.settle(limit_seconds)

    @property
    def end_limit_seconds(self) -> float:
        """How long this process may live after the end of its script."""
        return self._settings.end_limit_seconds or Settings.end_limit_seconds

    def finish(self, exit_code: int | None, error: str = "") -> None:
        """The script has ended; None: nobody knows with which exit code."""
        self._builder.ended = True
        self.gazer.sampler.stop()
        self.backup.close()
        self.inputs.finish()
        self.reporter.pauses(flush=True)
        self.agent.send(pb.AgentMessage(heartbeat=self.beat()))
        finished = pb.Finished(
            left=self.leaving.is_set(), had_session=self.had_session, exit_code=exit_code, error=error
        )
        self.agent.send(pb.AgentMessage(finished=finished))
        self.agent.close()

    # -- the agent's handler

    def registered(self, reply: pb.RegisterReply) -> None:
        self._settings = reply.settings
        self._standby.delay_seconds = reply.settings.standby_delay_seconds
        self.has_evaluator = reply.has_evaluator
        self._cluster.dedup = reply.settings.dedup or "auto"
        self._cluster.pack = reply.settings.pack or "auto"
        self._cluster.optimise = reply.settings.optimise or "auto"
        self._cluster.cut = reply.settings.cut or "auto"
        self._cluster.lazy = reply.settings.lazy or "off"
        self._cluster.rate = reply.settings.rate_scaling or "none"
        self._cluster.registered(reply.tracked, frozenset(reply.view.marked_slots))
        self._set_view(ClusterView.from_proto(reply.view))
        self.declaring.registered(reply)
        self.inputs.registered(reply)
        self.backup.report_again()
        self.noticing.again()
        self.gazer.follow(reply.settings)

    def fenced(self, reason: str) -> None:
        log.error("%s; this process ends", reason)
        sys.stderr.flush()
        os._exit(75)

    def tell(self, known: pb.Known) -> None:
        known.step, known.live_generation = self.clock.global_step, self._live_generation
        known.marked_slots.extend(sorted(self._cluster.marked))
        if self.identity.name in [worker.name for worker in known.view.workers][:CATALOGUES_TOLD]:
            known.catalogue.CopyFrom(self.declaring.catalogue)
        self.inputs.tell(known)

    def beat(self) -> pb.Heartbeat:
        self.plain.beat()
        self._notice()
        self.reporter.pauses()
        steps, examples = self.clock.rates()
        return pb.Heartbeat(
            step=self.clock.global_step,
            steps_per_second=steps,
            examples_per_second=examples,
            step_seconds=self.clock.median_step_seconds(),
            gate_waits=self.gate.waits,
            training=bool(self._sessions) and self.clock.steps > 0,
            examples=round(self.clock.steps * self.clock.examples_per_step),
            last_step=self.last_step(),
            epoch=self._cluster.epoch,
            step_epoch=self.clock.step_epoch,
            step_age_seconds=self.clock.since_first_step(),
            preparing=self._builder.busy,
        )

    def receive(self, message: pb.MasterMessage) -> None:
        kind = message.WhichOneof("message")
        if kind == "publish":
            self._set_view(ClusterView.from_proto(message.publish.view))
        elif kind == "scaling":
            notice = message.scaling
            if notice.phase == pb.ScalingNotice.BEGUN:
                self.clock.begin_scaling(notice.scaling_id)
                self._standby.stand_back()
            else:
                self.clock.end_scaling(notice.scaling_id)
                self._standby.go_on()
        elif kind == "data":
            self.inputs.receive(message.data)
        elif kind == "command":
            carry_out(self._table, message.command, self.identity.name, self.agent.ack)

    # -- commands; most are answered by the builder's thread, or by one of their own

    def _pause(self, command: pb.Command) -> dict[str, Any]:
        self._cluster.lapsed = True  # until resume or commit says otherwise
        self.gate.close(command.pause.lease_seconds)
        self._builder.obey_beside(command.id, lambda: self._paused(command.pause.lease_seconds))
        return ELSEWHERE

    def _resume(self, command: pb.Command) -> dict[str, Any]:
        self._cluster.lapsed, self._cluster.coming = False, frozenset()
        self.gate.open()
        self._builder.obey(command.id, self._drop_prepared)
        return ELSEWHERE

    def _lose(self, command: pb.Command) -> dict[str, Any]:
        self.clock.lost()
        self._cluster.dead |= set(command.lost.tasks)
        self._cluster.lost_until = time.monotonic() + command.lost.lease_seconds
        self.gate.close(command.lost.lease_seconds)
        threading.Thread(target=self._lost, args=(command.id,), name="deeprec-lost", daemon=True).start()
        self._builder.urge(self._prepare_for_loss)
        return ELSEWHERE

    def _mark(self, command: pb.Command) -> dict[str, Any]:
        tracked, slots = dict(command.mark.tracked), frozenset(command.mark.slots)
        self._builder.obey(command.id, lambda: self._mark_from_now(tracked, slots))
        return ELSEWHERE

    def _prepare(self, command: pb.Command) -> dict[str, Any]:
        view, keep = ClusterView.from_proto(command.prepare.view), command.prepare.keep_marks
        self._cluster.coming = frozenset(view.ps)
        self._builder.obey(command.id, lambda: self._prepare_for(view, keep))
        return ELSEWHERE

    def _leave(self, command: pb.Command) -> None:
        leaves(command.leave.reason)
        self.leaving.set()

    def _hold_backup(self, command: pb.Command) -> dict[str, Any]:
        self.backup.put(command)
        return ELSEWHERE

    # -- what they do

    def _paused(self, lease_seconds: float) -> None:
        if not self.gate.wait_idle(lease_seconds):
            raise TimeoutError("a step did not end within the lease; is it waiting for input?")

    def _drop_prepared(self) -> None:
        for pool in self.pools():
            retire(pool.drop_prepared())

    def _mark_from_now(self, tracked: Mapping[str, str], slots: frozenset[int]) -> None:
        """From the next run on, sessions mark the writes to these variables (or none), all of them on these slots."""
        cluster = self._cluster
        if tracked == cluster.tracked and cluster.marks_sure:
            cluster.marked = slots
            return
        before: list[PlacedSession] = []
        cluster.marked = frozenset()
        if tracked != cluster.tracked:
            cluster.marks_sure = False
            wanted = cluster.wanted_for(self.view, tracked)
            for pool in self.pools():
                pool.prepare(wanted)
            cluster.track(tracked, wanted)
            before = [old for pool in self.pools() for old in pool.exchange(wanted)]
        sure = self.gate.wait_past(MARK_LIMIT_SECONDS)
        self.retire(before)
        if not sure:
            raise TimeoutError(f"a step without marks did not end within {MARK_LIMIT_SECONDS:g} s")
        cluster.marks_sure, cluster.marked = True, slots

    def _prepare_for(self, view: ClusterView, keep_marks: bool) -> None:
        wanted = self._cluster.wanted_for(view, self._cluster.tracked if keep_marks else {})
        for pool in self.pools():
            pool.prepare(wanted, hurry=self._cluster.halted)

    def _lost(self, command_id: int) -> None:
        """A PS is gone for good: no run goes on, none begins before the next view; answers with the highest step."""
        if not self.gate.wait_past(LOST_GRACE_SECONDS):
            self.runner.abandon("a PS was lost")
        self.agent.ack(command_id, step=self.clock.global_step)

    def _prepare_for_loss(self) -> None:
        """Begun before the AIMaster has said who takes over: the view tells who will, and the first run waits for the session
        that is under way."""
        for view in self.view.after_losses() if self._cluster.halted else ():
            wanted = self._cluster.wanted_for(view, self._cluster.tracked)
            if not self.dead(wanted):
                for pool in self.pools():
                    pool.prepare(wanted, hurry=True)

    def _standby_wanted(self) -> list[Wanted] | None:
        if self._builder.ended or self._cluster.moving or self._cluster.halted:
            return None
        views = self.view.after_losses(self.declaring.slot_bytes())[: self._settings.standby_sessions_max]
        return [self._cluster.wanted_for(one, self._cluster.tracked) for one in views]

    def _hold_seconds(self) -> float:
        return math.inf if self.clock.changing else self._cluster.guards_expected_seconds()

    def _commit(self, command: pb.Command) -> dict[str, Any]:
        """In the agent's thread: nothing here takes long when the session was prepared."""
        if not command.commit.keep_marks:
            self._cluster.forget_marks()
        self._set_view(ClusterView.from_proto(command.commit.view))
        wanted = self.wanted()
        before: list[PlacedSession] = [old for pool in self.pools() for old in pool.exchange(wanted)]
        self._cluster.lapsed = False
        self.gate.open()

        def close() -> None:
            time.sleep(CLOSE_AFTER_SECONDS)
            retire(before)
            self._drop_prepared()

        self._builder.obey_beside(command.id, close)
        self._standby.soon()
        return ELSEWHERE

    def _set_view(self, view: ClusterView) -> None:
        taken, old = self._cluster.set(view)
        if not taken:
            return
        if self._cluster.lost_until and old is not None and view.placement != old.placement:
            self._cluster.lost_until = 0.0
            self.gate.open()
        if old is not None and view.generation != old.generation:
            timer = threading.Timer(0.5, self._abandon, [view.generation])
            timer.daemon = True  # the end of the process does not wait for it
            timer.start()
        elif view.backup_map and (old is None or view.after_losses() != old.after_losses()):
            self._standby.soon()

    def _abandon(self, generation: int) -> None:
        """Runs that still wait for a lost PS would wait for ever when it hangs."""
        count = self.runner.abandon(f"a PS was lost (generation {generation})")
        if count:
            log.warning("gave up %d runs that waited for a lost PS", count)
