"""The epochs of one `fit` whose records are leased from the data ledger: the same for all processes of the job.

Each process asks for one batch after the other. An epoch has ended for it when all its records are trained, by whomever, or
all its steps are made where the script says how many it has (`counted`); then it tells what it has seen of it, and learns what
the epoch came to for the job (`figures`), from the chief, through the AIMaster (`deeprec_ext/aimaster/ledger/ends.py`). Why
through the AIMaster: it alone knows when the records are done and who still trains, and it outlives every PS. Who comes late,
or again, goes through the epochs that are over without a batch, with what they came to: its callbacks end up where those of
the others are.

What the script does to the model between two calls of `fit`, and what a callback does to it at the end of an epoch, is the
chief's to do, once: nobody else trains before the chief has begun, nor hears what an epoch came to before what its callbacks
have written at the end of it, and when the next one begins, is in the model. In epochs, or a `fit`, that the job has had
before, what is written into the model is left out.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import tensorflow as tf

from deeprec_ext.data.feeder import Feeder
from deeprec_ext.elastic.agent.alike import ALIKE
from deeprec_ext.elastic.agent.causes import INPUT, causes
from deeprec_ext.errors import DeepRecError, UsageError
from deeprec_ext.keras.leased import figures
from deeprec_ext.keras.leased.counted import Counted, InputEnded
from deeprec_ext.keras.parting import Held
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger("deeprec_ext")

LOOK_SECONDS = 0.2
"""While it waits for a batch, a process looks so often whether it should wait no longer."""

ASK_SECONDS = (0.02, 0.5)
"""It asks what an epoch came to so often: at first, and after a while."""

PUBLISH_SECONDS = 120.0
"""So long the chief tries to tell what an epoch came to, if no AIMaster answers; then with the next epoch."""

TELL_SECONDS = 30.0
"""And it says so often what it waits for."""

RETOLD = 20
"""Of the last epochs the chief says each time what they came to: an AIMaster that has lost its store may not know it."""

STEPS_MAX = 1 << 40
"""For Keras, which need not know where an epoch ends: more steps than any has."""


class Home(Protocol):
    """What is wanted of the trainer of this process."""

    chief: bool
    leaving: threading.Event
    runs_repeated: int
    """Of all sessions: runs that were made again, since nobody knows what of them was done."""
    generation: int
    inputs: Any
    notice: Callable[..., None]
    refused: Callable[[str], None]
    asked_to_train: bool
    """The script has called `fit`, though others may have left nothing to train."""

    def wait_live(self, timeout_seconds: float) -> bool:
        """Whether, within the time, the chief has said that the model is there."""


class Model(Protocol):
    """What is wanted of the model on the PS."""

    generation: Any
    """What is of its generation of Keras alone."""

    def recover(self) -> None:
        """Makes the session anew, if the model was lost meanwhile."""

    def changed(self) -> None:
        """Values that were read of it are old: others have trained."""

    def pass_on(self) -> None:
        """What the script has written into its variables is on the PS when this returns."""

    def forget(self) -> None:
        """What it has written is left out."""


class EpochOver(int):
    """Truth that makes Keras leave its loop over the batches of an epoch, and nothing else."""


OVER = EpochOver(1)


class Epochs:
    """Of one call of `fit`. For `stepping`, it is the iterator of the batches.

    Args:
      home: of this process.
      model: on the PS.
      source: the ledger's, whose dataset is read in turn.
      make: an iterator of its batches, from the first that is not trained on.
      spec: of them; None: the batches are those of Keras's own iterator, one for each that this one gives.
      first: number of the first epoch, as Keras counts them.
      passes: how often an epoch reads the records.
      reads: the format of the records and where they are, as `graph.marks.READS` has it.
      one_by_one: a record of the ledger is a batch.
      in_order: steps of an epoch, where Keras's own iterator gives the same in all processes: its batches that others train are
        passed by.
    """

    def __init__(
        self, home: Home, model: Model, source: Feeder | Counted, make: Callable[[], Iterator[Any]], spec: Any, first: int = 0,
        passes: int = 1, reads: Sequence[str] = (), one_by_one: bool = False, in_order: int | None = None,
    ) -> None:  # fmt: skip
        self.element_spec, self.reads, self._one_by_one = spec, reads, one_by_one
        self.within_batch = False  # Keras's loop of `fit` asks for a batch, and no train_on_batch of a callback
        self.stepped = False  # and there was one
        self.replayed = False  # this process goes through an epoch that the others have had before
        self.over = False
        """Of this epoch nothing is left for this process."""
        self._dry = False  # nor of any other: its input has ended before its steps
        self._home, self._model, self._source, self._make = home, model, source, make
        self._first, self._passes = first, passes
        self._epoch = 0  # from 0
        self._in_order, self._taken = in_order, -1  # batches of Keras's own iterator, those of epochs before among them
        self._came_to: list[Mapping[str, Any]] = []
        self._batches: Held | None = None
        self._ticket: Any = None
        self._claimed = self._begun = False
        self._again = False  # others train already: this is a chief after another one
        self._untold: Mapping[str, Any] | None = None  # what the last epoch came to
        self._forgets = False  # callbacks have run in an epoch that is past
        self._generation = home.generation
        self._records = self._last_records = 0
        self._logs: Any = None  # of the last step
        self._own = b""  # what this process has seen of the epoch
        self._catching_up = True
        self.lived = False
        """An epoch was not over when this process came to it."""
        self._turn = threading.Condition()
        self._in_epoch, self._closed = -1, False
        self.left: Callable[[], None] = lambda: None
        """Raises what the chief has left this `fit` by."""
        self.begins: Callable[[], None] = lambda: None
        self.ends: Callable[[], None] = lambda: None
        """What the input has to hear at the beginning of an epoch, and when its batches are trained."""
        self.attach: Callable[[], None] = lambda: None
        """Makes a step, and with it the model, before there is a batch."""
        self.batch = 0
        """Records of a step that processes make together; 0: as many as their batches have."""
        self.writes = False
        """Callbacks may write into the model between two epochs."""

    # -- for the callbacks

    def begin(self, epoch: int) -> None:
        self._epoch = epoch - self._first
        with ALIKE.together(f"begins {self._source.name} {self._epoch}"):
            self.begins()
        with self._turn:
            self._in_epoch = self._epoch
            self._turn.notify_all()
        self._records, self._logs, self._own, self.over = 0, None, b"", False
        if not self._begun:
            self._begin_fit()
        if self._catching_up and self._epoch >= len(self._came_to):
            self._until(pb.EpochRequest(epoch=self._epoch), lambda reply: True)
            self._catching_up = self._epoch < len(self._came_to)
        self.over = self.replayed = self.past
        self.lived = self.lived or not self.past

    @property
    def ended_together(self) -> bool:
        """Nobody waits for this process when it leaves `fit`."""
        return True

    @property
    def past(self) -> bool:
        """Whether the others have gone through this epoch before."""
        return self._epoch < len(self._came_to)

    def finish(self, model: Any, logs: dict[str, Any]) -> bool:
        """The epoch ends: its figures here become those of the job. Returns whether all stop now, as the chief says."""
        with ALIKE.together(f"ends {self._source.name} {self._epoch}"):
            self.ends()
        if not self.past and (self._dry or not self.over):  # a callback has stopped this process within the epoch
            return False
        if not self.past:
            self._agree(model, logs)
        if self.past:
            words = self._came_to[self._epoch]
            logs.clear()
            logs.update(figures.values(words["logs"]))
            return bool(words["stop"])
        return False

    def conclude(self, logs: Mapping[str, Any], stop: bool) -> None:
        """The callbacks have seen the figures of the epoch. Others hear of it by `tell`."""
        self._forgets = self._forgets or self.replayed
        if self._home.chief and not self.past:
            self._untold = {"logs": figures.bounded(figures.numbers(logs)), "stop": stop}

    def go_on(self) -> None:
        """The callbacks of the beginning of an epoch have run: what they have written is in the model before others train."""
        self.tell()
        if not self._begun:
            self._pass_on_or_forget()
            self._begun = True
            self._until(pb.EpochRequest(), lambda reply: reply.begun)

    def tell(self) -> None:
        """Whoever waits for what the epoch before came to may train on, or stop."""
        if self._forgets:
            self._forgets = False
            self._model.forget()
        if self._untold is None:
            return
        self._model.pass_on()
        self._came_to.append(self._untold)
        self._untold = None
        deadline = time.monotonic() + PUBLISH_SECONDS
        wait, longest = ASK_SECONDS
        while not self._home.leaving.is_set():
            reply = self._send(pb.EpochRequest(epoch=self._epoch))
            if reply is not None and reply.known >= len(self._came_to):
                return
            if time.monotonic() > deadline:
                epoch = self._first + len(self._came_to) - 1
                log.warning("the AIMaster could not be told what epoch %d came to", epoch)
                return
            time.sleep(wait)
            wait = min(longest, 2 * wait)

    def ended(self) -> None:
        """`fit` has ended, in the chief or in this process and in the chief."""

    def close(self) -> None:
        """`fit` ends here, also with an error: what is leased and not trained is for the others."""
        self.over = True
        self._drop_ticket()
        with self._turn:
            self._closed = True
            self._turn.notify_all()
        self._batches, self._make = None, _nothing
        if self._claimed:
            self._source.finish()
            self._source.release()
            self._source.close()
            self._claimed = False
            request = pb.EpochRequest(epoch=self._epoch, leaves=True)
            if self._own and not self.past and self._home.leaving.is_set():  # its part of the figures stays
                request.seen = self._own
            self._send(request)

    # -- for the steps

    def ready(self) -> bool:
        """Waits for the next batch. False: there is none any more in this epoch, or this process leaves the job."""
        if self.over or self._ticket is not None:
            return not self.over
        if not (self._claimed or self._home.chief or self._model_lives()):
            self.over = True
            return False
        self._claim()
        told = time.monotonic()
        while not (self._ended or self.over):
            if self._home.leaving.is_set():
                break
            self._look()
            with self._home.inputs.waiting, causes.during(INPUT):
                ticket = self._begin(LOOK_SECONDS)
            if ticket is not None and not self._ended:
                self._ticket = ticket
                return True
            if ticket is not None:
                self._source.withdraw(ticket)
            if time.monotonic() - told > TELL_SECONDS:
                told = time.monotonic()
                log.info("epoch %d: waiting for data; %s", self._first + self._epoch, self._source.waits_for())
        self.over = True
        self._rest()
        return False

    def __next__(self) -> Any:
        """The batch that `ready` has found. Raises StopIteration when the ledger has taken it back, and there is no other."""
        while self.ready():
            assert self._ticket is not None
            if self._batches is None or self._source.restart_needed:
                self._drop_ticket()
                self._source.renew()
                self._batches = Held(self._make())
                continue
            try:
                with (
                    self._home.inputs.waiting,
                    causes.during(INPUT),
                ):  # functions of a pipeline may take longer than its reads
                    batch = next(self._batches.iterator)
            except (StopIteration, tf.errors.OutOfRangeError):
                batch = None
            if batch is not None and self._source.valid(self._ticket):
                self._last_records = _records(batch)
                return batch
            self._drop_ticket()
            self._batches = None
        raise StopIteration

    def holds(self) -> bool:
        """Whether the batch that was taken last is still this process's to train."""
        if self._ticket is not None and self._source.valid(self._ticket):
            return True
        self._drop_ticket()
        return False

    def in_turn(self, numbers: Iterator[Any]) -> Iterator[Any]:
        """Numbers of steps, each once its epoch has begun here: the input may be another one then."""
        for one in numbers:
            if not self._wait_turn(self._source.epoch):
                return
            yield one

    def _wait_turn(self, epoch: int) -> bool:
        """Until this process is in an epoch; False: `fit` ends before."""
        with self._turn:
            self._turn.wait_for(lambda: self._closed or self._in_epoch >= epoch)
            return not self._closed

    @property
    def own_input(self) -> bool:
        """The process trains on what Keras's own iterator gives."""
        return self.element_spec is None

    def in_vain(self, step: Any) -> int:
        """Batches of Keras's own iterator that come before that of this step of the epoch, and are for others."""
        if self._in_order is None:
            return 0
        if self._taken < 0:  # who comes late begins with the epoch that the others are in
            self._taken = self._epoch * self._in_order
        before = max(0, self._epoch * self._in_order + int(step[0]) - self._taken)
        self._taken += before + 1
        return before

    def run_dry(self) -> None:
        """The input has ended before the steps: so does the training, as in Keras."""
        log.warning(
            "the input of fit ran out of data before all its steps were made: training ends here; steps_per_epoch * epochs "
            "batches are needed, as .repeat() gives them"
        )
        self._drop_ticket()
        self._source.finish()  # others hear of it by the steps that are left
        self.over = self._dry = True

    def _drop_ticket(self) -> None:
        if self._ticket is not None:
            self._source.withdraw(self._ticket)
            self._ticket = None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Around the run that trains the batch: it is trained when it has ended well."""
        ticket, self._ticket = self._ticket, None
        assert ticket is not None
        self.stepped = True
        before = self._home.runs_repeated
        try:
            yield
        except BaseException:
            self._source.withdraw(ticket)
            raise
        again = self._home.runs_repeated - before + (not self._source.valid(ticket))
        if again:
            self._source.repeated(again * (1 if self._one_by_one else self._last_records))
        self._source.trained(ticket)
        self._records += self._last_records

    def results(self, model: Any, outputs: Any) -> Any:
        """What Keras gets of its step, which may have been none: then it leaves the epoch."""
        if outputs is not None:
            self._logs = outputs
        logs = self._logs if self._logs is not None else {}
        if self.over:
            self._model.changed()
            if self._dry or self._home.leaving.is_set():
                model.stop_training = True
            elif not model.stop_training:  # else the script has stopped it
                model.stop_training = OVER
        if (self.over or self._home.leaving.is_set()) and not self.past:  # now: a validation begins with other metrics
            self._own = figures.seen(model, self._records, logs if isinstance(logs, Mapping) else {})
        return logs

    # -- inside

    def _claim(self) -> None:
        if not self._claimed:
            self._claimed = True
            self._source.claim()

    def _begin_fit(self) -> None:
        """In the chief: what its script has written since the last `fit` is in the model; the rest is for `go_on`. Else: until
        that is so."""
        if not self._home.chief:
            self._until(pb.EpochRequest(), lambda reply: reply.begun, math.inf)
            self._begun = True
            return
        self.attach()  # nobody gives it records before it has told what its model is like, and others wait for that
        self._claim()  # else nobody knows of these records
        reply = self._until(pb.EpochRequest(), lambda reply: True)
        self._again = reply is not None and reply.begun
        self._pass_on_or_forget()

    def _pass_on_or_forget(self) -> None:
        if self._again:
            self._model.forget()
        else:
            self._model.pass_on()

    def _until(
        self, request: pb.EpochRequest, enough: Callable[[pb.EpochReply], bool], limit_seconds: float = PUBLISH_SECONDS,
        waits: str = "fit begins when the chief has come to it: what its script does to the model before comes first",
    ) -> pb.EpochReply | None:  # fmt: skip
        """The first answer of the AIMaster that is enough; None: there was none in time, or this process leaves.

        Args:
          waits: is said now and then meanwhile.
        """
        began = told = time.monotonic()
        wait, longest = ASK_SECONDS
        while not (self._home.leaving.is_set() or self._source.failure) and time.monotonic() - began < limit_seconds:
            self._look()
            if (reply := self._ask(request)) is not None and enough(reply):
                return reply
            if time.monotonic() - told > TELL_SECONDS:
                told = time.monotonic()
                log.info("%s", waits)
            time.sleep(wait)
            wait = min(longest, 1.5 * wait)
        return None

    def _model_lives(self) -> bool:
        """Whoever asks for records shall have a model to train: else workers could hold the last of them and wait for a chief
        that waits for records. False: this process leaves."""
        while not self._home.leaving.is_set():
            if self._home.wait_live(LOOK_SECONDS):
                return True
        return False

    @property
    def _ended(self) -> bool:
        done = self._source.complete >= self._passes * (self._epoch + 1)
        return done or self._source.ended

    def _begin(self, seconds: float) -> Any:
        try:
            return self._source.begin(1, seconds)
        except InputEnded:
            if not self._ended:  # else the step is one of the next epoch
                self.run_dry()
            return None
        except DeepRecError as error:
            if "was declared with" in str(error) or "is now" in str(error):
                raise UsageError(
                    f"{error}. All processes of a job run the whole script, and fit divides the records of its arrays "
                    "or files among them, and the steps of steps_per_epoch: load the same arrays everywhere, or name the same "
                    "files in the same order; a tf.data pipeline of each process's own ends with .take(-1), anything "
                    "else of another length in each takes steps_per_epoch; epochs "
                    "and initial_epoch are the same everywhere: who begins again goes on where the job is by itself"
                ) from error
            raise

    def _rest(self) -> None:
        """Others may want what this process does not train before the next epoch."""
        if isinstance(self._source, Counted):
            self._source.rest()

    def _look(self) -> None:
        """While nobody trains, nobody would notice that the model is lost, nor restore it; nor that the chief is not here."""
        self.left()
        if self._home.generation != self._generation:
            self._generation = self._home.generation
            self._model.recover()

    def _agree(self, model: Any, logs: dict[str, Any]) -> None:
        """Until it is known what the epoch came to; in the chief, until all have said what they saw: then `logs` is that."""
        told, (wait, longest) = time.monotonic(), ASK_SECONDS
        while not self._home.leaving.is_set():
            self._look()
            self._rest()
            reply = self._ask(pb.EpochRequest(epoch=self._epoch, seen=self._own))
            if self.past:
                return
            if self._home.chief and reply is not None and reply.whole:
                trained = figures.values(figures.of_job(model, list(reply.seen)))
                given = {**trained, **{name: value for name, value in logs.items() if name not in trained}}
                logs.clear()
                logs.update(given)
                return
            if time.monotonic() - told > TELL_SECONDS:
                told = time.monotonic()
                whom = "what others have seen of it" if self._home.chief else "what the chief makes of it"
                log.info("epoch %d has ended here; waiting for %s", self._first + self._epoch, whom)
            time.sleep(wait)
            wait = min(longest, 1.5 * wait)
        if not self._home.chief:  # whose script may have ended right after it has said so, and the job with it
            self._ask(pb.EpochRequest(epoch=self._epoch, seen=self._own))

    def _ask(self, request: pb.EpochRequest) -> pb.EpochReply | None:
        reply = self._send(request)
        if reply is not None:
            self._came_to += [json.loads(words) for words in reply.came_to]
        return reply

    def _send(self, request: pb.EpochRequest) -> pb.EpochReply | None:
        """None: no AIMaster answers now."""
        request.dataset, request.known = self._source.name, len(self._came_to)
        request.begins = self._home.chief and self._begun  # an AIMaster that has lost its store may not know it
        request.passes = self._passes
        del request.came_to[:]  # it may have been sent before
        if self._home.chief and self._came_to:
            request.first = max(0, len(self._came_to) - RETOLD)
            request.came_to.extend(json.dumps(one) for one in self._came_to[request.first :])
        reply: pb.EpochReply | None = self._home.inputs.end_of_epoch(request)
        return reply


def _nothing() -> Iterator[Any]:
    return iter(())


def _records(batch: Any) -> int:
    sized = [one for one in tf.nest.flatten(batch) if len(getattr(one, "shape", ()))]
    return int(sized[0].shape[0]) if sized else 0
