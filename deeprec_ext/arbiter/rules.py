"""What the arbiter goes by: every figure with its unit, its default and why."""

from __future__ import annotations

from dataclasses import dataclass

STRICT, WEIGHT = "strict", "weight"


@dataclass(frozen=True)
class Rules:
    priorities: str = STRICT
    """`strict`: beyond minimums nobody has more than its least while somebody of a higher priority could use it. `weight`:
    what is beyond minimums is shared by weight, whatever the priority; minimums are by priority all the same."""
    minimums_first: bool = True
    """A job that waits takes room for its least also from what jobs of higher priority have beyond theirs (deadlines kept), so
    that everybody trains. False: from jobs of its own priority and lower ones only."""
    stops: bool = True
    """For the least of a job that waits whole jobs of lower priorities are stopped. False: nobody who runs has less than its
    least (a machine's pool, where nothing brings a stopped job back)."""
    settle_seconds: float = 20.0
    """After its last change a job is left alone, but for priorities, minimums and lost room: a change takes some ten seconds.
    While a scaling is under way it is left alone anyway."""
    settle_least_seconds: float = 5.0
    """That it is left alone even where its own changes take less than that, as its AIMaster has measured them."""
    again_seconds: float = 15.0
    """That a job which was stopped waits at least before it starts again."""
    horizon_seconds: float = 900.0
    """How far ahead a gain counts, at most the time that the job has left: jobs come and end every some minutes."""
    change_seconds: float = 5.0
    """That a change takes at least, whatever an AIMaster says: no change is free, so equal jobs do not take turns."""
    pause_seconds: float = 1.0
    """Of training that a change costs at least."""
    gain_least: float = 0.02
    """Of throughput (a share), or a running job is not changed for it: models are no better than that."""
    aging_seconds: float = 600.0
    """That smaller jobs may start before a larger one that waits; then what becomes free is kept for it."""
    silent_seconds: float = 120.0
    """Without a word from its AIMaster a job is given nothing more; it may be finding back to a new node for a minute."""
    take_seconds: float = 180.0
    """After which others may have what a job was allowed and has not begun to take: as long as a pod takes to come."""
    last_seconds: float = 1200.0
    """That a job which left to others what it had not taken is the last to be given more, or it would be kept for it again."""
    busy_seconds: float = 300.0
    """That a scaling under way, as an AIMaster said it, keeps its job as it is."""
    obey_seconds: float = 300.0
    """After which pods beyond an allowance count as staying: a scaling that waits for a lost process takes minutes."""
