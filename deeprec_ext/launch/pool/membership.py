"""A launcher's part in a pool: it comes, waits for room, says what its job has, leads where nobody does, and leaves."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace

from deeprec_ext.arbiter.observed import Allowance
from deeprec_ext.arbiter.saying import need
from deeprec_ext.errors import NoRoomError, UsageError
from deeprec_ext.launch.pool.entry import (
    FRESH_SECONDS,
    Asked,
    Entry,
    PoolSize,
    needed,
    present,
    size_here,
    this_machine,
)
from deeprec_ext.launch.pool.leading import Leader
from deeprec_ext.launch.pool.places import PoolDirectory, put
from deeprec_ext.launch.pool.seen import Seen, look, read, standing, stands, told
from deeprec_ext.launch.resources import Resources
from deeprec_ext.units import format_memory, format_seconds

log = logging.getLogger(__name__)

TURN_SECONDS = 0.5
HEARTBEAT_SECONDS = 1.0
JOIN_SECONDS = 10.0
"""For the others that come at this moment."""
LEAVE_SECONDS = 5.0
"""For the thread to end what it does: a turn takes milliseconds."""
LOOK_SECONDS = 0.1
QUIET_SECONDS = 1.2
"""For the leader to decide: who has room need not be told that it waited."""
SAY_SECONDS = 5.0
"""Between two reasons that differ: figures in them change twice a second."""


def share(directory: PoolDirectory, entry: Entry, seen: Seen, cores: float) -> PoolSize:
    """What the jobs of the pool share. Who comes first says it, or a command (`changing`). Raises UsageError: what was said is
    no part of that, or the job could never have room in it."""
    far = [one for one in seen.entries if one.machine != this_machine()]
    if far:
        raise UsageError(
            f"--pool {directory.name}: {far[0].job} runs in it on another machine or in another container, which shares "
            f"{directory.path}; choose another name here"
        )
    here = size_here()
    size = seen.size if seen.entries and seen.size is not None else PoolSize(cores or here.cores, here.memory_bytes)
    if cores and cores != size.cores:
        raise UsageError(
            f"--pool-cores {cores:g}: the pool {directory.name} has {size.cores:g} while {seen.entries[0].job} is in it; "
            f"leave it out, change it for all (deeprec-ext queue --pool {directory.name} --pool-cores {cores:g}), or choose "
            "another pool"
        )
    least = needed(entry, entry.least)
    what = f"{entry.least.ps} PS, " * bool(entry.least.ps) + f"the chief and {entry.least.workers} workers"
    if least.cpu > size.cores + 1e-9:
        raise UsageError(
            f"--pool {directory.name}: the job needs {least.cpu:g} cores at least ({what}), and the pool has {size.cores:g}; "
            "lower --worker-cpu, --ps-cpu or its least size, or give the pool more with --pool-cores"
        )
    if least.memory_bytes > size.memory_bytes:
        raise UsageError(
            f"--pool {directory.name}: the job needs {format_memory(least.memory_bytes)} at least ({what}), and the machine "
            f"has {format_memory(size.memory_bytes)}; lower --worker-memory, --ps-memory or its least size"
        )
    return size


class Membership:
    """Of one job. `join` it, `begin` its thread, and `close` it whatever happens.

    Args:
      now: the time, in Unix seconds.
    """

    def __init__(
        self, directory: PoolDirectory, entry: Entry, *, leader: Leader | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.directory, self._entry, self._now = directory, entry, now
        self._leader = leader or Leader(directory)
        self._lock = threading.Lock()
        self._written: Entry | None = None
        self._size: PoolSize | None = None
        self._allowance: Allowance | None = None
        self._passed: Allowance | None = None  # to its AIMaster
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._trouble = ""

    # ------------------------------------------------------------------------------------------- coming and going

    def join(self, cores: float = 0.0) -> PoolSize:
        """From now on the others know of it. Raises UsageError."""
        self.directory.make()
        with alone(self.directory), usable(self.directory):
            now = self._now()
            seen = look(self.directory, now)
            size = self._size = share(self.directory, self._entry, seen, cores)
            if size != seen.size:
                put(self.directory.size, asdict(size))
            self.directory.remove(self._entry.job)  # of a launcher that died here
            self._write(replace(self._entry, time=now))
        return size

    def begin(self) -> None:
        self._thread = threading.Thread(target=self._run, name="pool", daemon=True)  # a disk that hangs keeps nobody
        self._thread.start()

    def leave(self) -> None:
        """Nothing of the job runs any more: the others may have its room. Idempotent."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(LEAVE_SECONDS)
            if self._thread.is_alive():  # the disk hangs: lock and heartbeat end with this process
                return
            self._thread = None
        self.directory.remove(self._entry.job)
        with contextlib.suppress(OSError):
            if self._written is not None:
                self._leader.turn(self._now())  # the others have its room at once, and the record its end
            self._leader.close()
        self._written = None

    close = leave

    # ------------------------------------------------------------------------------------------- meanwhile

    @property
    def allowance(self) -> Allowance | None:
        """What it may have; None: nobody has decided yet."""
        with self._lock:
            return self._allowance

    def start(self, allowance: Allowance) -> None:
        """It starts with that."""
        other = 1 if self._entry.pods.other.cpu or self._entry.pods.other.memory_bytes else 0
        self._change(running=True, chief=1, ps=allowance.ps, workers=allowance.workers, other=other, heard=self._now())

    def tell(self, there: Sequence[tuple[str, Resources]], silent_seconds: float) -> None:
        """What there is of it now.

        Args:
          there: role, and what it is held to, of each process.
          silent_seconds: since its AIMaster has answered.
        """
        with self._lock:
            self._entry = replace(present(self._entry, there), heard=round(self._now() - silent_seconds))

    def turn(self) -> None:
        """Says that the job is there, leads if nobody else does, and hears what it may have. Raises OSError."""
        now = self._now()
        with self._lock:
            entry = self._entry
        before = self._written
        if (
            before is None
            or now - before.time >= HEARTBEAT_SECONDS
            or entry != replace(before, time=entry.time, heard=entry.heard)
        ):
            self._write(replace(entry, time=now))
        if self._size is not None:
            size = read(PoolSize, self.directory.size)
            if size is not None:
                self._size = size  # by a command
            elif not self.directory.size.exists():  # somebody has removed it
                put(self.directory.size, asdict(self._size))
        try:
            self._leader.turn(now)
        finally:  # trouble with leading keeps no job from its word
            self._hear(entry.job)

    def _hear(self, job: str) -> None:
        """What the leader says, and nobody that was leader once: its AIMaster is told by this launcher alone. The term is
        looked at after the word: who leads from then on has seen what was obeyed. Raises OSError."""
        found, term = told(self.directory, job)
        if found is None or term != self.directory.term():
            return
        path = self.directory.told(job)
        if found != self._passed or not path.exists():
            put(path, asdict(found))
            self._passed = found
        with self._lock:
            self._allowance = found

    def others(self) -> str:
        """Whose launcher stands still, and gives nothing back; empty: nobody's does."""
        now = self._now()
        entry = standing(look(self.directory, now), now)
        return stands(entry, now) if entry is not None and entry.job != self._entry.job else ""

    # ------------------------------------------------------------------------------------------- inside

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.turn()
                self._trouble = ""
            except Exception as error:
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    log.warning("the pool %s: %s; it is tried again", self.directory.name, error)
                    log.debug("the pool %s", self.directory.name, exc_info=True)
                with contextlib.suppress(UsageError):  # somebody has removed it
                    self.directory.make()
            self._over.wait(TURN_SECONDS)

    def _change(self, **values: object) -> None:
        with self._lock:
            self._entry = replace(self._entry, **values)  # type: ignore[arg-type]

    def _write(self, entry: Entry) -> None:
        put(self.directory.job(entry.job), asdict(entry))
        self._written = entry


@contextlib.contextmanager
def usable(directory: PoolDirectory) -> Iterator[None]:
    """Raises UsageError for OSError."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"--pool {directory.name}: {directory.path} cannot be written ({error.strerror or error}); free "
            "space there, or set XDG_STATE_HOME to another directory"
        ) from None


@contextlib.contextmanager
def alone(directory: PoolDirectory) -> Iterator[None]:
    """One comes, or changes something, at a time: of two that come first each would say what there is to share. Raises
    UsageError."""
    deadline = time.monotonic() + JOIN_SECONDS
    with usable(directory), directory.joining.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise UsageError(
                        f"--pool {directory.name}: another job has been joining it for {JOIN_SECONDS:.0f} s; try again"
                    ) from None
                time.sleep(0.02)
        yield


def room(
    member: Membership, asked: Asked, *, interrupts: Sequence[str], say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep,
) -> Allowance | None:  # fmt: skip
    """Waits until the job may start; with what. None: it was interrupted. Raises NoRoomError after `max_wait_seconds`.

    Args:
      interrupts: has something in it once there was one.
      say: is told why it waits, at first and when that changes.
    """
    began = looked = clock()
    said, said_at, standing = "", began + QUIET_SECONDS - SAY_SECONDS, ""
    while True:
        if interrupts:
            return None
        allowance = member.allowance
        if allowance is not None and allowance.runs:
            return allowance
        now = clock()
        if now - looked > FRESH_SECONDS:
            looked, standing = now, member.others()
        why = need(allowance.why) if allowance is not None else "nothing is decided yet"
        why = f"{why}; {standing}" if standing else why
        if asked.max_wait_seconds and now - began >= asked.max_wait_seconds:
            raise NoRoomError(
                f"the pool {asked.name} had no room for the job within {format_seconds(asked.max_wait_seconds)}: {why}; "
                "nothing was started. Wait longer (--max-wait), ask for less, or give it a higher --priority"
            )
        if why != said and now - said_at >= SAY_SECONDS:
            say(f"waits for room in the pool {asked.name}: {why}")
            said, said_at = why, now
        sleep(LOOK_SECONDS)
