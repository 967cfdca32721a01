"""A process that was told to leave and does not."""

from __future__ import annotations

import subprocess
import sys

from deeprec_ext.tracebacks import error_line

PROGRAM = """
import sys, time
from deeprec_ext.elastic.agent import leaving

leaving.LATE_SECONDS = 0.2

def reads_for_ever():
    time.sleep(1.5)

leaving.leaves("the chief has ended")
if "leaves" in sys.argv:
    leaving.left()
reads_for_ever()
print("ValueError: the script's own word", file=sys.stderr)
"""


def said(*words: str) -> str:
    return subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, timeout=60).stderr


def test_its_log_says_where_its_threads_stand():
    log = said()
    assert "in reads_for_ever" in log
    assert error_line(log.splitlines()) == "ValueError: the script's own word"


def test_of_one_that_has_left_nothing_is_said():
    assert "reads_for_ever" not in said("leaves")
