"""What ends a job: its last step or its data."""

from __future__ import annotations

import pytest

from deeprec_ext.aimaster.reporting.completion import DATA, STEPS, Progress, progress
from deeprec_ext.proto import deeprec_ext_pb2 as pb


def status(step=0, last=0, data=(), **more):
    return pb.StatusReply(step=step, last_step=last, data=[pb.DataStatus(**one) for one in data], **more)


@pytest.mark.parametrize(
    "given, expected",
    [
        (status(), None),
        (status(step=5), None),
        (status(step=25, last=100), Progress(0.25, STEPS, None)),
        (status(step=25, last=100, steps_per_second=5), Progress(0.25, STEPS, 15.0)),
        (status(step=130, last=100, steps_per_second=5), Progress(1.0, STEPS, 0.0)),
        (status(step=5, data=[{"name": "a"}]), None),
        # a script that names more steps than its data lasts for
        (
            status(step=1700, last=10**9, steps_per_second=20, seconds=120, data=[{"trained": 3, "records": 4}]),
            Progress(0.75, DATA, 40.0),
        ),
        (status(data=[{"trained": 0, "records": 4}], seconds=9), Progress(0.0, DATA, None)),
        (status(step=50, last=100, data=[{"trained": 1, "records": 4}]), Progress(0.5, STEPS, None)),
        # of two that are read together the slower one decides; evaluation ends nothing
        (
            status(seconds=10, data=[{"trained": 2, "records": 4}, {"trained": 1, "records": 4, "purpose": "train"}]),
            Progress(0.25, DATA, 30.0),
        ),
        (status(seconds=10, data=[{"trained": 2, "records": 4, "purpose": "eval"}]), None),
    ],
)
def test_what_is_further_on_ends_the_job(given, expected):
    assert progress(given) == expected
