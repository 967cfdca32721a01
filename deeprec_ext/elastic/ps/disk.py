"""Disk backups on a PS: writing the files of a snapshot, committing it, finding one, restoring from one.

Everything is done in a thread of its own: a pause, a promotion or a migration never waits behind a snapshot. The AIMaster sends
the next command when the last one is done or given up; so a command that comes while a snapshot is being written drops it.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from deeprec_ext.backup import snapshots
from deeprec_ext.backup.blocks import FileWriter
from deeprec_ext.backup.errors import DamagedError
from deeprec_ext.backup.files import Directory, directory
from deeprec_ext.backup.manifest import data_name, loads, manifest_name
from deeprec_ext.elastic.agent.background import STEADY_NICENESS, politely
from deeprec_ext.elastic.agent.commands import Ack, answered
from deeprec_ext.elastic.ps.calling_off import CallingOff, still_wanted
from deeprec_ext.elastic.ps.collector import make_bitmaps
from deeprec_ext.elastic.ps.disk_cut import CancelledCutError, Source, deltas_of
from deeprec_ext.elastic.ps.disk_restore import restore
from deeprec_ext.errors import DeepRecError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger("deeprec_ext")

COMMANDS = ("write_backup", "seal_backup", "restore_backup", "find_backup")
WAITING_MAX = 16


class Disk:
    """Args: target: `grpc://host:port` of this PS. task: its task number. collecting: held around a collection of marks."""

    def __init__(
        self, target: str, task: Callable[[], int], collecting: AbstractContextManager[Any], answer: Ack,
        touched: Callable[[int, int], None] = lambda slot, rows: None,
    ) -> None:  # fmt: skip
        self._touched = touched
        self._target, self._task, self._collecting, self._answer = target, task, collecting, answer
        self._waiting: queue.Queue[pb.Command] = queue.Queue(WAITING_MAX)
        self._thread: threading.Thread | None = None
        self._source: tuple[object, Source] | None = None
        self._last: tuple[Directory, str, list[str]] | None = None  # id and files of the snapshot written last
        self._written: dict[str, str] = {}  # bitmap -> id of the snapshot its table was last written for
        self._restores = CallingOff()
        self._present = 0  # id of the command that is carried out

    # -- called from the agent's threads

    def put(self, command: pb.Command) -> None:
        """Takes one of COMMANDS, or a CallOff, which is answered when nothing given before is done any more; the answer comes
        from another thread."""
        if command.WhichOneof("command") == "restore_backup":
            self._restores.begins(command.id)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="deeprec-disk", daemon=True)
            self._thread.start()
        source = self._source
        if source is not None:
            source[1].cancelled.set()
        try:
            self._waiting.put_nowait(command)
        except queue.Full:
            self._answer(command.id, "too many disk backup commands are waiting")

    def call_off(self, number: int) -> None:
        """Of no restore with a lower number anything is written any more, but by the run that is under way."""
        self._restores.call_off(number)

    def forget(self, variables: Iterable[pb.Variable]) -> None:
        """They have left this PS: should they come back, they are written whole."""
        for variable in variables:
            self._written.pop(variable.bitmap, None)

    # -- the thread

    def _work(self) -> None:
        while True:
            command = self._waiting.get()
            self._present = command.id
            kind = str(command.WhichOneof("command"))
            work = partial(getattr(self, f"_{kind}"), getattr(command, kind))
            answered(self._answer, command.id, kind.replace("_", " "), work, (DeepRecError, OSError))

    def _write_backup(self, command: pb.WriteBackup) -> dict[str, Any]:
        return {"files": politely(self._write, command, niceness=STEADY_NICENESS)}

    def _write(self, command: pb.WriteBackup) -> list[pb.BackupFile]:
        started = time.monotonic()
        if not self._waiting.empty():
            raise CancelledCutError("the cut was dropped: another command came")
        source = self._source_of(command)
        deltas = deltas_of(self._written, command.parent, command.base)
        self._written = {}  # what is taken now is lost to the next delta unless this snapshot is committed
        place = directory(command.path)
        place.make()
        self._remove_unsealed()
        self._last = place, command.id, []
        ready, marked = source.look()
        files: list[pb.BackupFile] = []
        tables: set[str] = set()
        for slot in sorted({variable.slot for variable in command.variables}):
            name = data_name(command.id, slot)
            self._last[2].append(name)
            try:
                with place.writing(name) as stream:
                    writer = FileWriter(stream, command.id, slot)
                    one = source.write(writer, slot, ready, marked, deltas)
                    writer.finish()
            except BaseException:
                self._remove_unsealed()
                raise
            tables |= one.tables
            files.append(
                pb.BackupFile(name=name, bytes=writer.size, crc32=writer.crc32, slot=slot, rows=writer.rows,
                              raw_bytes=writer.raw_bytes, whole=one.whole)
            )  # fmt: skip
        self._written = dict.fromkeys(tables, command.id)
        log.info(
            "cut %d: %d files, %d bytes, %d of %d slots whole, %.2f s",
            command.cut, len(files), sum(file.bytes for file in files), sum(file.whole for file in files), len(files),
            time.monotonic() - started,
        )  # fmt: skip
        return files

    def _remove_unsealed(self) -> None:
        """Of the snapshot written last, if it was not committed: on a full disk its files are in the way of the next one."""
        if self._last is None:
            return
        place, identifier, names = self._last
        self._last = None
        try:
            if names and manifest_name(identifier) not in place.names():
                for name in names:
                    place.remove(name)
        except OSError as error:
            log.warning("what was written of cut %s cannot be removed: %s", identifier, error)

    def _source_of(self, command: pb.WriteBackup) -> Source:
        """The same session as long as the variables are the same."""
        key = self._task(), tuple(variable.SerializeToString(deterministic=True) for variable in command.variables)
        if self._source is not None and self._source[0] != key:
            self._source[1].close()
            self._source = None
        if self._source is None:
            self._source = key, Source(self._target, self._task(), command.variables, self._collecting, self._touched)
        self._source[1].cancelled.clear()
        if not self._waiting.empty():  # it came before there was a source to cancel
            self._source[1].cancelled.set()
        return self._source[1]

    def _seal_backup(self, command: pb.SealBackup) -> dict[str, Any]:
        manifest = loads(command.manifest_json, "the manifest")
        snapshots.commit(directory(command.path), manifest, command.manifest_json, command.remove)
        return {}

    def _find_backup(self, command: pb.FindBackup) -> dict[str, Any]:
        found = snapshots.look(directory(command.path), may_be_new=True, most=command.most, before=command.before)
        text = snapshots.answer(found, command.path, command.fingerprint, command.job, command.before)
        return {"backup_json": text}

    def _call_off(self, _: pb.CallOff) -> dict[str, Any]:
        return {}

    def _restore_backup(self, command: pb.RestoreBackup) -> dict[str, Any]:
        started = time.monotonic()
        place = directory(command.path)
        name = manifest_name(command.id)
        try:
            manifest = loads(place.read(name), name)
        except FileNotFoundError as error:
            raise DamagedError(name, "missing", f"in {place.path}") from error
        self._written = {}
        called_off = partial(self._restores.is_off, self._present)
        count = restore(self._target, self._task(), place, manifest, command.variables, called_off)
        still_wanted(called_off)
        make_bitmaps(self._target, self._task(), command.variables)
        seconds = time.monotonic() - started
        log.info(
            "restored %d variables of cut %d: %d bytes, %.2f s", len(command.variables), command.cut, count, seconds
        )
        return {"copy": pb.CopyResult(bytes=count, seconds=seconds, variables=len(command.variables))}
