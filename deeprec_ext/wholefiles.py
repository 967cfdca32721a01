"""Files that are written whole or not at all: who reads one, at any moment, sees the old one or the new one."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def draft(path: Path, data: bytes, mode: int = 0o666) -> Path:
    """What is to be renamed to `path`, with this mode from its first byte on. Raises OSError, and then there is none."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    temporary.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def write_together(*files: tuple[Path, bytes, int]) -> None:
    """(path, data, mode): all are on the disk before one of them is renamed. Raises OSError, mostly with all as they were."""
    drafts: list[tuple[Path, Path]] = []
    try:
        for path, data, mode in files:
            drafts.append((draft(path, data, mode), path))
        for new, path in drafts:
            new.replace(path)
    finally:
        for new, _ in drafts:
            new.unlink(missing_ok=True)


def write(path: Path, data: str | bytes, mode: int = 0o666) -> None:
    """Raises OSError, and then `path` is as it was. `mode`: as of a file that is made, so the umask has its say."""
    write_together((path, data.encode("utf-8", "replace") if isinstance(data, str) else data, mode))


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Raises OSError."""
    write(path, json.dumps(values, indent=2) + "\n")


def cut_torn_line(path: Path, most: int) -> None:
    """Of a file of lines of `most` bytes at the most: what a killed writer left behind the last newline. Raises OSError."""
    if not path.exists() or not path.stat().st_size:
        return
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - most - 1)
        file.seek(start)
        tail = file.read()
        if not tail.endswith(b"\n"):
            file.truncate(start + tail.rfind(b"\n") + 1)
