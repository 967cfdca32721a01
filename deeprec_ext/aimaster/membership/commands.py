"""Commands to agents and their acknowledgements.

Every registered incarnation has one *outbox*: a bounded queue that its stream empties. It outlives a broken stream:
when the same incarnation connects again, commands without an ack are sent again (agents answer a command id twice
without doing it twice). When the incarnation is fenced or exits, the outbox is closed and whoever waits for it is told.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Union

from deeprec_ext.errors import DeepRecError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

QUEUE_MAX = 256
"""An agent that is this far behind does not read any more; its stream is broken off and it starts afresh."""


class CommandError(DeepRecError):
    """An agent could not do what it was told."""


class GoneError(CommandError):
    """The agent died or was fenced before it acked."""


class MissingAckError(CommandError):
    """Somebody did not ack in time."""


Wire = Union[pb.MasterMessage, bytes]
"""A message, or one already serialised because thousands get the same."""


class Outbox:
    """What is still to be sent to one incarnation."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.closed = ""  # why, once closed
        self._resigned = False
        self.generation = 0  # of the stream that may read it; an older one stops
        self._queue: deque[tuple[str, Wire]] = deque()
        self._unacked: dict[int, pb.MasterMessage] = {}
        self._futures: dict[int, asyncio.Future[pb.Ack]] = {}
        self._wake = asyncio.Event()

    def put(self, message: Wire, kind: str = "") -> None:
        """Queues a message in place of those of the same non-empty `kind` (only the last view counts)."""
        if self.closed:
            return
        if kind:
            self._queue = deque(entry for entry in self._queue if entry[0] != kind)
        if len(self._queue) >= QUEUE_MAX:
            self.detach()
            self._queue.clear()  # unacked commands are sent again to the next stream, views with its registration
        self._queue.append((kind, message))
        self._wake.set()

    def command(self, message: pb.MasterMessage) -> asyncio.Future[pb.Ack]:
        """Queues a command; the future ends with its ack, or with GoneError."""
        future: asyncio.Future[pb.Ack] = asyncio.get_running_loop().create_future()
        if self.closed or self._resigned:
            future.set_exception(GoneError(f"{self.name} is gone: {self.closed or 'finished'}"))
            future.exception()  # retrieved: nobody may be waiting
            return future
        identifier = message.command.id
        self._unacked[identifier] = message
        self._futures[identifier] = future
        future.add_done_callback(lambda _: self._forget(identifier))
        self.put(message)
        return future

    def _forget(self, identifier: int) -> None:
        self._unacked.pop(identifier, None)
        self._futures.pop(identifier, None)

    def ack(self, ack: pb.Ack) -> None:
        future = self._futures.get(ack.command_id)
        if future is not None and not future.done():
            future.set_result(ack)

    def attach(self) -> int:
        """A stream begins: it gets the number that lets it read, and all commands without an ack first."""
        self.generation += 1
        waiting = {id(message) for message in self._unacked.values()}
        rest = [entry for entry in self._queue if id(entry[1]) not in waiting]
        self._queue = deque([*(("", message) for message in self._unacked.values()), *rest])
        self._wake.set()
        return self.generation

    def detach(self) -> None:
        self.generation += 1
        self._wake.set()

    def close(self, reason: str) -> None:
        """The incarnation is over: the stream ends, waits end with GoneError."""
        self.closed = reason or "closed"
        self._queue.clear()
        self._give_up(self.closed)
        self._wake.set()

    def resign(self) -> None:
        """The agent does no commands any more, but its stream stays (its script is ending)."""
        self._resigned = True
        self._give_up("finished")

    def _give_up(self, reason: str) -> None:
        for future in list(self._futures.values()):
            if not future.done():
                future.set_exception(GoneError(f"{self.name} is gone: {reason}"))
                future.exception()

    async def next(self, generation: int) -> Wire | None:
        """The next message for the stream with this number; None when it shall end."""
        while True:
            if self.closed or generation != self.generation:
                return None
            if self._queue:
                return self._queue.popleft()[1]
            self._wake.clear()
            await self._wake.wait()


class Commander:
    """Gives commands their ids, which no AIMaster of the job has given before.

    An agent may still work on a command of the AIMaster before: a pause waits for a step, a mark for a session. Its ack comes
    to the next one, which must not take it for the ack of a command of its own.
    """

    def __init__(self, aimaster_incarnation: int) -> None:
        self.incarnation = aimaster_incarnation
        self._last = aimaster_incarnation << 32

    def send(self, outbox: Outbox, **command: Any) -> asyncio.Future[pb.Ack]:
        """`send(outbox, pause=pb.Pause(...))`."""
        self._last += 1
        body = pb.Command(id=self._last, **command)
        return outbox.command(pb.MasterMessage(aimaster_incarnation=self.incarnation, command=body))


async def gather(
    waiting: Mapping[str, asyncio.Future[pb.Ack]], timeout_seconds: float, what: str, *, may_die: Iterable[str] = ()
) -> dict[str, pb.Ack]:
    """The acks by name. Who is in `may_die` and goes meanwhile is simply not in the result.

    Raises CommandError when one answers with an error, GoneError, or MissingAckError naming those who did not answer.
    On every way out no future is left waiting.
    """
    droppable = set(may_die)
    names = {future: name for name, future in waiting.items()}
    pending = set(names)
    acks: dict[str, pb.Ack] = {}
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    try:
        while pending:
            done, pending = await asyncio.wait(
                pending, timeout=max(0.0, deadline - loop.time()), return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                late = sorted(names[future] for future in pending)
                shown = ", ".join(late[:5]) + (f" and {len(late) - 5} more" if len(late) > 5 else "")
                raise MissingAckError(f"{what}: no answer from {shown} within {timeout_seconds:.1f} s")
            for future in done:
                name = names[future]
                error = future.exception()
                if isinstance(error, GoneError) and name in droppable:
                    continue
                if error is not None:
                    raise CommandError(f"{what}: {error}") from error
                ack = future.result()
                if not ack.ok:
                    raise CommandError(f"{what}: {name} answered: {ack.error or 'failed without a reason'}")
                acks[name] = ack
        return acks
    finally:
        for future in names:
            future.cancel()
