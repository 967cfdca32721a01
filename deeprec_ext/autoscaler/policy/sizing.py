"""The size for throughput or cost: finds the best one, and says why the job goes there, or why not."""

from __future__ import annotations

import dataclasses

from deeprec_ext.autoscaler.model import throughput as throughput_model
from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.autoscaler.outcomes.measured import key_of
from deeprec_ext.autoscaler.policy import cost, exploring, hysteresis
from deeprec_ext.autoscaler.policy.decision import Answer, Keep, Proposal, Remark
from deeprec_ext.autoscaler.policy.evidence import Evidence
from deeprec_ext.autoscaler.policy.limits import describe, fits, nearest
from deeprec_ext.autoscaler.policy.search import Found, Search, limits_reached, step_towards, towards
from deeprec_ext.units import format_rate, format_seconds

EXPLORED_MIN = 3
"""Counts that must have been tried before the model says how they act on each other."""

CERTAIN = 4
"""Sizes from which the model is taken as it is: before, sizes not tried have the benefit of the doubt."""

OTHERS_SAID = 0.1
"""Share of the host's cores from which it is said that others use them."""

CROWD = 2.0
"""Processes per core of a host that is full, from which half of them are tried: they take turns, and turns cost. On two cores
4 PS and 5 trainers trained two thirds of what 1 PS and 2 trainers did, and a model of one size cannot know."""

KNOWN = 0.06
"""Relative standard error of the throughput at the present size, below which it is known. Where windows scatter by a quarter
four of them said 11 300 examples/s of a size that made 12 900, and the job stayed at one that made 11 400."""

WAITING = "for the PS, for a core or for each other"
"""Of what no CPU shortens in a step, where all processes are on one machine: they share its cores, and no network is between
them."""

NO_WORKER = {
    "sum": "the sum over all workers takes most of a step",
    "fixed": "most of a step is what each worker does however small its part is",
}
"""Of what more workers do not shorten."""

LARGE = 8
"""Trainers from which a quarter fewer are tried rather than one more."""


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


def calm(evidence: Evidence) -> Answer:
    """Nothing is worked out that must not be done."""
    why = hysteresis.any_change(evidence)
    return Keep(f"{format_rate(evidence.rate)} examples/s at {describe(evidence.size)}; {why}") if why else None


def throughput(evidence: Evidence) -> Answer:
    """Goes to the best size for the objective, or a step towards it."""
    policy, model = evidence.policy, evidence.model
    if model is None or evidence.present is None:
        return Remark("there is no throughput model yet")
    certain = len(evidence.measured) >= CERTAIN
    search = Search(evidence, hopeful=not certain)
    if (answer := _thin_out(evidence, search)) is not None:
        return answer
    found = search.best()
    if key_of(found.size) == key_of(evidence.size):
        return _explore(evidence, search) or _stay(evidence, search, found)
    if len(model.keys) < throughput_model.SIZES_TO_HOLD_OUT and key_of(found.size) not in evidence.measured:
        return _step(evidence, search, found, step_towards(evidence, search, found.size))
    answer = _step(evidence, search, found, towards(evidence, search, found.size, sure=certain))
    if not isinstance(answer, Proposal) or key_of(answer.size) in evidence.measured:
        return answer
    if not exploring.trusted(evidence):  # what follows is dear, and only asked of a change
        return _step(evidence, search, found, step_towards(evidence, search, found.size))
    if certain and model.confidence < policy.confidence_full:
        return _step(evidence, search, found, towards(evidence, search, found.size, sure=False))
    return answer


# ------------------------------------------------------------------------------------------------------- internals


def _step(evidence: Evidence, search: Search, found: Found, size: Size) -> Answer:
    """The step to a size on the way to the best one, or why it is not made."""
    if key_of(size) not in evidence.measured and exploring.barred(evidence, size):
        why, size = exploring.barred(evidence, size), step_towards(evidence, search, found.size)
        if size == evidence.size:
            return _explore(evidence, search) or Remark(f"{describe(found.size)} would be better, but {why}")
    if size == evidence.size:
        return Remark(f"{describe(found.size)} would be better, but no step towards it is allowed")
    if why := _too_little(evidence, search, size, found):
        return _explore(evidence, search) or Remark(why)
    if why := _must_wait(
        evidence, search, size, in_need=found.shortfall > 0 or _deadline_grows(evidence, search, size)
    ):
        return Remark(why)
    return _proposal(evidence, search, size, found)


def _gain(evidence: Evidence, search: Search, size: Size) -> tuple[float, float]:
    """(gain in throughput, saving of cost), as shares; by what was measured where something was."""
    rate = evidence.expected(size)
    return rate / evidence.rate - 1, 1 - search.price(size) / search.price(evidence.size)


def _said(evidence: Evidence, search: Search, size: Size) -> str:
    gain, saving = _gain(evidence, search, size)
    return f"{describe(size)} is predicted to train {gain:+.0%}" + (f" and to save {saving:.0%}" if saving > 0 else "")


def _share(evidence: Evidence, search: Search, size: Size) -> float:
    """What going to a size is worth: share of throughput gained, or of cost saved."""
    gain, saving = _gain(evidence, search, size)
    if saving > 0:
        return _worth_of_saving(evidence, gain, saving)
    return gain if key_of(size) in evidence.measured else search.rate(size) / evidence.rate - 1


def _too_little(evidence: Evidence, search: Search, size: Size, found: Found) -> str:
    """Whether it is not worth a change; empty if it is."""
    policy = evidence.policy
    gain, saving = _gain(evidence, search, size)
    if saving > 0 and key_of(size) in evidence.measured:
        lost = max(0.0, 1 - search.rate(size) / evidence.rate) + policy.marginal_loss
        if -gain > lost:
            return f"{describe(size)} was tried: it trains {gain:+.0%}"
    needed = policy.saving_min if saving > 0 else policy.gain_min
    needed *= 0.0 if found.shortfall and saving <= 0 else evidence.stake
    believed = exploring.came_true(evidence, size) if saving <= 0 and evidence.stake > 1 else 1.0
    needed /= believed
    if _share(evidence, search, size) * evidence.share_left < needed:
        left, verb = format_seconds(evidence.seconds_left), "save" if saving > 0 else "bring"
        doubt = f", as {believed:.0%} at most of what was foretold in this direction came true" if believed < 1 else ""
        said = f"{_said(evidence, search, size)} for the {left} that are left"
        return f"{said}; a change must {verb} {needed:.0%} of it all{doubt}"
    return ""


def _deadline_grows(evidence: Evidence, search: Search, size: Size) -> bool:
    """A job that would be late grows whatever it costs. Of one whose end is not known nobody can say so."""
    late = evidence.observed.objective == "deadline" and evidence.end_known
    return late and search.price(size) > search.price(evidence.size)


def _must_wait(evidence: Evidence, search: Search, size: Size, in_need: bool) -> str:
    """Why a change that is worth it is not made now; empty if it is."""
    policy, share = evidence.policy, _share(evidence, search, size)
    _, saving = _gain(evidence, search, size)
    what = _said(evidence, search, size)
    noise = policy.noise_factor * evidence.error(size)
    if share < noise:
        return f"{what}, which is within the noise of {noise:.0%}"
    if not _windows_enough(evidence, 0.0 if saving > 0 else share):
        return f"{what}; one more window is awaited"
    measured = key_of(size) in evidence.measured
    if why := exploring.taken_back(evidence, size) if measured else exploring.barred(evidence, size):
        return f"{what}; {why}"
    if why := hysteresis.blocked(evidence, size):
        return f"{what}; {why}"
    if not cost.pays(evidence, share if saving > 0 else share / (1 + share), cost.of_change(evidence, size)):
        return f"{what}; the change would not pay in the {format_seconds(evidence.seconds_left)} that are left"
    if not in_need and (why := exploring.too_dear(evidence, size)):  # last: models have to be fitted for it
        return f"{what}; {why}"
    return ""


def _worth_of_saving(evidence: Evidence, gain: float, saving: float) -> float:
    """What a saving is worth: of the cost per second where time is free, else of the cost per example."""
    if evidence.observed.objective == "deadline":
        return saving
    return 1 - (1 - saving) / max(0.01, 1 + gain)


def _windows_enough(evidence: Evidence, gain: float) -> bool:
    """Whether the present size is known well enough to be left: what is worse has to be told from it."""
    policy, present = evidence.policy, evidence.present
    if present is None:
        return False
    known = present.windows >= policy.windows_per_size or evidence.error_here <= KNOWN
    return gain >= policy.obvious_gain or (present.windows >= policy.windows_min and known)


def _explore(evidence: Evidence, search: Search) -> Answer:
    """Where few sizes were tried, one step in one dimension, to learn what the model cannot know.

    Without PS nothing is tried blindly: what a step consists of is measured at any size, and the rest is taken for less than
    it is (`synchronous.ALPHA`), so where even that brings nothing, nothing does.
    """
    size = evidence.size
    if evidence.limits.sums:
        return None
    tried = {key[:2] for key in evidence.measured}
    changed = sum(
        change.kind in hysteresis.COUNTS for change in evidence.past()
    )  # windows are forgotten, these are not
    if max(len(tried), 1 + changed) >= EXPLORED_MIN or not _windows_enough(evidence, 0.0):
        return None
    if evidence.observed.objective != "fastest":
        return None
    for option in _options(evidence):
        new = (option.ps, option.workers) not in tried and option != size
        allowed = search.allowed(option) if new else None
        if allowed is None or exploring.barred(evidence, allowed) or hysteresis.blocked(evidence, allowed):
            continue
        if exploring.undone(evidence, allowed):
            continue
        if not exploring.too_dear(evidence, allowed):
            return Proposal(
                "explore", allowed, f"only {len(tried)} size{'s were' if len(tried) > 1 else ' was'} tried so far: "
                f"{describe(allowed)} is tried, {exploring.announced(evidence, allowed)}",
                price_seconds=exploring.price_seconds(evidence, allowed),
            )  # fmt: skip
    return None


def _thin_out(evidence: Evidence, search: Search) -> Answer:
    """Where far more processes than cores fill the host, half of them are tried."""
    size, cores = evidence.size, sum(host.cores for host in evidence.observed.hosts)
    processes, objective = size.ps + size.trainers, evidence.observed.objective
    if not exploring.full(evidence) or processes <= CROWD * cores or objective != "fastest":
        return None
    half = dataclasses.replace(size, ps=-(-size.ps // 2), workers=-(-size.workers // 2))
    allowed = search.allowed(half)
    if allowed is None or key_of(allowed) in evidence.measured or not _windows_enough(evidence, 0.0):
        return None
    if (
        exploring.undone(evidence, allowed)
        or exploring.barred(evidence, allowed)
        or exploring.too_dear(evidence, allowed)
        or hysteresis.blocked(evidence, allowed)
    ):
        return None
    return Proposal(
        "explore", allowed, f"{processes} processes take turns on {cores:g} cores: {describe(allowed)}, about half of them, "
        f"is tried, {exploring.announced(evidence, allowed)}",
        price_seconds=exploring.price_seconds(evidence, allowed),
    )  # fmt: skip


def _options(evidence: Evidence) -> tuple[Size, ...]:
    """What to try. A small job might be too small; of a large one a quarter might be too much, which costs most to leave."""
    size, limits = evidence.size, evidence.limits
    fewer = max(limits.min_workers, size.trainers - max(1, size.trainers // 4) - 1)
    fewer_ps = max(1, limits.min_ps, size.ps - max(1, size.ps // 4))
    more = (dataclasses.replace(size, workers=size.workers + 1), dataclasses.replace(size, ps=size.ps + 1))
    less = (dataclasses.replace(size, workers=fewer), dataclasses.replace(size, ps=fewer_ps))
    if size.trainers >= LARGE:
        return less
    if any(use.busy_share >= evidence.policy.busy_share for use in evidence.ps):
        more = more[::-1]
    return *more, less[1]  # on cores that are full the PS are the first that may be too many


def _stay(evidence: Evidence, search: Search, found: Found) -> Answer:
    size, objective = evidence.size, evidence.observed.objective
    rate = format_rate(evidence.rate)
    text = f"{describe(size)} is the best size known for the objective {objective}, at {rate} examples/s"
    if told := evidence.model.told(size) if evidence.model is not None else "":
        text += f", {told}"
    if why := _bound(evidence, search):
        text += f"; {why}"
    if larger := _next_larger(evidence, search):
        text += f" ({larger})"
    if evidence.starved >= evidence.policy.starved_share:
        more = "workers" if evidence.limits.sums else "PS"
        text += f"; trainers wait for input {evidence.starved:.0%} of the time, which more {more} would not change"
    if held := [why for role in ("ps", "worker") if (why := hysteresis.by_hand(evidence, role))]:
        best = Search(evidence, hopeful=len(evidence.measured) < CERTAIN, held=False).best().size
        better = f"{_said(evidence, search, best)}, but " if key_of(best) != key_of(size) else ""
        text += f"; {better}{' and '.join(held)}"
    if found.shortfall:
        text += f"; the deadline cannot be met, it will be {format_seconds(found.shortfall)} late"
    return Remark(text)


def _bound(evidence: Evidence, search: Search) -> str:
    """What keeps the job from training faster, where no larger size is predicted to; empty where one is, or nobody knows."""
    if lacking := search.lacks_memory(evidence.size):
        return lacking
    binding = evidence.binding(evidence.size)
    if not binding or search.fastest_of_larger(evidence.size) > (1 + evidence.policy.marginal_gain) * evidence.rate:
        return ""
    what = {
        "trainer CPU": "the CPU of the trainers is what it waits for", "PS CPU": "the CPU of the fullest PS binds",
        "network": "trainers wait for the network, or for each other", "input": "trainers wait for their input",
        "host CPU": _full(evidence), "waiting": f"trainers wait {WAITING}", **NO_WORKER,
    }[binding]  # fmt: skip
    return f"{what}: no size within the limits is predicted to train faster"


def _next_larger(evidence: Evidence, search: Search) -> str:
    """What one worker more and one PS more are predicted to bring, or have brought, and why they are not tried again."""
    size, told = evidence.size, []
    more = dataclasses.replace(size, workers=size.workers + 1), dataclasses.replace(size, ps=size.ps + 1)
    for larger in filter(None, map(search.allowed, more)):
        if key_of(larger) == key_of(size) or evidence.expected(larger) <= 0:
            continue
        gain, known = evidence.expected(larger) / evidence.rate - 1, key_of(larger) in evidence.measured
        why = "" if known else exploring.barred(evidence, larger)
        told.append(
            f"{describe(larger)}: {gain:+.0%} {'measured' if known else 'predicted'}" + (f", {why}" if why else "")
        )
    return "; ".join(told)


def _full(evidence: Evidence) -> str:
    """`both cores of this machine are in use, 0.4 of them by others`."""
    if not evidence.observed.one_host:
        return "the cores of one of its hosts are in use"
    cores, others = evidence.around.cores, evidence.around.cores - evidence.around.free
    words = {1.0: "the core of this machine is in use", 2.0: "both cores of this machine are in use"}
    text = words.get(cores, f"all {cores:g} cores of this machine are in use")
    return text + (f", {others:.1f} of them by others" if others >= OTHERS_SAID * cores else "")


def _proposal(evidence: Evidence, search: Search, size: Size, found: Found) -> Proposal:
    gain, saving = _gain(evidence, search, size)
    observed, model = evidence.observed, evidence.model
    why = f"{format_rate(evidence.rate)} examples/s at {describe(evidence.size)}; "
    why += f"{describe(size)} is predicted to train {gain:+.0%}"
    why += f" for {abs(saving):.0%} {'less' if saving > 0 else 'more'} cost"
    if model is not None and (told := model.told(size)):
        why += f": {told} (here {model.told(evidence.size)})"
    if key_of(size) != key_of(found.size):
        why += f", a step towards {describe(found.size)}"
    if observed.objective == "cheapest":
        why += ", the best throughput per cost within its margin" if key_of(size) == key_of(found.size) else ""
    if found.shortfall:
        why += f"; the deadline cannot be met, at best it will be {format_seconds(found.shortfall)} late"
    elif observed.objective == "deadline" and evidence.end_known:
        left = observed.deadline_seconds - evidence.now
        why += f"; {evidence.examples_left:,.0f} examples are to be trained in {format_seconds(max(0.0, left))}"
    elif observed.objective == "deadline":
        why += "; where the job ends is not known, so the fastest size is taken"
    if reached := limits_reached(size, evidence.limits):
        why += f"; {reached} is reached"
    if gain > 0 and (binding := evidence.binding(size)):
        bound = f"{binding}{f' {WAITING}' if binding == 'waiting' else ''} would bind there"
        why += f"; {NO_WORKER.get(binding, bound)}"
    error = f"{model.mape_holdout:.0%}" if model is not None and model.mape_holdout is not None else "not known yet"
    why += f" (windows: {len(evidence.windows)}, sizes: {len(evidence.measured)}, held-out error {error})"
    if (size.ps, size.workers) == (evidence.size.ps, evidence.size.workers):
        return Proposal("resize", size, why)
    if key_of(size) in evidence.measured or exploring.trusted(evidence):
        return Proposal("scale", size, why)
    why += f": {exploring.announced(evidence, size)}"
    return Proposal("explore", size, why, price_seconds=exploring.price_seconds(evidence, size))
