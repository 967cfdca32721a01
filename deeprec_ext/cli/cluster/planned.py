"""What would be made of a TFJob: for `submit --dry-run`. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from deeprec_ext.aimaster.kubernetes.written import Source, make_factory
from deeprec_ext.cli.cluster.documents import Document
from deeprec_ext.options import Sizes, rows
from deeprec_ext.units import counted, format_bytes
from tfjob.model import names
from tfjob.model.annotations import Elastic
from tfjob.model.kinds import Manifest
from tfjob.pods import replica
from tfjob.pods.aimaster import Options, config_map_reference
from tfjob.pods.aimaster import pod as aimaster_pod
from tfjob.pods.tf_config import VARIABLE
from tfjob.pods.tf_config import tf_config as config_of

OPERATORS_IMAGE = "(image of the operator)"


def planned(one: Document, options: Options) -> dict[str, Any]:
    """For `--json`, and for `lines`. Raises UsageError for a template of which no elastic pod can be made."""
    job, elastic = one.job, one.elastic
    made = list(_elastic_pods(one, options)) if elastic is not None else list(_pods(one))
    return {
        "namespace": job.namespace, "name": job.name, "elastic": elastic is not None, "operator": options.operator,
        "pods": made, "limits": _limits(elastic) if elastic is not None else None,
        "settings": dict(elastic.settings) if elastic is not None else {}, "warnings": list(one.warnings),
        "estimate": job.annotations.get(names.ESTIMATE_ANNOTATION, ""),
    }  # fmt: skip


def _pods(one: Document) -> Iterator[dict[str, Any]]:
    job = one.job
    for type_, spec in job.specs.items():
        for index in range(spec.replicas):
            config = config_of(job, type_, index)
            yield {**_pod(replica.pod(job, type_, index)), VARIABLE: json.loads(config) if config else None}


def _elastic_pods(one: Document, options: Options) -> Iterator[dict[str, Any]]:
    job, elastic = one.job, one.elastic
    assert elastic is not None
    owner = job.owner_reference if options.operator else config_map_reference(job)
    image = options.image or OPERATORS_IMAGE
    aimaster = Options(image, options.package_image, overlay=options.overlay, operator=options.operator)
    yield {**_pod(aimaster_pod(job, elastic, aimaster)), "role": "aimaster"}
    make = make_factory(
        Source(job, elastic, owner, followed=options.operator), elastic.slots, options.package_image or image
    )
    roles = [f"ps-{index}" for index in range(elastic.ps)] + ["chief-0"]
    roles += [f"worker-{index}" for index in range(elastic.workers)] + ["evaluator-0"] * elastic.evaluator
    for role in roles:
        yield {**_pod(make(role, None)[1]), "role": role}


def _pod(pod: Manifest) -> dict[str, Any]:
    container = next(
        (one for one in pod["spec"]["containers"] if one.get("name") == names.CONTAINER), pod["spec"]["containers"][0]
    )
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {"name": pod["metadata"]["name"], "image": container["image"], "requests": asked}


def _limits(elastic: Elastic) -> dict[str, Any]:
    said = {row: getattr(elastic, row.name) for row in rows(Sizes) if row.annotation or row.name in ("ps", "workers")}
    return {row.key.replace("-", "_"): value for row, value in said.items() if value or "max_" not in row.name}


def lines(plan: dict[str, Any]) -> list[str]:
    """For people."""
    job = f"TFJob {plan['namespace']}/{plan['name']}"
    if not plan["elastic"]:
        found = [f"{job}: not elastic, {len(plan['pods'])} pods"]
        found += [f"  {_line(pod)}{_task(pod)}" for pod in plan["pods"]]
        clusters = {
            json.dumps(pod[VARIABLE]["cluster"]) for pod in plan["pods"] if (pod[VARIABLE] or {}).get("cluster")
        }
        return found + [f"  cluster in {VARIABLE}: {text}" for text in sorted(clusters)]
    limits, settings = plan["limits"], plan["settings"]
    ps = f"{limits['ps']} PS ({limits['min_ps']} to {limits['max_ps']})" if limits["slots"] else "in step, without PS"
    found = [
        f"{job}: elastic, {ps}, "
        f"{counted(limits['workers'], 'worker')} beside the chief ({limits['min_workers']} to {limits['max_workers']})"
        + (f", {limits['slots']} slots" if limits["slots"] else "")
        + ("" if plan["operator"] else "; without an operator")
    ]
    found += [f"  {_line(pod)}, {pod['role']}" for pod in plan["pods"]]
    found += [f"  estimate: {plan['estimate']}"] if plan["estimate"] else []
    found += [f"  limits: {text}"] if (text := _ceilings(limits)) else []
    if settings.get("autoscale") == "true":
        found.append(
            f"  autoscale: {settings['objective']}; it starts with these sizes, and changes them within the limits"
        )
    rest = {name: value for name, value in settings.items() if name not in ("autoscale", "objective")}
    return found + [f"  {name}: {value}" for name, value in rest.items()]


def _line(pod: dict[str, Any]) -> str:
    asked = ", ".join(f"{name} {amount}" for name, amount in pod["requests"].items()) or "no requests"
    return f"{pod['name']}: {pod['image']}, {asked}"


def _task(pod: dict[str, Any]) -> str:
    config = pod[VARIABLE]
    return f", task {config['task']['type']} {config['task']['index']}" if config else f", without {VARIABLE}"


def _ceilings(limits: dict[str, Any]) -> str:
    parts = []
    for name, value in limits.items():
        if value and name.endswith(("_cpu", "_memory")):
            amount = f"{value:g} cores" if name.endswith("_cpu") else format_bytes(value)
            parts.append(f"{name.replace('_', '-')} {amount}")
    return ", ".join(parts)
