"""`--submit` of `train`, `evaluate` and `predict`: a TFJob of their command, given to `deeprec-ext submit`."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deeprec_ext.cli import defined
from deeprec_ext.cli.cluster.target import add_options
from deeprec_ext.errors import UsageError
from deeprec_ext.options import all_rows, written

PREFIX = "aimaster.deeprec.io/"
_NOT_THERE = (
    "events", "workdir", "resume", "history", "history_certs", "port", "dashboard", "setting", "backend_arg", "pool",
    "pool_cores", "priority", "weight", "max_wait",
)  # fmt: skip
"""Flags of `run` that are of this machine."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("as a TFJob")
    group.add_argument("--submit", action="store_true", help="make a TFJob of it; paths are those of its pods")
    group.add_argument(
        "--image", metavar="IMAGE", help="of its containers: TensorFlow, the model's module, what that imports"
    )
    group.add_argument("--name", metavar="NAME", help="of the TFJob (default: made of the module's)")
    group.add_argument(
        "--mount", action="append", default=[], metavar="CLAIM:PATH",
        help="a volume claim, and where the containers have it; may be repeated",
    )  # fmt: skip
    group.add_argument("--wait", action="store_true", help="until the job has ended; exit code 1 unless it succeeded")
    add_options(parser, "where the job goes (default: as the kubeconfig says)")


def manifest(name: str, words: Sequence[str], arguments: argparse.Namespace) -> Mapping[str, Any]:
    """The TFJob. Raises UsageError."""
    if not arguments.image:
        raise UsageError("--submit needs --image: TensorFlow, and the model's module with what it imports")
    if name != "evaluate" and not arguments.output:
        raise UsageError(
            "--submit needs --output: pods share no run directory; name a place that they have, as in --mount"
        )
    for one in _NOT_THERE:
        if getattr(arguments, one, None):
            raise UsageError(f"--{one.replace('_', '-')} is of this machine; a TFJob does not have it")
    mounts = [_mount(text) for text in arguments.mount]
    container: dict[str, Any] = {"name": "tensorflow", "image": arguments.image, "command": list(words)}
    pod: dict[str, Any] = {"containers": [container]}
    if mounts:
        container["volumeMounts"] = [{"name": f"data-{n}", "mountPath": path} for n, (_, path) in enumerate(mounts)]
        pod["volumes"] = [
            {"name": f"data-{n}", "persistentVolumeClaim": {"claimName": claim}} for n, (claim, _) in enumerate(mounts)
        ]
    label = defined.label(name, arguments).replace("_", "-").lower()
    metadata: dict[str, Any] = {"name": arguments.name} if arguments.name else {"generateName": f"{label}-"}
    replicas = {"Chief": 1}
    if name != "evaluate":
        usual_ps = 0 if arguments.strategy == "allreduce" else 2
        replicas = {
            "PS": usual_ps if arguments.ps is None else arguments.ps, "Chief": 1,
            "Worker": 1 if arguments.workers is None else arguments.workers,
        }  # fmt: skip
        metadata["annotations"] = {f"{PREFIX}enabled": "true", **_annotations(arguments)}
    specs = {kind: {"replicas": count, "template": {"spec": pod}} for kind, count in replicas.items() if count}
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": metadata, "spec": {"tfReplicaSpecs": specs}}


def submit(name: str, words: Sequence[str], arguments: argparse.Namespace) -> int:
    """Gives it to `deeprec-ext submit`; its exit code. Raises UsageError."""
    from deeprec_ext.cli import submit as submit_command

    made = manifest(name, words, arguments)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "tfjob.json"
        path.write_text(json.dumps(made))
        flags = {
            "file": str(path), "estimate": False, "require_estimate": False, "script": None, "history": None,
            "history_certs": None, "no_operator": False, "image": "", "package_image": "", "aimaster_overlay": None,
        }  # fmt: skip
        kept = {
            one: getattr(arguments, one) for one in ("namespace", "context", "kubeconfig", "dry_run", "wait", "json")
        }
        return submit_command.run(argparse.Namespace(**flags, **kept))


def _annotations(arguments: argparse.Namespace) -> Mapping[str, str]:
    """What the flags of `run` say that a TFJob says too."""
    given = {
        row: getattr(arguments, row.key.replace("-", "_"), None) for row in all_rows() if row.flag and row.annotation
    }
    return {
        PREFIX + row.key: written(value) for row, value in given.items() if value is not None and value is not False
    }


def _mount(text: str) -> tuple[str, str]:
    claim, _, path = text.partition(":")
    if not claim or not path.startswith("/"):
        raise UsageError(f"--mount {text}: write CLAIM:/PATH, as in data:/data")
    return claim, path
