"""This process's replica of the model, and where in its script it is: the sums of its steps, and who takes part in them.

A step is what the body of a script's loop over a DataLoader does. All members make the same steps, so each sum of a step has
a position in it, from 1 on, and whoever has no records computes with a batch that counts nothing. What a loader itself sums
(at the beginning of a pass over the data, and where nobody has a batch at the moment) has position 0.

A newcomer has its first sum in the body of a step, so that its script does with the gradients what the others' do. It is given
their state then, as the step before has left it. Where it finds them elsewhere in their script it takes no part and tries
again; where they are in a later pass, its own is over.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deeprec_ext import env
from deeprec_ext.allreduce.kept import Kept
from deeprec_ext.allreduce.ring import Array
from deeprec_ext.allreduce.summing import OtherError, Summed
from deeprec_ext.elastic.member import joined
from deeprec_ext.elastic.member.member import Member
from deeprec_ext.errors import DeepRecError, UsageError
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.torch.beginning import Beginning
from deeprec_ext.torch.children import NO_WORKER
from deeprec_ext.torch.snapshot import Snapshot

log = logging.getLogger("deeprec_ext")

RETRY_SECONDS, RETRY_SECONDS_MAX = 0.1, 2.0
"""Before a newcomer that has found the others elsewhere tries again: at first, and after a while."""

OTHERS_MAX = 200
"""So often it may find them in a step with gradients of other shapes: then their model is another one. While they sum something
else, of a long validation perhaps, it waits for the next step."""

KNOWS_SECONDS = 60.0
"""For an AIMaster that has begun again to know who is there."""

LINGER_SECONDS, STAYS_SECONDS = 30.0, 3.0
"""How long a worker whose script has ended waits for a chief that died, and has nobody else to get the model from; and one
that begins for a chief that may say that epochs are not over."""


class RewoundError(Exception):
    """The data ledger has gone back in the midst of a step."""


class Replica:
    """Of this process; one.

    Attributes:
      member: None before `join`, and after `leave`.
      current: the pass over a sampler's records that is under way (`sampling.Pass`); None: there is none.
      accumulates: a backward pass of this step has left its gradients for a later one to sum.
    """

    def __init__(self) -> None:
        self.member: Member | None = None
        self.snapshot = Snapshot()
        self.beginning = Beginning(self)
        self.current: Any = None
        self.accumulates = False
        self.chief = env.role() == "chief"
        self.position = 0
        self.job_place: tuple[int, int] | None = None  # the last that is known of the others
        self._like: list[Array] = []
        self._exact = 0  # so many of the last ones are no gradients
        self._members = 0  # in the last sum
        self._joined: Member | None = None
        self._chief_seen = self.chief
        run = env.workdir()
        self._kept = Kept(Path(run) / "model" if run else None, lambda: self.here.inputs.position(newest=True))
        self._kept.of(self.snapshot.called)
        self._restored = self._went_back = self._met = False
        self._kept_at: tuple[int, int] | None = None  # place of what was kept, until the script has come there
        self._where: bytes | None = None  # of what was kept, in the ledger
        self._asks = self.chief  # the ledger stays as it is for somebody who was thought to have the model

    # ------------------------------------------------------------------------------------------------ membership

    def join(self) -> None:
        if self.member is not None:
            raise RuntimeError("trying to initialize the default process group twice!")
        if self._joined is None:
            if multiprocessing.parent_process() is not None and env.owner_pid() is None:
                joined.give_up(NO_WORKER)  # the AIMaster hears it as of the role itself
            one = joined.join(self.snapshot, may_begin=self.chief)
            if not isinstance(one, Member):
                raise UsageError(NO_WORKER)
            self._joined = self.member = one
            atexit.register(self.linger)
            if self.chief:  # before anybody hears from it, and believes that an epoch is over
                self._go_back(self._kept.where())
        self.member = self._joined
        self.beginning.wait()

    @property
    def rank(self) -> int:
        """0 is the chief, whoever dies and comes back: one living process has it."""
        return 0 if self.chief else env.index() + 1

    @property
    def size(self) -> int:
        """Members in the last sum, so alike for all that were in it. Before the first: of the present ring, this one among
        them, or, where there is none, as many as the job was to begin with."""
        if self._members:
            return self._members
        view = self._joined.view if self._joined is not None else None
        if view is None or not view.workers:
            return env.workers() + 1
        return len(view.workers) + (not self._in_view)

    @property
    def place(self) -> tuple[int, int]:
        """(members of the present ring, this one's place among them)."""
        return self._joined.place if self._joined is not None else (1, 0)

    @property
    def _in_view(self) -> bool:
        return self._joined is not None and self._joined.identity.name in [
            one.name for one in self._joined.view.workers
        ]

    @property
    def in_step(self) -> bool:
        """Whether this process has what the others have, and makes each step with them."""
        return self.member is not None and self.member.step >= 0

    @property
    def is_behind(self) -> bool:
        """Whether the others are in a later pass than that behind which the script is here."""
        job, here = self.job_place, self.snapshot.place
        return (
            self.member is not None and not self.in_step and job is not None and job[0] == here[0] and job[1] > here[1]
        )

    def leave(self) -> None:
        """`destroy_process_group`."""
        if self.member is not None:
            self.linger()
            self.member.pause()
            self.member = None
            self.snapshot.begun.clear()  # what comes after another init is another beginning
            self.beginning = Beginning(self, self._members or None)

    def linger(self) -> None:
        """The chief may have died, and be on its way back: who has the model waits for it."""
        member, end = self.member, time.monotonic() + LINGER_SECONDS
        if member is None or self._chief_seen or not self._like or member.step < 0 or member.leaving.is_set():
            return
        log.info("the script has ended, and the chief is not here: waiting up to %g s for it", LINGER_SECONDS)
        try:
            given: float | None = None  # when, since it is there; it may look first, go, and come for the model then
            while time.monotonic() < end and not member.leaving.is_set():
                if not self._sees_chief:
                    given = None
                elif given is None:
                    for _ in range(3):  # it is given the state as it enters
                        member.attend(self._zeros())
                    member.rest()  # it sums alone from here on
                    given = time.monotonic()
                elif time.monotonic() - given > STAYS_SECONDS:
                    break
                time.sleep(RETRY_SECONDS)
        except (DeepRecError, SystemExit) as error:
            log.info("the chief was not given the model: %s", error)

    @property
    def _sees_chief(self) -> bool:
        return self.member is not None and any(one.name.startswith("chief") for one in self.member.view.workers)

    # ------------------------------------------------------------------------------------------------ sums

    def reduce(self, arrays: Sequence[Array], exact: int) -> list[Array] | None:
        """Of a backward pass: the mean of what all have found. None: this step changes nothing here.

        Args:
          exact: so many of the last arrays are no gradients.

        Raises LeaveError.
        """
        self.beginning.end()
        member, pass_, pace = self.here, self.current, self.snapshot.pace
        pace.settings = member.settings
        self.position = self.position + 1 if pass_ is not None else 1
        if pass_ is not None and pass_.past:
            return None
        dtype = arrays[0].dtype
        given = [*arrays, pace.given(dtype), np.full(1, self.position, dtype)]
        if self.position == 1:
            self._like, self._exact = [np.zeros_like(one) for one in given[:-1]], exact + 2
        met, wait, void = 0, RETRY_SECONDS, False
        while True:
            self.snapshot.came, was_new = None, member.step < 0
            if was_new:
                self.restore()
            weight = float(not void) if pass_ is None else float(pass_.weight)
            votes = was_new or pass_ is None or not pass_.has_next()
            try:
                summed = member.sum(
                    given, weight, last=pass_ is not None, vote=votes, other=True, exact=exact + 2, entered=self._entered
                )  # fmt: skip
            except RewoundError:  # what it has computed is of records that are free again
                void = True
                continue
            except OtherError as error:
                log.info("the others are elsewhere: %s", error)
                met += error.gradients
                if met > OTHERS_MAX:
                    raise
            else:
                self._asks = False
                self.heard(summed)
                came = self._came()
                same = came == self.snapshot.place and summed.weight and summed.arrays[-1][0] == self.position
                if came is None or same:  # else it has their state as their loaders had it, before a forward pass
                    return self._stepped(summed, pass_)
            member.pause()
            if pass_ is not None and (pass_.past or pass_.is_over()):
                pass_.past = True
                return None
            if member.leaving.is_set():
                member.leave()
            time.sleep(wait)
            wait = min(RETRY_SECONDS_MAX, 1.5 * wait)

    def _stepped(self, summed: Summed, pass_: Any) -> list[Array] | None:
        *means, (position,) = summed.arrays
        if summed.weight and not 0 < position <= self.position:
            raise DeepRecError(
                f"backward pass {self.position} of a step here is pass {position:g} in the others: the processes do not make "
                "the same steps, and their models would differ"
            )
        if pass_ is not None:
            pass_.stepped(summed)
        else:
            self._chief_seen = self.chief or self._sees_chief
        if self.chief:
            self._kept.look(self.snapshot, summed.step)
        if not summed.weight:
            return None
        if position < self.position:  # some have left the loop, and their loaders have given nothing, with a weight
            means = [np.asarray(one * (self.position / position), one.dtype) for one in means]
        *means, told = means
        pace = self.snapshot.pace
        if apart := pace.came(told):
            joined.give_up(apart)
        if pace.rates_differ:
            self.here.notice(
                "learning-rates-differ", "processes give their optimizers different learning rates: each step has the mean",
                "take a schedule of torch.optim.lr_scheduler, which is handed on to who comes, instead of a count of steps",
                mended=True,
            )  # fmt: skip
        return means

    def _came(self) -> tuple[int, int] | None:
        """The place of who has given this process his state within the last sum; None: nobody has, its own is that of all."""
        came = self.snapshot.came
        if came is not None:
            self.job_place = came
            here = self.snapshot.place
            if self.current is not None and came[0] == here[0] and came[1] > here[1]:
                self.current.past = True
        return came

    def agree(self, weight: float, vote: bool) -> Summed | None:
        """Of a loader, between two steps. None: this process was left out meanwhile, and is as one that is new."""
        member = self.here
        self.snapshot.came = None
        try:
            summed = member.sum(self._zeros(), weight, last=True, vote=vote, other=True, exact=self._exact)
        except OtherError as error:
            log.info("the others are elsewhere: %s", error)
            member.pause()
            return None
        self.heard(summed)
        if self._came() is not None or (summed.weight and summed.arrays[-1][0]):  # the others have made a step
            member.pause()
            return None
        return summed

    def collective(self, array: Array, weight: float, kind: int) -> Summed | None:
        """What a script sums besides. None: this process has nobody to sum with at present.

        Args:
          array: [n] of float32 or float64; kind: tells operations apart (`beginning`).
        """
        member = self.here
        if self.beginning.open:
            return self.beginning.call(array, weight, kind)
        if member.step < 0 or (self.current is not None and self.current.past):
            return None
        self.snapshot.came = None
        try:
            summed = member.sum(
                [array, np.zeros((0, kind), array.dtype)], weight, last=self.current is not None, other=True, exact=2
            )
        except OtherError as error:
            log.info("the others are elsewhere: %s", error)
            member.pause()
            return None
        self.heard(summed)
        if self._came() is not None:
            member.pause()
            return None
        return summed

    def fetch(self) -> bool:
        """The state of who is there, as a step has left it; whether there is one. This process takes no part."""
        self.snapshot.came = None
        found = bool(self.here.view.workers) and self.here.look() and self._came() is not None
        if found:  # newer than what was kept
            self._kept_at, self._asks = None, False
        return found

    def settle(self) -> None:
        """Before this process leaves: what became of its last step is known. Raises LeaveError."""
        member = self.here
        if self.in_step and self.current is not None and self.current.pending:
            self.current.withdraw()
            try:
                self.heard(member.sum(self._zeros(), 0.0, last=True, vote=True, other=True, exact=self._exact))
            except OtherError as error:
                log.info("the others are elsewhere: %s", error)
        member.leave()

    def restore(self) -> None:
        """A chief begins with what was kept of the job, unless somebody has a newer state."""
        if self.chief and not self._restored:
            self._restored = True
            self._where = self._kept.where()
            if not self._went_back:  # others may have been thought to be there
                self._go_back(self._where)
            self._kept_at = self._back()
            if self._kept_at is None and self._where:  # it does not fit: what it had been trained on is in no model
                self._where = b""
                if self._went_back:
                    self._go_back(b"")

    def _entered(self) -> None:
        """A ring, in which a chief may find that nobody has the model that the AIMaster thought to be there. Raises
        RewoundError where the ledger has gone back now."""
        if self._asks and not self._went_back and self.here.step == 0 and self.snapshot.came is None:
            pass_ = self.current
            before = pass_.rewinds if pass_ is not None else 0
            self._go_back(self._where, sure=True)
            if self._went_back:
                if pass_ is not None:
                    pass_.rewound(before)
                raise RewoundError

    def restore_at(self, place: tuple[int, int] | None = None) -> None:
        """Once more, where the script has come to what was to be done then: since its beginning it has called its schedules.

        Args:
          place: of a pass that was over for the others, and ends; None: one begins that is not over.
        """
        if self._kept_at is not None and not self.in_step and place in (None, self._kept_at):
            self._kept_at = None
            self._back()

    def _back(self) -> tuple[int, int] | None:
        """The state is as it was kept: where in the script that was; None: there is none that fits."""
        own, self.snapshot.came = list(self.snapshot.begun), None
        self.snapshot.begun.clear()  # what was kept may be of another run, which this one goes on
        found = self._kept.back(self.snapshot)
        came, self.snapshot.came, self.snapshot.begun[:] = self.snapshot.came, None, own
        return came if found else None

    def _go_back(self, position: bytes | None, *, sure: bool = False) -> None:
        """The data ledger, with the model: unless somebody is there who has trained, and has a newer one.

        Args:
          position: None: it stays as it is; sure: nobody is, whatever the AIMaster knows.
        """
        if position is None:
            return
        member, told, end = self.here, False, time.monotonic() + KNOWS_SECONDS
        request = pb.EpochRequest(restored=position, begins=sure)
        while True:
            reply = member.inputs.end_of_epoch(request)
            if reply is not None and (reply.rewinds or reply.begun or time.monotonic() > end):
                break
            if reply is None and not told:  # else what was trained since then would be in no model
                told = True
                log.warning("the AIMaster does not answer: training waits until the ledger is as the model is")
            if member.leaving.wait(RETRY_SECONDS_MAX if reply is None else RETRY_SECONDS):
                member.leave()
        self._went_back = reply.rewinds > 0

    def meet(self) -> None:
        """Before a worker believes that an epoch is over: where nobody sums, a chief may be on its way that says it is not."""
        member, end = self.here, time.monotonic() + LINGER_SECONDS
        while not (self.chief or self._met or self.in_step or member.view.workers) and time.monotonic() < end:
            if member.leaving.wait(RETRY_SECONDS):
                member.leave()
        self._met = True

    def ended(self) -> None:
        """A pass is over for all."""
        assert self.member is not None
        self._chief_seen = self.chief or self._sees_chief
        if self.chief:
            self._kept.epoch(self.snapshot, self.member.step)

    def heard(self, summed: Summed) -> None:
        """What each sum says."""
        self._members = self.snapshot.pace.members = summed.members
        if self.current is not None:
            self.current.heard(summed)

    def _zeros(self) -> list[Array]:
        return [*self._like, np.zeros(1, self._like[0].dtype)]

    @property
    def here(self) -> Member:
        """Raises RuntimeError, as PyTorch does, where there is none."""
        if self.member is None:
            raise RuntimeError(
                "Default process group has not been initialized, please make sure to call init_process_group."
            )
        return self.member


REPLICA = Replica()
