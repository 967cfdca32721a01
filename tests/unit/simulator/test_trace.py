"""Trace files: read strictly, with the place of what is wrong; those that are shipped are what generate.py makes."""

from __future__ import annotations

import dataclasses
import re

import pytest
import yaml

from deeprec_ext.autoscaler.observe.observed import Limits, Size
from deeprec_ext.autoscaler.policy.limits import fits
from deeprec_ext.errors import UsageError
from deeprec_ext.simulator import trace as traces
from deeprec_ext.simulator.job_model import JobModel
from deeprec_ext.simulator.trace import SimulatedCluster, Workload, load, parse
from deeprec_ext.simulator.traces import generate, shipped
from tests.unit.simulator.tiny import trace, values

TEXT = """
version: 1
cluster: {cores: 400, memory: 1600GiB, pod_start_seconds: 35}
jobs:
  - {name: ctr-2, arrives: 60, examples: 2e8, objective: cheapest}
  - {name: ctr-1, examples: 1000000,
     model: {compute_core_seconds: 0.15, backups: false},
     start: {ps: 1, workers: 1, ps_cpu: 2, worker_cpu: 2, ps_memory: 8GiB, worker_memory: 4GiB},
     limits: {max_ps: 8, max_workers: 20, resizable: true}}
"""


def test_a_file_is_read_in_the_order_of_arrival(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT)
    found = load(path)
    assert found.name == "mine"
    assert found.cluster == SimulatedCluster(cores=400.0, memory=1600 << 30, pod_start_seconds=35.0)
    assert [job.name for job in found.jobs] == ["ctr-1", "ctr-2"]
    first, second = found.jobs
    assert first.start == Size(1, 1, 2.0, 2.0, 8 << 30, 4 << 30)
    assert first.limits == Limits(1, 8, 0, 20, resizable=True)
    assert (first.model.compute_core_seconds, first.model.backups) == (0.15, False)
    assert second == Workload("ctr-2", 60.0, 2e8, "cheapest")


@pytest.mark.parametrize(
    "job, place, why",
    [
        ({"speed": 3}, "jobs[0]", "unknown field 'speed'; there are name, arrives"),
        ({"model": {"batches": 3}}, "jobs[0].model", "unknown field 'batches'"),
        ({"name": ""}, "jobs[0].name", "a name"),
        ({"name": 101 * "x"}, "jobs[0].name", "a name"),
        ({"examples": 0}, "jobs[0]", "must be more than 0"),
        ({"examples": -1}, "jobs[0].examples", "a number from 0"),
        ({"examples": "many"}, "jobs[0].examples", "a number is wanted"),
        ({"arrives": "8GiB"}, "jobs[0].arrives", "a number is wanted"),
        ({"model": {"ps_bytes": "much"}}, "jobs[0].model.ps_bytes", "no amount of bytes"),
        ({"examples": True}, "jobs[0].examples", "a number"),
        ({"examples": float("nan")}, "jobs[0].examples", "a number"),
        ({"examples": [1]}, "jobs[0].examples", "a number"),
        ({"objective": "quickest"}, "jobs[0].objective", "none of fastest"),
        ({"model": {"batch": 0}}, "jobs[0]", "model.batch"),
        ({"model": {"fixed_seconds": 0, "compute_core_seconds": 0}}, "jobs[0]", "the time of a step"),
        ({"model": {"parallelism": 0}}, "jobs[0].model.parallelism", "from 0.01"),
        ({"model": {"backups": 1}}, "jobs[0].model.backups", "true or false"),
        ({"model": 3}, "jobs[0].model", "a mapping"),
        ({"start": {"ps": 1}}, "jobs[0].start", "workers is missing"),
        ({"start": {"ps": 1.5, "workers": 1}}, "jobs[0].start.ps", "a whole number"),
        ({"start": {"ps": 99, "workers": 1}}, "jobs[0].start", "outside of its limits"),
        ({"limits": {"min_ps": 3, "max_ps": 2}}, "jobs[0].limits", "cannot both be"),
        ({"limits": {"max_ps": 10**7}}, "jobs[0].limits.max_ps", "from 0 to 1000"),
        ({"hot_share": 1.5}, "jobs[0].hot_share", "from 0 to 1"),
        ({"noise": 1e9}, "jobs[0].noise", "from 0 to 2"),
    ],
)
def test_what_is_wrong_with_a_job_is_named(job, place, why):
    with pytest.raises(UsageError) as error:
        trace(values(**job))
    assert str(error.value).startswith(f"{place}: ")
    assert why in str(error.value)


@pytest.mark.parametrize(
    "values_, why",
    [
        (None, "is no trace of version 1 (found 'NoneType')"),
        ([], "found 'list'"),
        ({"jobs": []}, "found None"),
        ({"version": 2}, "found 2"),
        ({"version": 1}, "jobs: a list"),
        ({"version": 1, "jobs": []}, "jobs: a list"),
        ({"version": 1, "jobs": [7]}, "jobs[0]: a mapping is wanted"),
        ({"version": 1, "jobs": [{}]}, "jobs[0]: name is missing"),
        ({"version": 1, "jobs": [values(), values()]}, "two have the same name"),
        ({"version": 1, "jobs": [values()], "nodes": 3}, "unknown field 'nodes'"),
        ({"version": 1, "jobs": [values()], "cluster": {"core": 3}}, "cluster: unknown field 'core'"),
        ({"version": 1, "jobs": [values()], "cluster": {"slow_speed": 0}}, "cluster.slow_speed: a number from 0.01"),
        ({"version": 1, "jobs": [values()], "cluster": {"bytes_per_second": 0}}, "cluster.bytes_per_second"),
    ],
)
def test_what_is_wrong_with_a_trace_is_named(values_, why):
    with pytest.raises(UsageError) as error:
        parse(values_)
    assert why in str(error.value)


@pytest.mark.parametrize("text", ["{", "a: b: c", "\x00", "[" * 3000, "2: 3"])
def test_a_file_that_is_no_trace_is_named(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"mine\.yaml(: is no |, line 1: nested too deep|(, line \d)?: no valid YAML)"):
        load(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="no such trace"):
        load(tmp_path / "none.yaml")
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "odd.yaml").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(UsageError, match=r"odd\.yaml"):
        load(tmp_path / "odd.yaml")
    monkeypatch.setattr(traces, "BYTES_MAX", 2)
    with pytest.raises(UsageError, match="is larger than"):
        load(tmp_path / "odd.yaml")


def test_what_aliases_make_of_a_trace_is_not_quoted(tmp_path):
    path = tmp_path / "mine.yaml"
    lines = [f"- &a{n} [{', '.join([f'*a{n - 1}' if n else 'x'] * 9)}]" for n in range(6)]
    path.write_text("version: 1\njobs:\n" + "\n".join(lines))
    with pytest.raises(UsageError, match="a mapping is wanted") as error:
        load(path)
    assert len(str(error.value)) < 1_000
    path.write_text("version: 1\njobs:\n" + "\n".join(lines).replace("x, x", ", ".join(["x"] * 400_000)))
    with pytest.raises(UsageError, match="with its aliases written out"):
        load(path)


# ---------------------------------------------------------------------------------------------- those shipped

SHIPPED = {"steady": (24, 1), "spot": (12, 2)}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_trace_is_what_its_first_line_makes(name):
    jobs, seed = SHIPPED[name]
    text = shipped(name).read_text()
    assert text.splitlines()[0] == (
        f"# made by traces/generate.py --jobs {jobs} --seed {seed} --kind {name} --roles 0 --hours 1.0"
    )
    made = generate.to_values(generate.make(jobs, seed, name))
    assert made == yaml.safe_load(text)
    assert made == generate.to_values(generate.make(jobs, seed, name)), "the same each time"
    assert made != generate.to_values(generate.make(jobs, seed + 1, name))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_trace_can_be_simulated(name):
    found = load(shipped(name))
    assert found.name == name
    assert len(found.jobs) == SHIPPED[name][0]
    assert len({job.objective for job in found.jobs}) > 1
    for job in found.jobs:
        assert fits(job.start, job.limits)
        assert job.start.cpu <= found.cluster.cores
    assert (found.cluster.failures_per_hour > 0) == (name == "spot")


def test_the_readme_has_every_field_and_a_trace_that_can_be_read():
    text = shipped("README").with_suffix(".md").read_text()
    for kind in (SimulatedCluster, Workload, JobModel, Size, Limits):
        for field in dataclasses.fields(kind):
            assert {f"`{field.name}`", f"`{field.name.removesuffix('_bytes')}`"} & set(re.findall(r"`\w+`", text)), (
                field.name
            )
    block = text[text.index("    version: 1") :].split("\n\n")[0]
    [job] = parse(yaml.safe_load(block)).jobs
    assert job.model.variable_bytes == 12e9


def test_the_trace_of_the_text_can_be_read():
    """The example in the module's docstring."""
    lines = traces.__doc__.split("\n\n")[1]
    [job] = parse(yaml.safe_load(lines)).jobs
    assert job.name == "ctr-1"
