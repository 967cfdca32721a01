"""A disk of a few MB, as the directory of backups, that can be filled to the last byte: a tmpfs (needs the right to mount)."""

from __future__ import annotations

import contextlib
import errno
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

FILL = "somebody-elses-file"
BLOCK = 4096


class SmallDisk:
    """`fill` takes what is left, again and again: what is deleted meanwhile does not make room."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def full(self) -> bool:
        return self._thread is not None

    def fill(self, seconds: float) -> None:
        """Returns at once; the disk is full for so long."""
        self._thread = threading.Thread(target=self._hold, args=(seconds,), daemon=True)
        self._thread.start()

    def free(self, limit_seconds: float) -> None:
        """Waits until the time is over and there is room again."""
        if self._thread is not None:
            self._thread.join(limit_seconds)

    def stop(self) -> None:
        self._over.set()
        self.free(10.0)

    def _hold(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        file = self.path / FILL
        with file.open("ab", buffering=0) as out:
            while time.monotonic() < end and not self._over.wait(0.05):
                try:
                    while True:
                        out.write(b"\0" * BLOCK)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
        file.unlink()


@contextlib.contextmanager
def small_disk(path: Path, megabytes: int) -> Iterator[SmallDisk]:
    """Mounted at `path` (made), and unmounted when the context ends. Raises RuntimeError where nothing may be mounted."""
    path.mkdir(parents=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"a small disk cannot be mounted ({done.stderr.strip()}): run as root, outside of a sandbox")
    disk = SmallDisk(path)
    try:
        yield disk
    finally:
        disk.stop()
        subprocess.run(["umount", "-l", str(path)], check=True)
