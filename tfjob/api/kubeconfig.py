"""Which cluster, and which namespace of it: as kubectl finds them. In a pod its service account, else a kubeconfig."""

from __future__ import annotations

import os
from typing import Any

from deeprec_ext.errors import UsageError
from tfjob.api.proxies import proxy_of

IN_CLUSTER_NAMESPACE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


def load(context: str | None = None, kubeconfig: str | None = None) -> Any:
    """A `kubernetes.client.Configuration`. Raises UsageError where no cluster is configured, or its proxy is of no use.

    Its `proxy` is what we use: the package's own choice depends on its version, and knows no `proxy-url`. In a pod the server
    is next door, so proxies in the environment, which lead out of the cluster, are none for it.

    Args:
        context: of the kubeconfig; None: its current one.
        kubeconfig: path; None: what KUBECONFIG names, else the one in the home directory.
    """
    from kubernetes import client, config

    configuration = client.Configuration()
    try:
        if _in_pod(context, kubeconfig):
            config.load_incluster_config(client_configuration=configuration)
            configuration.proxy = None
            return configuration
        config.load_kube_config(_path(kubeconfig), context=context, client_configuration=configuration)
        proxy_url = _proxy_url(context, kubeconfig)
    except Exception as error:  # a broken file raises whatever reading it raises
        raise _none(kubeconfig, error) from error
    configuration.proxy = proxy_of(configuration.host, proxy_url, os.environ)
    return configuration


def current_namespace(context: str | None = None, kubeconfig: str | None = None) -> str:
    """Of the pod, or of the context; `default` where it names none. Raises UsageError as `load`."""
    if _in_pod(context, kubeconfig):
        return own_namespace()
    from kubernetes import config

    try:
        contexts, active = config.list_kube_config_contexts(_path(kubeconfig))
    except Exception as error:
        raise _none(kubeconfig, error) from error
    if context is not None:
        active = next((one for one in contexts if one["name"] == context), None)
        if active is None:
            raise UsageError(f"--context {context}: the kubeconfig has {', '.join(one['name'] for one in contexts)}")
    return str((active or {}).get("context", {}).get("namespace") or "default")


def own_namespace() -> str:
    """Of our pod; outside a cluster `default`."""
    try:
        with open(IN_CLUSTER_NAMESPACE, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "default"


def _proxy_url(context: str | None, kubeconfig: str | None) -> str:
    """Of the cluster of this context; empty: it has none."""
    from kubernetes.config import kube_config

    merged = kube_config.KubeConfigMerger(_path(kubeconfig) or kube_config.KUBE_CONFIG_DEFAULT_LOCATION).config
    cluster = merged["contexts"].get_with_name(context or merged["current-context"])["context"]["cluster"]
    return str(merged["clusters"].get_with_name(cluster)["cluster"].safe_get("proxy-url") or "")


def _none(kubeconfig: str | None, error: Exception) -> UsageError:
    where = f" in {path}" if (path := _path(kubeconfig)) else ""
    return UsageError(f"no Kubernetes cluster is configured{where}: {error}; set KUBECONFIG")


def _in_pod(context: str | None, kubeconfig: str | None) -> bool:
    given = context or kubeconfig or os.environ.get("KUBECONFIG")
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and not given


def _path(kubeconfig: str | None) -> str | None:
    """The package reads KUBECONFIG only once, when it is imported."""
    return kubeconfig or os.environ.get("KUBECONFIG") or None
