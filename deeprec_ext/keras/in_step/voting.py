"""The epochs of a `fit` whose steps all processes make together.

Nobody waits for a batch: whoever has none takes part in the step of the others, and applies what they have found. An epoch is
over for all in the same step: when each has voted so, since the ledger says that all its records are trained. A batch is
trained when the sum after its own says that it is in the model (`Summed.followed`), wherever it was computed.

With each sum all hear how many records each has left. So where some run short at the end of an epoch, the others have larger
parts of the steps, which stay as large as the script wants them.

While a process waits for something else (what the chief makes of an epoch), it enters new rings with the others, who may need
of it what only it has had.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import tensorflow as tf

from deeprec_ext.allreduce.summing import Summed
from deeprec_ext.data.feeder import Feeder
from deeprec_ext.data.in_step import Patience
from deeprec_ext.elastic.agent.causes import INPUT, causes
from deeprec_ext.elastic.member.joined import part, parts, place
from deeprec_ext.errors import RefusedError
from deeprec_ext.keras.in_step.model import InStep, Over
from deeprec_ext.keras.leased.epochs import Epochs
from deeprec_ext.proto import deeprec_ext_pb2 as pb

REWIND_SECONDS = 5.0
"""For the word that leases are void to come to who holds them."""


class EpochsInStep(Epochs):
    """As `Epochs`. `home` is `in_step.home.Home`, `model` an `InStep`."""

    _home: Any
    _model: InStep

    def __init__(self, *args: Any, **words: Any) -> None:
        super().__init__(*args, **words)
        self._given: list[Any] = []  # tickets: counted; whether they are in the model is known with the next sum
        self._collected: list[Any] = []  # of the first batches of this process's part of a step
        self._parts = 1  # that it has
        self._held: tuple[
            int, ...
        ] = ()  # by each member after the last step, of this epoch: a whole step's at the most
        self._patience = Patience(self._source)
        self._skips = False  # the others have all of this step
        self._opened = self._entered = self._shown = self._together = self._paused = False

    @property
    def ended_together(self) -> bool:
        """Nobody waits for this process in a sum: all have voted that the epoch is over, or it has not taken part."""
        return self._together or self.past or not self._entered

    def begin(self, epoch: int) -> None:
        self._together, self._held = False, ()
        self._model.heard, self._model.entered, self._model.holds = self._hear, self._enter_again, self._holds
        if not self._entered:
            self._have_model()
        self._model.rate.follows = not self._whole
        super().begin(epoch)
        if self.past and not (self._entered or self._shown):  # callbacks see the model of about then
            self._shown = True
            self._model.back()

    def go_on(self) -> None:
        """The callbacks of the beginning have run: what they have set, all do now have alike."""
        if not self.past:
            self._come_in()
        super().go_on()

    def _come_in(self) -> None:
        if not self._entered:
            if self._home.chief and not self.batch:
                self._home.notice(
                    "steps-grow", "the input of fit gives batches to one worker each, and a step of all has as many as there "
                    "are workers",
                    "give fit arrays with batch_size, or a pipeline whose last stages are batch and prefetch, and no "
                    "steps_per_epoch, for steps of one size; or let the learning rate follow: --setting rate_scaling=linear",
                    mended=True,
                )  # fmt: skip
            if self._home.chief and self._sums_losses():
                self._home.notice(
                    "sum-losses", "a loss of the model is the sum of those of its records (reduction=\"sum\"), and gradients "
                    "of workers are averaged: they are as many times smaller than one process's as there are workers",
                    "reduction=\"sum_over_batch_size\", and a learning rate as many times larger as a step has records",
                )  # fmt: skip
            # There is a model of a job before, or of a chief before this one.
            goes_back = self._home.chief and (self._again or self._model.kept.is_there)
            if goes_back:
                self._model.back()
            if not self._home.chief and self._trained():  # who has the model may be gone in a moment
                self.over = self._together = True
                return
            self._model.enter()
            self._entered = True
            if goes_back and self._home.member.step == 0:
                self._go_back(self._model.kept.position)
            if self._trained():  # before it came
                self.over = self._together = True
        elif self._home.chief and self.writes:
            self._model.leads = True

    def _sums_losses(self) -> bool:
        course = self._model.course
        losses = tf.nest.flatten(getattr(course.model, "loss", None)) if course is not None else []
        return any(getattr(one, "reduction", None) == "sum" for one in losses)

    def _go_back(self, position: bytes) -> None:
        """Nobody has a newer model than what was kept with this position, and nobody trains yet: what was trained since then is
        trained again. Without a position nothing was kept, and all is."""
        self._claim()
        request = pb.EpochRequest(epoch=self._epoch, restored=position)
        waits = (
            "the model is one that was kept, and the AIMaster does not answer: training goes on when it has given the records "
            "free that were trained since"
        )
        reply = self._until(request, lambda reply: reply.rewinds > 0, math.inf, waits)  # once its records are known
        deadline = time.monotonic() + REWIND_SECONDS
        while isinstance(self._source, Feeder) and reply is not None and self._source.rewinds < reply.rewinds:
            if time.monotonic() > deadline:  # its leases are void all the same
                return
            time.sleep(0.01)

    def tell(self) -> None:
        if self._untold is not None and self._entered:
            self._model.keep_if_due()  # a job that ends here, and is resumed, goes on with the next epoch
        super().tell()

    def ended(self) -> None:
        if self._home.leaving.is_set() or self._paused:
            return
        if self._entered and self._home.member.step > 0:
            if self._home.chief:
                self._model.keep()
            elif self.writes:  # the chief's callbacks may have put other weights into it at the end
                self._model.back()
        else:  # all was over before this process came, and it has no part in the sums any more
            self._have_model()
            self._model.back()

    def _have_model(self) -> None:
        """The model, before there is a batch of it."""
        self.attach()
        if self._model.course is None:
            raise RefusedError(
                "fit is given an input of which nobody can say what a batch of it is like before one is read: give it arrays, "
                "a tf.data pipeline, or a Sequence"
            )
        self._model.kept.of(self._source.name)
        self._home.state.called = self._source.name

    def ready(self) -> bool:
        if self.over or self._ticket is not None:
            return not self.over
        self._share()  # else records are read for a whole step
        self._claim()
        try:
            while not self.over:
                if self._home.leaving.is_set():
                    self._settle_before_leaving()
                    break
                if self._find():
                    return True
        except Over:
            self._together = True
        self.over = True
        self._rest()
        return False

    def finish(self, model: Any, logs: dict[str, Any]) -> bool:
        if not self.ended_together:  # a callback has stopped it, or its input has ended: the others go on
            with suppress(Over):
                self._settle_before_leaving()
            self._home.member.pause()
            self._entered, self._paused = False, True
        return super().finish(model, logs)

    def _find(self) -> bool:
        """A batch; or a sum without one is made."""
        self._look()
        if self._model.stale:
            self._drop_collected()
        if not self._opened:  # all have the chief's model before a gradient counts
            self._opened = True
            self._model.leads = self._home.chief
            self._patience.idle = not self._model.idle().weight
            return False
        if self._model.between:
            self._patience.idle = not self._model.idle().weight
            return False
        has_part = self._share()
        if self._batches is None and self._given:  # batches come again, of which these are to be no part
            summed = self._model.idle()
            self._gave(summed)
            self._patience.idle = not summed.weight
            return False
        if self._ended and self._known_past():
            self.over = self._together = True
            return False
        ticket = None
        if not has_part:
            self._give_back()
        elif self._skips:
            ticket = self._begin(0.0)  # so it asks for records
            if ticket is not None:
                self._source.withdraw(ticket)
                ticket = None
        elif not (self._ended or self._dry):
            with self._home.inputs.waiting, causes.during(INPUT):
                ticket = self._begin(self._patience.seconds())
            if self.over or (ticket is None and not (self._ended or self._dry) and self._patience.goes_on()):
                return False
        if ticket is not None and not self._ended:
            self._patience.had()
            self._ticket = ticket
            return True
        if ticket is not None:
            self._source.withdraw(ticket)
        summed = self._model.idle(vote=self._ended or self._dry)
        self._gave(summed)
        self._patience.idle = not summed.weight
        self.over = self._together = summed.unanimous
        return False

    def _give_back(self) -> None:
        """Of who has no part in steps, for those who have."""
        if not (self._given or self._collected):
            self._source.rest()

    def run_dry(self) -> None:
        """All stop after the same step: who has a batch yet makes its step, and the last steps are in the chief's model."""
        try:
            self._settle_before_leaving()
        except Over:
            self.over = self._together = True
            return
        super().run_dry()
        self.over = False  # not before all have voted

    @contextmanager
    def step(self) -> Iterator[None]:
        ticket, self._ticket = self._ticket, None
        self.stepped = True
        self._model.records = self._last_records
        self._model.collects = len(self._collected) + 1 < self._parts
        self._model.summed = None
        try:
            yield
        except Over:  # it was away, and the others are through
            self._source.withdraw(ticket)
            self._drop_collected()
            self._batches, self.over, self._together = None, True, True
            return
        except BaseException:
            self._source.withdraw(ticket)
            raise
        self._collected.append(ticket)
        if self._model.summed is not None:
            self._patience.idle = False
            self._gave(self._model.summed)
        self._records += self._last_records

    def _gave(self, summed: Summed) -> None:
        """What was collected was given to a sum."""
        if not summed.counted:
            self._give_again(self._collected)
        elif self._collected:
            self._given = self._collected
        self._collected = []

    def _give_again(self, tickets: list[Any]) -> None:
        """They were read, and are in nobody's model."""
        for ticket in tickets:
            self._source.withdraw(ticket)
        if tickets:
            self._batches = None

    def _drop_collected(self) -> None:
        """It counts nothing, and is given again."""
        self._model.drop()
        self._give_again(self._collected)
        self._collected = []

    def _hear(self, summed: Summed) -> None:
        """What became of the step before."""
        self._held = summed.holds
        given, self._given = self._given, []
        if not summed.followed:
            self._give_again(given)
            return
        for ticket in given:
            self._source.trained(ticket)

    def _settle_before_leaving(self) -> None:
        """Else its last batch would be trained again."""
        self._drop_collected()
        if self._given:
            self._model.idle()

    def _enter_again(self) -> None:
        if self._entered and (self._trained() or self.past):
            raise Over

    def _trained(self) -> bool:
        """Whether the ledger says that nothing of this epoch is left, now."""
        reply = self._ask(pb.EpochRequest(epoch=self._epoch))
        return reply is not None and reply.trained

    def _known_past(self) -> bool:
        self._ask(pb.EpochRequest(epoch=self._epoch))
        return self.past

    def _look(self) -> None:
        super()._look()
        if self._entered or self._home.member.step >= 0:  # from the `fit` before
            self._model.attend()

    @property
    def _whole(self) -> bool:
        """Whether steps have as many records with any number of workers."""
        return bool(self.batch) and self._home.member.settings.step_batch != "each"

    def _share(self) -> bool:
        """This process's part of the records of a step; whether it has one, be it none of this step alone (`_skips`)."""
        self._skips = False
        most = self._home.member.settings.worker_batch_max
        if not (self.batch and isinstance(self._source, Feeder) and (self._whole or most)):
            return True
        members, number = place() if self._whole else (1, 0)
        if self._home.chief and members > self.batch:
            self._home.notice(
                "few-records", f"a step has {self.batch} records, and there are {members} workers: those behind have none of "
                "them, and only apply what the others have found",
                "fewer workers, a larger batch_size, or --setting step_batch=each, where each worker has batch_size",
                mended=True,
            )  # fmt: skip
        if not (records := part(self.batch, members, number)):
            return False
        found = self._part(members, number)
        self._skips, records = not found, found or records
        bound = most if most and self._model.sums_once else records
        if not self._collected:
            self._parts = -(-records // bound)
        if not self._source.cut_to(min(bound, part(records, self._parts, 0))):
            self._batches = None  # of another size
        return True

    def _part(self, members: int, number: int) -> int:
        """Of the records of a step, this process's; its usual one where nobody runs short. Who has said that it has none takes
        no more than the others leave, whatever it has by now: they have counted on that."""
        usual, held = part(self.batch, members, number), self._held
        if not 1 < members == len(held) or all(one >= part(self.batch, members, at) for at, one in enumerate(held)):
            return usual
        found = parts(self.batch, held)
        if held[number]:
            return found[number]
        without = [at for at, one in enumerate(held) if not one]
        left = min(usual, part(self.batch - sum(found), len(without), without.index(number)))
        return left - left % 2 if left < usual and self.batch % 2 == 0 else left  # as in `part`

    def _holds(self) -> int:
        """For the steps after the one that it has a batch of."""
        if not (self.batch and isinstance(self._source, Feeder)):
            return 0
        left = self._source.left
        return self.batch if left is None else min(left, self.batch)
