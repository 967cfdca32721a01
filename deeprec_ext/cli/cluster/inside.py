"""The end of a forwarded command that is in the AIMaster's pod: `python -m deeprec_ext.cli.cluster.inside … -- status DIR`.

Nobody tells a process in a container that its caller has gone, so it has a time to live; one that was to go on longer ends with
`AGAIN`, and is started again by a caller who is still there. The AIMaster may just be starting: its directory is waited for.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from deeprec_ext.bounds import whole
from deeprec_ext.cli.main import main as run

AGAIN = 75
"""Exit code, as sysexits.h has it for "try again"."""

APPEAR_SECONDS = 20.0
LAST_SECONDS = 3
"""For what is left to be written, to a caller who may have gone."""


class _Over(SystemExit):
    """Its time is up. Event loops let a SystemExit through."""


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m deeprec_ext.cli.cluster.inside", description=__doc__)
    parser.add_argument("--seconds", type=whole("seconds"), required=True, help="time to live")
    parser.add_argument("--directory", type=Path, required=True, help="run directory, waited for")
    parser.add_argument("--terminal", metavar="COLUMNSxLINES", help="the caller has one of this size")
    parser.add_argument("words", nargs="+", help="the command")
    options = parser.parse_args(words)
    if options.terminal:
        columns, _, lines = options.terminal.partition("x")
        os.environ.update(COLUMNS=columns, LINES=lines, FORCE_COLOR="1", TERM="xterm-256color")
    signal.signal(signal.SIGALRM, _end)
    signal.alarm(options.seconds)
    try:
        deadline = time.monotonic() + APPEAR_SECONDS
        while not (options.directory / "job.json").exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        code = run(options.words)
        sys.stdout.flush()
        return code
    except _Over:
        return AGAIN


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(LAST_SECONDS)
    raise _Over


if __name__ == "__main__":
    sys.exit(main())
