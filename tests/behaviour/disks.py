"""A file system of a few megabytes that can be filled, emptied, and made read-only; root only."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest


class SmallDisk:
    """A tmpfs at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self) -> None:
        """From now on it is full; what somebody frees is taken as well."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._keep_full, daemon=True)
        self._thread.start()

    def _keep_full(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(OSError), (self.path / "filler").open("ab", buffering=0) as file:
                while file.write(bytes(65_536)) and not self._stop.is_set():
                    pass
            self._stop.wait(0.02)

    def empty(self) -> None:
        """There is space again."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(10)
            self._thread = None
        with contextlib.suppress(FileNotFoundError):
            (self.path / "filler").unlink()

    def read_only(self, on: bool) -> None:
        """As a file system becomes that has found an error."""
        subprocess.run(["mount", "-o", f"remount,{'ro' if on else 'rw'}", str(self.path)], check=True)


@contextlib.contextmanager
def small_disk(path: Path, size: str) -> Iterator[SmallDisk]:
    """Skips the test where it cannot be mounted, with the reason."""
    if os.geteuid():
        pytest.skip("only root may mount a small file system")
    path.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"no small file system can be mounted here: {made.stderr.strip()}")
    disk = SmallDisk(path)
    try:
        yield disk
    finally:
        disk.empty()
        subprocess.run(["umount", "-l", str(path)], check=True)
