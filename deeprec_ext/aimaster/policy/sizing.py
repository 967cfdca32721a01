"""The size for throughput or cost: finds the best one, and says why the job goes there, or why not."""

from __future__ import annotations

import dataclasses

from deeprec_ext.aimaster.policy import cost, hysteresis, steps
from deeprec_ext.aimaster.policy.evidence import Evidence, key_of
from deeprec_ext.aimaster.policy.limits import describe, fits, nearest
from deeprec_ext.aimaster.policy.observed import Size
from deeprec_ext.aimaster.policy.proposal import Answer, Keep, Proposal, Remark
from deeprec_ext.aimaster.policy.search import Found, Search, limits_reached
from deeprec_ext.units import format_seconds

EXPLORED_MIN = 3
"""Counts that must have been tried before the model says how they act on each other."""


def outside(evidence: Evidence) -> Answer:
    """A size outside of the limits is brought within, whoever chose it."""
    size, limits = evidence.size, evidence.limits
    if fits(size, limits):
        return None
    within = nearest(size, limits)
    for role in ("ps", "worker"):
        if why := hysteresis.failed(evidence, role, ("scale-up", "scale-down", "resize")):
            return Keep(f"{describe(size)} is outside of the limits; {why}")
    action = "resize" if (within.ps, within.workers) == (size.ps, size.workers) else "scale"
    return Proposal(action, within, f"{describe(size)} is outside of the limits: {describe(within)} is within")


def measured(evidence: Evidence) -> Answer:
    """Without throughput at the present size, or with one that is all noise, nothing more is decided."""
    policy, present = evidence.policy, evidence.present
    if present is None:
        since = format_seconds(max(0.0, evidence.now - evidence.changed_at))
        return Keep(f"no throughput was measured yet at {describe(evidence.size)}, which the job has had for {since}")
    if present.windows > 1 and present.spread > policy.spread_max:
        return Keep(
            f"throughput is noise: {present.windows} windows of the same size scatter by {present.spread:.0%}, and no "
            f"decision is better than a wild one"
        )
    return None


def throughput(evidence: Evidence) -> Answer:
    """Goes to the best size for the objective, or a step towards it."""
    policy, model = evidence.policy, evidence.model
    if model is None or evidence.present is None:
        return Remark("there is no throughput model yet")
    error = model.mape_holdout
    if error is not None and error > policy.error_max and len(evidence.measured) > EXPLORED_MIN:
        return Remark(f"the throughput model is off by {error:.0%} at sizes it was not shown: it is not followed")
    search = Search(evidence, hopeful=evidence.confidence < policy.confidence_full)
    found = search.best()
    if key_of(found.size) == key_of(evidence.size):
        return _explore(evidence, search) or _stay(evidence, search, found)
    size = steps.towards(evidence, search, found.size)
    if size == evidence.size:
        return Remark(f"{describe(found.size)} would be better, but no step towards it is allowed")
    if why := _not_worth(evidence, search, size, found):
        return Remark(why)
    return _proposal(evidence, search, size, found)


# ------------------------------------------------------------------------------------------------------- internals


def _gain(evidence: Evidence, search: Search, size: Size) -> tuple[float, float]:
    """(gain in throughput, saving of cost), as shares; by what was measured where something was."""
    rate = evidence.expected(size)
    return rate / evidence.rate - 1, 1 - search.price(size) / search.price(evidence.size)


def _not_worth(evidence: Evidence, search: Search, size: Size, found: Found) -> str:
    """Why the step is not made now; empty if it is."""
    policy = evidence.policy
    gain, saving = _gain(evidence, search, size)
    noise = policy.noise_factor * evidence.error(size)
    hoped = search.rate(size) / evidence.rate - 1
    what = f"{describe(size)} is predicted to train {gain:+.0%}"
    tried = size if key_of(size) in evidence.measured else None
    if saving > 0:
        allowed = _loss_allowed(evidence, search, size, found)
        if saving < policy.saving_min:
            return f"{what} and to save {saving:.0%}, less than the {policy.saving_min:.0%} that a change must save"
        if tried is not None and -gain > allowed:
            return f"{describe(size)} was tried: it trains {gain:+.0%}"
        share = saving - max(0.0, -gain)
    else:
        share = gain if tried is not None else max(gain, hoped)
        if share < policy.gain_min and not found.shortfall:
            return f"{what}, less than the {policy.gain_min:.0%} that a change must bring"
        if share < noise:
            return f"{what}, which is within the noise of {noise:.0%}"
        if not _windows_enough(evidence, share):
            return f"{what}; one more window is awaited"
    if saving > 0 and not _windows_enough(evidence, 0.0):
        return f"{what} and to save {saving:.0%}; one more window is awaited"
    if why := hysteresis.blocked(evidence, size):
        return f"{what} and to save {saving:.0%}; {why}" if saving > 0 else f"{what}; {why}"
    if not cost.pays(evidence, share if saving > 0 else share / (1 + share), cost.of_change(evidence, size)):
        return f"{what}; the change would not pay in the {format_seconds(evidence.seconds_left)} that are left"
    return ""


def _windows_enough(evidence: Evidence, gain: float) -> bool:
    count = evidence.present.windows if evidence.present is not None else 0
    return count >= evidence.policy.windows_min or (count > 0 and gain >= evidence.policy.obvious_gain)


def _loss_allowed(evidence: Evidence, search: Search, size: Size, found: Found) -> float:
    """Throughput that a saving may cost: what the objective allows, and noise."""
    predicted = max(0.0, 1 - search.rate(size) / evidence.rate)
    return max(predicted, evidence.policy.marginal_loss) + evidence.policy.noise_factor * evidence.error(size)


def _explore(evidence: Evidence, search: Search) -> Answer:
    """Where little was tried yet, one small step in the direction that may help, though the model sees no gain."""
    policy, size = evidence.policy, evidence.size
    tried = {key[:2] for key in evidence.measured}
    if len(tried) >= EXPLORED_MIN or evidence.observed.objective != "fastest" or not _windows_enough(evidence, 0.0):
        return None
    if evidence.seconds_left < 10 * policy.change_seconds:
        return None
    busy = max((window.ps_busy_share for window in evidence.windows[-1:]), default=0.0)
    more_ps = dataclasses.replace(size, ps=size.ps + 1)
    more_workers = dataclasses.replace(size, workers=size.workers + 1)
    order = (more_ps, more_workers) if busy >= policy.busy_share else (more_workers, more_ps)
    for option in order:
        new = (option.ps, option.workers) not in tried and search.allowed(option) is not None
        if new and not hysteresis.blocked(evidence, option):
            return Proposal(
                "scale", option, f"only {len(tried)} size{'s' * (len(tried) > 1)} were tried so far: {describe(option)} is "
                f"tried, a small step, to learn what it brings",
            )  # fmt: skip
    return None


def _stay(evidence: Evidence, search: Search, found: Found) -> Answer:
    size, objective = evidence.size, evidence.observed.objective
    text = f"{describe(size)} is the best size known for the objective {objective}, at {evidence.rate:.4g} examples/s"
    if evidence.starved >= evidence.policy.starved_share:
        text += f"; trainers wait for input {evidence.starved:.0%} of the time, which more PS would not change"
    if found.shortfall:
        text += f"; the deadline cannot be met, it will be {format_seconds(found.shortfall)} late"
    return Remark(text)


def _proposal(evidence: Evidence, search: Search, size: Size, found: Found) -> Proposal:
    gain, saving = _gain(evidence, search, size)
    observed, model = evidence.observed, evidence.model
    why = f"{evidence.rate:.4g} examples/s at {describe(evidence.size)}; {describe(size)} is predicted to train {gain:+.0%}"
    why += f" for {abs(saving):.0%} {'less' if saving > 0 else 'more'} cost"
    if key_of(size) != key_of(found.size):
        why += f", a step towards {describe(found.size)}"
    if observed.objective == "cheapest":
        why += ", the best throughput per cost within its margin" if key_of(size) == key_of(found.size) else ""
    if found.shortfall:
        why += f"; the deadline cannot be met, at best it will be {format_seconds(found.shortfall)} late"
    elif observed.objective == "deadline" and evidence.end_known:
        left = observed.deadline_seconds - evidence.now
        why += f"; {evidence.examples_left:.4g} examples are to be trained in {format_seconds(max(0.0, left))}"
    elif observed.objective == "deadline":
        why += "; where the job ends is not known, so the fastest size is taken"
    if reached := limits_reached(size, evidence.limits):
        why += f"; {reached} is reached"
    error = f"{model.mape_holdout:.0%}" if model is not None and model.mape_holdout is not None else "not known yet"
    why += f" (model of {len(evidence.windows)} windows at {len(evidence.measured)} sizes, held-out error {error})"
    action = "resize" if (size.ps, size.workers) == (evidence.size.ps, evidence.size.workers) else "scale"
    return Proposal(action, size, why)
