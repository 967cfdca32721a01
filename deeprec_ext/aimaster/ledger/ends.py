"""The ends of the epochs of one dataset that is read in turn: what each process has seen of an epoch, and what it came to.

An epoch ends for all when its records are trained. Each process then tells what it has seen of it (its metrics), and asks
again until it knows what the epoch came to for the job. Of that the chief decides: it is given what all have seen, makes one
figure of many, and says what came of it; everybody else gets the chief's words. Nothing here knows what the words mean.

Nobody else begins before the chief has: what its script does to the model between two calls of `fit` comes first. That it has
begun is kept, too: a chief that was started again has nothing to set in a model that others train.

What an epoch came to is never changed or taken back while processes live that have heard of it: a model that goes back in time
trains the records of that epoch again, in a later one, and who comes late hears of the past as the others did. So an epoch that
was trained once stays so here: they have all left it, and nobody would train what is left of it before they hear what it came
to. A run that is resumed has other processes: its epochs go on where the model does. Pure: time is an argument.
"""

from __future__ import annotations

from collections.abc import Collection

from deeprec_ext.proto import deeprec_ext_pb2 as pb

LATE_SECONDS = 600.0
"""So long the chief waits for what others have seen of an epoch that is trained; somebody may be busy in a callback."""

EPOCHS_MAX = 100_000


class Ends:
    """Of one dataset. `came_to`, `begun`, `reached` and `passes` are persistent; what processes have seen they tell again."""

    def __init__(self) -> None:
        self.begun = False  # by a chief
        self.came_to: list[str] = []  # by epoch
        self.reached = 0  # passes over the records that were trained, though the model may have gone back since
        self.passes = 1  # of an epoch
        self.late: set[str] = set()  # incarnations that were not waited for any longer; for whoever tells of it
        self._seen: dict[
            str, tuple[int, bytes]
        ] = {}  # incarnation -> epoch, what it has seen: also of those that are gone
        self._left: set[str] = set()
        self._trained_at: tuple[int, float] = (-1, 0.0)  # epoch, since when it is known to be trained

    def back_to(self, passes: int, begun: bool) -> None:
        """So many are over in a run that is resumed; nobody in it has heard of epochs beyond."""
        del self.came_to[passes // self.passes :]
        self.reached, self.begun = min(self.reached, passes), begun
        self._seen.clear()
        self._left.clear()

    def gone(self, incarnation: str) -> None:
        """It is waited for no more. What it has told counts."""
        self._left.discard(incarnation)

    def answer(
        self, who: str, request: pb.EpochRequest, chief: bool, all_that_read: Collection[str], now: float
    ) -> pb.EpochReply:
        """Args:
        all_that_read: incarnations that lease from the dataset and live.
        """
        if request.leaves:
            self._left.add(who)
        else:
            self._left.discard(who)
        if chief:
            self.passes = request.passes or self.passes
            self._take(request)
            self.begun = self.begun or request.begins or bool(self.came_to)
        epoch = len(self.came_to)
        if request.HasField("seen") and request.epoch == epoch:
            self._seen[who] = epoch, request.seen
        reply = pb.EpochReply(
            came_to=self.came_to[request.known :], known=epoch, begun=self.begun,
            trained=self.reached >= self.passes * (request.epoch + 1),
        )  # fmt: skip
        trained = self.reached >= self.passes * (epoch + 1)
        if chief and trained and request.epoch == epoch and not self._awaited(epoch, all_that_read, now):
            reply.whole = True
            reply.seen.extend(seen for of, seen in self._seen.values() if of == epoch)
        return reply

    def _take(self, request: pb.EpochRequest) -> None:
        """Also what was known before and was lost with the store."""
        for number, words in enumerate(request.came_to, request.first):
            if number == len(self.came_to) < EPOCHS_MAX:
                self.came_to.append(words)
        self._seen = {who: one for who, one in self._seen.items() if one[0] >= len(self.came_to)}

    def _awaited(self, epoch: int, all_that_read: Collection[str], now: float) -> set[str]:
        """Who has not told yet what it has seen."""
        if self._trained_at[0] != epoch:
            self._trained_at = epoch, now
        missing = {who for who in all_that_read if self._seen.get(who, (-1, b""))[0] != epoch} - self._left
        if missing and now - self._trained_at[1] > LATE_SECONDS:
            self.late |= missing
            return set()
        return missing
