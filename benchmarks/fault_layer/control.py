"""The fault layer (`shim.c`) from outside: compiled once, switched on and off through a file that every process has mapped."""

from __future__ import annotations

import errno
import mmap
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
KINDS = {"full": errno.ENOSPC, "read-only": errno.EROFS, "io-error": errno.EIO}
ROLES = {"launcher": 1, "aimaster": 2, "ps": 4}
_FIELDS = struct.Struct("4i8ii")
_SHIFT = slice(48, 52)


class ShimError(Exception):
    """It cannot be compiled here."""


class Faults:
    """Of one job. `variables` is what its launcher has to be started with."""

    def __init__(self, base: Path, below: Path, shim: Path) -> None:
        self._file = base / "faults"
        self._file.write_bytes(bytes(_FIELDS.size))
        with self._file.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _FIELDS.size)
        self.variables = {
            "LD_PRELOAD": str(shim), "FAULTS_CONTROL": str(self._file), "FAULTS_BELOW": str(below),
        }  # fmt: skip

    def begin(self, kind: str, role: str, after: int) -> None:
        """From the write number `after` of these processes on every one fails."""
        self._map[: _SHIFT.start] = bytes(_SHIFT.start)
        self._map[4:16] = struct.pack("3i", ROLES[role], after, 0)
        self._map[0:4] = struct.pack("i", KINDS[kind])

    def end(self) -> None:
        self._map[0:4] = bytes(4)

    def set_clock(self, seconds: int) -> None:
        """From now on the wall clock of these processes is wrong by so much. Files still get the kernel's times."""
        self._map[_SHIFT] = struct.pack("i", seconds)

    @property
    def failed(self) -> int:
        """Writes that have failed since `begin`."""
        return int(_FIELDS.unpack(self._map[:])[3])


def compile_shim(directory: Path) -> Path:
    """Raises ShimError."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise ShimError("no C compiler (cc or gcc) is here: the fault layer is a few lines of C")
    shim = directory / "faults.so"
    made = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(shim), str(SOURCE), "-ldl"], capture_output=True, text=True
    )
    if made.returncode:
        raise ShimError(f"the fault layer does not compile: {made.stderr[-500:]}")
    return shim
