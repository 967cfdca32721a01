"""JOB on the command line: a run directory, or (`target`) the name of a TFJob."""

from __future__ import annotations

import argparse
import inspect
import json
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from deeprec_ext.cli.cluster.target import add_options
from deeprec_ext.errors import UsageError
from deeprec_ext.rundir import RunDirectory


def add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "job",
        type=Path,
        metavar="JOB",
        help="run directory, as `deeprec-ext run` printed it; with -n the name of a TFJob",
    )
    add_options(parser)


def directory_of(arguments: argparse.Namespace) -> RunDirectory:
    """Raises UsageError if it is none."""
    directory = RunDirectory(arguments.job.resolve())
    if not directory.path.is_dir():
        raise no_directory(arguments.job)
    directory.read_description()
    return directory


def no_directory(path: Path) -> UsageError:
    return UsageError(
        f"{path}: no such run directory; give the one `deeprec-ext run` printed, or -n NAMESPACE and a TFJob"
    )


def require_running(directory: RunDirectory) -> RunDirectory:
    """Raises UsageError when the job has ended."""
    if not directory.in_use():
        raise UsageError(
            f"{directory.path}: the job has ended; `deeprec-ext status {directory.path}` shows its summary"
        )
    return directory


def as_dict(message: Message) -> dict[str, Any]:
    """Field names as in the .proto, with all fields that have a value or a default."""
    # the flag has another name from protobuf 5 on
    flags = ("always_print_fields_with_no_presence", "including_default_value_fields")
    flag = next(name for name in flags if name in inspect.signature(MessageToDict).parameters)
    options: dict[str, Any] = {flag: True}
    return dict(MessageToDict(message, preserving_proto_field_name=True, **options))


def print_json(values: Any) -> None:
    print(json.dumps(values, indent=2))
