"""Submitting: TFJobs are created for an operator, or, without one, everything that the operator would make of them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys

from deeprec_ext.cli.cluster import kept
from deeprec_ext.cli.cluster.documents import Document
from deeprec_ext.errors import DeepRecError, UsageError
from tfjob.api.client import Api, ApiError, ConflictError, ForbiddenError, NotFoundError
from tfjob.api.finding import Found, aimaster_pod, has_crd, written
from tfjob.model import names
from tfjob.model.kinds import CONFIG_MAPS, PODS, TFJOBS, Manifest, Resource, resource_of
from tfjob.model.spec import TFJob
from tfjob.operator.aimasters import AIMasters
from tfjob.pods import aimaster
from tfjob.pods.aimaster import Options

INVALID = 422
SAMPLE_UID = "00000000-0000-0000-0000-000000000000"


async def try_out(api: Api, one: Document, options: Options) -> None:
    """The server checks it as if it were created (`dryRun`). Raises UsageError, ApiError, UnreachableError."""
    for kind, body in _samples(one, options):
        try:
            path = kind.path(one.job.namespace)
            await api.request("POST", path, body, query={"dryRun": "All"})
        except ConflictError as error:
            if options.operator:
                raise _exists(one.job) from error  # else a repetition completes what is there
        except ApiError as error:
            raise await _clearer(api, one, error) from error


def _samples(one: Document, options: Options) -> list[tuple[Resource, Manifest]]:
    """Without an operator not the binding and the pod: they are refused where role and account do not exist yet."""
    if options.operator:
        return [(TFJOBS, one.manifest)]
    assert one.elastic is not None
    job = dataclasses.replace(one.job, uid=SAMPLE_UID)
    made = aimaster.manifests(job, one.elastic, {}, options)
    found = [aimaster.config_map(one.job, one.manifest), *made]
    return [(resource_of(body), body) for body in found if body["kind"] not in ("RoleBinding", "Pod")]


async def create(api: Api, one: Document) -> Manifest:
    """For an operator. Raises UsageError, ApiError, UnreachableError."""
    try:
        return await api.create(TFJOBS, one.job.namespace, one.manifest)
    except ConflictError as error:
        raise _exists(one.job) from error
    except ApiError as error:
        raise await _clearer(api, one, error) from error


async def create_all(api: Api, one: Document, options: Options) -> Manifest:
    """Without an operator: the ConfigMap that stands for the TFJob, and what it owns. Repeated, it completes what is there.

    When it fails, what this call has begun is removed again. Raises UsageError, ApiError, UnreachableError.
    """
    namespace = one.job.namespace
    body = aimaster.config_map(one.job, one.manifest)
    begun = True
    try:
        owner = await api.create(CONFIG_MAPS, namespace, body)
    except ConflictError:
        begun = False
        owner = await _same(api, one, body)
    manifest = written(owner, namespace)
    try:
        await _revive(api, manifest)
        await _ensure(api, manifest, one, options)
    except (DeepRecError, asyncio.CancelledError):
        if begun:
            await _remove(api, owner)
        raise
    return manifest


async def _remove(api: Api, owner: Manifest) -> None:
    """What it owns goes with it. The caller's own error counts; one from here is only told."""
    metadata = owner["metadata"]
    try:
        await api.delete(CONFIG_MAPS, metadata["namespace"], metadata["name"], uid=metadata["uid"])
    except DeepRecError as error:
        print(
            f"warning: what was begun is still there ({error}): submit it again, or `kubectl delete configmap "
            f"{metadata['name']} -n {metadata['namespace']}`",
            file=sys.stderr,
        )


async def _same(api: Api, one: Document, body: Manifest) -> Manifest:
    """The ConfigMap that is there. Raises UsageError when it is another job's."""
    name = body["metadata"]["name"]
    found = await api.get(CONFIG_MAPS, one.job.namespace, name)
    text = (found.get("data") or {}).get(names.CONFIG_MAP_KEY)
    if text is None or json.loads(text) != one.manifest:
        raise UsageError(
            f"a job {one.job.name} exists already, with another manifest: `kubectl delete configmap {name} -n "
            f"{one.job.namespace}` deletes it, or choose another name"
        )
    return found


async def _revive(api: Api, manifest: Manifest) -> None:
    """A pod that was lost (evicted, its node gone) makes room for the next. Raises UsageError when the job has ended."""
    job = TFJob.parse(manifest)
    pod = await aimaster_pod(api, job.namespace, job.name)
    if pod is None or (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
        return
    if kept.SUMMARY in await kept.read(api, job.namespace, Found(manifest, operator=False)):
        raise UsageError(
            f"job {job.name} has ended: `kubectl delete configmap {names.config_map_name(job.name)} -n {job.namespace}` "
            "before it is submitted again"
        )
    await api.delete(PODS, job.namespace, pod["metadata"]["name"], grace_seconds=0, uid=pod["metadata"]["uid"])


async def _ensure(api: Api, manifest: Manifest, one: Document, options: Options) -> None:
    assert one.elastic is not None
    try:
        await AIMasters(api, options).ensure(manifest, one.elastic, ())
    except ForbiddenError as error:
        if not options.network_policies or "networkpolicies" not in str(error):
            raise
        print(f"warning: TensorFlow's ports are not protected by a NetworkPolicy: {error}", file=sys.stderr)
        await AIMasters(api, dataclasses.replace(options, network_policies=False)).ensure(manifest, one.elastic, ())


async def _clearer(api: Api, one: Document, error: ApiError) -> DeepRecError:
    """The same error, with what to do about it where that is known."""
    if error.status == INVALID:
        return UsageError(f"TFJob {one.job.name}: the server refuses it: {error}")
    if isinstance(error, NotFoundError) and not await has_crd(api):
        return UsageError(
            f"this cluster knows no TFJobs ({names.API_VERSION}): install the operator (docs/kubernetes.md, Install), or "
            "submit with --no-operator"
        )
    return error


def _exists(job: TFJob) -> UsageError:
    return UsageError(
        f"TFJob {job.name} exists already in namespace {job.namespace}: delete it with kubectl, or choose another name"
    )
