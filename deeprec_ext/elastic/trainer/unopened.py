"""Why a script that has ended well has trained nothing on the PS, as far as that is known."""

from __future__ import annotations

import sys
from collections.abc import Collection

from deeprec_ext.layout import Facts, facts_of_command

NO_SESSION = "the script ended without opening a session on the parameter servers"
GENERAL = (
    "train with Keras's Model.fit, tf.estimator or tf.compat.v1.train.MonitoredTrainingSession; a loop of eager TensorFlow 2 "
    "with a GradientTape of its own cannot be made elastic: put it into train_step of a keras.Model"
)
LOCAL = "its session was on this machine: pass master=server.target to tf.compat.v1.train.MonitoredTrainingSession"
_TRAINERS = ("chief", "master", "worker")


def why_no_session(made: tuple[str, int] | None, local: bool, given: Collection[str], facts: Facts | None) -> str:
    """What happened and what to do.

    Args:
      made: job and task as which the script has made its `tf.train.Server`.
      local: it has opened a session without a master.
      given: the jobs of the cluster that it was given.
      facts: what its text says; None: nobody could read it.
    """
    server = f"; it made its tf.train.Server as '{made[0]}' {made[1]}" if made is not None else ""
    named = facts.jobs & set(_TRAINERS) if facts is not None else frozenset()
    chief = next((name for name in _TRAINERS if name in given), "worker")
    strange = sorted(named - set(given))
    if strange and chief not in named - {"worker"}:
        layout = "master" if "master" in strange else "chief"
        return f"{NO_SESSION}{server}; it knows '{strange[0]}', a task type that it was not given: run with --layout {layout}"
    if local:
        return f"{NO_SESSION}{server}; {LOCAL}"
    if made is None:
        return f"{NO_SESSION}: {GENERAL}"
    layouts = "workers" if named == {"worker"} else "master or --layout workers"
    return (
        f"{NO_SESSION}{server} and opened none on it: if it compares task types with others than {_listed(given)}, which it "
        f"was given, run with --layout {layouts}"
    )


def text_of_script() -> Facts | None:
    """What the text of this process's script says."""
    try:
        return facts_of_command(("python", sys.argv[0]))
    except (OSError, IndexError):
        return None


def _listed(given: Collection[str]) -> str:
    return " and ".join(f"'{name}'" for name in _TRAINERS if name in given)
