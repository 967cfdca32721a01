"""Real jobs are measured, and training does not notice: every update counts once, also those of traced steps."""

from __future__ import annotations

import pytest

from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.gazer.series import Series
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.behaviour.jobs import RealJob

pytestmark = pytest.mark.slow

OFTEN = ("--setting", "gazer_seconds=0.2", "--setting", "trace_seconds=0.3", "--setting", "trace_budget=1")
TRAINERS, PS = ("chief-0", "worker-0"), ("ps-0", "ps-1")


def gazed(job: RealJob, role: str) -> dict[str, float]:
    one = job.role(role)
    return dict(one.gazer) if one is not None else {}


def slot_load(job: RealJob, metric: str) -> dict[int, float]:
    status = job.status()
    return {one.slot: one.gazer[metric] for one in (status.slot_load if status else ()) if metric in one.gazer}


def traces(job: RealJob) -> list[tuple[str, pb.Trace]]:
    store = Store(job.directory / "aimaster.db", read_only=True)
    try:
        return [(subject, trace) for _, subject, trace in Series(store).traces()]
    finally:
        store.close()


@pytest.mark.timeout(400)
def test_every_process_is_measured_and_traced_steps_count_once_while_ps_come_and_go(begin):
    job = begin("--ps", "2", "--workers", "1", "--slots", "8", *OFTEN)
    for role in (*TRAINERS, *PS):
        values = job.until(
            lambda role=role: (found := gazed(job, role)).get("cpu_cores") and found, f"figures of {role}"
        )
        assert values["rss_bytes"] > 50 << 20 and values["threads"] > 3 and values["open_files"] > 3
    for role in TRAINERS:
        job.until(lambda role=role: gazed(job, role).get("step_seconds"), f"steps of {role}")
        job.until(lambda role=role: gazed(job, role)["steps_per_second"] > 0, f"a sample with steps of {role}")
    job.until(lambda: sum(slot_load(job, "update_rows_per_second").values()) > 0, "a trace")
    job.until(lambda: sum(slot_load(job, "touched_rows_per_second").values()) > 0, "rows touched, as backups tell")
    for role in PS:
        job.until(lambda role=role: gazed(job, role).get("busy_share"), f"the load of {role}")
        job.until(lambda role=role: gazed(job, role)["rpc_bytes_per_second"] > 0, f"a sample with traffic of {role}")

    # Each view's traces are waited for while the view is in use: only the newest are kept.
    job.wait_scalable()
    assert job.scale(ps=3).outcome == "committed"
    job.until(lambda: traced(job, "chief-0", {"ps-0", "ps-1", "ps-2"}), "a trace of the view with three PS")
    job.kill_aimaster()
    job.until(lambda: gazed(job, "ps-2").get("busy_share"), "the load of the new PS")
    assert job.scale(ps=1).outcome == "committed"
    job.until(lambda: traced(job, "chief-0", {"ps-0"}), "a trace of the view with one PS")
    job.until(
        lambda: list((job.directory / "model" / "gazer").glob("events.out.tfevents.*")), "figures for TensorBoard"
    )
    assert job.finish() == 0, job.output
    assert job.check_counts() > 0
    assert not [event for event in job.events("warning") if "Gazer" in event.get("text", "")]

    found = traces(job)
    assert {subject for subject, _ in found} == set(TRAINERS)
    for subject, trace in found:
        roles = {device.role for device in trace.devices}
        assert subject in roles and roles - {subject} <= {"ps-0", "ps-1", "ps-2"}
        assert sum(use.update_rows for use in trace.slots) > 0
        assert {edge.source for edge in trace.edges} | {edge.target for edge in trace.edges} == roles


def traced(job: RealJob, trainer: str, ps: set[str]) -> bool:
    """Whether a step of the trainer was traced on exactly these PS in the view that is in use."""
    status = job.status()
    return status is not None and any(
        subject == trainer
        and trace.epoch == status.epoch
        and {device.role for device in trace.devices} == {trainer} | ps
        for subject, trace in traces(job)
    )


def test_a_job_that_is_not_to_be_measured_is_not(begin):
    job = begin("--ps", "1", "--workers", "0", "--setting", "gazer_seconds=0")
    job.wait_training("chief-0")
    job.until(lambda: job.steps_of("chief-0") > 300, "steps")
    assert not traces(job) and not gazed(job, "chief-0").get("threads")
    assert job.finish() == 0
    assert job.check_counts() > 300
    assert not (job.directory / "model" / "gazer").exists()
