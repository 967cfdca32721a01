"""`decide(observed, policy) -> Decision`: pure, deterministic and total.

The rules are asked in the order of RULES; the first that wants a change gets it. What a rule only remarks stands in the
sentence of a decision that changes nothing. No rule sees a clock, a random number or anything but the observation, so the
same line of the record always gives the same decision.
"""

from __future__ import annotations

import math
from typing import Callable

from deeprec_ext.autoscaler.observe.observed import Observed
from deeprec_ext.autoscaler.observe.sane import sane_number, sane_size
from deeprec_ext.autoscaler.policy import balance, cost, cpu, memory, replacement, returning, sizing
from deeprec_ext.autoscaler.policy.decision import Answer, Decision, Keep, Prediction, Proposal, Remark
from deeprec_ext.autoscaler.policy.evidence import Evidence
from deeprec_ext.autoscaler.policy.limits import contradiction, describe, fits, nearest
from deeprec_ext.autoscaler.policy.thresholds import Policy
from deeprec_ext.units import format_seconds

REMARKS_MAX = 2
"""In one sentence."""


# ----------------------------------------------------------------------------------------------- rules that end it all


def impossible(evidence: Evidence) -> Answer:
    """No decision is made from a size, a time or limits that cannot be."""
    if not sane_size(evidence.size) or (evidence.size.ps == 0) != evidence.limits.sums:
        return Keep("the size that was observed is none")
    if not sane_number(evidence.raw.time):
        return Keep(f"the time that was observed is {evidence.raw.time!r}")
    if why := contradiction(evidence.size, evidence.limits):
        return Keep(f"the limits contradict each other: {why}")
    return None


def start(evidence: Evidence) -> Answer:
    """Decision 0: the size that was estimated before the start, within the limits."""
    if evidence.raw.number != 0:
        return None
    size = nearest(evidence.size, evidence.limits)
    cut = "" if size == evidence.size else f", cut from {describe(evidence.size)} by the limits"
    usual = ", the fewest it may have" if size.workers == evidence.limits.min_workers else ", as it was asked for"
    why = (
        f": {evidence.raw.start}" if evidence.raw.start else usual if evidence.limits.sums else ", as it was asked for"
    )
    return Proposal("start", size, f"the job starts with {describe(size)}{cut}{why}")


def held(evidence: Evidence) -> Answer:
    return Keep("decisions are held by the user") if evidence.observed.hold else None


def busy(evidence: Evidence) -> Answer:
    return Keep("a scaling is under way or queued") if evidence.observed.busy else None


def ending(evidence: Evidence) -> Answer:
    """A job that ends before a change would be done is left alone."""
    left = evidence.seconds_left
    if evidence.end_known and evidence.rate and left < cost.duration(evidence, "worker"):
        return Keep(f"the job ends in about {format_seconds(left)}, before any change would be done")
    return None


RULES: tuple[Callable[[Evidence], Answer], ...] = (
    impossible,
    start,
    held,
    busy,
    ending,
    memory.killed,
    memory.growing,
    memory.homeless,
    replacement.reclaimed,
    sizing.outside,
    replacement.hung,
    replacement.straggler,
    replacement.slow_ps,
    returning.unmeasured,
    returning.measured_better,
    sizing.measured,
    returning.freed,
    balance.hot_slots,
    sizing.calm,
    sizing.throughput,
    cpu.unused,
)
"""In this order: what must not be touched, what would kill the job, what is broken, what is measured, what is better."""


def decide(observed: Observed, policy: Policy) -> Decision:
    """What to change now, and why. Never outside of the limits; never raises."""
    evidence = Evidence(observed, policy)
    remarks: list[Remark] = []
    for rule in RULES:
        answer = rule(evidence)
        if isinstance(answer, Proposal):
            grave = [remark for remark in remarks if remark.grave]
            return _decision(evidence, _within(evidence, answer), grave)
        if isinstance(answer, Keep):
            return _decision(evidence, answer, remarks)
        if isinstance(answer, Remark):
            remarks.append(answer)
    return _decision(evidence, Keep(remarks.pop(0).text if remarks else "nothing is to be changed"), remarks)


def _within(evidence: Evidence, proposal: Proposal) -> Proposal | Keep:
    """The last word is the limits': whatever a rule has worked out. A replacement changes no size."""
    if proposal.action in ("replace", "rebalance") or fits(proposal.size, evidence.limits):
        return proposal
    return Keep(f"not within the limits: {proposal.reason}")


def _decision(evidence: Evidence, answer: Proposal | Keep, remarks: list[Remark]) -> Decision:
    raw = evidence.raw
    reason = "; ".join([answer.reason, *(remark.text for remark in remarks[:REMARKS_MAX])])
    if isinstance(answer, Keep):
        return Decision(raw.number, raw.time, "keep", raw.size, reason, prediction=_prediction(evidence, None))
    return Decision(
        raw.number, raw.time, answer.action, answer.size, reason, answer.replace, answer.slot_weights,
        _prediction(evidence, answer),
    )  # fmt: skip


def _prediction(evidence: Evidence, answer: Proposal | None) -> Prediction:
    """Rounded, so that another machine's last bit is no other decision. Nothing is fitted or held out only to keep."""
    model = evidence.__dict__.get("model") if answer is None else evidence.model
    if model is None or not evidence.rate:
        return Prediction(before=_rounded(evidence.rate) if evidence.__dict__.get("present") else 0.0)
    size = answer.size if answer is not None else evidence.size
    price = cost.of_change(evidence, size)
    error = model.mape_holdout if answer is not None else None
    return Prediction(
        examples_per_second=_rounded(evidence.expected(size)), before=_rounded(evidence.rate),
        mape_holdout=_rounded(error) if error is not None else None,
        windows=len(evidence.windows), coefficients=tuple(_rounded(one) for one in model.coefficients),
        pause_seconds=_rounded(price.pause_seconds), change_seconds=_rounded(price.seconds),
        confidence=_rounded(model.confidence) if answer is not None else 0.0,
        price_seconds=_rounded(answer.price_seconds) if answer is not None else 0.0,
    )  # fmt: skip


def _rounded(value: float) -> float:
    """To six digits."""
    return float(f"{value:.6g}") if math.isfinite(value) else 0.0
