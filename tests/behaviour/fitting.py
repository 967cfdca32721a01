"""The course of `examples/keras_wide_deep`: plain Keras, of either generation, while PS and workers come, go and are killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.behaviour.jobs import ROOT, RealJob

STEPS = 3 * 2500
"""Of all trainers together: each batch is made and trained by one of them."""

EVENTS = (
    "- {at_step: 100, scale: {ps: 2}}\n- {at_step: 100, scale: {workers: 2}}\n- {at_step: 100, kill: ps-1}\n"
    "- {at_step: 100, scale: {workers: 1}}\n- {at_step: 100, scale: {ps: 1}}\n"
)


def fit_through_changes(begin: Callable[..., RealJob], directory: Path) -> RealJob:
    """PS 1 → 2, a worker more, a PS killed and taken over, a worker less, PS 2 → 1: the job, which has ended well.

    Args:
      directory: for the file of events.
    """
    events = directory / "events.yaml"
    events.write_text(EVENTS)
    script = str(ROOT / "examples" / "keras_wide_deep" / "train.py")
    job = begin(
        "--strict", "--ps", "1", "--max-ps", "2", "--workers", "1", "--events", str(events),
        "--setting", "peer_backup_seconds=0.5",
        command=("python", script, "--epochs", "3", "--steps", str(STEPS // 3)),
    )  # fmt: skip
    assert job.end(500) == 0, job.output
    summary = job.summary()
    asked = [one["outcome"] for one in summary["scaling"] if one["kind"] != "replace"]
    assert asked == ["committed"] * 4, summary["scaling"]
    [failure] = summary["failures"]
    assert failure["role"] == "ps" and failure["recovered_by"] == "promotion"
    assert all(role["restarted"] == 0 for name, role in summary["roles"].items() if not name.startswith("ps-"))
    data = summary["data"]
    assert data["trained"] == data["records"] == STEPS and data["lost"] == 0, data
    assert summary["steps"] >= STEPS - summary["failures"][0]["steps_lost"], summary
    assert summary["metrics"]["auc"] > 0.8
    return job
