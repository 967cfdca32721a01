"""The TFJobs in a file: read and checked, all of them, before anything is made of any."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeprec_ext import yamlfiles
from deeprec_ext.errors import UsageError
from tfjob.model import names
from tfjob.model.annotations import Elastic
from tfjob.model.annotations import parse as parse_annotations
from tfjob.model.kinds import Manifest
from tfjob.model.names import NAME_MAX
from tfjob.model.spec import InvalidError, TFJob, check_manager
from tfjob.model.templates import check as check_templates
from tfjob.model.unknown import unknown_keys
from tfjob.pods.aimaster import Options, specification

LETTERS, SUFFIX = "bcdfghjklmnpqrstvwxz2456789", 5
"""Of which the server makes names: nothing that could be read as a word or mistaken for another letter."""

SAID_MAX = 1_000
"""Characters of a message."""


@dataclass(frozen=True)
class Document:
    """One TFJob to be submitted. `elastic`: None: an ordinary job."""

    manifest: Manifest
    job: TFJob
    elastic: Elastic | None
    warnings: tuple[str, ...] = ()


def load(path: str, namespace: str | None, default: str) -> list[Document]:
    """Args:
        path: of the file; `-` is stdin.
        namespace: as the caller named it; a document that names another one is refused.
        default: for documents that name none.

    Raises UsageError with the document and the field.
    """
    found: list[Document] = []
    manifests = list(_manifests(_parsed(path), path))
    for number, manifest in enumerate(manifests, 1):
        try:
            found.append(check(manifest, namespace, default))
        except UsageError as error:
            where = f"{path}, document {number} of {len(manifests)}" if len(manifests) > 1 else path
            said = str(error)  # quotes what stands in the file, however much that is
            raise UsageError(f"{where}: {said[:SAID_MAX]}{'…' * (len(said) > SAID_MAX)}") from error
    if not found:
        raise UsageError(f"{path}: there is no TFJob in it")
    taken: set[tuple[str, str]] = set()
    for one in found:
        if (one.job.namespace, one.job.name) in taken:
            raise UsageError(f"{path}: TFJob {one.job.name} is in it twice; give each job a name of its own")
        taken.add((one.job.namespace, one.job.name))
    return found


def check(manifest: Manifest, namespace: str | None, default: str) -> Document:
    """Raises UsageError, for most things an InvalidError."""
    if (kind := manifest.get("kind")) != names.KIND:
        raise UsageError(f"kind {kind!r}: only TFJobs are submitted; `kubectl apply` makes everything else")
    if (version := manifest.get("apiVersion")) != names.API_VERSION:
        raise InvalidError("apiVersion", f"is {version!r}; write {names.API_VERSION}")
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict):
        raise InvalidError("metadata", "is required, with a name")
    own = metadata.get("namespace")
    if own and namespace and own != namespace:
        raise InvalidError("metadata.namespace", f"is {own!r}, and -n says {namespace}: leave one of them out")
    for field in ("annotations", "labels"):
        _check_texts(metadata.get(field), f"metadata.{field}")
    manifest = {**manifest, "metadata": {**_named(metadata), "namespace": own or namespace or default}}
    manifest.pop("status", None)
    check_templates(manifest)
    check_manager(manifest)
    job = TFJob.parse(manifest)
    elastic, warnings = parse_annotations(job)
    if elastic is not None:
        specification(job, elastic, Options("image"))  # reads what the templates request
    return Document(manifest, job, elastic, (*unknown_keys(manifest), *warnings))


def _named(metadata: Manifest) -> Manifest:
    """With a name of the form that the server makes of `generateName`: pods are told the job's name before there is a job."""
    prefix = metadata.get("generateName")
    if metadata.get("name") or not isinstance(prefix, str) or not prefix:
        return metadata
    rest = {key: value for key, value in metadata.items() if key != "generateName"}
    return {**rest, "name": prefix[: NAME_MAX - SUFFIX] + "".join(secrets.choice(LETTERS) for _ in range(SUFFIX))}


def _check_texts(values: Any, path: str) -> None:
    if values is None:
        return
    if not isinstance(values, dict):
        raise InvalidError(path, "must be an object")
    for key, value in values.items():
        if not isinstance(value, str):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            raise InvalidError(f"{path}[{key}]", f'is no text: write "{text}", in quotes')


def _parsed(path: str) -> Sequence[Any]:
    text = yamlfiles.read(
        None if path == "-" else Path(path), path, yamlfiles.MANIFESTS, "give the file of a TFJob, or - for stdin"
    )
    return yamlfiles.values(text, path, yamlfiles.MANIFESTS)  # JSON is YAML


def _manifests(documents: Sequence[Any], path: str) -> Iterator[Manifest]:
    for one in documents:
        if one is None:
            continue
        if not isinstance(one, dict):
            raise UsageError(f"{path}: a document is no object with apiVersion, kind, metadata and spec")
        if one.get("kind") == "List":
            items = one.get("items") or []
            if not isinstance(items, list):
                raise UsageError(f"{path}: `items` of a List is no list of objects")
            yield from _manifests(items, path)
        else:
            yield one
