"""`submit --estimate`: what a TFJob will need, estimated here before it is made, and written into its manifest.

Its script runs on this machine, with what it finds here, until it has declared its model; nothing is trained. What a template
names stays as it is written, replicas stay within the annotations' limits, and where no job like it is known they are no fewer
than written. How fast the cluster's machines are nobody knows here: jobs that ran on this one count as jobs of another.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import math
import shlex
from pathlib import Path

from deeprec_ext.aimaster.kubernetes.kept import Size as Amounts
from deeprec_ext.aimaster.kubernetes.making import requesting
from deeprec_ext.aimaster.kubernetes.remembering import command_of, script_of
from deeprec_ext.autoscaler.history.estimates import PS_MEMORY, WORKER_MEMORY, lines, with_reserve
from deeprec_ext.autoscaler.history.start import at_least, describe
from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.cli.cluster.documents import Document, check
from deeprec_ext.cli.estimate import LIMIT, Estimate, estimated, plan_of, tell_waiting
from deeprec_ext.errors import UsageError
from deeprec_ext.launch.estimating import declared
from deeprec_ext.launch.plan import RunPlan
from deeprec_ext.launch.resources import Ceilings, Requests, Resources
from deeprec_ext.options import JobSpec, read_specification
from deeprec_ext.units import parse_duration
from tfjob.model import names
from tfjob.model.annotations import TEXT_MAX
from tfjob.model.kinds import Manifest
from tfjob.pods.aimaster import Options, specification

NODES = "nodes of a cluster"
"""A kind of machine on which no job has run: nobody knows on which node this one will, so all others were elsewhere."""

ROUNDED_BYTES = 16 << 20


def with_estimate(one: Document, script: str | None, history: str | None, certificates: Path | None) -> Document:
    """The same job, with what was estimated of it. Raises UsageError: it cannot be, and why.

    Args:
        script: the command as it is here; None: as the TFJob has it.
        history, certificates: as `estimate` takes them.
    """
    plan = _plan(one, script, history, certificates)
    declaration = asyncio.run(declared(plan, parse_duration(LIMIT), tell_waiting))
    found = estimated(plan, declaration, NODES)
    return check(written(one, found, plan.ceilings), None, one.job.namespace)


def _plan(one: Document, script: str | None, history: str | None, certificates: Path | None) -> RunPlan:
    if one.elastic is None:
        raise UsageError("it is not elastic")
    if not one.elastic.slots:
        raise UsageError(
            "it has no PS (strategy allreduce) and declares no model: with the annotations autoscale and history it begins by "
            "jobs of its script"
        )
    words = shlex.split(script) if script else command_of(one.job)
    if not words:
        raise UsageError("its chief runs what its image says; say how it is run here: --script 'python train.py'")
    spec = read_specification(specification(one.job, one.elastic, Options("image")))
    most_workers = spec.max_workers if names.WORKER in one.job.specs or not one.job.chief else 0
    flags = [
        "--autoscale", "--slots", str(spec.slots), "--min-ps", str(spec.min_ps), "--max-ps", str(spec.ps_limit),
        "--min-workers", str(spec.min_workers), "--max-workers", str(most_workers),
    ]  # fmt: skip
    flags += ["--layout", one.elastic.layout] if one.elastic.layout else []
    flags += ["--history", history] if history is not None else []
    flags += ["--history-certs", str(certificates)] if certificates is not None else []
    return dataclasses.replace(
        plan_of(flags, words), script=script_of(one.job), settings=one.elastic.settings, requests=_requests(spec),
        ceilings=_ceilings(spec),
    )  # fmt: skip


def _requests(spec: JobSpec) -> Requests:
    """As the templates say."""
    return Requests(Resources(spec.ps_cpu, spec.ps_memory_bytes), Resources(spec.worker_cpu, spec.worker_memory_bytes))


def _ceilings(spec: JobSpec) -> Ceilings:
    """As the annotations say."""
    return Ceilings(
        Resources(spec.max_ps_cpu, spec.max_ps_memory_bytes),
        Resources(spec.max_worker_cpu, spec.max_worker_memory_bytes),
        Resources(spec.total_cpu, spec.total_memory_bytes),
    )


def written(one: Document, found: Estimate, ceilings: Ceilings) -> Manifest:
    """The job's manifest with these sizes, requests where its templates name none, and on what ground, as an annotation."""
    assert one.elastic is not None
    start = at_least(found.start, Size(one.elastic.ps, one.elastic.workers))
    manifest, size, asked = copy.deepcopy(one.manifest), start.size, requests_of(found, ceilings)
    ps, trainer = Amounts(asked.ps_cpu, asked.ps_memory_bytes), Amounts(asked.worker_cpu, asked.worker_memory_bytes)
    counts = {names.PS: size.ps, names.WORKER: size.workers + (not one.job.chief)}
    for key, spec in manifest["spec"]["tfReplicaSpecs"].items():
        type_ = next(name for name in names.TYPES if name.lower() == key.lower())
        if type_ in counts:
            spec["replicas"] = counts[type_]
        if type_ != names.EVALUATOR:
            amounts = (ps if type_ == names.PS else trainer).requests
            spec["template"] = requesting(spec["template"], amounts or {})
    text = "; ".join([describe(start), *lines(found.estimates)])
    annotations = {**(manifest["metadata"].get("annotations") or {}), names.ESTIMATE_ANNOTATION: text[:TEXT_MAX]}
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}}


def requests_of(found: Estimate, ceilings: Ceilings) -> Size:
    """Of each pod: as jobs like it used; memory else as much as is rarely exceeded, or may be had. 0: nobody knows."""
    asked = found.start.requests or Size(1, 0)

    def memory(name: str, most: int) -> int:
        figure = found.estimates[name]
        high = math.ceil(with_reserve(figure) / ROUNDED_BYTES) * ROUNDED_BYTES if figure is not None else 0
        return min(high, most) if most else high

    return dataclasses.replace(
        asked,
        ps_memory_bytes=asked.ps_memory_bytes or memory(PS_MEMORY, ceilings.ps.memory_bytes),
        worker_memory_bytes=asked.worker_memory_bytes or memory(WORKER_MEMORY, ceilings.worker.memory_bytes),
    )
