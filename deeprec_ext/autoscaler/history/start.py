"""Decision 0: the size a job starts with, from jobs that have finished. Pure.

Jobs like this one (of the same script, or whose model has features like these) say what a step will cost: their mean, weighted
by likeness, where they are few; else what the best learner of `regression.py` makes of the features.
What a step costs and the formula of `formula.py` give the throughput of every size; the smallest size from which nothing
brings much more is where to start. Little confidence, little start: a job that starts too small is scaled up soon, one that
starts too large has taken from others.

A job without PS declares no model: it is known by its script alone, by jobs without PS, whose steps `synchronous.py` models,
and begins with no more workers than these were measured with.

What a step costs is the machine's, too: jobs of another kind of machine count less, and it is said. Memory is everywhere the
same. Where no model was like this one, the nearest jobs of the same script are heard, for little.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deeprec_ext.autoscaler.history.estimates import Like, is_elsewhere, known, ps_memory, with_reserve
from deeprec_ext.autoscaler.history.history import Finished, of_strategy
from deeprec_ext.autoscaler.history.regression import JOBS_MIN, Row, learn
from deeprec_ext.autoscaler.model import synchronous
from deeprec_ext.autoscaler.model.formula import NAMES
from deeprec_ext.autoscaler.model.memory_model import PROCESS_BYTES, Layout, even_share, of_holder_of
from deeprec_ext.autoscaler.model.surroundings import Surroundings, around
from deeprec_ext.autoscaler.model.synchronous import SynchronousModel
from deeprec_ext.autoscaler.model.throughput import ThroughputModel, fit
from deeprec_ext.autoscaler.observe.observed import Limits, Model, Size
from deeprec_ext.units import counted, format_bytes, sized

FEATURES = {
    "table_bytes": "bytes of tables", "dense_bytes": "bytes of other variables", "fields": "tables",
    "batch_size": "examples a step", "lookups_per_step": "rows looked up a step", "flops_per_example": "FLOP for an example",
}  # fmt: skip
"""By which models are compared, in words."""

COSTS = ("fixed", "compute", "serve")
"""Coefficients that follow from the model. The others are means."""

FARTHEST = math.e
"""A cost is thought to be at most so many times beyond what was seen of any job."""

LIKENESS = 1.5
"""Jobs whose features differ by this factor of two (so 2.8 times) count 60 %, by twice as much 14 %."""

STRANGER = 0.5
"""Weight of a job of another script, beside its likeness."""

ELSEWHERE = 0.5
"""Weight of a job on another kind of machine: a step there takes easily twice as long, or half."""

STOPPED, CUT = "stopped", 0.25
"""How a job has ended that its user has stopped, and its weight where it had too few sizes to say how fast others are: it may
have been stopped for being slow, or have hardly begun."""

SOME = 3.0
"""Logarithm to base 2 of how far a model with tables is from one that has none: as far as one with eight times as many."""

NEAREST_MAX = 3
"""Jobs of the script that are heard where none had a model like it."""

NEAREST_WEIGHT = 0.05
"""Of such a job, at least: however far it is, it says more than nothing."""

TOLD_MAX = 5
"""Jobs that are named as evidence."""

SIMILAR_MAX = 30
"""Jobs that are looked at: the most alike."""

LIKENESS_MIN = 0.3
"""Of the most similar job: with less it is as if there were none, however many there are."""

EACH_OF = 30
"""Of so many numbers of PS each is looked at, whether it is enough; of more, one in twice as many, and so on: a job of hundreds
of PS may get one in thirty more than it needs."""

MARGINAL_GAIN = 0.05
"""What one more PS or worker (or a tenth more) must bring at least."""

UNSHOWN, UNSHOWN_WITHIN = 0.2, 0.1
"""Relative errors that a job's model is taken to have where no size of it could be held out; the second where no size is chosen
that is larger than those which were measured."""

TRUSTED = 0.6
"""Confidence from which the whole estimated size is taken; below, a part of the way to it."""

HEADROOM = 1.25
"""Memory that is requested, of what will be used."""

CPU_HEADROOM = 1.2

SMALL_CPU = 1.0
"""Cores of a pod of which nothing is known, where one must be named."""

WORKER_BYTES = 1 << 30
"""Memory of a trainer of which nothing is known, beside its dense variables."""


@dataclass(frozen=True)
class Start:
    """`confidence`: 0 to 1. `jobs`: how many like it it rests on; `like`: those that weigh most. `unlike`: no model was
    like it, they are but the nearest of its script. `examples_per_second`: expected; 0: nobody knows.

    `requests`: of each pod, where it is to find a place by them and is held to nothing; None: no job is similar, and what the
    declared variables need may be more than a pod can have."""

    size: Size
    confidence: float
    reason: str
    jobs: int = 0
    examples_per_second: float = 0.0
    requests: Size | None = None
    like: tuple[Like, ...] = ()
    unlike: bool = False


def first_size(
    model: Model, limits: Limits, history: Sequence[Finished], *, script: str = "", requests: Size | None = None,
    backups: bool = True, checkpoints: bool = True, layout: Layout | None = None, fingerprint: str = "", machine: str = "",
    cores: float = 0.0, free_bytes: int = 0, unread: str = "",
) -> Start:  # fmt: skip
    """Args:
    model: what is known of the user's model; zeros where nothing is.
    history: finished jobs; those of the other strategy say nothing.
    script, fingerprint, machine: as in `Finished`.
    requests: CPU and memory that the user has named (0: not); its counts are ignored.
    checkpoints: they are written, as far as is known.
    layout: of the declared variables; None: not known yet, and slots are taken to be even.
    cores: of the one host; 0: not known, or there are several.
    free_bytes: memory that the one host has left; 0: not known, or there are several.
    unread: why `history` is empty, where that is not because no job has finished.
    """
    given, any_job = requests or Size(1, 0), bool(history)
    history = of_strategy(history, sums=limits.sums)
    similar = _similar(model, history, script, machine)
    unlike = max((one.likeness for one in similar), default=0.0) < LIKENESS_MIN
    if unlike:
        similar = _nearest(model, history, script, machine)
    needed = _ps_memory(model, history, layout, fingerprint, backups, checkpoints)
    least = _least_ps(limits, given, needed)
    small = _sized(Size(least, limits.min_workers), model, limits, given, similar, backups, needed)
    if not similar:
        why = (
            f"no job like it has finished yet{_far(model, history)}" if any_job else unread or "no job has finished yet"
        )
        memory = f"; its variables need {least} PS" if least > limits.min_ps else ""
        short = _short_of(small, limits, given, needed) + _crowded(small, layout, backups, free_bytes)
        asked = None
        if _is_declared(layout) and limits.max_ps_memory_bytes:  # without a limit one could find no place at all
            asked = _requests(small, model, limits, given, (), backups, needed(small))
            asked = dataclasses.replace(asked, worker_memory_bytes=0)  # nobody knows what a trainer needs
        return Start(small, 0.1, f"{why}, so it starts small{memory}{short}", requests=asked)
    learned = _learned(model, similar, cores)
    within = _measured(limits, similar) if limits.sums else limits
    best = _sized(_walk(learned, small, within), model, limits, given, similar, backups, needed)
    confidence = _confidence(similar, sum(one.weight for one in similar))
    size = _part_of_the_way(small, best, confidence)
    part = "" if size == best else _why_part(best, confidence)
    short = _short_of(size, limits, given, needed) + _crowded(size, layout, backups, free_bytes)
    reason = f"{_ground(model, similar, unlike)}, confidence {confidence:.0%}{part}{short}"
    asked = _requests(size, model, limits, given, similar, backups, needed(size) if _is_declared(layout) else 0.0)
    like = tuple(
        Like(one.job.name, one.job.script, round(one.likeness, 3), one.job.finished, one.elsewhere)
        for one in similar[:TOLD_MAX]
    )
    grounds = similar if unlike else _like(similar)
    return Start(size, confidence, reason, len(grounds), learned.predict(size), asked, like, unlike)


# ------------------------------------------------------------------------------------------------ similar jobs


@dataclass(frozen=True)
class _Alike:
    """`weight`: its likeness, and less where it was on another kind of machine, or `cut` short. `learned`: what its windows
    teach."""

    weight: float
    likeness: float
    job: Finished
    learned: ThroughputModel | SynchronousModel
    elsewhere: bool
    cut: bool

    @property
    def job_is_local(self) -> bool:
        """Without PS: each worker had a batch of its own, by what was measured."""
        return isinstance(self.learned, SynchronousModel) and self.learned.local


Similar = Sequence[_Alike]
"""Those that weigh most first."""


def likeness(model: Model, script: str, job: Finished) -> float:
    """0 to 1. Features that are unknown on either side say nothing; without any, only the same script is alike."""
    same = bool(script) and script == job.script
    differences = list(_differences(model, job).values())
    if not differences:
        return 1.0 if same else 0.0
    distance = math.sqrt(statistics.fmean(one * one for one in differences))
    return math.exp(-((distance / LIKENESS) ** 2) / 2) * (1.0 if same else STRANGER)


def _similar(model: Model, history: Sequence[Finished], script: str, machine: str) -> Similar:
    found = [(likeness(model, script, job), job) for job in history]
    return _heaviest([one for one in found if one[0] > NEAREST_WEIGHT], machine, SIMILAR_MAX)


def _nearest(model: Model, history: Sequence[Finished], script: str, machine: str) -> Similar:
    """Of this script, however far."""
    mine = [job for job in history if script and job.script == script]
    return _heaviest([(max(likeness(model, script, job), NEAREST_WEIGHT), job) for job in mine], machine, NEAREST_MAX)


def _heaviest(found: Sequence[tuple[float, Finished]], machine: str, most: int) -> Similar:
    """Of jobs and how alike each is: those that teach something. Of equals, the first, which is the newest."""

    def weight(alike: float, job: Finished) -> float:
        return alike * (ELSEWHERE if is_elsewhere(job, machine) else 1.0)

    made = []
    with_sizes = [one for one in found if one[1].windows]
    for alike, job in sorted(with_sizes, key=lambda one: -weight(*one))[:most]:
        if (learned := _fit(job)) is not None:
            cut = job.status == STOPPED and learned.mape_holdout is None
            heavy = weight(alike, job) * (CUT if cut else 1.0)
            made.append(_Alike(heavy, alike, job, learned, is_elsewhere(job, machine), cut))
    return sorted(made, key=lambda one: -one.weight)


def _fit(job: Finished) -> ThroughputModel | SynchronousModel | None:
    place = around(job.windows, (), one_host=True)
    return synchronous.fit(job.windows, place, job.local_batch) if job.sums else fit(job.windows, place)


def _like(similar: Similar) -> Similar:
    """Those that are called like it; the others are heard for little."""
    return [one for one in similar if one.likeness >= LIKENESS_MIN]


def _ground(model: Model, similar: Similar, unlike: bool) -> str:
    """For people: on which jobs the size stands."""
    similar = similar if unlike else _like(similar)
    said = f"{counted(len(similar), 'job')} like it"
    if unlike:
        said = f"no model like it has finished yet; the nearest of its script{_difference(model, similar[0].job)}"
    if there := sum(one.elsewhere for one in similar):
        whole = "" if there == len(similar) else f"{there} of them "
        said += f", {whole}on another kind of machine, or one that is not known: how fast it is here is a guess"
    if cut := sum(one.cut for one in similar):
        said += f", {'' if cut == len(similar) else f'{cut} of them '}stopped before the end"
    return said


def _far(model: Model, history: Sequence[Finished]) -> str:
    """The nearest of jobs that are all too far."""
    told = [job for job in history if _differences(model, job)]
    nearest = max(told, key=lambda job: likeness(model, "", job), default=None)
    if nearest is None:
        return ""
    return f" (the nearest, {nearest.name or nearest.script},{_difference(model, nearest)})"


def _difference(model: Model, job: Finished) -> str:
    """` had 8 times its bytes of tables`, or `0.12 of`: in what two models differ most; empty: nothing is known of both."""
    apart = _differences(model, job)
    name = max(apart, key=lambda one: abs(apart[one]), default="")
    if not name or not apart[name]:
        return ""
    if not (here := getattr(model, name)) or not getattr(job.model, name):
        return f" had {'no ' if here else ''}{FEATURES[name]}"
    there = 2 ** -apart[name]
    return f" had {f'{there:,.3g} times' if there > 1 else f'{there:.2g} of'} its {FEATURES[name]}"


def _differences(model: Model, job: Finished) -> dict[str, float]:
    """Logarithms to base 2, of what is known of both. What neither has does not make them alike."""
    mine, theirs, found = known(model), known(job.model), dict[str, float]()
    for name in FEATURES:
        here, there = mine.get(name), theirs.get(name)
        if here and there:
            found[name] = math.log2(here / there)
        elif (here or there) and None not in (here, there):
            found[name] = SOME if here else -SOME
    return found


def _learned(model: Model, similar: Similar, cores: float) -> ThroughputModel | SynchronousModel:
    """What the similar jobs say of this one."""
    place = similar[0].learned.around
    if cores and place.cores and (similar[0].elsewhere or place.cores > cores):  # or this job is kept to some of them
        place = Surroundings(cores, cores)
    if isinstance(similar[0].learned, SynchronousModel):
        return _in_step(similar, place)
    means = [_mean(similar, [one.learned.coefficients[index] for one in similar]) for index in range(len(NAMES))]
    for name in COSTS:
        if (cost := _regressed(model, similar, NAMES.index(name))) is not None:
            means[NAMES.index(name)] = cost
    batches = [one.learned.batch if isinstance(one.learned, ThroughputModel) else 0.0 for one in similar]
    return ThroughputModel(tuple(means), model.batch_size or _mean(similar, batches), 0, 0.0, (), place)


def _in_step(similar: Similar, place: Surroundings) -> SynchronousModel:
    """The same of jobs without PS; of two kinds of batches those of the job that weighs most."""
    local = similar[0].job_is_local
    heard = [one for one in similar if one.job_is_local is local]
    models = [one.learned for one in heard if isinstance(one.learned, SynchronousModel)]
    alpha, beta, ring, further, gamma = (
        _mean(heard, [one.coefficients[index] for one in models]) for index in range(len(synchronous.NAMES))
    )
    records = _mean(heard, [one.records for one in models])
    return SynchronousModel((alpha, beta, ring, further, gamma), records, local, 0, 0.0, (), place)


def _measured(limits: Limits, similar: Similar) -> Limits:
    """With no more workers than such jobs have been measured with: how a ring goes on from there nobody knows."""
    most = max(window.size.workers for one in similar for window in one.job.windows)
    return dataclasses.replace(limits, max_workers=max(limits.min_workers, min(limits.max_workers, most)))


def _regressed(model: Model, similar: Similar, index: int) -> float | None:
    """One coefficient, from the features that are known of all; None: they are too few jobs, or nothing is known."""
    similar = sorted(
        _of_here(similar, JOBS_MIN), key=lambda one: (-one.job.finished, one.job.name)
    )  # as it was learnt ahead
    mine, theirs = known(model), [known(one.job.model) for one in similar]
    names = [name for name in mine if all(name in one for one in theirs)]
    costs = [max(one.learned.coefficients[index], 1e-7) for one in similar]
    rows = [
        Row(number, tuple(math.log1p(one[name]) for name in names), cost)
        for number, (one, cost) in enumerate(zip(theirs, costs))
    ]
    learned = learn(rows)
    if learned is None:
        return None
    found = learned.predict([math.log1p(mine[name]) for name in names])
    return min(max(found, min(costs) / FARTHEST), max(costs) * FARTHEST)


def _of_here(similar: Similar, least: int) -> Similar:
    """Without jobs of other machines, where at least so many remain."""
    here = [one for one in similar if not one.elsewhere]
    return here if len(here) >= least else similar


def _mean(similar: Similar, values: Sequence[float]) -> float:
    return sum(one.weight * value for one, value in zip(similar, values)) / sum(one.weight for one in similar)


def _confidence(similar: Similar, weight: float) -> float:
    """More with every similar job, less with the error of what each of them teaches."""
    holdouts = [one.learned.mape_holdout for one in similar]
    unshown = UNSHOWN_WITHIN if similar[0].job.sums else UNSHOWN
    errors = [error if error is not None else unshown for error in holdouts]
    return max(0.0, 1.0 - 2 * _mean(similar, errors)) * weight / (weight + 0.5)


# ------------------------------------------------------------------------------------------------ the size


def _walk(learned: ThroughputModel | SynchronousModel, size: Size, limits: Limits) -> Size:
    """Adds what brings most per pod, as long as it brings enough."""
    for _ in range(200):
        here, best, best_gain = learned.predict(size), size, MARGINAL_GAIN
        for larger in _larger(size, limits):
            pods = larger.ps + larger.workers - size.ps - size.workers
            gain = (learned.predict(larger) / here - 1) / pods * _step(max(size.ps, size.workers))
            if gain > best_gain:
                best, best_gain = larger, gain
        if best == size:
            return size
        size = best
    return size


def _larger(size: Size, limits: Limits) -> Iterator[Size]:
    more_ps, more_workers = size.ps + _step(size.ps), size.workers + _step(size.workers)
    for ps, workers in ((size.ps, more_workers), (more_ps, size.workers), (more_ps, more_workers)):
        larger = dataclasses.replace(size, ps=min(ps, limits.max_ps), workers=min(workers, limits.max_workers))
        quota = limits.total_cpu <= 0 or larger.cpu <= limits.total_cpu
        room = limits.total_memory_bytes <= 0 or larger.memory_bytes <= limits.total_memory_bytes
        if larger != size and quota and room:
            yield larger


def _step(count: int) -> int:
    return max(1, count // 10)


def _part_of_the_way(small: Size, best: Size, confidence: float) -> Size:
    share = min(1.0, confidence / TRUSTED)

    def between(low: int, high: int) -> int:
        return low + round(share * (high - low))

    return dataclasses.replace(best, ps=between(small.ps, best.ps), workers=between(small.workers, best.workers))


def _why_part(best: Size, confidence: float) -> str:
    return (
        f"; by them {_counts_of(best)} would be best: with less than {TRUSTED:.0%} it begins "
        f"{confidence / TRUSTED:.0%} of the way there"
    )


def _ps_memory(
    model: Model, history: Sequence[Finished], layout: Layout | None, fingerprint: str, backups: bool, checkpoints: bool
) -> Callable[[Size], float]:
    """Of the fullest PS, by the size: what is rarely exceeded."""
    if layout is None or not _is_declared(layout):
        return lambda size: HEADROOM * even_share(model, size.ps, backups)
    foretold = ps_memory(model, history, layout, fingerprint=fingerprint, backups=backups, checkpoints=checkpoints)
    return lambda size: with_reserve(foretold(size))


def _is_declared(layout: Layout | None) -> bool:
    return layout is not None and any(layout.counts)


def _least_ps(limits: Limits, given: Size, needed: Callable[[Size], float]) -> int:
    """PS that the variables need, each with the memory that one may have. Where no count is enough (one slot alone is larger):
    those from which on more do not help."""
    if limits.sums:
        return 0
    room = given.ps_memory_bytes or limits.max_ps_memory_bytes
    needs: dict[int, float] = {}
    for count in _counts(limits.min_ps, max(limits.min_ps, limits.max_ps)):
        needs[count] = needed(Size(count, limits.min_workers))
        if not room or needs[count] <= room:
            return count
    return next(count for count, need in needs.items() if need < min(needs.values()) * (1 + MARGINAL_GAIN))


def _counts(low: int, high: int) -> Iterator[int]:
    """Each of the first ones, then one in so many, and the last."""
    count = low
    while count < high:
        yield count
        count += max(1, (count - low) // EACH_OF)
    yield high


def _short_of(size: Size, limits: Limits, given: Size, needed: Callable[[Size], float]) -> str:
    """What is to be said where a PS of this size may have too little memory."""
    if limits.sums:
        return ""
    room = given.ps_memory_bytes or limits.max_ps_memory_bytes
    need = needed(size)
    if not room or need <= room:
        return ""
    return (
        f"; a PS may need {format_bytes(need)}, and may have {format_bytes(room)}: "
        "it may run out of memory, unless it may have more or there may be more PS"
    )


def _crowded(size: Size, layout: Layout | None, backups: bool, free_bytes: int) -> str:
    """What is to be said where all PS together have no room on the one host: more of them do not help."""
    if layout is None or not free_bytes:
        return ""
    whole = sum(layout.sizes) * (2 if backups and size.ps > 1 else 1) + size.ps * PROCESS_BYTES
    if whole <= free_bytes:
        return ""
    return f"; its PS need {format_bytes(whole)} together, more than the {format_bytes(free_bytes)} that this machine has left"


def _sized(
    size: Size, model: Model, limits: Limits, given: Size, similar: Similar, backups: bool,
    needed: Callable[[Size], float],
) -> Size:  # fmt: skip
    """With what each pod requests: as the user said; else as similar jobs needed, where requests can be made at all."""
    wanted = {
        "ps_cpu": 0.0 if limits.sums else _used(similar, "ps_cpu_cores") or SMALL_CPU,
        "worker_cpu": _used(similar, "trainer_cpu_cores") or SMALL_CPU,
        "ps_memory_bytes": 0.0 if limits.sums else needed(size),
        "worker_memory_bytes": HEADROOM * _trainer(size, model, similar, backups),
    }  # fmt: skip
    chosen = {}
    for name, value in wanted.items():
        most = getattr(limits, f"max_{name}")
        named = getattr(given, name) or (value if limits.resizable else 0)
        chosen[name] = min(named, most) if most else named
    for name in ("ps_memory_bytes", "worker_memory_bytes"):
        chosen[name] = math.ceil(chosen[name] / (16 << 20)) * (16 << 20)
    return _with(size, chosen)


def _with(size: Size, each: Mapping[str, float]) -> Size:
    return Size(
        size.ps, size.workers, round(each["ps_cpu"], 2), round(each["worker_cpu"], 2), int(each["ps_memory_bytes"]),
        int(each["worker_memory_bytes"]),
    )  # fmt: skip


def _requests(
    size: Size, model: Model, limits: Limits, given: Size, similar: Similar, backups: bool, computed: float
) -> Size:  # fmt: skip
    """What similar jobs used, with headroom, where the user has named nothing (0: he has, or nobody knows); never more of a pod
    than the limits allow, and cut evenly where all pods together would exceed the quota.

    computed: bytes of the fullest PS, by the declared variables; 0: they are not known."""
    used = {
        "ps_cpu": _used(similar, "ps_cpu_cores"), "worker_cpu": _used(similar, "trainer_cpu_cores"),
        "ps_memory_bytes": computed or HEADROOM * max(_ps_needed(one.job, size.ps) for one in similar),
        "worker_memory_bytes": HEADROOM * _trainer(size, model, similar, backups),
    }  # fmt: skip
    for name, value in used.items():
        most = getattr(limits, f"max_{name}")
        used[name] = 0.0 if getattr(given, name) else min(value, most) if most else value
    for what, quota in (("cpu", limits.total_cpu), ("memory_bytes", limits.total_memory_bytes)):
        names = {f"ps_{what}": size.ps, f"worker_{what}": size.trainers}
        written = sum(count * getattr(given, name) for name, count in names.items())
        wanted = sum(count * used[name] for name, count in names.items())
        if 0 < quota < written + wanted and wanted:
            used.update({name: used[name] * max(0.0, quota - written) / wanted for name in names})
    return _with(size, used)


def _ps_needed(job: Finished, ps: int) -> float:
    """Bytes of the fullest PS: as it was where the job had the fewest; with fewer still, as if all of it were variables."""
    if not ps:
        return 0.0
    return job.ps_memory_bytes * max(1.0, min(window.size.ps for window in job.windows) / ps)


def _trainer(size: Size, model: Model, similar: Similar, backups: bool) -> float:
    """Bytes of a trainer. Each may have to keep the copies of a single PS; those of a job that had one have done so."""
    holds = backups and size.ps == 1
    fresh = WORKER_BYTES + 4 * model.dense_bytes + (of_holder_of(model) if holds else 0)
    return max((_needed(one.job, holds) for one in similar), default=fresh)


def _needed(job: Finished, holds: bool) -> int:
    held = job.backups and any(window.size.ps == 1 for window in job.windows)
    return job.worker_memory_bytes + (of_holder_of(job.model) if holds and not held else 0)


def _used(similar: Similar, name: str) -> float:
    """Cores that one pod used in its busiest window, with headroom; 0: not known."""
    used = []
    for one in _of_here(similar, 1):
        each = [getattr(w, name) / ((w.size.ps or 1) if name.startswith("ps_") else 1) for w in one.job.windows]
        if max(each) > 0:
            used.append(max(each))
    return max(0.1, CPU_HEADROOM * statistics.median(used)) if used else 0.0


def at_least(start: Start, written: Size) -> Start:
    """Of a job whose like nobody has seen: no smaller than somebody has written it."""
    if start.jobs and not start.unlike:
        return start
    ps, workers = max(start.size.ps, written.ps), max(start.size.workers, written.workers)
    return dataclasses.replace(start, size=dataclasses.replace(start.size, ps=ps, workers=workers))


def describe(start: Start) -> str:
    """One line for people."""
    size = start.size
    memory = f", {format_bytes(size.ps_memory_bytes)} per PS" if size.ps_memory_bytes else ""
    return f"{_counts_of(size)}{memory}: {start.reason}"


def _counts_of(size: Size) -> str:
    return f"{size.ps} PS and {counted(size.workers, 'worker')}" if size.ps else sized(0, size.workers)
