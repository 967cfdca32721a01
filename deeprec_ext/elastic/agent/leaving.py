"""A process that is to leave, and does not: its log says where its threads stand."""

from __future__ import annotations

import contextlib
import faulthandler
import logging

LATE_SECONDS = 20.0
"""Below `finish_grace_seconds`, after which a worker that outlives its chief is ended."""

log = logging.getLogger("deeprec_ext")


def leaves(why: str) -> None:
    """It was told to. Where it has not `left` in time its stacks are written to stderr, even where no Python runs."""
    log.info("leaving the job: %s", why)
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # no stderr
        faulthandler.dump_traceback_later(LATE_SECONDS, file=2)


def left() -> None:
    faulthandler.cancel_dump_traceback_later()
