"""The elastic datasets of this process, as sessions, hooks and the agent see them (`deeprec_ext.data` makes them).

A session asks for the next batch *before* the run that trains on it, outside the gate, and says afterwards that it is
trained. The agent brings the AIMaster's replies. Everything else happens in the sources themselves.
"""

from __future__ import annotations

import logging
import threading
from typing import Protocol

import grpc
import numpy as np

from deeprec_ext.elastic.agent.agent import Agent
from deeprec_ext.elastic.agent.waiting import Waiting
from deeprec_ext.errors import DeepRecError, UnreachableError
from deeprec_ext.options import Settings
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc

log = logging.getLogger("deeprec_ext")

POSITION_LIMIT_SECONDS = 5.0
"""How long a checkpoint waits for the ledger's position; without an answer it gets the last one known."""


EPOCH_LIMIT_SECONDS = 10.0
"""How long the AIMaster may take to say what it knows of an epoch's end; it is asked again."""


class Ticket(Protocol):
    """Batches given to one run; opaque here."""


class Source(Protocol):
    """One elastic dataset of this process. Thread-safe."""

    @property
    def name(self) -> str: ...

    @property
    def training(self) -> bool:
        """Whether its purpose is training."""

    def claim(self) -> None:
        """A training session reads it: a batch is trained when the session says so, not when it is read."""

    def release(self) -> None:
        """That session ends."""

    @property
    def restart_needed(self) -> bool:
        """Whether the iterator must be made anew before the next run: batches have to be given again."""

    @property
    def begun(self) -> bool:
        """Whether the iterator of this era has asked for a batch."""

    def emptying(self, on: bool) -> None:
        """Iterators of eras before are being read until they have nothing left: none begins a new one meanwhile."""

    def renew(self) -> None:
        """The iterator is about to be made anew, or ended: a new era."""

    def end_late(self) -> None:
        """Before a ticket: an iterator that is to be made anew has begun to read late, what nobody counts: its era is over."""

    def restarted(self) -> None:
        """The iterator is about to be made anew because of `restart_needed`."""

    def restart(self) -> None:
        """From now on `restart_needed`: the iterator could not be made."""

    def valid(self, ticket: Ticket) -> bool:
        """Whether the batches of the ticket are still to be read."""

    def begin(self, batches: int, timeout_seconds: float) -> Ticket | None:
        """Waits until the next batches can be read without waiting (or the data has ended). None: not within the time.

        Raises DeepRecError when the dataset cannot be used.
        """

    def trained(self, ticket: Ticket, records: np.ndarray | None = None) -> None:
        """The run that read them has ended well. `records`: their ids, of a dataset that has them."""

    def failed(self, ticket: Ticket) -> None:
        """It failed and will be run again; nobody knows whether the batches were read, so they are given once more."""

    def withdraw(self, ticket: Ticket) -> None:
        """There was no run."""

    def unused(self, ticket: Ticket) -> bool:
        """The run has not read them: the data had ended. True: only this stream had, there may be more (with ids)."""

    def broken(self, ticket: Ticket, error: str) -> None:
        """It failed because of these batches."""

    def waits_for(self) -> str:
        """One line for the log of a process that waits long."""

    def receive(self, reply: pb.DataReply) -> None: ...

    def registered(self, aimaster_incarnation: int) -> None:
        """There is a stream to the AIMaster again: ask again what was not answered."""

    def tell(self) -> pb.DataKnown:
        """What this process has trained and holds, for an AIMaster that has lost its store."""

    def finish(self) -> None:
        """The script ends: say what is trained and give the rest back."""


class Inputs:
    """One per trainer. `receive` and `registered` are called in the agent's thread."""

    def __init__(self, agent: Agent, leaving: threading.Event) -> None:
        self.leaving = leaving
        self.waiting = Waiting()  # of runs, for their next batch
        self._agent = agent
        self._lock = threading.Lock()
        self._sources: dict[str, Source] = {}
        self._incarnation = 0
        self._channel: grpc.Channel | None = None  # while epochs end, for one question after the other
        self.instead: dict[str, Source] = {}
        """By name of a dataset of the script: what its iterators read at present, as `fit` reads it in turn."""
        self.lease_ahead_seconds = Settings.lease_ahead_seconds
        self.bad_records = Settings.bad_records
        self._position = b""  # the last known
        self._restored = pb.ModelLive()

    # -- for `deeprec_ext.data`

    def add(self, source: Source) -> None:
        """Replies for its name go to it from now on."""
        with self._lock:
            self._sources[source.name] = source
            incarnation = self._incarnation
        if incarnation:
            source.registered(incarnation)

    @property
    def has_training_data(self) -> bool:
        """Whether a training dataset was made in this process."""
        with self._lock:
            return any(source.training for source in self._sources.values())

    def remove(self, source: Source) -> None:
        with self._lock:
            if self._sources.get(source.name) is source:
                del self._sources[source.name]

    def find(self, name: str) -> Source | None:
        with self._lock:
            return self._sources.get(name)

    def send(self, request: pb.DataRequest) -> None:
        self._agent.send(pb.AgentMessage(data=request))

    # -- for the trainer

    def registered(self, reply: pb.RegisterReply) -> None:
        with self._lock:
            self._incarnation = reply.aimaster_incarnation
            self.lease_ahead_seconds = reply.settings.lease_ahead_seconds or self.lease_ahead_seconds
            self.bad_records = reply.settings.bad_records or self.bad_records
            sources = list(self._sources.values())
        for source in sources:
            source.registered(reply.aimaster_incarnation)

    def tell(self, known: pb.Known) -> None:
        with self._lock:
            sources = list(self._sources.values())
        known.data.extend(source.tell() for source in sources)

    def receive(self, reply: pb.DataReply) -> None:
        source = self.find(reply.dataset)
        if source is not None:
            source.receive(reply)

    def finish(self) -> None:
        self._close_channel()
        with self._lock:
            sources = list(self._sources.values())
        for source in sources:
            source.finish()

    # -- the ledger's position and checkpoints

    def position(self, *, newest: bool = False) -> bytes:
        """What is trained for sure, for the sidecar of a checkpoint; read it before the first row. Empty: no data ledger.

        Args:
          newest: not the one that was told last, where the AIMaster does not answer. Raises DeepRecError then.
        """
        channel = self._agent.channel()
        try:
            reply = rpc.AgentsStub(channel).Position(pb.PositionRequest(), timeout=POSITION_LIMIT_SECONDS)
            self._position = reply.ledger
        except grpc.RpcError as error:
            if newest:
                raise DeepRecError(f"the AIMaster did not tell it: {error.code().name}") from None
            log.warning("the AIMaster did not tell the data ledger's position (%s); the checkpoint gets an earlier one",
                        error.code().name)  # fmt: skip
        finally:
            channel.close()
        return self._position

    def note_restored(self, ledger: bytes, fresh: bool) -> None:
        """The chief has restored a checkpoint with this sidecar, or initialised the model (`fresh`)."""
        self._position = ledger
        self._restored = pb.ModelLive(ledger=ledger, fresh=fresh)

    def note_saved(self, step: int) -> None:
        """The chief has written a checkpoint."""
        self._agent.send(pb.AgentMessage(saved=pb.Saved(step=step)))

    def take_restored(self) -> pb.ModelLive:
        """What `ModelLive` must say about the ledger; nothing when the chief attached to a live model."""
        told, self._restored = self._restored, pb.ModelLive()
        return told

    # -- the ends of epochs

    def end_of_epoch(self, request: pb.EpochRequest) -> pb.EpochReply | None:
        """What the job knows of an epoch's end; None: the AIMaster does not answer now. For one thread.

        Raises DeepRecError: it refuses what it is asked, and will when it is asked again.
        """
        request.incarnation = self._agent.identity.incarnation
        try:
            if self._channel is None:
                self._channel = self._agent.channel()
            reply: pb.EpochReply = rpc.AgentsStub(self._channel).Epoch(request, timeout=EPOCH_LIMIT_SECONDS)
        except (grpc.RpcError, UnreachableError) as error:
            if isinstance(error, grpc.Call) and error.code() == grpc.StatusCode.INVALID_ARGUMENT:
                raise DeepRecError(f"the AIMaster refuses what is said of an epoch's end: {error.details()}") from error
            log.debug("the AIMaster was not asked about the end of an epoch: %s", error)
            self._close_channel()
            return None
        return reply

    def _close_channel(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
