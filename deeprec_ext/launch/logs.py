"""The end of a role's log: what a person needs to see when it failed."""

from __future__ import annotations

from pathlib import Path

_TAIL_BYTES, _ENDS_BYTES = 64 << 10, 1 << 20
_MARKER = "--- deeprec-ext: "
_TRACEBACK = "Traceback (most recent call last)"
_NOISE = (
    " is deprecated and will be removed in a future version.", "Instructions for updating:", "Use tf.keras instead.",
    "Unable to register cu", "Could not find cuda drivers", "Could not find TensorRT", "This TensorFlow binary is optimized",
    "To enable the following instructions:", "oneDNN custom operations are on.",
)  # fmt: skip


def tail(path: Path, lines: int = 30) -> list[str]:
    """The last lines of the last start of a role; from its last traceback on, if it has one."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    starts = [number for number, line in enumerate(text) if line.startswith(_MARKER)]
    # the marker is written just after the start: a very fast process may write its first line before it
    if starts and starts[-1] + 1 < len(text):
        text = text[starts[-1] + 1 :]
    else:
        text = [line for line in text if not line.startswith(_MARKER)]
    tracebacks = [number for number, line in enumerate(text) if line.startswith(_TRACEBACK)]
    if tracebacks:
        return text[tracebacks[-1] :][-4 * lines :]
    return text[-lines:]


def last_line(path: Path) -> str:
    """The last line that says something, for a one-line reason; empty if there is none."""
    return next((line.strip() for line in reversed(tail(path)) if line.strip()), "")[:300]


def ends(path: Path, lines: int = 30) -> list[str]:
    """The last lines of each of the last two starts of a role: of the one that failed, and of the one that came after it.

    Without what TensorFlow writes at every start, which would fill them.
    """
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _ENDS_BYTES))
            text = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    text = [line for line in text if not any(noise in line for noise in _NOISE)]
    starts = [number for number, line in enumerate(text) if line.startswith(_MARKER)]
    if not starts:
        return text[-lines:]
    last = text[starts[-1] :]
    before = text[starts[-2] if len(starts) > 1 else 0 : starts[-1]]
    return [
        line for part in (before, last) for line in (part if len(part) <= lines else [*part[:1], "…", *part[-lines:]])
    ]
