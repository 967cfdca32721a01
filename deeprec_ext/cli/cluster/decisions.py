"""`decisions` of a TFJob: in the AIMaster's pod while it runs; afterwards those that changed something, from the ConfigMap."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

from deeprec_ext.aimaster.kubernetes.keeping import DECISIONS
from deeprec_ext.cli.cluster import kept
from deeprec_ext.cli.cluster.living import in_pod
from deeprec_ext.decoding import built
from deeprec_ext.errors import UsageError
from tfjob.api.client import Api


async def run(name: str, arguments: argparse.Namespace, api: Api, namespace: str) -> int:
    text = await kept.of_ended(api, namespace, name, DECISIONS)  # None: the AIMaster is to be asked
    if text is None:
        words = [flag for flag in ("--changes", "--json") if getattr(arguments, flag[2:])]
        return await in_pod(api, namespace, name, "decisions", words)
    show(text, arguments.json)
    return 0


def show(text: str, as_json: bool) -> None:
    """Raises UsageError for what is no record."""
    from deeprec_ext.aimaster.policy.decision import Decision
    from deeprec_ext.aimaster.policy.record import Outcome
    from deeprec_ext.cli.console import Console
    from deeprec_ext.cli.decisions import WIDTH, table
    from deeprec_ext.cli.jobs import print_json

    try:
        values: list[dict[str, Any]] = json.loads(text)
        told = [
            Told(built(Decision, one["decision"]), built(Outcome, one["outcome"]) if one["outcome"] else None)
            for one in values
        ]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"the decisions in the ConfigMap cannot be read: {error!r}") from error
    if as_json:
        print_json([{"at": one["at"], **one["decision"], "outcome": one["outcome"]} for one in values])
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    console.print(table(told) if told else "nothing was changed by a decision")


@dataclasses.dataclass(frozen=True)
class Told:
    """A decision without its observation, which is not kept."""

    decision: Any
    outcome: Any
