"""`deeprec-ext report JOB`: what a run did, what stands out and what to do about it, as one file."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from deeprec_ext import wholefiles
from deeprec_ext.cli.cluster.target import on_cluster
from deeprec_ext.cli.job import add_job, directory_of
from deeprec_ext.errors import UsageError
from deeprec_ext.gazer import report
from deeprec_ext.launch.records.story import REPORT, read_story
from deeprec_ext.rundir import RunDirectory, files_private

STDOUT = Path("-")
MAKES = {"markdown": report.to_markdown, "html": report.to_html, "json": report.to_json}
"""By form."""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "report", help="write what a run did, with findings, as one HTML file",
        description="Writes JOB/report.html (of a TFJob JOB-report.html in the current directory) and prints its path; with "
        "--markdown or --json prints the report. Of a job that has ended, crashed, or still runs.",
    )  # fmt: skip
    add_job(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="as Markdown, on stdout")
    form.add_argument("--json", action="store_true", help="findings and figures as JSON, on stdout")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write it there; - is stdout")


def run(arguments: argparse.Namespace) -> int:
    if (code := on_cluster("report", arguments)) is not None:
        return code
    directory = directory_of(arguments)
    story = read_story(directory)
    form = form_of(arguments)
    text = MAKES[form](story)
    if arguments.output is None and form == "html":
        with files_private():
            put(text, directory.path / REPORT)
    else:
        put(text, arguments.output)
    return 0


def form_of(arguments: argparse.Namespace) -> str:
    return "markdown" if arguments.markdown else "json" if arguments.json else "html"


def put(text: str, path: Path | None) -> None:
    """Into the file, whose path is printed; or on stdout. Raises UsageError."""
    if path is None or path == STDOUT:
        sys.stdout.write(text.encode("utf-8", "replace").decode())
    else:
        write(path, text)


def write(path: Path, text: str) -> None:
    """And prints the path. Raises UsageError."""
    try:
        wholefiles.write(path, text)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); give another --output FILE") from None
    print(path)


def main(directory: str) -> None:
    """Every form, from one reading, on stdout: a JSON object, form → text. For an AIMaster that goes, with its directory."""
    story = read_story(RunDirectory(Path(directory)))
    json.dump({form: make(story) for form, make in MAKES.items()}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
