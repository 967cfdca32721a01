"""`deeprec-ext doctor`: whether this machine and this installation can run a job, and what to do where not."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from deeprec_ext.cli import checks
from deeprec_ext.cli.job import print_json

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def add(commands: Any) -> None:
    parser = commands.add_parser("doctor", help="check this machine and installation", description=__doc__)
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """1 if anything failed."""
    findings = [check() for check in checks.ALL]
    if arguments.json:
        print_json([dataclasses.asdict(finding) for finding in findings])
    else:
        from rich.text import Text

        from deeprec_ext.cli.console import Console

        console = Console(highlight=False, soft_wrap=True)
        for finding in findings:
            line = Text.assemble(
                (f"{finding.verdict:4}", _STYLES[finding.verdict]), f"  {finding.name}: {finding.found}"
            )
            console.print(line)
            if finding.remedy:
                console.print(Text(f"      → {finding.remedy}"))
    return 1 if any(finding.verdict == "fail" for finding in findings) else 0
