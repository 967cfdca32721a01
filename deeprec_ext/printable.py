"""Text of others, made safe for a line of a terminal or of a log.

Scripts, their errors and the names in them come from anywhere. Written to a terminal as they are, escape sequences move its
cursor, set its title or answer for its user; a newline in a reason begins a line of a log that nobody has written. Everything
that this project shows or logs goes through here. What a script itself prints into its log file stays as it is.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any, TextIO

_UNSEEN = re.compile(r"\x1b\[[0-9;:]*m|\x08+")
"""Colours, and the backspaces of progress bars: without them the text reads as it was meant."""

_PICTURES = 0x2400
_TABLE: dict[int, int | str] = {
    **{code: _PICTURES + code for code in range(0x20)},  # ESC becomes ␛, one character for another
    0x0A: "␤", 0x09: " ", 0x7F: "␡",
    **dict.fromkeys(range(0x80, 0xA0), "�"),  # C1: 0x9b is as good as ESC [
    **dict.fromkeys([0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "�"),  # turns the line round
    0x2028: "␤", 0x2029: "␤",
    **dict.fromkeys(range(0xD800, 0xE000), "�"),  # halves of pairs: no encoding has them
}  # fmt: skip
_LINES = {code: shown for code, shown in _TABLE.items() if code not in (0x09, 0x0A)}


def printable(text: str) -> str:
    """One line: whatever is no character to be seen is one that shows what was there (␛, ␤, �)."""
    return _UNSEEN.sub("", text).translate(_TABLE)


def printable_lines(text: str) -> str:
    """The same for text of several lines: its newlines and tabs stay."""
    return _UNSEEN.sub("", text).translate(_LINES)


def shortened(text: str, most: int) -> str:
    """At most so many characters: cut between two words, where one ends in the second half, and said so by `…`."""
    if len(text) <= most:
        return text
    head = text[: most - 1]
    if not text[most - 1].isspace():
        whole = head.rstrip().rpartition(" ")[0]
        head = whole if len(whole) >= most // 2 else head
    return head.rstrip(" ,;:") + "…"


class LineFormatter(logging.Formatter):
    """A record is one line; only a traceback has more, which are safe as well."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return printable_lines(super().formatException(ei))


class SurvivedFormatter(LineFormatter):
    """For a process that goes on after what is logged: whoever looks for the traceback that ended it takes none of these for it
    (`tracebacks`)."""

    def formatException(self, ei: Any) -> str:
        return "".join(f"| {line}" for line in super().formatException(ei).splitlines(keepends=True))


def setup_logging() -> None:
    """Our lines go to stderr, once, whatever the user's logging is."""
    log = logging.getLogger("deeprec_ext")
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(SurvivedFormatter("%(asctime)s deeprec_ext: %(message)s", "%H:%M:%S"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False


class SafeStream:
    """A text stream whose lines are printable; what else is asked of it, the stream behind it is asked."""

    def __init__(self, stream: TextIO) -> None:
        self.behind = stream

    def write(self, text: str) -> int:
        safe = printable_lines(text)
        try:
            self.behind.write(safe)
        except UnicodeEncodeError:  # a terminal of another age: better a question mark than no output
            encoding = self.behind.encoding
            self.behind.write(safe.encode(encoding, "replace").decode(encoding))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


def behind(stream: Any) -> Any:
    """The stream itself, for who writes escape sequences of his own (the live table)."""
    return stream.behind if isinstance(stream, SafeStream) else stream
