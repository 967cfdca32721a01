"""The end of a role's log: what a person needs to see when it failed."""

from __future__ import annotations

from pathlib import Path

from deeprec_ext.printable import printable
from deeprec_ext.tracebacks import LINE_MAX, error_line, last_traceback, raised_at

_TAIL_BYTES, _ENDS_BYTES = 64 << 10, 1 << 20
_MARKER = "--- deeprec-ext: "
_NOISE = (
    " is deprecated and will be removed in a future version.", "Instructions for updating:", "Use tf.keras instead.",
    "Unable to register cu", "Could not find cuda drivers", "Could not find TensorRT", "This TensorFlow binary is optimized",
    "To enable the following instructions:", "oneDNN custom operations are on.",
)  # fmt: skip


def lines_of(data: bytes) -> list[str]:
    """Of a log, as they can be shown: each line once, also where a progress bar has written it over and over."""
    return [printable(line) for line in data.decode(errors="replace").splitlines()]


def _last_start(path: Path, alone: bool = False) -> list[str]:
    """What a role has printed since it was last started, as far as the end of its log reaches.

    Args:
      alone: nothing, where it has not printed anything since.
    """
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = lines_of(file.read())
    except OSError:
        return []
    starts = [number for number, line in enumerate(text) if line.startswith(_MARKER)]
    # the marker is written just after the start: a very fast process may write its first line before it
    if starts and (alone or starts[-1] + 1 < len(text)):
        return text[starts[-1] + 1 :]
    return [line for line in text if not line.startswith(_MARKER)]


def tail(path: Path, lines: int = 30) -> list[str]:
    """The last lines of the last start of a role; of the traceback that ended it, if it has one."""
    text = _last_start(path)
    return list(last_traceback(text)[-4 * lines :]) or text[-lines:]


def shown_end(path: Path) -> tuple[str, ...]:
    """The same for a person, with the name of the log before it; empty if it has said nothing."""
    lines = tail(path)
    return (f"the end of {path}:", *lines) if lines else ()


def why(path: Path, *, by_signal: bool = False) -> str:
    """The error with which the role ended, in one line; empty if it has said nothing.

    Args:
      by_signal: it was killed, so the last traceback of its log, if there is one, is not the reason: its last line.
    """
    text = _last_start(path)
    if not by_signal:
        return error_line(text)
    said = (line.strip() for line in reversed(text) if not any(noise in line for noise in _NOISE))
    return next(filter(None, said), "")[:LINE_MAX]


def place(path: Path) -> str:
    """By what exception of its script a role has ended, and where that was raised; empty: not known, or by something else."""
    return raised_at(_last_start(path, alone=True))


def ends(path: Path, lines: int = 30) -> list[str]:
    """The last lines of each of the last two starts of a role: of the one that failed, and of the one that came after it.

    Without what TensorFlow writes at every start, which would fill them.
    """
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _ENDS_BYTES))
            text = lines_of(file.read())
    except OSError:
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
