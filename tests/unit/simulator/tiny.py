"""Traces so small that a test simulates them many times."""

from __future__ import annotations

from typing import Any

from deeprec_ext.simulator.trace import Trace, parse

LIMITS = {"max_ps": 4, "max_workers": 6, "resizable": True}
SPOT = {"failures_per_hour": 1.0, "reclaims_per_hour": 4.0, "spot_share": 0.5, "slow_share": 0.2}


def values(**more: Any) -> dict[str, Any]:
    """One job, as a trace file has it."""
    return {"name": "a", "examples": 4e6, "limits": dict(LIMITS), **more}


def trace(*jobs: dict[str, Any], **cluster: Any) -> Trace:
    return parse({"version": 1, "cluster": cluster, "jobs": list(jobs) or [values()]})


def mixed(**cluster: Any) -> Trace:
    """Three jobs, one of each objective."""
    return trace(
        values(name="a"),
        values(name="b", arrives=100.0, examples=3e6, objective="cheapest"),
        values(name="c", arrives=200.0, objective="deadline", deadline_seconds=1500.0, hot_share=0.2),
        **{"cores": 200, "memory": "1000GB", **cluster},
    )
