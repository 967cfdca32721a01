"""How far a job is: by its steps, or by its data where that ends first. Of the AIMaster's status alone."""

from __future__ import annotations

from dataclasses import dataclass

from deeprec_ext.proto import deeprec_ext_pb2 as pb

STEPS, DATA = "steps", "data"


@dataclass(frozen=True)
class Progress:
    """Of a job whose end is known."""

    share: float
    """Done, 0 to 1."""
    by: str
    """STEPS or DATA: what will end it."""
    left_seconds: float | None
    """None when nothing can be said."""


def progress(status: pb.StatusReply) -> Progress | None:
    """What is further on ends the job; scripts that read their data once often name a number of steps they never reach.

    None where there is neither a last step nor a dataset whose size is known.
    """
    steps = min(1.0, status.step / status.last_step) if status.last_step else None
    read = [one.trained / one.records for one in status.data if one.records and one.purpose in ("", "train")]
    data = min(1.0, min(read)) if read else None
    if data is not None and (steps is None or data > steps):
        # records per second need not be examples per second; on the whole the job goes on as it has
        left = status.seconds * (1.0 - data) / data if data > 0 else None
        return Progress(data, DATA, left)
    if steps is None:
        return None
    rate = status.steps_per_second
    return Progress(steps, STEPS, max(0, status.last_step - status.step) / rate if rate > 0 else None)
