"""The store as an AIMaster finds it: not to be read for the moment, damaged, or gone.

One that cannot be opened is waited for. A damaged one is put aside (`storefile`), and is then as good as gone: while pods
run it is rebuilt from what they know (`rebuilding`), which is newer than any copy; the copy adds what was. When nobody runs
any more, in a run that is resumed, the copy that was kept is all there is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import grpc
import grpc.aio

from deeprec_ext.aimaster.job.notices import Notice
from deeprec_ext.aimaster.job.unwritten import CODE
from deeprec_ext.aimaster.rpc.authorisation import Authorisation
from deeprec_ext.aimaster.rpc.listening import try_listen
from deeprec_ext.aimaster.store.store import HISTORY, Store, StoreError
from deeprec_ext.aimaster.store.storefile import (
    AGAIN_SECONDS,
    is_damage,
    is_empty,
    kept_copy,
    lacks,
    quarantine,
    reason,
)
from deeprec_ext.errors import UsageError
from deeprec_ext.options import JobSpec
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security import credentials

T = TypeVar("T")
log = logging.getLogger(__name__)

OPEN_TRIES = 20
"""In a row, each after the store could be written."""


async def wait_for(spec: JobSpec, certs: str | None, listen: str) -> None:
    """Until the store can be opened and written. Who asks meanwhile hears what is waited for. Raises UsageError: the address
    is taken."""
    path, server, later = store_of(spec), None, _Later(spec.name)
    try:
        while why := unwritable(path):
            if why != later.why:
                log.error("%s cannot be written: %s; it is tried again", path, why)
                later.says(path, why)
            if server is None:
                server = await _serve(later, certs, listen)
            await asyncio.sleep(AGAIN_SECONDS)
    finally:
        if server is not None:
            await server.stop(AGAIN_SECONDS)


async def opened(spec: JobSpec, certs: str | None, listen: str, begin: Callable[[], Awaitable[T]]) -> T:
    """`begin()`, which opens the store, perhaps several times: begun again where a disk fails between two of them.

    Raises what `begin` raises; sqlite3.Error and OSError after `OPEN_TRIES`.
    """
    for left in reversed(range(OPEN_TRIES)):
        await wait_for(spec, certs, listen)
        try:
            return await begin()
        except (sqlite3.Error, OSError) as error:
            if not left:
                raise
            log.error("%s could not be opened: %s; it is tried again", store_of(spec), error)
        await asyncio.sleep(AGAIN_SECONDS)
    raise AssertionError("the last try returns or raises")


def store_of(spec: JobSpec) -> Path:
    return spec.workdir / "aimaster.db"


def unwritable(path: Path) -> str:
    """Why the store cannot be opened or written at present; empty: it can, or is damaged."""
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=AGAIN_SECONDS, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode=WAL")
            (version,) = db.execute("PRAGMA user_version").fetchone()
            db.execute(f"PRAGMA user_version={version}")  # writes a page
    except sqlite3.Error as error:
        return "" if is_damage(error) else reason(path, error)
    return ""


async def _serve(later: _Later, certs: str | None, listen: str) -> grpc.aio.Server | None:
    """None: it cannot listen now, for the same reason, perhaps."""
    server = grpc.aio.server(options=credentials.SERVER_OPTIONS, interceptors=[Authorisation(tls=certs is not None)])
    rpc.add_AdminServicer_to_server(later, server)  # type: ignore[no-untyped-call]
    rpc.add_AgentsServicer_to_server(later, server)  # type: ignore[no-untyped-call]
    if try_listen(server, listen, certs) is None:
        await server.stop(None)
        return None
    await server.start()
    return server


class _Later(rpc.AdminServicer, rpc.AgentsServicer):
    """Says in status what is waited for; whatever else is asked or told has to come again."""

    def __init__(self, job: str) -> None:
        self._job, self.why, self._notice = job, "", pb.NoticeStatus()

    def says(self, path: Path, why: str) -> None:
        self.why = why
        self._notice = Notice(
            CODE, f"the AIMaster cannot begin: {path} cannot be written: {why}",
            f"free space on the file system of {path.parent}, or make it writable again; the job goes on by itself",
            roles=("aimaster",), time=time.time(),
        ).to_proto()  # fmt: skip

    async def Status(self, request: pb.StatusRequest, context: Any) -> pb.StatusReply:
        return pb.StatusReply(job=self._job, state="starting", notices=[self._notice])

    async def _not_yet(self, request: Any, context: Any) -> NoReturn:
        await context.abort(grpc.StatusCode.UNAVAILABLE, f"the AIMaster cannot write its store: {self.why}; come again")
        raise AssertionError("abort raises")

    Scale = Graph = Finish = Hold = Decisions = Series = Events = _not_yet
    Register = Stream = Missing = Declare = Position = Epoch = _not_yet


def quarantine_what_went_back(path: Path) -> None:
    """A store that lacks what was committed may not decide anything: agents know more. It counts as lost.

    One that is gone, or empty since it was opened (`unwritable` makes it), is lost as it is: there is nothing to put aside,
    and what was put aside before, with what it held, stays."""
    try:
        lost = lacks(path) if path.exists() else 0
        empty = lost > 0 and is_empty(path)
    except sqlite3.Error:
        return  # damaged: `Store` finds out
    if empty:
        log.error("%s is gone, or empty, and with it its %d transactions", path, lost)
    elif lost:
        log.error("%s has lost its last %d transactions (its write-ahead log is damaged) and is put aside", path, lost)
        quarantine(path)


def resume_from_copy(path: Path) -> None:
    """Of a run that is resumed: the store is as it was, or as it was copied. Raises UsageError when there is neither."""
    store = Store(path)
    try:
        if store.get("aimaster_incarnation") is not None:
            return
        copy = kept_copy(path)
        if not copy.exists():
            raise UsageError(
                f"{path} is empty or damaged, and there is no {copy.name}: who took part, scalings and the position "
                "in the data are lost; checkpoints are not. Start the script again in another --workdir, from its checkpoint"
            )
        store.take_over(copy)
        log.warning("%s was empty or damaged: going on from %s; what came after that copy is lost", path, copy.name)
    except (StoreError, sqlite3.Error) as error:
        raise UsageError(
            f"{path} is empty or damaged, and its copy cannot be read either ({error}): start the script again in "
            "another --workdir, from its checkpoint"
        ) from error
    finally:
        store.close()


def add_history(path: Path) -> None:
    """Of a store that has been rebuilt: what was, from the copy, if there is one."""
    copy = kept_copy(path)
    if not copy.exists():
        return
    with contextlib.closing(Store(path)) as store, contextlib.suppress(StoreError, sqlite3.Error):
        store.take_over(copy, HISTORY)
        log.warning("events and samples until a minute ago are taken from %s", copy.name)
