"""No regret: a size that was measured better is gone back to, whatever the model is worth.

What was measured needs no prediction. So this is asked before anything that rests on one, and no wait that keeps predictions
from flapping holds it up: the change that led here has been judged, and the way back is known. It ends all the same, whatever
is measured: a way back that has brought nothing is barred like any other direction (`exploring.barred`).
"""

from __future__ import annotations

import dataclasses

from deeprec_ext.autoscaler.model.surroundings import CHANGED, free_cores
from deeprec_ext.autoscaler.observe.observed import Size, Window
from deeprec_ext.autoscaler.outcomes import trials
from deeprec_ext.autoscaler.outcomes.measured import Key, Measured, key_of
from deeprec_ext.autoscaler.policy import cost, exploring, hysteresis, memory
from deeprec_ext.autoscaler.policy.decision import Answer, Proposal, Remark
from deeprec_ext.autoscaler.policy.evidence import Evidence
from deeprec_ext.autoscaler.policy.limits import describe, fits
from deeprec_ext.autoscaler.policy.search import price, steps_between
from deeprec_ext.units import format_rate, format_seconds

WAYS_BACK = 2
"""A role may change its direction so many times as often to go back as to try: where nothing stays as it was measured,
going back is flapping, too."""


UNMEASURED_SECONDS = 600.0
"""So long nothing could be measured at a size before it is given up: its new processes do not train, or never rest."""


def unmeasured(evidence: Evidence) -> Answer:
    """Back from a size of ours at which nothing can be measured, where all other rules are blind, to the one before."""
    observed, stays = evidence.observed, evidence.stays
    if evidence.present is not None or len(stays) < 2 or stays[-1].decision < 0:
        return None
    # as this AIMaster has seen: one that has come back just now has measured nothing yet, either
    looked = max((use.age_seconds for use in observed.roles), default=0.0)
    waited = min(evidence.now - evidence.changed_at, looked)
    if waited < UNMEASURED_SECONDS or any(
        loss.time >= evidence.changed_at and loss.name.startswith("ps-") for loss in observed.losses
    ):
        return None
    ps, workers = stays[-2].counts
    size = _size(evidence, (ps, workers, *key_of(evidence.size)[2:]))
    known = evidence.measured.get(key_of(size)) if size is not None else None
    if size is None or known is None:
        return None
    what = (
        f"nothing could be measured at {describe(evidence.size)} for {format_seconds(waited)}, {describe(size)} made "
        f"{format_rate(known.rate)} examples/s"
    )
    for role in ("ps", "worker"):
        if why := hysteresis.failed(evidence, role, hysteresis.COUNTS):
            return Remark(f"{what}; {why}")
    return Proposal("scale", size, f"back to where it was: {what}")


def measured_better(evidence: Evidence) -> Answer:
    """Back to the best of the sizes that were measured better than the present one by more than the noise."""
    present = evidence.present
    if present is None or len(evidence.measured) < 2 or _in_time(evidence):
        return None
    sizes = {key: size for key in sorted(evidence.measured) if (size := _size(evidence, key)) is not None}
    better = [key for key, size in sizes.items() if _better(evidence, size, evidence.measured[key])]
    if not better:
        return None
    free = [key for key in better if not _by_hand(evidence, sizes[key])]
    if not free and (answer := _in_its_role(evidence)) is not None:
        return answer
    key = _best(evidence, {key: sizes[key] for key in free or better})
    size, measured = sizes[key], evidence.measured[key]
    what = (
        f"{describe(size)} was measured better: {format_rate(measured.rate)} examples/s in {_windows(measured)}, here "
        f"{format_rate(present.rate)} in {_windows(present)} ({measured.rate / present.rate - 1:+.0%})"
    )
    if why := _must_wait(evidence, size, evidence.expected(size)):
        return Remark(f"{what}; {why}")
    action = "resize" if (size.ps, size.workers) == (evidence.size.ps, evidence.size.workers) else "scale"
    return Proposal(action, size, f"back from {describe(evidence.size)}: {what}")


def _in_its_role(evidence: Evidence) -> Answer:
    """Back from a change of ours in its own role alone, where somebody has set the other one by hand before it could be judged.

    At the counts that there would be nothing was measured. What was before the change counts, in proportion to the trainers
    where there are fewer by now.
    """
    held = [role for role in ("ps", "worker") if hysteresis.manual(evidence, role)]
    last = evidence.tried[-1] if evidence.tried else None
    if last is None or len(held) != 1 or (last.gained is not None and not last.failed):
        return None
    ours = 1 if held == ["ps"] else 0  # in a pair of counts
    present, requests = trials.counts_of(evidence.size), key_of(evidence.size)[2:]
    if last.after[ours] != present[ours]:
        return None  # it has left that size since
    counts = (last.before[0], present[1]) if ours == 0 else (present[0], last.before[1])
    size, before = _size(evidence, (*counts, *requests)), evidence.measured.get((*last.before, *requests))
    if size is None or before is None:
        return None
    rate = before.rate * min(1.0, size.trainers / (last.before[1] + 1))
    if not _better(evidence, size, dataclasses.replace(before, rate=rate)):
        return None
    what = (
        f"{format_rate(before.rate)} examples/s were measured before decision {last.number}, here "
        f"{format_rate(evidence.rate)}; the number of "
        f"{'PS' if held == ['ps'] else 'workers'} was set by hand since, and stays"
    )
    if why := _must_wait(evidence, size, rate):
        return Remark(f"{what}; {why}")
    return Proposal("scale", size, f"back from {describe(evidence.size)} to {describe(size)}: {what}")


def freed(evidence: Evidence) -> Answer:
    """Back to the first size when others leave more of the host than they ever did while the job had it.

    On a host that others fill all sizes are alike, so a small one is as good; what they would train now nobody has measured,
    and in proportion they are alike still. Once the first size has been measured so, its windows are kept, and this is not
    asked.
    """
    first, present, around = evidence.observed.first, evidence.present, evidence.around
    if first is None or present is None or not around.cores or evidence.observed.objective != "fastest":
        return None
    size = _size(evidence, (first.ps, first.workers, *key_of(evidence.size)[2:]))
    then = [one for one in evidence.windows if (one.size.ps, one.size.workers) == (first.ps, first.workers)]
    if size is None or not then or not all(one.host_cores > 0 for one in then) or not any(map(_filled, then)):
        return None
    if around.free <= max(map(free_cores, then)) + CHANGED * around.cores:
        return None
    what = f"others leave {around.free:.1f} of {around.cores:g} cores now: what {describe(size)} trains with them is not known"
    if why := _not_now(evidence, size):
        return Remark(f"{what}; {why}")
    dear = exploring.price_seconds(evidence, size)
    if dear > evidence.policy.explore_share * evidence.seconds_left:
        return Remark(
            f"{what}; to go back to it would not pay in the {format_seconds(evidence.seconds_left)} that are left"
        )
    return Proposal("explore", size, f"{what}, and the job began with it", price_seconds=dear)


# ------------------------------------------------------------------------------------------------------- internals


def _filled(window: Window) -> bool:
    """Whether the job and others used all of the host, as far as is known: else more of it would have changed nothing."""
    used = window.trainer_cpu_cores * window.size.trainers + window.ps_cpu_cores
    return not used or free_cores(window) - used < exploring.FULL * window.host_cores


def _size(evidence: Evidence, key: Key) -> Size | None:
    """The size of a key, with the memory it needs; None where it is the present one, or not to be had."""
    size = dataclasses.replace(evidence.size, ps=key[0], workers=key[1], ps_cpu=key[2], worker_cpu=key[3])
    requests_differ = key[2:] != key_of(evidence.size)[2:]
    if (
        key == key_of(evidence.size)
        or not fits(size, evidence.limits)
        or (requests_differ and not evidence.limits.resizable)
    ):
        return None
    return memory.with_memory_for(evidence, memory.ps_memory(evidence), size)


def _value(evidence: Evidence, size: Size, rate: float) -> float:
    """What a size is worth for the objective: examples per second, for `cheapest` per cost."""
    cost_of = price(size, evidence.policy.bytes_per_core) if evidence.observed.objective == "cheapest" else 1.0
    return rate / cost_of


def _better(evidence: Evidence, size: Size, measured: Measured) -> bool:
    """Whether a size is better for the objective by more than the noise, and than what the objective gives for cost."""
    policy, present = evidence.policy, evidence.present
    assert present is not None
    gain = _value(evidence, size, measured.rate) / _value(evidence, evidence.size, present.rate) - 1
    if min(present.windows, measured.windows) < policy.windows_min and gain < policy.obvious_gain:
        return False
    noise = policy.noise_factor * evidence.error(size)
    least = max(noise, evidence.stake * policy.gain_min if evidence.stake > 1 else 0.0)
    if evidence.observed.objective == "cheapest":
        return gain > policy.cheapest_share + least
    if price(size, policy.bytes_per_core) > price(evidence.size, policy.bytes_per_core):
        floor = exploring.least_rate(evidence)
        slower_than_at_first = present.rate * (1 + noise) < floor <= measured.rate
        if not slower_than_at_first:  # what `fastest` has given back for little, it does not take again for as little
            least += policy.marginal_gain * max(1.0, steps_between(evidence.size, size))
    return gain > least


def _best(evidence: Evidence, sizes: dict[Key, Size]) -> Key:
    """The best for the objective; of those that are about as good the fastest for `cheapest`, else the cheapest."""
    values = {key: _value(evidence, size, evidence.measured[key].rate) for key, size in sizes.items()}
    cheap = evidence.observed.objective == "cheapest"
    share = evidence.policy.cheapest_share if cheap else evidence.policy.noise_factor * evidence.usual_error
    good = [key for key in sizes if values[key] >= (1 - share) * max(values.values())]
    if cheap:
        return max(good, key=lambda key: evidence.measured[key].rate)
    return min(good, key=lambda key: (price(sizes[key], evidence.policy.bytes_per_core), -values[key]))


def _must_wait(evidence: Evidence, size: Size, rate: float) -> str:
    """`rate`: examples per second that are expected there."""
    if why := _not_now(evidence, size) or exploring.taken_back(evidence, size):
        return why
    here, there = _value(evidence, evidence.size, evidence.rate), _value(evidence, size, rate)
    if not cost.pays(evidence, 1 - here / there, cost.of_change(evidence, size)):
        return "going back would not pay in the time that is left"
    return ""


def _not_now(evidence: Evidence, size: Size) -> str:
    """Why a way back has to wait, whatever it would bring; empty: it has not."""
    if why := _by_hand(evidence, size):
        return f"but {why}"
    for role, before, after in (("ps", evidence.size.ps, size.ps), ("worker", evidence.size.workers, size.workers)):
        kind = "scale-up" if after > before else "scale-down"
        often = WAYS_BACK * evidence.policy.reversals_per_hour
        if after != before and (
            why := hysteresis.failed(evidence, role, (kind,)) or hysteresis.flips(evidence, role, often)
        ):
            return why
    return ""


def _by_hand(evidence: Evidence, size: Size) -> str:
    """Why a size is not gone to that changes what somebody has set by hand; empty: it changes nothing of that."""
    for role, before, after in (("ps", evidence.size.ps, size.ps), ("worker", evidence.size.workers, size.workers)):
        if after != before and (why := hysteresis.by_hand(evidence, role, after)):
            return why
    return ""


def _in_time(evidence: Evidence) -> bool:
    """Whether a deadline is met as it is: then the cheaper size is the better one, and no faster one is gone back to."""
    observed = evidence.observed
    if observed.objective != "deadline" or observed.deadline_seconds <= 0 or not evidence.end_known:
        return False
    left = observed.deadline_seconds - evidence.now
    return evidence.seconds_left <= left * (1 - evidence.policy.deadline_margin / 2)


def _windows(measured: Measured) -> str:
    return f"{measured.windows} window{'s' if measured.windows != 1 else ''}"
