"""The store of an AIMaster, rebuilt from what the agents know after it was lost in the middle of a job.

`collecting` lets agents register and asks them what they know, `claims` says when that is enough, `state` (the cluster
and who takes part) and `unfinished` (a scaling that was under way) are pure, `writing` makes a store of it. Then the AIMaster
starts as it does after any restart: it finds a store, and resumes or rolls back what it finds half-done.
"""

from deeprec_ext.aimaster.rebuilding.collecting import rebuild_if_lost

__all__ = ["rebuild_if_lost"]
