"""What the operator makes for an elastic job: the AIMaster's pod and service, its rights, certificates and protection.

The AIMaster then makes the other pods of the job itself. Everything is owned by the TFJob and goes with it; `manifests`
returns all of it. Pure: the certificates are handed in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from deeprec_ext import env
from deeprec_ext.options import Sizes, rows
from deeprec_ext.options import specification as written
from tfjob.model import names
from tfjob.model.annotations import Elastic
from tfjob.model.kinds import Manifest
from tfjob.model.quantities import parse_quantity
from tfjob.model.spec import InvalidError, TFJob
from tfjob.pods import certificates, protection, rights
from tfjob.pods.merging import merged
from tfjob.pods.restricted import container_context, pod_context

STATE = "/var/lib/deeprec-ext"

HEALTH_SECONDS, HEALTH_FAILURES = 20, 6
"""An event loop that has not answered for two minutes hangs. Sooner would hurt more than it heals: training goes on without
an AIMaster for a while, and a web server that fails is started again by the AIMaster itself."""


def _usual_resources() -> Manifest:
    """A job of 1 000 agents takes a quarter of a core and 200 MB. No limit of CPU: throttled, it would miss heartbeats."""
    return {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}


@dataclass(frozen=True)
class Options:
    """The same for all jobs of an operator.

    Args:
        image: of the AIMaster, without TensorFlow.
        package_image: of the init container in the job's pods; empty: `image`.
        resources: of the AIMaster's container.
        overlay: laid over the AIMaster's pod: node selectors, pull secrets, mounts.
        budgets: the server has `policy/v1`, and PS get a PodDisruptionBudget.
        network_policies: restrict who reaches the job's ports.
        operator: False: the job is written in a ConfigMap, which owns everything and has the uid of `TFJob.uid`.
        beside_kubeflow: its operator makes the pods of jobs, the AIMaster changes `replicas`.
        history: HOST:PORT of the history service; empty: the cluster has none.
        scheduler: the gang scheduler, to which the pods that an AIMaster makes belong, too; empty: none.
    """

    image: str
    package_image: str = ""
    resources: Manifest = field(default_factory=_usual_resources)
    overlay: Manifest = field(default_factory=dict)
    budgets: bool = True
    network_policies: bool = True
    operator: bool = True
    beside_kubeflow: bool = False
    history: str = ""
    scheduler: str = ""


def manifests(job: TFJob, elastic: Elastic, files: Mapping[str, bytes], options: Options) -> list[Manifest]:
    """All, in the order in which they are to be created. Raises InvalidError for a template that asks for what is no quantity.

    Args:
        files: from `certificates.issue`; only for a job whose Secret is not there yet.
    """
    name = names.aimaster_name(job.name)
    found = [
        rights.service_account(_metadata(job, name)),
        rights.role(job.name, _metadata(job, name), operator=options.operator, makes_pods=not options.beside_kubeflow),
        rights.role_binding(job.name, job.namespace, _metadata(job, name)),
        secret(job, files),
    ]
    if options.network_policies:
        found += [
            protection.training_policy(job.name, _metadata(job, job.name), _open_ports(job), elastic.reachable_from),
            protection.aimaster_policy(job.name, _metadata(job, name), labels(job.name), elastic.reachable_from),
        ]
    if options.budgets and elastic.ps:
        found.append(budget(job, elastic.ps))
    found += [service(job), pod(job, elastic, options)]
    if not options.operator:
        for one in found:
            one["metadata"]["ownerReferences"] = [config_map_reference(job)]
    return found


def config_map(job: TFJob, manifest: Manifest) -> Manifest:
    """What stands for the TFJob where nobody may install its CRD; deleting it deletes the job."""
    metadata = {"name": names.config_map_name(job.name), "namespace": job.namespace, "labels": labels(job.name)}
    text = json.dumps(manifest, indent=1, sort_keys=True)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {names.CONFIG_MAP_KEY: text}}


def config_map_reference(job: TFJob) -> Manifest:
    """To the owner of such a job; `job.uid` is the ConfigMap's."""
    return {
        "apiVersion": "v1", "kind": "ConfigMap", "name": names.config_map_name(job.name), "uid": job.uid, "controller": True,
        "blockOwnerDeletion": True,
    }  # fmt: skip


def labels(job: str) -> dict[str, str]:
    """Found with the job's other pods by its name; no replica type, so that no controller takes the AIMaster for a replica."""
    return {"app.kubernetes.io/name": "deeprec-ext", "app.kubernetes.io/component": "aimaster", names.JOB_LABEL: job}


def secret(job: TFJob, files: Mapping[str, bytes]) -> Manifest:
    """With the job's certificates and their authority; pods mount single files of it."""
    return {
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": _metadata(job, certificates.secret_name(job.name)), "data": certificates.secret_data(files),
    }  # fmt: skip


def budget(job: TFJob, ps: int) -> Manifest:
    """For so many PS; the operator changes it with their number."""
    return protection.disruption_budget(job.name, _metadata(job, f"{job.name}-ps"), ps)


def service(job: TFJob) -> Manifest:
    """One address for all AIMasters of the job, one after the other; not headless, so that nobody remembers the last one's.

    Agents get through as soon as it listens: an AIMaster that waits for their word must not itself be waited for.
    """
    ports = (("grpc", names.AIMASTER_PORT), ("http", names.AIMASTER_HTTP_PORT))
    return {
        "apiVersion": "v1", "kind": "Service", "metadata": _metadata(job, names.aimaster_name(job.name)),
        "spec": {
            "selector": labels(job.name), "publishNotReadyAddresses": True,
            "ports": [{"name": name, "port": port, "targetPort": name, "protocol": "TCP"} for name, port in ports],
        },
    }  # fmt: skip


def pod(job: TFJob, elastic: Elastic, options: Options) -> Manifest:
    """Restarted in place when it dies; what is in the ConfigMap or on the claim outlives the pod as well."""
    name = names.aimaster_name(job.name)
    claim = elastic.state_volume
    metadata = _metadata(job, name)
    # Istio's proxy would end the agents' TLS, by which they know each other.
    metadata["annotations"] = {"sidecar.istio.io/inject": "false"}
    made = {
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {
            "serviceAccountName": name, "automountServiceAccountToken": True, "enableServiceLinks": False,
            "restartPolicy": "OnFailure", "securityContext": pod_context(), "containers": [_container(job, elastic, options)],
            "volumes": [
                certificates.volume(job.name, "aimaster", group_readable=True),
                {"name": "state", **({"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}})},
                {"name": "tmp", "emptyDir": {}},
                *([certificates.history_volume(job.name)] if _asks_history(elastic, options) else []),
            ],
        },
    }  # fmt: skip
    return merged(made, options.overlay)


def _container(job: TFJob, elastic: Elastic, options: Options) -> Manifest:
    return {
        "name": names.AIMASTER_CONTAINER, "image": options.image, "command": command(job, elastic, options),
        "env": [{"name": env.PREFIX + env.SPECIFICATION, "value": specification(job, elastic, options)}],
        "ports": [
            {"name": "grpc", "containerPort": names.AIMASTER_PORT, "protocol": "TCP"},
            {"name": "http", "containerPort": names.AIMASTER_HTTP_PORT, "protocol": "TCP"},
        ],
        "readinessProbe": {"tcpSocket": {"port": "grpc"}, "periodSeconds": 5},  # its health service asks for certificates
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "http"}, "initialDelaySeconds": HEALTH_SECONDS,
            "periodSeconds": HEALTH_SECONDS, "timeoutSeconds": 5, "failureThreshold": HEALTH_FAILURES,
        },
        "resources": options.resources,
        "securityContext": container_context(),
        "volumeMounts": [
            certificates.mount(),
            {"name": "state", "mountPath": STATE},
            {"name": "tmp", "mountPath": "/tmp"},  # nosec B108 # a volume of the pod's own; SQLite sorts there
            *([certificates.history_mount()] if _asks_history(elastic, options) else []),
        ],
    }  # fmt: skip


def _asks_history(elastic: Elastic, options: Options) -> bool:
    return elastic.history and bool(options.history)


def command(job: TFJob, elastic: Elastic, options: Options) -> list[str]:
    """What concerns the AIMaster's process; what the job is, is its specification."""
    history = ["--history", options.history, "--history-certs", certificates.HISTORY_DIRECTORY]
    return [
        "python", "-m", "deeprec_ext.aimaster", "--tfjob", f"{job.namespace}/{job.name}",
        "--listen", f"[::]:{names.AIMASTER_PORT}", "--http", f"[::]:{names.AIMASTER_HTTP_PORT}",
        # Of this very job: another one of the same name may have left its files on the claim.
        "--workdir", f"{STATE}/{job.name}-{job.uid[:8]}", "--certs", certificates.DIRECTORY,
        *(history if _asks_history(elastic, options) else []),
    ]  # fmt: skip


def specification(job: TFJob, elastic: Elastic, options: Options) -> str:
    """What the AIMaster is told of the job. Raises InvalidError for a template that asks for what is no quantity."""
    sizes = {row.name: getattr(elastic, row.name) for row in rows(Sizes)}
    sizes.update({**_requests(job, names.PS, "ps"), **_requests(job, names.WORKER, "worker")})
    if options.beside_kubeflow:  # a pod keeps the size that its template says
        sizes.update({f"max_{role}_{what}": 0 for role in ("ps", "worker") for what in ("cpu", "memory_bytes")})
    return written(
        elastic.settings, **sizes, name=f"{job.namespace}.{job.name}", own_pods=not options.beside_kubeflow,
        operator=options.operator, gang_scheduler=options.scheduler, first_ps=elastic.first_ps,
        first_workers=elastic.first_workers, package_image=options.package_image or options.image,
    )  # fmt: skip


def _requests(job: TFJob, type_: str, role: str) -> dict[str, float]:
    """What the template of the role asks for: cores, bytes. Without a request the limit is one. Raises InvalidError."""
    spec = job.specs.get(type_)
    if spec is None:
        return {}
    container = next(one for one in spec.template["spec"]["containers"] if one.get("name") == names.CONTAINER)
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    try:
        cpu, memory = parse_quantity(asked.get("cpu", 0)), parse_quantity(asked.get("memory", 0))
    except ValueError as error:
        raise InvalidError(f"{spec.path}.template.spec.containers[{names.CONTAINER}].resources", str(error)) from None
    return {f"{role}_cpu": float(cpu), f"{role}_memory_bytes": int(memory)}


def _open_ports(job: TFJob) -> list[int]:
    """What the user's containers serve beside TensorFlow's port."""
    ports = [port for spec in job.specs.values() for port in spec.ports]
    return [int(port["containerPort"]) for port in ports if port["name"] != names.PORT_NAME]


def _metadata(job: TFJob, name: str) -> Manifest:
    return {
        "name": name, "namespace": job.namespace, "labels": labels(job.name), "ownerReferences": [job.owner_reference],
    }  # fmt: skip
