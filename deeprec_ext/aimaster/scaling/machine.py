"""The states of a scaling: one table of allowed edges, and per state its time limit and its way back.

The state is persisted before anything of it is done. COMMIT is the point of no return: every state before it rolls back
on an error, a time limit or the death of the AIMaster, every state from it on goes forward. But for a decision that nobody has
heard of, because the AIMaster died at once (`unheard`): trainers go on with the old view when their lease ends.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from deeprec_ext.aimaster.core.records import Scaling
from deeprec_ext.aimaster.state.lock import Hold, Lock
from deeprec_ext.errors import DeepRecError
from deeprec_ext.options import Settings

ENDED, STOPPED = "the job has ended", "the job is being stopped"
"""Why a scaling was rolled back that the end of its job has cut short."""


class State(enum.Enum):
    STEADY = "STEADY"
    ACQUIRE = "ACQUIRE"
    PREPARE = "PREPARE"
    PAUSE = "PAUSE"
    FINAL_COPY = "FINAL_COPY"
    COMMIT = "COMMIT"
    RELEASE = "RELEASE"


class Recovery(enum.Enum):
    """What a new AIMaster does with a scaling it finds in this state."""

    NOTHING = "nothing"
    RESUME = "start the state again"
    ROLL_BACK = "roll back"
    FORWARD = "go forward"


@dataclass(frozen=True)
class Rule:
    """One state: the setting that limits it, whether it can be undone, what a restarted AIMaster does, what it holds."""

    limit: str | None
    undone: bool  # how: `changes`, `workers`
    recovery: Recovery
    holds: tuple[Hold, ...] = ()


MOVING = (Hold.DECISION, Hold.SLOTS)

RULES: dict[State, Rule] = {
    State.STEADY: Rule(None, False, Recovery.NOTHING),
    State.ACQUIRE: Rule("acquire_limit_seconds", True, Recovery.RESUME, (Hold.DECISION,)),
    State.PREPARE: Rule("prepare_limit_seconds", True, Recovery.ROLL_BACK, MOVING),
    State.PAUSE: Rule("pause_limit_seconds", True, Recovery.ROLL_BACK, MOVING),
    State.FINAL_COPY: Rule("lease_seconds", True, Recovery.ROLL_BACK, MOVING),  # counts from before Pause was sent
    State.COMMIT: Rule(
        "lease_seconds", False, Recovery.FORWARD, MOVING
    ),  # decided: who does not ack is dealt with as failed
    State.RELEASE: Rule("release_limit_seconds", False, Recovery.FORWARD),  # drained pods are killed at the limit
}

EDGES: dict[tuple[State, State], str] = {
    (State.STEADY, State.ACQUIRE): "a request is taken from the queue; the model is live",
    (State.ACQUIRE, State.PREPARE): "all new PS are registered, the slot map is planned",
    (State.ACQUIRE, State.COMMIT): "a worker change: nothing to copy, nobody pauses",
    (State.ACQUIRE, State.STEADY): "refused, rolled back, or nothing to do after all",
    (State.PREPARE, State.PAUSE): "the dirty remainder is small and every session is prepared",
    (State.PREPARE, State.STEADY): "rolled back",
    (State.PAUSE, State.FINAL_COPY): "no run is under way on any trainer",
    (State.PAUSE, State.STEADY): "rolled back: somebody did not reach a step boundary",
    (State.FINAL_COPY, State.COMMIT): "all state is on the targets, and every lease lasts long enough",
    (State.FINAL_COPY, State.STEADY): "rolled back: a copy failed, or the lease ran out",
    (State.COMMIT, State.RELEASE): "the new view is in use",
    (
        State.COMMIT,
        State.FINAL_COPY,
    ): "the AIMaster died at once, or could not write it down: nobody has heard of the decision, and it is taken back",
    (State.RELEASE, State.STEADY): "drained pods are gone",
}


class IllegalEdgeError(DeepRecError):
    """The code tried a transition that is not in the table: a bug, never a user's mistake."""


def check_edge(source: State, target: State) -> str:
    """The comment of the edge; raises IllegalEdgeError when there is none."""
    try:
        return EDGES[source, target]
    except KeyError:
        raise IllegalEdgeError(f"no edge {source.value} -> {target.value} in the table of scaling states") from None


def limit_seconds(state: State, settings: Settings) -> float | None:
    """The time limit of a state under these settings, None for no limit."""
    name = RULES[state].limit
    return None if name is None else float(getattr(settings, name))


def before_commit(state: State) -> bool:
    """Whether a scaling in this state can still be rolled back."""
    return RULES[state].undone


def tell_holds(lock: Lock, scaling: Scaling, *, interrupted: bool = False) -> None:
    """What this scaling holds in its present state, by its name. `interrupted`: nobody has gone on with it yet, and the PS
    count as being changed whatever it is."""
    who, of_ps = holder(scaling), scaling.role == "ps"
    holds = {Hold.SCALING, *RULES[State(scaling.state)].holds, *([Hold.CHANGE] if of_ps or interrupted else [])}
    holds -= set() if of_ps else {Hold.SLOTS}
    lock.take(who, *holds)
    lock.give_back(who, *{Hold.SCALING, Hold.CHANGE, *MOVING} - holds)
    if scaling.joining and Hold.DECISION in holds:
        lock.take(who, Hold.JOINING, names=scaling.joining)
    else:
        lock.give_back(who, Hold.JOINING)


def holder(scaling: Scaling) -> str:
    return f"scaling {scaling.id}"
