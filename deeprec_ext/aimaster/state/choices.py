"""What was chosen for backups: the command line wins over the script's BackupHook, that over the default."""

from __future__ import annotations

import os

from google.protobuf.message import DecodeError

from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.options import JobSpec
from deeprec_ext.proto import bounds
from deeprec_ext.proto import deeprec_ext_pb2 as pb


def stored_wish(store: Store) -> pb.BackupWish:
    """What the script's BackupHook asked for; nothing where that cannot be read or cannot be."""
    wire = store.blob("backup_wish")
    why: object = None
    try:
        wish = pb.BackupWish.FromString(wire)
        why = bounds.check(wish, "backup_wish.")
    except DecodeError as error:
        why = error
    if why is None:
        return wish
    store.quarantine("blob", "backup_wish", wire, why, "DELETE FROM blobs WHERE key=?")
    return pb.BackupWish()


class BackupChoices:
    """`job.choices`."""

    def __init__(self, spec: JobSpec, store: Store) -> None:
        self._spec, self._settings = spec, spec.settings
        self.wish = stored_wish(store)
        if self.wish.disk_path and not self.may_write_to(self.wish.disk_path):
            self.wish.ClearField("disk_path")  # taken when the command line named a place, which it does no more

    @property
    def peer(self) -> bool:
        """Whether slots are to have backups on other PS."""
        setting = self._settings.peer_backup
        asked = self.wish.peer if self.wish.HasField("peer") else True
        return setting == "on" or (setting == "auto" and asked)

    @property
    def peer_seconds(self) -> float:
        return float(self._given("peer_backup_seconds", self.wish.peer_seconds))

    @property
    def peer_steps(self) -> int:
        """Refresh every so many global steps; 0: by time."""
        return int(self._given("peer_backup_steps", self.wish.peer_steps))

    @property
    def disk_path(self) -> str:
        """Directory of the disk backup; empty: none."""
        setting = self._settings.disk_backup
        return "" if setting == "off" else setting or self.wish.disk_path

    @property
    def disk_seconds(self) -> float:
        return float(self._given("disk_backup_seconds", self.wish.disk_seconds))

    def may_write_to(self, path: str) -> bool:
        """Whether a script may choose this place: below the run directory, or the one that the command line says anyway. Else
        whoever speaks for a trainer would have the PS write, and remove, wherever they can."""
        if self._settings.disk_backup:
            return True  # then its word does not count
        if not os.path.isabs(path) or "\0" in path:  # a relative one would be another place to each PS
            return False
        below = os.path.realpath(self._spec.workdir)
        return os.path.commonpath((below, os.path.realpath(path))) == below

    def _given(self, name: str, wish: float) -> float:
        value = getattr(self._settings, name)
        return value if name in self._spec.given else wish or value
