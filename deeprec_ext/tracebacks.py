"""Why a process failed, in one line, from the end of what it has printed.

Python's own last words are `Type: message`, after the frames. TensorFlow's message is a page: where the operation was made,
the node, somewhere in it the error, and the traces again; its last line says nothing (`[[Mul]]`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

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
_UNHEARD = re.compile(
    r"Exception ignored (in|while)|Exception in (thread|callback) |Error in atexit|(Task|Future) exception was never retrieved|"
    r"exception calling callback |--- Logging error ---|^Process \S*(Process|Worker)-\d+(:\d+)*:$"
)
"""Before tracebacks that end no process: of other threads and processes, of the end of the interpreter. Those of our own log
begin otherwise (`printable.SurvivedFormatter`)."""
_UNHEARD_LINES = 2
"""So many lines before them: asyncio tells the task between."""
_LOGGED = "| "  # `printable.SurvivedFormatter`
_MESSAGE_LINES = 5
"""An exception's own text may have so many more lines."""
_BESIDE = re.compile(r"\| |\d\d:\d\d:\d\d deeprec_ext: |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWEF] |\s*$")
"""Lines that are no part of it: of our log, and of TensorFlow's."""
_PLACE = re.compile(r'\s+File "(?P<file>.*)", line (?P<line>\d+)')
_NOT_THE_SCRIPTS = re.compile(r"/(tensorflow|deeprec_ext|grpc)/|/(site|dist)-packages/|/lib/python3\.\d+/|^<")
OF_THE_MACHINE = frozenset({
    "OSError", "IOError", "ConnectionError", "ConnectionResetError", "ConnectionRefusedError", "ConnectionAbortedError",
    "BrokenPipeError", "TimeoutError", "InterruptedError", "BlockingIOError", "ChildProcessError", "ProcessLookupError",
    "MemoryError", "KeyboardInterrupt", "FileNotFoundError", "PermissionError",
})  # fmt: skip
"""Exceptions that say something of the machine, and nothing of the script."""
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
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


def last_traceback(lines: Sequence[str]) -> Sequence[str]:
    """From the traceback that ended the process to the next one that did not; empty: there is none."""
    begins = _begins(lines)
    chosen = [number for number, heard in begins.items() if heard] or list(begins)
    return lines[chosen[-1] : _end(lines, begins, chosen[-1])] if chosen else []


def raised_at(lines: Sequence[str]) -> str:
    """`ValueError at /home/me/train.py:31`: by what a script has ended, and where that was raised. Empty where the end of its
    log does not tell it, and where it may lie with something else than the script: the machine, TensorFlow, a library, or us.
    """
    begins = _begins(lines)
    begin = next((number for number in reversed(begins) if begins[number]), None)
    if begin is None:
        return ""
    end = _end(lines, begins, begin)
    while next((one for one in reversed(lines[:begin]) if one), "").startswith(_CHAINED):
        before = [number for number in begins if number < begin]
        if not before:
            return ""  # of what, is not known
        begin = before[-1]
    heads = [number for number, _ in _heads(lines[begin:end])]
    types = [found["type"] for number in heads if (found := _HEAD.match(lines[begin + number])) is not None]
    if not heads or any("." in one or one in OF_THE_MACHINE for one in types):
        return ""
    head = begin + heads[-1]
    if sum(not _BESIDE.match(one) for one in lines[head + 1 : end]) > _MESSAGE_LINES:
        return ""  # the script went on, and has ended otherwise
    frames = [found for one in lines[begin:head] if (found := _PLACE.match(one)) is not None]
    if not frames or _NOT_THE_SCRIPTS.search(frames[-1]["file"]):
        return ""
    return f"{types[-1]} at {frames[-1]['file']}:{frames[-1]['line']}"


def _end(lines: Sequence[str], begins: Mapping[int, bool], begin: int) -> int:
    """Of the traceback that begins there, and what was printed after it: where one begins that nobody heard."""
    end = next((number for number, heard in begins.items() if number > begin and not heard), len(lines))
    while end < len(lines) and _UNHEARD.search(lines[end - 1]):  # the words before it
        end -= 1
    return end


def _begins(lines: Sequence[str]) -> dict[int, bool]:
    """Numbers of the lines with which tracebacks begin; whether it is one that can have ended the process."""
    found: dict[int, bool] = {}
    heard = True
    for number, line in enumerate(lines):
        if line.startswith(_BEGINS):
            said = next((before for before in reversed(lines[:number]) if before), "")
            within = number + 1 < len(lines) and not lines[number + 1]  # TensorFlow's message has one of a function
            if not (said.startswith(_CHAINED) or within):  # else it is as the one before
                heard = not any(map(_UNHEARD.search, lines[max(0, number - _UNHEARD_LINES) : number]))
            found[number] = heard
        elif line.startswith(_LOGGED + _BEGINS):
            found[number] = False
    return found


def _heads(lines: Sequence[str]) -> Iterator[tuple[int, bool]]:
    """Numbers of the lines that end the frames of a traceback; whether it is one that can have ended the process."""
    frames, of_node, heard = False, False, True
    begins = _begins(lines)
    for number, line in enumerate(lines):
        if number in begins:
            frames, of_node, heard = True, False, begins[number]
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
