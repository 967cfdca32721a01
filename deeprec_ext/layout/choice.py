"""Which of three names a script gets for its chief, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deeprec_ext.layout.script import FLAGS, Facts

CHIEF, WORKERS, MASTER = "chief", "workers", "master"
LAYOUTS = (CHIEF, WORKERS, MASTER)
"""`chief` and workers; workers alone, of which worker 0 is the chief; `master` and workers."""

OTHER_NAMES = {"worker0": WORKERS}
"""Names that users may write as well."""

_MEANING = {CHIEF: "chief and workers", WORKERS: "workers only, worker 0 is the chief", MASTER: "master and workers"}


@dataclass(frozen=True)
class Choice:
    """A layout, the reason, and the command with the flags by which the script takes its cluster."""

    layout: str
    reason: str
    command: tuple[str, ...] = ()
    named: bool = False
    """The command names the processes: each gets its own."""

    def __str__(self) -> str:
        return f"{_MEANING[self.layout]} ({self.reason})"


def layout_called(name: str) -> str:
    """One of LAYOUTS by each of its names; anything else stays as it is."""
    return OTHER_NAMES.get(name, name)


def choose(facts: Facts | None, command: Sequence[str] = (), wanted: str = "auto") -> Choice:
    """What TF_CONFIG shall call the processes.

    A script that folds a chief into its workers, as many do, runs in each layout: the first that it knows is taken. The
    text decides only where a name is missing from it that it would have to know.

    Args:
      facts: what the script's text says; None: nobody could read it.
      command: the user's; of a script that takes its cluster from flags, the flags are filled in (`cluster.filled`).
      wanted: one of LAYOUTS, or `auto`.
    """
    by_flags = facts is not None and set(FLAGS) <= facts.flags and not facts.tf_config
    if by_flags:
        command = _with_flags(command)
    named = any("{" + flag + "}" in word for word in command for flag in FLAGS)
    layout, reason = _choose(facts, named, wanted)
    if by_flags:
        reason += f"; each process gets --{', --'.join(FLAGS)} of its own"
    return Choice(layout, reason, tuple(command), named)


def _choose(facts: Facts | None, named: bool, wanted: str) -> tuple[str, str]:
    if wanted != "auto":
        return wanted, f"--layout {wanted}"
    if named:
        return WORKERS, "its command line names the processes, and flags know no chief"
    if facts is None:
        return CHIEF, "the script's text cannot be read from here; --layout says otherwise"
    if facts.estimator:
        return CHIEF, "Estimator wants one called chief"
    if CHIEF in facts.jobs:
        return CHIEF, "the script knows a chief"
    if facts.tf_config and MASTER in facts.jobs:
        return MASTER, "the script reads TF_CONFIG and knows a master, no chief"
    if facts.tf_config and facts.jobs:
        return WORKERS, "the script reads TF_CONFIG and knows neither chief nor master"
    return CHIEF, "the script's text does not say how it calls its chief"


def _with_flags(command: Sequence[str]) -> tuple[str, ...]:
    """With a placeholder for each of the flags, in the place of a value of the user's."""
    words, missing = list(command), list(FLAGS)
    for at, word in enumerate(words):
        name, equals, _ = word.lstrip("-").partition("=")
        if not word.startswith("-") or name not in missing:
            continue
        missing.remove(name)
        if equals:
            words[at] = f"--{name}={{{name}}}"
        elif at + 1 < len(words):
            words[at + 1] = f"{{{name}}}"
    return (*words, *(f"--{name}={{{name}}}" for name in missing))
