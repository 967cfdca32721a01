"""Which exit code a process is going to have, known while it still runs; and that it does not outlive its script."""

from __future__ import annotations

import subprocess
import sys

import pytest

WATCHED = """
import atexit, ctypes, os, sys, threading, time
from deeprec_ext.elastic.agent.script_end import SCRIPT, Guard, skip_static_destructors
pause = ctypes.CDLL(None).pause
SCRIPT.watch()
SCRIPT.running()
SCRIPT.at_last(lambda: print("code", SCRIPT.exit_code, flush=True))
"""

HANGS = """
class Hangs:
    def __del__(self, pause=pause):
        pause()

hangs = Hangs()
SCRIPT.at_last(lambda: Guard(0.3, 7, "it is ended, 100 % sure"))
"""

CAUGHT = "try:\n    sys.exit(3)\nexcept SystemExit as error:\n    assert error.code == 3 and repr(error) == 'SystemExit(3)'\n"


def run(script: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", WATCHED + script], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("script", "code", "known"),
    [
        ("", 0, "0"),
        ("sys.exit()", 0, "0"),
        ("sys.exit(3)", 3, "3"),
        ("sys.exit('no')", 1, "1"),
        ("def leave():\n    sys.exit(5)\nleave()", 5, "5"),
        ("raise SystemExit(3)", 3, "None"),
        ("1 / 0", 1, "1"),
        ("raise KeyboardInterrupt", -2, "130"),
        (CAUGHT, 0, "0"),
        (CAUGHT + "1 / 0", 1, "1"),
        ("threading.Thread(target=sys.exit, args=(4,)).start()", 0, "0"),
        ("threading.Thread(target=lambda: 1 / 0).start()", 0, "0"),
    ],
)
def test_the_exit_code_is_known_when_the_script_has_ended(script: str, code: int, known: str) -> None:
    returned, said, _ = run(script)
    assert (returned, said) == (code, f"code {known}\n")


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"), ("sys.exit(3)", ""), ("raise SystemExit('no')", ""), ("", ""),
        ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass", ""),
    ],
)  # fmt: skip
def test_the_error_that_has_ended_it_is_known(script: str, error: str) -> None:
    assert run("SCRIPT.at_last(lambda: print(SCRIPT.error, flush=True))\n" + script)[1] == f"{error}\n"


def test_the_script_has_ended_after_its_threads_and_its_own_handlers() -> None:
    code, said, _ = run(
        "atexit.register(lambda: print('handler'))\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\nprint('last line')"
    )
    assert (code, said.split("\n")) == (0, ["last line", "thread", "handler", "code 0", ""])


def test_a_child_that_the_script_has_forked_ends_for_itself() -> None:
    code, said, _ = run("if not (child := os.fork()):\n    sys.exit(9)\nassert os.waitpid(child, 0)[1] == 9 << 8")
    assert (code, said) == (0, "code 0\n")


def test_a_process_that_hangs_in_a_finaliser_is_ended_with_the_given_code() -> None:
    code, _, said = run(HANGS)
    assert code == 7
    assert "it is ended, 100 % sure" in said


def test_a_guard_that_is_taken_back_ends_nobody() -> None:
    code, said, _ = run("guard = Guard(0.2, 7)\nassert guard.armed\nguard.cancel()\ntime.sleep(0.5)")
    assert (code, said) == (0, "code 0\n")


def test_without_static_destructors_the_exit_code_stays_and_what_was_printed_is_there() -> None:
    code, said, _ = run("SCRIPT.at_last(skip_static_destructors)\nprint('printed')\nsys.exit(9)")
    assert (code, said) == (9, "printed\n")
