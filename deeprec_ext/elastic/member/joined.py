"""The one member of this process, and what happens when its script ends."""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from deeprec_ext import env
from deeprec_ext.allreduce.handing import State
from deeprec_ext.allreduce.kept import Kept
from deeprec_ext.allreduce.ring import Array
from deeprec_ext.allreduce.summing import Summed
from deeprec_ext.elastic.agent.script_end import SCRIPT, UNKNOWN_EXIT_CODE, Guard
from deeprec_ext.elastic.member.member import Member
from deeprec_ext.errors import DeepRecError, UsageError
from deeprec_ext.options import Settings
from deeprec_ext.printable import setup_logging

log = logging.getLogger("deeprec_ext")

OWN = "join"
"""What the state of a script's own is called in backups."""

NO_TF_CONFIG = (
    "the script reads TF_CONFIG, and a job without PS has none: its processes are no cluster of TensorFlow's. Leave out what "
    "it is read for, a server or tf.distribute and its scope: fit makes each step with all workers as it is, and batch_size "
    "is that of all of them together; or train with PS (leave out --strategy)"
)

_lock = threading.Lock()
_member: Member | None = None
_process = os.getpid()
_untold: dict[str, tuple[str, str]] = {}
"""Code -> text and remedy of a notice from before this process has joined."""


def install() -> None:
    """Before the script begins."""
    os.environ.pop("TF_CONFIG", None)  # there is no cluster of TensorFlow servers
    SCRIPT.watch()
    sys.excepthook = functools.partial(_uncaught, sys.excepthook)


def _uncaught(show: Callable[..., None], kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """What has ended the script, as ever; and where we are the reason, what to do."""
    show(kind, error, trace)
    if not (isinstance(error, KeyError) and error.args == ("TF_CONFIG",)):
        return
    files = [(one.filename, one.lineno) for one in traceback.extract_tb(trace)]
    if files and files[-1][0] in (os.__file__, "<frozen os>"):  # else it is a key of something else
        places = [one for one in files if one[0] != os.__file__ and not one[0].startswith("<frozen ")]
        give_up((f"{Path(places[-1][0]).name}, line {places[-1][1]}: " if places else "") + NO_TF_CONFIG)


def notice(code: str, text: str, remedy: str) -> None:
    """Shown at once, each code once; the AIMaster is told as soon as this process has joined."""
    with _lock:
        if _member is None and code not in _untold:
            _untold[code] = text, remedy
            print(f"deeprec-ext: {text}: {remedy}", file=sys.stderr, flush=True)
        if _member is None or os.getpid() != _process:
            return
    _member.notice(code, text, remedy)


class Alone:
    """Outside of a job: a member with nobody else, so that the script runs as it is."""

    size = 1

    def __init__(self) -> None:
        self.step = 0

    def sum(self, arrays: Sequence[Array], weight: float = 1.0, *, last: bool = False, exact: int = 0) -> Summed:
        self.step += 1
        return Summed(
            [np.array(one) if weight else np.zeros_like(one) for one in arrays], weight, self.step, True, True
        )

    def report_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        pass


def join(state: State, may_begin: bool = True) -> Member | Alone:
    """Makes this process a member of its job, once; waits until the job lets it in. Outside of a job it is a member alone.

    Args:
      may_begin: whether the model of this process may be everybody's, where nobody has one yet.
      state: `take` gives the arrays that steps leave behind, `put` sets them: a newcomer gets those of the others.

    Raises UsageError in a job that has PS, DeepRecError where the job does not take it.
    """
    global _member
    with _lock:
        if _member is not None:
            raise UsageError("this process has joined already: a member sums for a whole script")
        if not env.is_elastic_process():
            return Alone()
        if env.role() == "evaluator":
            raise UsageError("an evaluator trains nothing: it has nobody to sum with")
        if not env.sums():
            raise UsageError("this job has PS; to sum instead: deeprec-ext run --strategy allreduce -- python ...")
        env.claim_ownership()
        setup_logging()
        member, begun_with = Member(state, may_begin), None
        try:
            member.start()
        except BaseException:
            member.close()
            raise
        if env.role() == "chief" and not hasattr(state, "called"):  # else who has it looks for what was kept
            begun_with = _kept_of_own_loops()
            member.restored = begun_with.position if begun_with.back(state) else b""
        SCRIPT.running()
        SCRIPT.at_last(functools.partial(_at_last, member, begun_with))
        _member = member
        for code, (text, remedy) in _untold.items():
            member.notice(code, text, remedy)
        return member


def _kept_of_own_loops() -> Kept:
    """A loop of the script's own begins with what `deeprec-ext backup restore` has put into `model` of the run directory."""
    kept = Kept(Path(run) / "model" if (run := env.workdir()) else None)
    kept.of(OWN)
    return kept


def member() -> Member | None:
    return _member


def global_batch(records: int) -> int:
    """This worker's part of the records of a step of all, one at least; all of them where it is alone, or has not joined."""
    return max(1, part(records, *place()))


def place() -> tuple[int, int]:
    """(members of the newest view, this process's place among them)."""
    return _member.place if _member is not None else (1, 0)


def part(records: int, members: int, place: int) -> int:
    """Of one of them; 0 for those behind, where there are more of them than records. Even, where all are and have some: of odd
    batches convolutions of TensorFlow 2.15 on a processor (oneDNN) write beyond their memory."""
    unit = 2 if records % 2 == 0 and records >= 4 * members else 1
    units = records // unit
    return unit * (units // members + (place < units % members))


def parts(records: int, holds: Sequence[int]) -> list[int]:
    """Of members who have so many records each: of those that have fewer than their part all of them, and of the others so much
    more. What they have together may be less than `records`."""
    rest, found = records, [0] * len(holds)
    for behind, one in enumerate(sorted(range(len(holds)), key=lambda one: (holds[one], one))):
        mine = min(part(rest, len(holds) - behind, 0), holds[one])
        if records % 2 == 0 and mine < holds[one] and mine > 1:
            mine -= mine % 2  # as in `part`
        found[one] = mine
        rest -= mine
    return found


def give_up(reason: str) -> NoReturn:
    """What would train here would do so by itself: the AIMaster is told, and the process ends. A process that was forked from
    the script's ends alone: the member is its parent's."""
    try:
        one = (_member or join(_Nothing())) if os.getpid() == _process else None
        if isinstance(one, Member):
            one.refused(reason)
            one.finish(2)
    except DeepRecError as error:
        log.error("%s", error)
    print(f"deeprec-ext: {reason}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(2)


class _Nothing:
    """The state of a script that has none to share."""

    def take(self) -> list[Array]:
        return []

    def put(self, arrays: Sequence[Array]) -> None:
        pass


def _at_last(one: Member, begun_with: Kept | None) -> None:
    """The script has ended. From here on nobody waits for long.

    Args:
      begun_with: what the chief has looked for when it joined. Until its script has come to its end that stays: who dies first
        begins with it again, and a run that is resumed does.
    """
    code = SCRIPT.exit_code
    if begun_with is not None and code == 0 and not one.leaving.is_set():
        begun_with.remove()
    limit = Settings.end_limit_seconds
    Guard(
        limit, UNKNOWN_EXIT_CODE if code is None else code,
        f"deeprec-ext: this process is ended: it lives {limit:g} s after the end of its script",
    )  # fmt: skip
    one.finish(code, SCRIPT.error)
