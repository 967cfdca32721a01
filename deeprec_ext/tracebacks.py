"""Why a process failed, in one line, from the end of what it has printed.

Python's own last words are `Type: message`, after the frames. TensorFlow's message is a page: where the operation was made,
the node, somewhere in it the error, and the traces again; its last line says nothing (`[[Mul]]`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

LINE_MAX = 300
"""Characters of the line."""

_BEGINS = "Traceback (most recent call last)"
_FRAME = re.compile(r'\s+File ".*", line \d+')
_HEAD = re.compile(r"(?P<type>[A-Za-z_][\w.]*)(: ?(?P<message>.*))?$")
_SKIPPED = re.compile(
    r"(?:[A-Z_]+: )?From /job:\S+:$|=+$|"
    r"Graph execution error:|\d+ root error\(s\) found|Detected at node|Node: '|Input Source operations|Function call stack|"
    r"\d+ (successful operations|derived errors ignored)|Hint: |Errors may have originated|Traceback \(|"
    r"Original stack trace for|During handling of the above|The above exception was the direct cause|"
    r"\s*\[\[|\s*\^+|\s+File \"|~+$"
)
_ROOT = re.compile(r"\s*\(\d+\)\s*(?:[A-Z_]+|[A-Z]\w+): ")
_UNHEARD = re.compile(r"Exception ignored in|Exception in thread ")
_OF_NODES = ("Original stack trace for", "Detected at node", "Input Source operations", "Function call stack")


def error_line(lines: Sequence[str]) -> str:
    """`InvalidArgumentError: Incompatible shapes: [2] vs. [3]`; without a traceback the last line that says something.

    Args:
      lines: the end of a log; it may begin in the midst of a traceback.
    """
    heads = list(_heads(lines))
    chosen = [number for number, heard in heads if heard] or [number for number, _ in heads]
    if chosen:
        return _described(lines, chosen[-1])[:LINE_MAX]
    begin = next(
        (number + 1 for number, line in enumerate(lines) if line.startswith("Node: '")), 0
    )  # the head was cut off
    told = [line.strip() for line in (_message(lines, begin) if begin else reversed(lines)) if line.strip()]
    said = next((line for line in told if not (_SKIPPED.match(line) or _FRAME.match(f" {line}"))), "")
    return (said or ("an error of TensorFlow, told further up in the log" if told else ""))[:LINE_MAX]


def _heads(lines: Sequence[str]) -> Iterator[tuple[int, bool]]:
    """Numbers of the lines that end the frames of a traceback; whether it is one that can have ended the process."""
    frames, of_node, heard = False, False, True
    for number, line in enumerate(lines):
        if line.startswith(_BEGINS):
            frames, of_node = True, False
            heard = not any(_UNHEARD.match(before) for before in lines[max(0, number - 1) : number])
        elif line.startswith(_OF_NODES):
            frames, of_node = False, True
        elif _FRAME.match(line):
            frames = not of_node  # also where the beginning was cut off
        elif frames and line and not line[0].isspace():
            frames = False
            if _HEAD.match(line) and not _SKIPPED.match(line):
                yield number, heard


def _described(lines: Sequence[str], head: int) -> str:
    found = _HEAD.match(lines[head])
    assert found is not None
    kind, message = found["type"].rpartition(".")[2], (found["message"] or "").strip()
    if message and not _SKIPPED.match(message):
        return f"{kind}: {_ROOT.sub('', message)}"
    for line in _message(lines, head + 1):
        if line.strip() and not _SKIPPED.match(line):
            return f"{kind}: {_ROOT.sub('', line).strip()}"
    return kind


def _message(lines: Sequence[str], begin: int) -> Iterator[str]:
    """What belongs to the error, without the lines of source below frames."""
    after_frame = False
    for line in lines[begin:]:
        if line.startswith(("Original stack trace for", "During handling of")):
            return
        if not (after_frame and line[:1].isspace()):
            yield line
        after_frame = bool(_FRAME.match(line)) or (after_frame and line[:1].isspace())
