"""One member of a job without PS: its agent, its place in the ring, its sums."""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from deeprec_ext import env
from deeprec_ext.allreduce import meeting
from deeprec_ext.allreduce.ahead import Ahead
from deeprec_ext.allreduce.given import Given
from deeprec_ext.allreduce.handing import State
from deeprec_ext.allreduce.meeting import Generation, Listener, Waiting, join
from deeprec_ext.allreduce.ring import Array, Ring
from deeprec_ext.allreduce.summing import JOIN_SECONDS, Summed, Summing
from deeprec_ext.elastic import sent_away
from deeprec_ext.elastic.agent.agent import Agent, Identity
from deeprec_ext.elastic.agent.causes import SUM, causes
from deeprec_ext.elastic.agent.commands import Table, carry_out
from deeprec_ext.elastic.agent.inputs import Inputs
from deeprec_ext.elastic.agent.leaving import leaves
from deeprec_ext.elastic.agent.metrics_collector import ProcessPart, Sampler
from deeprec_ext.elastic.agent.steps import StepClock
from deeprec_ext.elastic.member.keeping import Keeping
from deeprec_ext.elastic.member.views import LeaveError, Views
from deeprec_ext.errors import DeepRecError, UsageError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger("deeprec_ext")

TROUBLE_MAX = 300
BACKUP_END_SECONDS = 60.0
"""So long the end of a script waits for a disk backup that is being written."""
LOOK_SECONDS = 0.1
DROP_SECONDS = 90.0
"""For a sum that was given up to end."""


class Member:
    """What a script sums with; made by `joined.join`. Its agent registers and listens in the background.

    Args:
      state: what steps leave behind, of this process; may_begin: see `Summing`.
    """

    def __init__(self, state: State, may_begin: bool = True) -> None:
        self.identity = Identity.of_this_process("")
        self.clock = StepClock()
        self.leaving = threading.Event()
        self.agent = Agent(self.identity, self)
        self.inputs = Inputs(self.agent, self.leaving)
        place = env.address() or "127.0.0.1:0"
        try:
            host, port = meeting.read(place)
            self._listener = Listener(host, port)
        except (OSError, ValueError) as error:
            raise DeepRecError(f"nobody could reach this member at {place}: {error}") from error
        self.address = meeting.written(host, self._listener.port)
        self._views = Views(self.identity.name, self.identity.public, self._lost)
        self._summing = Summing(self._listener, self._views, state, may_begin)
        self._ahead = Ahead()
        self._begun: Given | None = None
        self._clock = time.monotonic
        self._out_since: float | None = None  # of sums; None: it is in one, or was in none yet
        self._keeping = Keeping(
            env.job(), lambda: self.settings, lambda: (self._views.is_first, self._views.newest.epoch),
            lambda: self._views.secret, lambda: self.inputs.position(newest=True),
            lambda text, remedy: self.notice("disk-backup", text, remedy, mended=True),
        )  # fmt: skip
        self._summing.before = lambda: self._keeping.look(state, self.step)
        self._says_ready = False
        self._parted = False
        self.settings = pb.AgentSettings()
        self.restored = b""
        """Position of the data ledger of a backup that the state was restored from; empty: it was not."""
        self.begins_with = 0
        """Trainers that the job begins with, or is resumed with; 0: they make steps already."""
        self._noticed: dict[str, pb.Notice] = {}
        self._why = ""  # it is to leave
        self.last_step: Callable[[], int] = lambda: 0
        """The step at which training stops by itself; 0: not known."""
        self._input = 0.0  # seconds waited for input that the sampler has told
        self._weight = 0.0  # of all that this member has given
        self._together = 0  # members of the last sum that is here
        self._sampler = Sampler(self.agent, {"the process": ProcessPart(), "steps": self._steps})
        self._table: Table = {"leave": self._leave}

    def start(self) -> None:
        """Registers; waits until the job lets this process in. Raises DeepRecError."""
        sent_away.only_if(lambda: self._together > 1 and self.size > 1)
        self.agent.start()

    # ------------------------------------------------------------------------------------------------ the script

    @property
    def step(self) -> int:
        """The last one whose sum is here; 0 before the first, -1 before this process has any state."""
        return self._summing.step

    @property
    def begun(self) -> int:
        """See `Summing.begun`."""
        return self._summing.begun

    @property
    def size(self) -> int:
        """Members of the newest view."""
        return len(self._views.newest.workers)

    @property
    def place(self) -> tuple[int, int]:
        """(members of the newest view, this one's place among them)."""
        return self._views.place()

    def sum(
        self, arrays: Sequence[Array] | Given, weight: float = 1.0, *, last: bool = False, vote: bool = False,
        leads: bool = False, entered: Callable[[], None] = lambda: None, exact: int = 0, other: bool = False,
        share: float = 1.0, holds: int = 0,
    ) -> Summed:  # fmt: skip
        """The mean, by weight, of what all members give for the next step; see `Summing.sum`.

        With the first one this process takes part: whoever has computed its first step keeps nobody waiting. Raises
        LeaveError, which is a SystemExit (so call it in the main thread), where this process is scaled away; unless it is the
        `last` one, after which the caller leaves by himself: so it hears what became of the one before.

        Args:
          share: of a step that this sum is; its records are told as that much of the weight.
        """
        if not 0 <= weight < math.inf:
            raise ValueError(f"a weight of {weight}: a number of records, or another that is 0 or more")
        if self._parted:
            raise UsageError("this process has left the sums for good")
        if self.leaving.is_set() and not last:
            self.leave()
        self.take_part()
        self._out_since = None
        try:
            with causes.during(SUM):
                if self._begun is not None and arrays is self._begun:
                    self._begun = None
                    summed: Summed = self._ahead.result()
                else:
                    summed = self._summing.sum(arrays, weight, vote, leads, entered, exact, other, holds)
                self._together = summed.members
        finally:
            self._out_since = self._clock()
        self._weight += weight * share * summed.counted
        self.clock.examples_per_step = weight * share
        self.trained(summed.step)
        return summed

    def begin(
        self, given: Given, weight: float, *, leads: bool = False, entered: Callable[[], None] = lambda: None, exact: int = 0,
        holds: int = 0,
    ) -> None:  # fmt: skip
        """Begins the sum of what is still being computed: the `sum` of the same `given` ends it, or `drop`. What it raises
        `sum` raises. The state is taken and put, and `entered` called, by another thread meanwhile."""
        if not self._parted:  # else `sum` says so
            self.take_part()
            self._ahead.begin(lambda: self._summing.sum(given, weight, False, leads, entered, exact, False, holds))
            self._begun = given

    def drop(self) -> None:
        """What was begun and not ended is not computed to its end: that sum is given up here, and made by the others again."""
        given, self._begun = self._begun, None
        if given is None:
            return
        given.fail(RuntimeError("the step was not computed to its end"))
        self._summing.give_up()
        try:
            self._ahead.result(DROP_SECONDS)
            self._summing.forget()  # it was had, and is not applied: this process takes the state of the others
        except TimeoutError:
            log.error("a sum that was given up does not end: this process sums no more")
            self._parted = True
            self.agent.send(pb.AgentMessage(ring=pb.Ring()))
        except BaseException as error:  # the caller has another one already, or the process ends
            log.info("a sum was given up: %s", error)

    def trained(self, step: int) -> None:
        """A step of all is over; said for scripts that do not `sum`."""
        self.clock.completed(step)
        epoch = self._views.newest.epoch
        if self.clock.step_epoch != epoch:
            self.clock.first_step(epoch)
            self.agent.send(pb.AgentMessage(heartbeat=self.beat()))

    # ---- for who does in a ring what is no sum: `deeprec_ext.horovod`

    @property
    def view(self) -> pb.View:
        """The newest."""
        return self._views.newest

    def watch(self, told: Callable[[], None]) -> None:
        """`told` is called, in the agent's thread, when there is a newer view."""
        self._views.watch(told)

    def generation(self, number: int, trouble: str = "") -> Generation:
        """The next one after that number. Raises LeaveError where this process is to leave.

        Args:
          trouble: why that one is of no use any more; empty: it has come to its end in order.
        """
        self.take_part()
        return self._views.after(number, trouble)

    def ring(self, of: Generation) -> Ring:
        """Of that generation, for the caller to leave. Raises LostError where not all have come."""
        wait = Waiting(lambda: self._views.over(of.number), JOIN_SECONDS, f"generation {of.number}")
        return join(self._listener, of.number, of.rank, of.addresses, of.secret, wait)

    def wait_for_somebody(self) -> None:
        """Until another process sums, or has begun to; this one takes no part yet. Raises LeaveError as `sum` does."""
        while not self._views.newest.workers:
            if self.leaving.wait(LOOK_SECONDS):
                self.leave()

    def attend(self, arrays: Sequence[Array] | Given, exact: int = 0) -> Summed | None:
        """Of a member that waits for something else than sums; see `Summing.attend`. Raises LeaveError as `sum` does."""
        self.take_part()
        self._out_since = self._clock()  # it is there, and waits for something else
        return self._summing.attend(arrays, exact)

    def pause(self) -> None:
        """It sums no more for now, and nobody is to wait for it; with its next sum it comes back as one that is new."""
        self.drop()
        self._out_since = None
        # First: else the others' word that the ring is lost may come before it, and a ring of the same is made later and later.
        if self._says_ready and not self._parted:
            self._says_ready = False
            self.agent.send(pb.AgentMessage(ring=pb.Ring()))
        self._summing.forget()

    def renew(self) -> None:
        """As `pause`, but the others wait for it: its next sum is in their next one."""
        self._summing.forget()

    def look(self) -> bool:
        """See `Summing.look`. Raises LeaveError as `sum` does."""
        self.take_part()
        found = self._summing.look()
        self.pause()
        return found

    def rest(self) -> None:
        """As `pause`, of one that goes on with what it has: it comes back with its next sum."""
        self._summing.rest()
        if self._says_ready and not self._parted:
            self._says_ready = False
            self.agent.send(pb.AgentMessage(ring=pb.Ring()))

    def at(self, place: str) -> None:
        """Where in the script the next sums are; see `Summing.place`."""
        self._summing.place = place

    def goes_on_from(self, begun: int, step: int) -> None:
        """See `Summing.goes_on_from`."""
        self._summing.goes_on_from(begun, step)

    def anew(self) -> None:
        """Other arrays are summed from now on."""
        self._summing.anew()

    def take_part(self) -> None:
        """Others may wait for it from now on."""
        if not self._says_ready:
            self._says_ready = True
            self.agent.send(pb.AgentMessage(ring=pb.Ring(address=self.address)))

    def leave(self) -> NoReturn:
        """As it was told."""
        self.part()
        raise LeaveError(self._why)

    def part(self) -> None:
        """It sums no more, and nobody is to wait for it; its script may go on. Can be called again."""
        self.drop()
        self._summing.close()
        if not self._parted:
            self._parted = True
            self.agent.send(pb.AgentMessage(ring=pb.Ring()))

    def close(self) -> None:
        """Of one that was not let in."""
        self._listener.close()

    def report_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        self.agent.send(
            pb.AgentMessage(metrics=pb.MetricsReport(metrics=dict(metrics), step=step or max(0, self.step)))
        )

    def notice(self, code: str, text: str, remedy: str, *, mended: bool = False) -> None:
        """One of each code."""
        if code not in self._noticed:
            self._noticed[code] = pb.Notice(code=code, text=text, remedy=remedy, mended=mended)
            (log.info if mended else log.warning)("%s: %s", text, remedy)
            self.agent.send(pb.AgentMessage(notice=self._noticed[code]))

    def refused(self, reason: str) -> None:
        self.agent.send(pb.AgentMessage(refusal=pb.Refusal(reason=reason)))

    def finish(self, exit_code: int | None, error: str = "") -> None:
        """The script has ended; None: nobody knows with which exit code."""
        self._sampler.stop()
        self.part()
        self._ahead.close()
        self._keeping.wait(BACKUP_END_SECONDS)
        self._listener.close()
        self.inputs.finish()
        self._pauses(flush=True)
        self.agent.send(pb.AgentMessage(heartbeat=self.beat()))
        finished = pb.Finished(
            left=self.leaving.is_set(), had_session=self.clock.steps > 0, exit_code=exit_code, error=error
        )
        self.agent.send(pb.AgentMessage(finished=finished))
        self.agent.close()

    def _lost(self, epoch: int, trouble: str) -> None:
        ring = pb.Ring(address=self.address, lost=epoch, trouble=" ".join(trouble.split())[:TROUBLE_MAX])
        self.agent.send(pb.AgentMessage(ring=ring))

    # ------------------------------------------------------------------------------------------------ the agent's handler

    def registered(self, reply: pb.RegisterReply) -> None:
        self._views.secret = reply.ring_secret
        self._views.take(reply.view)
        self.begins_with = reply.begins_with
        self.inputs.registered(reply)
        if (
            not self.settings.heartbeat_seconds
        ):  # else it is begun: what all do alike stays as it was, whatever is said later
            self.settings = reply.settings
        self._summing.half = self.settings.sum_compression == "fp16"
        self._sampler.follow(reply.settings.gazer_seconds)

    def receive(self, message: pb.MasterMessage) -> None:
        kind = message.WhichOneof("message")
        if kind == "publish":
            self._views.take(message.publish.view)
        elif kind == "scaling":
            notice = message.scaling
            if notice.phase == pb.ScalingNotice.BEGUN:
                self.clock.begin_scaling(notice.scaling_id)
            else:
                self.clock.end_scaling(notice.scaling_id)
        elif kind == "data":
            self.inputs.receive(message.data)
        elif kind == "command":
            carry_out(self._table, message.command, self.identity.name, self.agent.ack)

    def beat(self) -> pb.Heartbeat:
        self._pauses()
        steps, examples = self.clock.rates()
        return pb.Heartbeat(
            step=self.clock.global_step,
            steps_per_second=steps,
            examples_per_second=examples,
            step_seconds=self.clock.median_step_seconds(),
            training=self.clock.steps > 0,
            examples=round(self._weight),
            epoch=self._views.newest.epoch,
            step_epoch=self.clock.step_epoch,
            step_age_seconds=self.clock.since_first_step(),
            out_seconds=self._clock() - since if (since := self._out_since) is not None else 0.0,
            last_step=self.last_step(),
        )

    def tell(self, known: pb.Known) -> None:
        known.step = self.clock.global_step
        self.inputs.tell(known)

    def fenced(self, reason: str) -> None:
        log.error("%s; this process ends", reason)
        sys.stderr.flush()
        os._exit(75)

    def _leave(self, command: pb.Command) -> dict[str, Any]:
        self._why = command.leave.reason or "this process is to leave"
        leaves(self._why)
        self.leaving.set()
        self._views.leave(self._why)
        return {}

    def _pauses(self, flush: bool = False) -> None:
        for pause in self.clock.take_pauses(flush):
            log.info("scaling %d: longest pause %.3f s", pause.scaling_id, pause.pause_seconds)
            self.agent.send(
                pb.AgentMessage(
                    pause=pb.PauseReport(
                        scaling_id=pause.scaling_id,
                        pause_seconds=pause.pause_seconds,
                        median_step_seconds=pause.median_step_seconds,
                        steps=pause.steps,
                        cause=pause.cause,
                    )
                )
            )

    def _steps(self, report: pb.GazerReport) -> None:
        sample = self.clock.take_interval()
        sample.training = self.clock.steps > 0
        waited = self.inputs.waiting.seconds
        sample.input_wait_seconds, self._input = waited - self._input, waited
        report.steps.CopyFrom(sample)
