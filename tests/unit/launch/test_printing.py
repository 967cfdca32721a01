"""What a role prints reaches its log, also when the disk is full meanwhile; the role does not notice."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deeprec_ext.launch.roles import printing as module
from deeprec_ext.launch.roles.printing import Printing

PRINTS = "import sys\nfor n in range(int(sys.argv[1])): print(n, 'x' * 50, flush=True)"


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Whether writes into logs fail; at first they do not."""
    state, opened = {"full": False}, Path.open

    class Full:
        def __init__(self, file: object) -> None:
            self._file = file

        def write(self, text: bytes) -> int:
            if state["full"]:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return int(self._file.write(text[:1000]))  # type: ignore[attr-defined]

        def close(self) -> None:
            self._file.close()  # type: ignore[attr-defined]

    def open_(self: Path, *arguments: object, **more: object) -> object:
        file = opened(self, *arguments, **more)  # type: ignore[call-overload]
        return Full(file) if self.name.endswith(".log") and "a" in str(arguments) else file

    monkeypatch.setattr(Path, "open", open_)
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.02)
    return state


def play(path: Path, count: int, full: dict[str, bool]) -> tuple[int, list[str]]:
    """A process prints while the disk is full; its exit code, and what was told of the trouble."""

    async def scenario() -> tuple[int, list[str]]:
        told: list[str] = []
        printing = Printing(path, told.append)
        printing.add(b"begin\n")
        pipe = printing.pipe()
        full["full"] = True
        process = subprocess.Popen([sys.executable, "-c", PRINTS, str(count)], stdout=pipe)
        os.close(pipe)
        code = await asyncio.get_running_loop().run_in_executor(None, process.wait)
        printing.drain()
        assert printing.behind == os.strerror(errno.ENOSPC) and path.read_bytes() == b"begin\n"
        full["full"] = False
        for _ in range(500):
            if not printing.behind:
                break
            await asyncio.sleep(0.01)
        printing.add(b"end\n")
        printing.close()
        return code, told

    return asyncio.run(scenario())


def test_nothing_is_missing_after_a_full_disk_and_the_role_never_hears_of_it(
    tmp_path: Path, full: dict[str, bool]
) -> None:
    path = tmp_path / "worker-0.log"
    code, told = play(path, 2000, full)
    lines = path.read_text().splitlines()
    assert code == 0 and told == [os.strerror(errno.ENOSPC), ""]
    assert lines == ["begin", *(f"{n} {'x' * 50}" for n in range(2000)), "end"]


def test_what_waits_is_bounded_and_the_log_says_what_is_missing(
    tmp_path: Path, full: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAITING_BYTES_MAX", 20_000)
    monkeypatch.setattr(module, "READ_BYTES", 4_000)
    path = tmp_path / "worker-0.log"
    code, _ = play(path, 2000, full)
    text = path.read_text()
    assert code == 0 and len(text) < 25_000
    assert text.startswith("begin\n") and text.endswith(f"1999 {'x' * 50}\nend\n")
    assert "bytes are missing here: No space left on device" in text
