"""What trying a size may cost, and what was learned by trying.

A prediction is a promise only as far as its error is known and small. Else going to a size that was not measured is an
exploration: one step of one role (a process up to ten, a tenth beyond; half of all where far more processes than cores fill a
host), at a price (training lost until it is known to be worse, and has been gone back from),
which the rest of the job must be able to bear. What was lost so far counts: all changes together may not cost a job more than
`explore_share` of its time, against staying at its first size. What they have won counts as well: a part of it may be spent
on finding a still better size, and the job stays ahead of where its first size would have it whatever comes of that.
"""

from __future__ import annotations

from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.autoscaler.outcomes import trials
from deeprec_ext.autoscaler.outcomes.measured import key_of
from deeprec_ext.autoscaler.policy import cost
from deeprec_ext.autoscaler.policy.evidence import Evidence
from deeprec_ext.units import format_seconds

WINDOWS_SECONDS = 26.0
"""Until two windows are measured at a new size: ten seconds each, and three in which it settles before each."""

ALONE = 0.05
"""Share of throughput at risk where new processes have cores of their own (the hosts have so many to spare, or nothing is known
of hosts and a CPU limit of the role binds), and where fewer are tried on a host that is full."""

MANY = 0.1
"""The same where several fewer are tried at once."""

GIVEN = 0.5
"""Part of `explore_share` that may be given for a cheaper size for good; the rest is for finding it."""

WON = 0.5
"""Part of what the changes so far have won that trying a size may cost besides."""

WON_MOST = 2.0
"""Times `explore_share` of the rest of the job: a long job that has won hours is not tried out for hours."""

ALL_CORES = 1.0
"""Cores that a process without a request may use, as far as the room for it goes."""

FULL = 0.1
"""Share of a host's cores that are free, below which it has none left."""

BELIEVED_LEAST = 0.25
"""Of a prediction, however wrong those before it were: with more PS, more workers may bring what they did not."""

GROWN = 0.5
"""Share of its share of the job that a further process may take from the others: it works, too."""


def trusted(evidence: Evidence) -> bool:
    """Whether the model's error at sizes it was not shown is known, and small."""
    error = evidence.model.mape_holdout if evidence.model is not None else None
    return error is not None and error <= evidence.policy.error_max


def least_rate(evidence: Evidence) -> float:
    """Examples per second of the first size, less what may be given for learning and for cost; 0: not measured."""
    return (1 - GIVEN * evidence.policy.explore_share) * evidence.brought.first_rate


def price_seconds(evidence: Evidence, size: Size) -> float:
    """Training that going to a size may cost, in seconds: if it is worse it is measured, and gone back from.

    While a change goes on the job trains at the size before. Processes that start take something from the others where they
    have no cores of their own, else only copying does; what takes longer than usual waits, and takes no more: nobody was slower
    in the 70 s that a PS took to go from cores that nine processes had filled.
    """
    change, policy, old = cost.of_change(evidence, size), evidence.policy, evidence.size
    starting = min(change.seconds, policy.change_seconds)
    copying = min(starting, change.bytes / policy.bytes_per_second)
    there = starting if _grows(old, size) and not _has_room(evidence, size) else copying
    back = starting if _grows(size, old) else copying
    away = WINDOWS_SECONDS + change.seconds
    return 2 * change.pause_seconds + policy.disturbance * (there + back) + risk(evidence, size) * away


def _grows(old: Size, new: Size) -> bool:
    """Whether processes have to start for it."""
    return new.ps > old.ps or new.workers > old.workers


def risk(evidence: Evidence, size: Size) -> float:
    """Share of throughput that a size which was not measured may lack against the present one."""
    policy, model = evidence.policy, evidence.model
    old = evidence.size
    if trusted(evidence) and model is not None and model.mape_holdout is not None:
        return min(1.0, max(ALONE, model.mape_holdout + 1 - evidence.modelled(size) / evidence.rate))
    grown = {"ps": size.ps - old.ps, "worker": size.workers - old.workers}
    if not any(grown.values()):
        return ALONE
    if share := undone(evidence, size):
        return share
    if _has_room(evidence, size):
        return ALONE
    if full(evidence) and not _grows(old, size):
        if grown["ps"] + grown["worker"] < -1:
            return MANY  # what turns of so many take is what the model knows least of
        likely = evidence.modelled(size)
        return max(ALONE, 1 - likely / evidence.rate) if likely > 0 else ALONE
    shares = [
        abs(more) / max(now, now + more)
        for more, now in ((grown["ps"], old.ps), (grown["worker"], old.trainers))
        if more
    ]
    return min(policy.explore_loss, GROWN * max(shares))


def undone(evidence: Evidence, size: Size) -> float:
    """Share of what a role does that nobody would do: it has fewer processes, and a limit of their own is what keeps them from
    doing more, however many cores the host has. 3 PS of 0.2 cores trained 17 200 examples/s, 2 of them 11 500."""
    fewer = {"ps": (evidence.size.ps, size.ps), "worker": (evidence.size.trainers, size.trainers)}
    return max(1 - min(old, new) / old if evidence.pressed(role) else 0.0 for role, (old, new) in fewer.items())


def _has_room(evidence: Evidence, size: Size) -> bool:
    """Whether there are more processes, which take nothing from those that are there."""
    old, hosts = evidence.size, evidence.observed.hosts
    more = {"ps": max(0, size.ps - old.ps), "worker": max(0, size.workers - old.workers)}
    if not any(more.values()):
        return False
    if not hosts:
        return all(evidence.pressed(role) for role in more if more[role])
    if not together(evidence):
        return True  # on a host that has room
    wanted = sum(more[role] * (getattr(size, f"{role}_cpu") or ALL_CORES) for role in more)
    return wanted <= sum(host.free_cores - host.job_cores for host in hosts)


def together(evidence: Evidence) -> bool:
    """Whether all share one host. On a cluster others may have room for what is to come, or there is no other: nobody knows,
    and where all pods were put on one node so far, the next may be put there as well."""
    observed, size = evidence.observed, evidence.size
    if observed.one_host:
        return True
    return len(observed.hosts) == 1 and observed.hosts[0].ps >= size.ps and observed.hosts[0].trainers >= size.trainers


def full(evidence: Evidence) -> bool:
    """Whether all share one host that has no core left: what one process less does not use, the others do."""
    hosts = evidence.observed.hosts
    left, cores = sum(host.free_cores - host.job_cores for host in hosts), sum(host.cores for host in hosts)
    return together(evidence) and left < FULL * cores


def too_dear(evidence: Evidence, size: Size) -> str:
    """Why a size that was not measured is not worth its price; empty: it is, or it was measured."""
    if key_of(size) in evidence.measured:
        return ""
    policy, dear = evidence.policy, price_seconds(evidence, size)
    left, lost = evidence.seconds_left, evidence.brought.lost_seconds
    share = policy.explore_share * left
    won = min(WON * max(0.0, -lost), WON_MOST * share)
    if dear > share + won:
        besides = f" and the {format_seconds(won)} that changes have won for it" if won >= 1 else ""
        return (
            f"to try it may cost {format_seconds(dear)}, more than {policy.explore_share:.1%} of the "
            f"{format_seconds(left)} that are left{besides}"
        )
    if (
        evidence.observed.objective == "fastest"
        and lost > 0
        and lost + dear > policy.explore_share * (evidence.trained_for + left)
    ):
        return (
            f"to try it may cost {format_seconds(dear)}, and changes have cost {format_seconds(lost)} already: together "
            f"more than {policy.explore_share:.0%} of the job"
        )
    return ""


def announced(evidence: Evidence, size: Size) -> str:
    """What an exploration says of itself."""
    dear = price_seconds(evidence, size)
    share = dear / max(1e-9, evidence.seconds_left)
    several = abs(size.ps - evidence.size.ps) + abs(size.workers - evidence.size.workers) > 1
    what = "several processes at once" if several else "one step"
    return f"{what}, to learn what it changes: it may cost {format_seconds(dear)}, {share:.1%} of what is left"


# ------------------------------------------------------------------------------------------------ what was learned


def barred(evidence: Evidence, size: Size) -> str:
    """Why the direction of a size is not tried now: it has failed, and that is not long enough ago. Empty: it may be."""
    towards = trials.direction(trials.counts_of(evidence.size), trials.counts_of(size))
    if towards == (0, 0):
        return ""
    return _waits(evidence, trials.failures(evidence.tried, towards), _named(towards))


def came_true(evidence: Evidence, size: Size) -> float:
    """Part of what was foretold of changes in the direction of a size that they have brought; 1: none was made, since others
    use of the host what they use now.

    A model that was wrong about a direction is still wrong about it in half an hour, when it may be tried again.
    """
    towards = trials.direction(trials.counts_of(evidence.size), trials.counts_of(size))
    if key_of(size) in evidence.measured:
        return 1.0
    since = evidence.model.around.since if evidence.model is not None else 0.0
    tried = [
        (one.foretold, one.gained) for one in evidence.tried
        if one.direction == towards and one.time >= since and one.gained is not None and (one.foretold or 0.0) > 0
    ]  # fmt: skip
    foretold = sum(promised or 0.0 for promised, _ in tried)
    brought = sum(min(max(gained or 0.0, 0.0), promised or 0.0) for promised, gained in tried)
    return max(BELIEVED_LEAST, brought / foretold) if foretold else 1.0


def taken_back(evidence: Evidence, size: Size) -> str:
    """The same of the very way from the present size to another: of a way back, which was measured."""
    here, there = trials.counts_of(evidence.size), trials.counts_of(size)
    row = [one for one in reversed(evidence.tried) if (one.before, one.after) == (here, there) and one.failed]
    return _waits(evidence, row, "the same way back")


def _waits(evidence: Evidence, row: list[trials.Trial], what: str) -> str:
    if not row:
        return ""
    last = row[0]
    wait = evidence.policy.direction_seconds * 2.0 ** min(len(row) - 1, 20)
    left = last.time + wait - evidence.now
    if left <= 0:
        return ""
    brought = f"brought {last.gained:+.0%}" if last.gained is not None else "was taken back"
    foretold = f" where {last.foretold:+.0%} was predicted" if last.foretold is not None else ""
    times = f", for the {len(row)}th time" if len(row) > 3 else ["", ", twice", ", three times"][len(row) - 1]
    return (
        f"{what} {brought}{foretold} {format_seconds(evidence.now - last.time)} ago{times}; the next try is in "
        f"{format_seconds(left)}"
    )


def _named(towards: trials.Counts) -> str:
    words = {1: "more", -1: "fewer"}
    parts = [f"{words[sign]} {name}" for sign, name in zip(towards, ("PS", "workers")) if sign]
    return " and ".join(parts)
