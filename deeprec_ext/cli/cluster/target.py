"""Which TFJob a command is about: `-n NAMESPACE NAME`, or just NAME as `kubectl deeprec` has it."""

from __future__ import annotations

import argparse
import asyncio
import functools
import importlib
import importlib.util
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deeprec_ext.errors import UsageError

if TYPE_CHECKING:
    from tfjob.api.client import Api

_CLUSTER = ("namespace", "context", "kubeconfig")
NEEDED = ("kubernetes", "aiohttp")
INSTALLED_IN = "deeprec-ext"
"""Where the manifests put the operator and the history."""

CONNECTIONS = 128
"""More than logs that may be followed at once."""


@dataclass(frozen=True)
class Target:
    """A cluster, a namespace of it, and a job (empty: the command makes it). None: as the kubeconfig says."""

    name: str = ""
    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None

    def run(self, conversation: Callable[[Api, str], Awaitable[int]]) -> int:
        """Talks with the cluster, as (client, namespace) → exit code. Raises UsageError, ApiError, UnreachableError."""
        require_client()
        from tfjob.api.client import Api
        from tfjob.api.kubeconfig import current_namespace

        namespace = self.namespace or current_namespace(self.context, self.kubeconfig)

        async def talk() -> int:
            async with Api.from_environment(self.context, self.kubeconfig, CONNECTIONS) as api:
                return await conversation(api, namespace)

        return asyncio.run(talk())


def require_client() -> None:
    """Raises UsageError that says what to install."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"TFJobs need {' and '.join(missing)}: pip install 'deeprec-ext[kubernetes]'")


def add_options(
    parser: argparse.ArgumentParser, namespace: str = "JOB is the name of a TFJob in this namespace"
) -> None:
    parser.set_defaults(parser=parser)
    group = parser.add_argument_group("TFJob on Kubernetes")
    group.add_argument("-n", "--namespace", help=namespace)
    group.add_argument("--context", metavar="NAME", help="of the kubeconfig (default: its current one)")
    group.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, else the one in the home directory")


def words_again(arguments: argparse.Namespace) -> list[str]:
    """The flags of a command once more, without those of the cluster: for the same command in the AIMaster's pod."""
    found: list[str] = []
    for action in arguments.parser._actions:
        flag = next((one for one in action.option_strings if one.startswith("--")), None)
        value = getattr(arguments, action.dest, None)
        if flag is not None and action.dest not in _CLUSTER and value is not None and value is not False:
            values = value if isinstance(value, list) else [value]
            found += [flag if one is True else f"{flag}={one}" for one in values]
    return found


def on_cluster(command: str, arguments: argparse.Namespace) -> int | None:
    """Of a TFJob: what the command's module of this folder does; its exit code. None: it is about a run directory."""
    if (target := target_of(arguments)) is None:
        return None
    module = importlib.import_module(f"deeprec_ext.cli.cluster.{command}")
    return target.run(functools.partial(module.run, target.name, arguments))


def target_of(arguments: argparse.Namespace) -> Target | None:
    """None: the command is about a run directory. Raises UsageError for what is no name of a job."""
    found = cluster_of(arguments)
    if found is None:
        return None
    name = str(arguments.job)
    from tfjob.model.names import is_dns_1035

    if not is_dns_1035(name):
        raise UsageError(f"{name}: is no name of a TFJob; a run directory is given without a namespace")
    return Target(name, found.namespace, found.context, found.kubeconfig)


def cluster_of(arguments: argparse.Namespace) -> Target | None:
    """None: no cluster was named."""
    given = [getattr(arguments, name, None) for name in _CLUSTER]
    if not any(given) and not getattr(arguments, "kubectl", False):
        return None
    return Target("", *given)
