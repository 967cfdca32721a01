"""What happens to a job: a pure function of the seed, so that a run that failed can be had again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

PS_MAX, WORKERS_MAX = 3, 2
FIRST_STEP = 100
STEPS_BETWEEN = (20, 400)
"""The next event comes so many steps after the one before, or when that has ended: sometimes into its aftermath."""

WEIGHTS = {
    "kill ps": 6, "hang ps": 2, "kill worker": 3, "hang worker": 1, "kill chief": 2, "hang chief": 1, "kill aimaster": 3,
    "kill evaluator": 1, "scale ps": 4, "scale workers": 2, "rebalance": 1, "replace ps": 1, "replace worker": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """One run. `events` is the content of an `--events` file."""

    seed: int
    ps: int
    workers: int
    evaluator: bool
    events: tuple[dict[str, Any], ...]

    def describe(self) -> str:
        what = [" ".join(f"{key}={value}" for key, value in event.items()) for event in self.events]
        roles = f"{self.ps} PS, {self.workers} workers{', an evaluator' if self.evaluator else ''}"
        return f"seed {self.seed}: {roles}; " + "; ".join(what)

    def strikes(self, *roles: str) -> int:
        """How often a process of these roles is killed or hung."""
        targets = [event.get("kill", event.get("hang", "")) for event in self.events]
        return sum(target.partition("-")[0] in roles for target in targets)


def plan(seed: int, count: int, kinds: Sequence[str] = tuple(WEIGHTS)) -> Plan:
    """`count` events of these kinds, of which at least one strikes a PS where that is among the kinds."""
    dice = random.Random(seed)
    ps, workers = dice.randint(2, PS_MAX), dice.randint(1, WORKERS_MAX)
    evaluator = dice.random() < 0.25
    chosen = dice.choices(kinds, [WEIGHTS[kind] for kind in kinds], k=count)
    if "kill ps" in kinds and not {"kill ps", "hang ps"} & set(chosen):
        chosen[dice.randrange(count)] = "kill ps"
    names = {"ps": [f"ps-{n}" for n in range(ps)], "worker": [f"worker-{n}" for n in range(workers)]}
    events, step = [], FIRST_STEP
    for kind in chosen:
        if kind == "kill evaluator" and not evaluator:
            kind = "kill worker"
        if kind.endswith(" worker") and not names["worker"]:
            kind = "scale workers"
        events.append({"at_step": step, **_event(kind, names, dice)})
        step += dice.randint(*STEPS_BETWEEN)
    return Plan(seed, ps, workers, evaluator, tuple(events))


def _event(kind: str, names: dict[str, list[str]], dice: random.Random) -> dict[str, Any]:
    """One event; `names` of who is there are kept as the AIMaster gives them: lowest free first, highest drained."""
    verb, _, role = kind.partition(" ")
    if kind == "rebalance":
        return {"rebalance": True}
    if verb == "scale":
        prefix, least, most = ("ps", 1, PS_MAX) if role == "ps" else ("worker", 0, WORKERS_MAX)
        there = names[prefix]
        wanted = dice.choice([n for n in range(least, most + 1) if n != len(there)])
        while len(there) < wanted:
            there.append(_free(prefix, there))
        names[prefix] = sorted(there)[:wanted]
        return {"scale": {role: wanted}}
    if role in ("ps", "worker"):
        target = dice.choice(names[role])
        if verb == "replace":
            names[role] = sorted([*(name for name in names[role] if name != target), _free(role, names[role])])
        return {verb: target}
    return {verb: {"chief": "chief-0", "evaluator": "evaluator-0", "aimaster": "aimaster"}[role]}


def _free(prefix: str, taken: Sequence[str]) -> str:
    return next(name for n in range(len(taken) + 1) if (name := f"{prefix}-{n}") not in taken)
