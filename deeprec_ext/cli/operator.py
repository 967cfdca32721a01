"""`deeprec-ext operator`: the TFJob operator, in a pod or on a laptop with a kubeconfig."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deeprec_ext import yamlfiles
from deeprec_ext.arbiter.rules import STRICT, WEIGHT, Rules
from deeprec_ext.bounds import whole
from deeprec_ext.errors import UsageError
from deeprec_ext.history.client import SCHEME, service_at

if TYPE_CHECKING:
    from tfjob.operator.arbiter.acting import ArbiterOptions

RULES = (STRICT, WEIGHT)
NAMESPACES_MAX = 32
"""Each costs up to eleven watches, of a connection each."""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "operator", help="run the TFJob operator (Kubernetes)",
        description="Reconciles TFJobs (kubeflow.org/v1): pods, services, conditions; and gives jobs with the annotation "
        'aimaster.deeprec.io/enabled: "true" their AIMaster. The cluster is the pod\'s own, else what KUBECONFIG names.',
    )  # fmt: skip
    parser.add_argument(
        "--mode", choices=("standalone", "beside-kubeflow"), default="standalone",
        help="standalone: the only controller of TFJobs; beside-kubeflow: Kubeflow's training operator is there as well",
    )  # fmt: skip
    parser.add_argument(
        "--namespace", action="append", default=[], metavar="NAME", help="only TFJobs of this namespace, with rights there and "
        f"nowhere else; may be repeated, up to {NAMESPACES_MAX} (default: all, with rights in the whole cluster)",
    )  # fmt: skip
    parser.add_argument("--gang-scheduler", default="", metavar="NAME", help="make PodGroups: volcano, or a scheduler "
                        "with the coscheduling plugin of scheduler-plugins")  # fmt: skip
    parser.add_argument("--image", default="", help="of the AIMaster's pods (default: the operator's own)")
    parser.add_argument("--aimaster-overlay", metavar="FILE", type=Path, help="YAML that is laid over the AIMaster's pods: "
                        "node selectors, pull secrets, mounts")  # fmt: skip
    parser.add_argument("--package-image", default="", help="brings the package into users' pods (default: --image)")
    parser.add_argument("--history", default="", metavar="HOST:PORT", help="where the history of jobs is served, for TFJobs "
                        'with the annotation history: "true" (default: there is none)')  # fmt: skip
    _add_arbiter(parser)
    parser.add_argument("--metrics-port", type=whole("port"), default=8080, help="/metrics, /healthz, /readyz; 0: none")
    parser.add_argument(
        "--webhook-port", type=whole("port"), default=9443, help="beside-kubeflow: where new TFJobs are looked at"
    )
    parser.add_argument("--webhook-url", default="", metavar="URL", help="by which the API server reaches that port, for an "
                        "operator outside of the cluster: https://HOST:PORT/tfjobs (default: by the service)")  # fmt: skip
    parser.add_argument(
        "--lease-namespace",
        default="",
        help="where the operators elect a leader, and the webhook's certificate is (default: their own; outside of a cluster "
        "the first --namespace)",
    )
    parser.add_argument("--et", action="store_true", help="the ET operator's kinds as well: TrainingJobs are run as TFJobs, "
                        "ScaleOuts and ScaleIns scale elastic TFJobs (kai.alibabacloud.com/v1alpha1)")  # fmt: skip
    parser.add_argument("--no-leader-election", action="store_true", help="act at once; for a single operator")


def _add_arbiter(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("arbiter", "elastic jobs share the cluster by their priorities")
    group.add_argument("--arbiter", action="store_true", help="decide how many pods each elastic job may have")
    group.add_argument(
        "--arbiter-rules", choices=RULES, default=None, help="strict (default): of what is above everybody's least nobody has "
        "any while a job of higher priority could use it; weight: it is shared by weight, whatever the priority",
    )  # fmt: skip
    group.add_argument("--arbiter-dry-run", action="store_true", help="decide and tell, and allow nothing")
    group.add_argument(
        "--arbiter-record", metavar="FILE", type=Path, help="what was decided from what, a line of JSON each"
    )
    group.add_argument("--price-label", metavar="LABEL", default=None, help="of nodes: what one costs for an hour "
                       "(default: deeprec.io/price-per-hour)")  # fmt: skip
    group.add_argument("--spot-label", metavar="LABEL=VALUE", action="append", default=[], help="of nodes that their provider "
                       "may take back, beside those of karpenter, AWS, Google and Azure; may be repeated")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    beside = arguments.mode == "beside-kubeflow"
    check(arguments, beside)
    from tfjob.operator.main import OperatorOptions, start
    from tfjob.pods.aimaster import Options

    return start(
        OperatorOptions(
            namespaces=namespaces_of(arguments.namespace) or (None,), lease_namespace=arguments.lease_namespace,
            scheduler=arguments.gang_scheduler,
            aimaster=Options(arguments.image, arguments.package_image, overlay=read_overlay(arguments.aimaster_overlay),
                             scheduler=arguments.gang_scheduler, beside_kubeflow=beside, history=arguments.history),
            metrics_port=arguments.metrics_port or None,
            leader_election=not arguments.no_leader_election,
            webhook_port=arguments.webhook_port if beside else None, webhook_url=arguments.webhook_url,
            et=arguments.et,
            arbiter=arbiter_of(arguments),
        )
    )  # fmt: skip


def arbiter_of(arguments: argparse.Namespace) -> ArbiterOptions | None:
    """Raises UsageError."""
    spot = tuple(_label(text) for text in arguments.spot_label)
    if not arguments.arbiter and not arguments.arbiter_dry_run:
        for flag in ("arbiter_rules", "arbiter_record", "price_label", "spot_label"):
            if getattr(arguments, flag):
                raise UsageError(f"--{flag.replace('_', '-')}: is of use with --arbiter only")
        return None
    from tfjob.arbiting.observing import Labels
    from tfjob.arbiting.seen import PRICE_LABEL
    from tfjob.operator.arbiter.acting import ArbiterOptions

    return ArbiterOptions(
        Rules(priorities=arguments.arbiter_rules or STRICT), arguments.arbiter_dry_run,
        Labels(arguments.price_label or PRICE_LABEL, spot), arguments.arbiter_record,
    )  # fmt: skip


def _label(text: str) -> tuple[str, str]:
    """Raises UsageError."""
    label, equals, value = text.partition("=")
    if not (label and equals):
        raise UsageError(f"--spot-label {text}: write LABEL=VALUE, as nodes have it")
    return label, value


def namespaces_of(given: Sequence[str]) -> tuple[str, ...]:
    """Each once. Raises UsageError."""
    from tfjob.model.names import is_dns_label

    found = tuple(dict.fromkeys(given))
    for one in found:
        if not is_dns_label(one):
            raise UsageError(f"--namespace {one!r}: is no name of a namespace; leave it out for all of the cluster")
    if len(found) > NAMESPACES_MAX:
        raise UsageError(
            f"--namespace: {len(found)} namespaces, of which each is watched by itself; give at most {NAMESPACES_MAX}, or "
            "rights in the whole cluster"
        )
    return found


def check(arguments: argparse.Namespace, beside: bool) -> None:
    """Raises UsageError."""
    namespaces_of(arguments.namespace)
    if arguments.history:
        service_at(f"{SCHEME}{arguments.history}", Path())
    if arguments.webhook_url and not beside:
        raise UsageError(f"--webhook-url {arguments.webhook_url}: is of use with --mode beside-kubeflow only")
    if arguments.webhook_url and not arguments.webhook_url.startswith("https://"):
        raise UsageError(f"--webhook-url {arguments.webhook_url}: the API server wants https://HOST:PORT/tfjobs")
    if beside and arguments.gang_scheduler:
        raise UsageError(
            f"--gang-scheduler {arguments.gang_scheduler}: give it to Kubeflow's operator, which makes the pods"
        )


def read_overlay(path: Path | None) -> dict[str, Any]:
    """Raises UsageError."""
    if path is None:
        return {}
    flag = f"--aimaster-overlay {path}"
    text = yamlfiles.read(path, flag, yamlfiles.MANIFESTS, "give a YAML file with a part of a pod")
    found = yamlfiles.values(text, flag, yamlfiles.MANIFESTS)
    if len(found) != 1 or not isinstance(found[0], dict):
        raise UsageError(f"{flag}: not a part of a pod, such as `spec: {{nodeSelector: …}}`")
    return found[0]
