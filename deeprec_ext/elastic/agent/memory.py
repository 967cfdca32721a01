"""What a process has heard of its job. An AIMaster that has lost its store asks for it, and rebuilds the store from that.

Everything is noted when it is heard, not when it has been done: a PS that was told to destroy variables has none any more.
"""

from __future__ import annotations

from deeprec_ext.proto import deeprec_ext_pb2 as pb

REMEMBERED_KEYS_MAX = 100
REMEMBERED_BYTES_MAX = 32 << 20
"""Values kept for the AIMaster: half of what a message may hold. What does not fit is not kept."""


class Memory:
    """Of one incarnation. In the agent's thread; only `has_arrived` is called in another."""

    def __init__(self, incarnation: str) -> None:
        self.view = pb.View()  # the newest
        self._incarnation = incarnation
        self._prepared = pb.View()
        self._highest_epoch = 0
        self._highest_task = -1
        self._served = False
        self._leaving = False
        self._scaling = 0
        self._moves: tuple[pb.Move, ...] = ()
        self._arrived: frozenset[int] = frozenset()  # slots of those moves, once their final copy has ended ...
        self._destroyed: frozenset[int] = frozenset()  # ... and slots that were destroyed, since the present view
        self._remembered: dict[str, pb.Remember] = {}

    # -- what is heard

    def registered(self, reply: pb.RegisterReply) -> None:
        self._highest_task = max(self._highest_task, reply.task)
        self._use(reply.view)

    def heard(self, message: pb.MasterMessage) -> None:
        kind = message.WhichOneof("message")
        if kind == "publish":
            self._use(message.publish.view)
        elif kind == "scaling":
            self._noticed(message.scaling)
        elif kind == "remember":
            self._keep(message.remember)
        elif kind == "command":
            self._told(message.command)

    def _noticed(self, notice: pb.ScalingNotice) -> None:
        if notice.phase == pb.ScalingNotice.BEGUN:
            self._scaling = notice.scaling_id
        elif notice.scaling_id == self._scaling:
            self._scaling = 0

    def _told(self, command: pb.Command) -> None:
        kind = command.WhichOneof("command")
        if kind == "prepare":
            self._see(command.prepare.view)
            self._prepared = command.prepare.view
        elif kind == "resume":
            self._prepared = pb.View()
        elif kind == "commit":
            self._use(command.commit.view)
        elif kind == "copy" and command.copy.phase == pb.Copy.ARM:
            self._scaling, self._moves = command.copy.scaling_id, tuple(command.copy.moves)
            self._arrived = frozenset()
        elif kind == "copy" and command.copy.phase == pb.Copy.ABORT:
            self._moves, self._arrived = (), frozenset()
        elif kind == "leave":
            self._leaving = True
        elif kind == "destroy":
            slots = {variable.slot for variable in command.destroy.variables}
            self._destroyed, self._arrived = self._destroyed | slots, self._arrived - slots

    def _see(self, view: pb.View) -> None:
        self._highest_epoch = max(self._highest_epoch, view.epoch)
        self._highest_task = max([self._highest_task, *(ps.task for ps in view.ps)])

    def _use(self, view: pb.View) -> None:
        self._see(view)
        if view.epoch < self.view.epoch:
            return
        if view.epoch > self.view.epoch:  # it says what is where
            self._destroyed = self._arrived = frozenset()
        if view.epoch >= self._prepared.epoch:
            self._prepared = pb.View()
        self.view = view
        members = [*(ps.incarnation for ps in view.ps), *(worker.incarnation for worker in view.workers)]
        self._served = self._served or self._incarnation in members

    def _keep(self, value: pb.Remember) -> None:
        known = self._remembered.get(value.key)
        if known is not None and known.number > value.number:
            return
        self._remembered.pop(value.key, None)
        size = sum(len(one.value) for one in self._remembered.values()) + len(value.value)
        if value.value and size <= REMEMBERED_BYTES_MAX and len(self._remembered) < REMEMBERED_KEYS_MAX:
            self._remembered[value.key] = value

    # -- what this process does itself

    def has_arrived(self, scaling_id: int) -> None:
        """The final copy of this scaling's moves has ended here."""
        if scaling_id == self._scaling:
            self._arrived = frozenset(move.variable.slot for move in self._moves)

    # -- what is told

    def resident_slots(self, task: int) -> list[int]:
        """Slots whose variables the PS with this task holds whole."""
        owned = {slot for slot, owner in enumerate(self.view.slot_map) if owner == task}
        return sorted((owned - self._destroyed) | self._arrived)

    def tell(self) -> pb.Known:
        return pb.Known(
            view=self.view, prepared=self._prepared if self._prepared.epoch else None, highest_epoch=self._highest_epoch,
            highest_task=self._highest_task, served=self._served, scaling=self._scaling, moves=self._moves,
            remembered=self._remembered.values(), leaving=self._leaving,
        )  # fmt: skip
