"""The one line that says why a process failed."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap

import pytest

from deeprec_ext.printable import SurvivedFormatter
from deeprec_ext.tracebacks import error_line, last_traceback, raised_at

PYTHON = """
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
    ^^^^^^
  File "train.py", line 2, in main
    raise ValueError("no such column\\nof twelve")
ValueError: no such column
of twelve
"""

TENSORFLOW = """
step 300
Traceback (most recent call last):
  File "session.py", line 1402, in _do_call
    return fn(*args)
           ^^^^^^^^^
tensorflow.python.framework.errors_impl.InvalidArgumentError: {first}
\t [[{{{{node Mul}}}}]]

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "train.py", line 9, in <module>
    session.run(d)
tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:

Detected at node 'Mul' defined at (most recent call last):
    File "train.py", line 8, in <module>
      c = tf.multiply(a, b)
Node: 'Mul'
{second}
\t [[{{{{node Mul}}}}]]

Errors may have originated from an input operation.
Input Source operations connected to node Mul:
In[0] a (defined at train.py:4)

Original stack trace for 'Mul':
  File "train.py", line 8, in <module>
  File "gen_math_ops.py", line 6764, in mul
"""

SHAPES = "Incompatible shapes: [2] vs. [3]"
ONE = TENSORFLOW.format(first=SHAPES, second=SHAPES)
ROOTS = f"2 root error(s) found.\n  (0) INVALID_ARGUMENT: {SHAPES}\n\t [[{{{{node Mul}}}}]]\n  (1) CANCELLED: no more"
SEVERAL = TENSORFLOW.format(
    first=SHAPES, second=f"{'=' * 21}\nINVALID_ARGUMENT: From /job:ps/replica:0/task:0:\n{SHAPES}\n{'=' * 21}"
)
REMOTE = TENSORFLOW.format(first=SHAPES, second=f"From /job:chief/replica:0/task:0:\n{SHAPES}")
FUNCTION = """
Traceback (most recent call last):
  File "train.py", line 31, in <module>
    session.run(n)
tensorflow.python.framework.errors_impl.UnknownError: Graph execution error:

Detected at node 'PyFunc' defined at (most recent call last):
    File "train.py", line 31, in <module>
Node: 'PyFunc'
RuntimeError: broken generator
Traceback (most recent call last):

  File "script_ops.py", line 270, in __call__
    ret = func(*args)

RuntimeError: broken generator


\t [[{{node PyFunc}}]]
"""
IGNORED = """Exception ignored in: <function Session.__del__>
Traceback (most recent call last):
  File "s.py", line 1, in f
OSError: late
"""
IN_THREAD = IGNORED.replace("ignored in: <function Session.__del__>", "in thread Thread-1:")
CHAINED = """Exception in thread Thread-7 (beat):
Traceback (most recent call last):
  File "t.py", line 3, in beat
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "t.py", line 5, in beat
OSError: late
"""


def logged() -> str:
    """Of a thread of ours, as a trainer logs it."""
    try:
        raise OSError("late")
    except OSError:
        record = logging.LogRecord("deeprec_ext", logging.ERROR, "", 1, "preparing failed", None, sys.exc_info())
    return SurvivedFormatter("%(asctime)s deeprec_ext: %(message)s", "%H:%M:%S").format(record) + "\n"


OF_TASK = IGNORED.replace(
    "Exception ignored in: <function Session.__del__>",
    "ERROR:asyncio:Task exception was never retrieved\nfuture: <Task finished name='Task-1'>",
)
OF_PROCESS = IGNORED.replace("Exception ignored in: <function Session.__del__>", "Process SpawnPoolWorker-1:3:")


@pytest.mark.parametrize(
    "other", [IGNORED, IN_THREAD, CHAINED, logged(), OF_TASK, OF_PROCESS, "Exception in thread T:" + FUNCTION]
)
def test_the_error_is_the_main_threads_whoever_spoke_last(other):
    lines = (other + PYTHON + other).splitlines()
    assert error_line(lines) == "ValueError: no such column"
    shown = last_traceback(lines)
    assert shown[0].startswith("Traceback") and "ValueError: no such column" in shown
    assert not any("late" in line or "broken" in line for line in shown)
    alone = last_traceback(other.splitlines())
    assert alone[-1] == other.splitlines()[-1], "there is no better one"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (PYTHON, "ValueError: no such column"),
        (ONE, f"InvalidArgumentError: {SHAPES}"),
        (TENSORFLOW.format(first=ROOTS, second=ROOTS), f"InvalidArgumentError: {SHAPES}"),
        (REMOTE, f"InvalidArgumentError: {SHAPES}"), (SEVERAL, f"InvalidArgumentError: {SHAPES}"),
        (FUNCTION, "RuntimeError: broken generator"),
        (ONE + IGNORED, f"InvalidArgumentError: {SHAPES}"),
        (PYTHON + IN_THREAD, "ValueError: no such column"),
        (IN_THREAD, "OSError: late"),
        ('Traceback (most recent call last):\n  File "t.py", line 1, in f\nKeyboardInterrupt\n', "KeyboardInterrupt"),
        ('Traceback (most recent call last):\n  File "t.py", line 1, in f\nmy.own.Trouble: x\n', "Trouble: x"),
        ("loading\nno such file: data.csv\n\n", "no such file: data.csv"),
        ("", ""),
        ("\n \n", ""),
    ],
    ids=["python", "tensorflow", "roots", "remote", "several", "py_func", "ignored",
         "after", "thread", "interrupt", "own", "said", "none", "blank"],
)  # fmt: skip
def test_the_line_is_the_error(text, line):
    assert error_line(text.splitlines()) == line


def test_a_kubelet_keeps_only_the_last_two_kilobytes():
    begin = ONE.rindex("Detected at node")
    assert error_line(ONE[begin:].splitlines()) == SHAPES, "the head is cut off"
    frames = ONE[ONE.rindex("  File") :]
    assert error_line(frames.splitlines()) == "an error of TensorFlow, told further up in the log"


def test_a_page_is_one_line():
    assert len(error_line(["Traceback (most recent call last):", "  File x", "E: " + "a" * 5000])) == 300


def test_what_tensorflow_itself_prints(tmp_path):
    script = tmp_path / "fails.py"
    script.write_text(
        textwrap.dedent("""
        import tensorflow as tf
        v1 = tf.compat.v1
        v1.disable_eager_execution()
        a, b = (v1.placeholder(tf.float32, [None]) for _ in range(2))
        c = tf.reduce_sum(tf.multiply(a, b, name="Mul"))
        with v1.train.MonitoredSession() as session:
            session.run(c, {a: [1.0, 2.0], b: [1.0, 2.0, 3.0]})
    """)
    )
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 1
    assert error_line(ended.stderr.splitlines()) == f"InvalidArgumentError: {SHAPES}"


ENDS = logged() + 9 * "12:00:02 deeprec_ext: closed\n"
MINE = """Traceback (most recent call last):
  File "/home/me/train.py", line 3, in <module>
    main()
  File "/home/me/train.py", line 31, in on_epoch_end
    raise {error}
{error}: no such column
"""


def elsewhere(file):
    return MINE.format(error="ValueError").replace('/home/me/train.py", line 31', f'{file}", line 9')


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("12:00:01 deeprec_ext: attached\n" + MINE.format(error="ValueError"), "ValueError at /home/me/train.py:31"),
        (MINE.format(error="Trouble") + "of twelve\n" + ENDS + IN_THREAD, "Trouble at /home/me/train.py:31"),
        (CHAINED.split("\n", 1)[1].replace("OSError", "TypeError"), "TypeError at t.py:5"),
        (MINE.format(error="OSError"), ""), (MINE.format(error="ConnectionResetError"), ""),
        (MINE.format(error="tensorflow.python.framework.errors_impl.UnavailableError"), ""),
        (MINE.format(error="requests.exceptions.ReadTimeout"), ""),
        (MINE.format(error="RuntimeError").replace("me/train.py\", line 31", "me/tensorflow/session.py\", line 31"), ""),
        (elsewhere("/home/me/lib/python3.11/site-packages/pandas/io.py"), ""),
        (elsewhere("/usr/lib/python3.11/threading.py"), ""),
        (MINE.format(error="FileNotFoundError"), ""),
        (ONE.replace("tensorflow.python.framework.errors_impl.Inv", "Inv", 2).replace("Inv", "x.Inv", 1), ""),
        (CHAINED.split("\n", 1)[1].replace("KeyError", "TimeoutError").replace("OSError", "TypeError"), ""),
        (MINE.format(error="ValueError") + "step\n" * 6, ""),
        (IN_THREAD, ""), ("exit\n", ""), ("", ""),
    ],
    ids=["script", "own type", "chained", "machine", "network", "tensorflow", "library", "in tensorflow", "in a library",
         "in python", "a mount", "of a library's",
         "of the machine's", "went on", "thread", "none", "empty"],
)  # fmt: skip
def test_where_a_script_has_failed_by_itself(text, place):
    assert raised_at(text.splitlines()) == place
