"""`decisions` of a TFJob: in the AIMaster's pod while it runs; afterwards those that changed something, from the ConfigMap."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

from deeprec_ext.aimaster.kubernetes.keeping import DECISIONS
from deeprec_ext.autoscaler.history.estimates import told_in
from deeprec_ext.cli.cluster import forwarding, kept
from deeprec_ext.cli.decisions import print_estimate, show
from deeprec_ext.decoding import built
from deeprec_ext.errors import UsageError
from tfjob.api.client import Api
from tfjob.api.finding import find


async def run(name: str, arguments: argparse.Namespace, api: Api, namespace: str) -> int:
    found = await kept.of_ended(api, namespace, name, DECISIONS)  # None: the AIMaster is to be asked
    if found is None:
        return await forwarding.run(name, arguments, api, namespace)
    show_kept(found[1], arguments.json)
    if not arguments.json:
        left = await kept.read(api, namespace, await find(api, namespace, name))
        print_estimate(told_in((kept.summary(left) or {}).get("estimator")))
    return 0


def show_kept(text: str, as_json: bool) -> None:
    """Raises UsageError for what is no record."""
    from deeprec_ext.autoscaler.policy.decision import Decision
    from deeprec_ext.autoscaler.policy.record import Outcome

    try:
        values: list[dict[str, Any]] = json.loads(text)
        told = [
            Told(built(Decision, one["decision"]), built(Outcome, one["outcome"]) if one["outcome"] else None)
            for one in values
        ]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"the decisions in the ConfigMap cannot be read: {error!r}") from error
    shown = [{"at": one["at"], **one["decision"], "outcome": one["outcome"]} for one in values] if as_json else None
    show(told, shown, "nothing was changed by a decision")


@dataclasses.dataclass(frozen=True)
class Told:
    """A decision without its observation, which is not kept."""

    decision: Any
    outcome: Any
