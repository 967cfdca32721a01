"""What a job will use and train at a size, before it starts: from its declared variables, and from jobs that have ended. Pure.

- *PS memory*: what is stored (variables, optimizer slots, copies, marks) is computed (`memory_model`); so is what comes on top
  (the process, buffers), which is corrected by what finished jobs used of that.
- *CPU, the time of a step, memory of a trainer* are learnt (`regression`) over the features of the model and the size.
- *The same job* (the same variables and batch) outweighs both: the base is moved by how far off it was for those runs, in the
  proportion n·s² : e², where s is the spread of the base, e that of repeated runs and n their number.

A figure that nobody knows is not made up: it is missing, and `words` say why. Every figure says on what ground it stands.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from deeprec_ext.autoscaler.history.history import Finished, of_strategy
from deeprec_ext.autoscaler.history.regression import JOBS_MIN, Learned, Row, learn
from deeprec_ext.autoscaler.model.memory_model import Layout, PsMemory, for_count, of_holder_of
from deeprec_ext.autoscaler.observe.observed import Model, Size, Window
from deeprec_ext.units import counted, few, format_bytes

PS_MEMORY, WORKER_MEMORY, PS_CPU = "ps_memory", "worker_memory", "ps_cpu"
WORKER_CPU, EXAMPLES_PER_SECOND = "worker_cpu", "examples_per_second"
NAMES = {
    PS_MEMORY: "memory of the fullest PS", WORKER_MEMORY: "memory of a trainer", PS_CPU: "cores of a PS",
    WORKER_CPU: "cores of a trainer", EXAMPLES_PER_SECOND: "examples per second",
}  # fmt: skip

NORMAL = 1.645
"""Deviations on either side within which nine of ten lie."""

REPEATED, REPEATED_TIMED = 0.05, 0.1
"""Logarithm: spread of runs of the same job, at least, and where too few are known; the second of what depends on how fast a
machine is just then. Of twelve pairs of runs of `benchmarks/zoo` the middle one differed by 12 % in examples per second and
10 % in CPU, and by less than 1 % in memory."""

REPEATS_MIN = 3
"""Runs from which their own spread is taken."""

UNSEEN_SPREAD = 0.2
"""Logarithm: spread of what a PS has beside what it stores, around what is computed, where no finished job has shown it."""

STORED_SPREAD, UNSEEN_STORED_SPREAD = 0.02, 0.06
"""Logarithm: spread of what a PS stores around what is computed: pages of the allocator; where jobs like it have shown their
memory, and where none has."""

BESIDE_LEAST = 0.1
"""Of what is computed beside what is stored: a PS that uses less has tables with pages that nothing has touched."""

FAILED = "failed"
"""How a job has ended after which memory that was used is no sign that it was enough."""

RESERVE = 0.15
"""Of the upper end of memory that was learnt from other jobs, which one job in twenty exceeds, what is kept free above it where
a size is chosen: of the 78 of `benchmarks/zoo` 8 did, by 9 % at most. Who takes more than there is dies."""

WIDEST = 10.0
"""Logarithm: no interval is wider to either side."""

ELSEWHERE = 0.7
"""Logarithm, to the spread of what was learnt on another machine: one is easily twice as fast."""

STRANGE = 2.0
"""The interval of a stranger is so many times as wide (of logarithms); nobody has measured how wide it should be."""

OTHER_FAMILY = 1.3
"""The same where its features are like those of others, but it computes something else. Of the zoo, foretold from other
families, with it as many jobs lie within the interval as should."""

SAME_BATCH = 0.05
TABLES = ("table_bytes", "fields", "lookups_per_step", "row_bytes")
"""Features that are 0 where a model has no tables. Elsewhere a 0 means: not known."""

OTHER_SIZE = 1.0
"""Logarithm, to the spread of what a job did at another size, where nothing says what the size changes."""


@dataclass(frozen=True)
class Figure:
    """`role`: what one process of it uses (`ps`: the fullest), or `job`. Bytes, cores, examples per second; in nine of ten jobs
    between `low` and `high`. `strange`: nothing like the job was known."""

    name: str
    role: str
    predicted: float
    low: float
    high: float
    ground: str
    learner: str = ""  # of `regression`, that decided; empty: none did
    strange: bool = False
    features: tuple[str, ...] = ()  # that it read

    def to_values(self) -> dict[str, Any]:
        """As `estimate --json` and summary.json have it; memory in whole bytes."""
        whole: Callable[[float], float] = round if self.name in (PS_MEMORY, WORKER_MEMORY) else float
        amounts = {name: whole(getattr(self, name)) for name in ("predicted", "low", "high")}
        return {"role": self.role, **amounts, "ground": self.ground}


@dataclass(frozen=True)
class Like:
    """A finished job that was heard. `likeness`: 0 to 1. `finished`: Unix seconds. `elsewhere`: on another kind of machine, or
    one that is not known."""

    name: str
    script: str
    likeness: float
    finished: float = 0.0
    elsewhere: bool = False


@dataclass(frozen=True)
class Estimates:
    """`words`: what is not known, and why: one line each. `like`: jobs by which the size was chosen, the heaviest first."""

    size: Size
    figures: tuple[Figure, ...] = ()
    words: tuple[str, ...] = ()
    like: tuple[Like, ...] = ()

    def __getitem__(self, name: str) -> Figure | None:
        return next((figure for figure in self.figures if figure.name == name), None)


Told = tuple[Finished, Window, float]
"""A job, a size of it, a figure there."""


@dataclass(frozen=True)
class _Query:
    """What a learner is asked about, as `regression.Row` has it."""

    features: tuple[float, ...] = ()
    costs: tuple[float, ...] = ()


NOTHING = _Query()


@dataclass(frozen=True)
class _Base:
    """A guess in logarithms, before runs of the same job are heard."""

    value: Callable[[_Query], float]
    spread: float
    ground: str
    learned: Learned | None = None


def estimate(
    model: Model, size: Size, jobs: Sequence[Finished], *, layout: Layout | None = None, fingerprint: str = "",
    backups: bool = True, checkpoints: bool = True, machine: str = "", cores: float = 0.0, computes: Sequence[str] = (),
) -> Estimates:  # fmt: skip
    """Args:
    model: features of the declared graph; 0: not known.
    jobs: finished ones, the newest first.
    layout: of the declared variables; None: memory of PS is not known.
    fingerprint: of the declared variables; empty: no job is known to be the same.
    checkpoints: they are written, as far as is known.
    machine: as in `Finished`; empty: not known.
    cores: of the one host; 0: not known, or there are several.
    computes: as in `Finished`.
    """
    jobs = of_strategy(jobs, sums=False)
    task = _Task(model, size, tuple(jobs), fingerprint, backups, machine, cores, tuple(computes))
    memory: Figure | str = f"{PS_MEMORY}: the variables are not declared"
    if layout is not None and any(layout.counts):
        of_ps = ps_memory(model, jobs, layout, fingerprint=fingerprint, backups=backups, checkpoints=checkpoints)
        memory = of_ps(size)
    made = memory, task.worker_memory(), task.ps_cpu(), task.worker_cpu(), task.speed()
    return Estimates(
        size, tuple(one for one in made if isinstance(one, Figure)), tuple(one for one in made if isinstance(one, str))
    )


def ps_memory(
    model: Model, jobs: Sequence[Finished], layout: Layout, *, fingerprint: str = "", backups: bool = True,
    checkpoints: bool = True,
) -> Callable[[Size], Figure]:  # fmt: skip
    """Of the fullest PS, at its height, by the size; what is learnt is learnt once.

    What a checkpoint copies of its tables is computed, and on top; not in `low`: a job may end without one.
    """
    jobs = of_strategy(jobs, sums=False)
    told = [(job, window, _beside(job)) for job in jobs if _beside(job) > 0 and (window := _fewest(job)) is not None]
    reader = _Reader.of(model, [job for job, _, _ in told], timed=False)
    others, mine = _parted(told, model, fingerprint)
    but = f", but for {layout.unknown} of unknown size" if layout.unknown else ""
    base = _Base(lambda at: 0.0, UNSEEN_SPREAD, f"computed from the variables{but}")
    if (learned := _learned(others, reader)) is not None:
        ground = f"{base.ground}; what comes on top by {learned.learner} over {learned.jobs} jobs"
        seen = [value for _, _, value in others]
        least, most = min(seen), max(seen)  # a model unlike all others takes no less, nor more, than any of them
        base = _Base(
            lambda at: math.log(min(most, max(least, learned.predict(at.features)))),
            learned.spread / NORMAL,
            ground,
            learned,
        )

    def at(size: Size) -> Figure:
        computed, query = for_count(layout, size.ps, backups=backups), reader.read(model, size, 0.0)
        figure = _heard(_figure(PS_MEMORY, "ps", base, query), base, reader, query, mine)
        shown = bool(mine) or (learned is not None and not figure.strange)
        figure = _on_top(figure, computed, STORED_SPREAD if shown else UNSEEN_STORED_SPREAD)
        copied = computed.tables if checkpoints else 0
        return dataclasses.replace(figure, predicted=figure.predicted + copied, high=figure.high + copied)

    return at


def with_reserve(figure: Figure) -> float:
    """Bytes that a process must be able to take, of an estimate of its memory."""
    return figure.high * (1 + RESERVE if figure.learner else 1)


def _beside(job: Finished) -> float:
    """What its fullest PS used beside what it stored, of what was computed of that; 0: not known. What a job used that did not
    come to its end is the least that it needed: it may have died of having no more."""
    computed, used = job.ps_computed_bytes - job.ps_stored_bytes, job.ps_memory_bytes
    if not (0 < computed < math.inf and 0 < used < math.inf):
        return 0.0
    least = 1.0 if job.status == FAILED else BESIDE_LEAST
    return max(least, (used - job.ps_stored_bytes - job.ps_copied_bytes) / computed)


def _on_top(figure: Figure, computed: PsMemory, spread: float) -> Figure:
    """Bytes of a PS, of the share of what comes on top of what it stores; the two are in doubt by themselves."""
    stored, beside = float(computed.stored), float(computed.total - computed.stored)
    less = math.hypot(beside * (figure.predicted - figure.low), stored * -math.expm1(-NORMAL * spread))
    more = math.hypot(beside * (figure.high - figure.predicted), stored * math.expm1(NORMAL * spread))
    predicted = stored + beside * figure.predicted
    return dataclasses.replace(figure, predicted=predicted, low=predicted - less, high=predicted + more)


@dataclass(frozen=True)
class _Task:
    model: Model
    size: Size
    jobs: tuple[Finished, ...]
    fingerprint: str
    backups: bool
    machine: str
    cores: float
    computes: tuple[str, ...]

    # ------------------------------------------------------------------------------------------------ figures

    def worker_memory(self) -> Figure | str:
        """Copies of a single PS are computed, the rest is learnt."""
        rows: list[Told] = []
        for job in self.jobs:
            if (window := _fewest(job)) is not None:
                held = of_holder_of(job.model) if job.backups and window.size.ps == 1 else 0
                rows.append((job, window, float(job.worker_memory_bytes - held)))
        held = of_holder_of(self.model) if self.backups and self.size.ps == 1 else 0
        made = self._learnt(WORKER_MEMORY, "worker", rows, timed=False)
        if isinstance(made, str):
            return made
        return dataclasses.replace(
            made, predicted=made.predicted + held, low=made.low + held, high=made.high + held,
            ground=made.ground + (", and the copies of the single PS" if held else ""),
        )  # fmt: skip

    def ps_cpu(self) -> Figure | str:
        """Of the mean PS."""
        return self._learnt(PS_CPU, "ps", self._windows(lambda one: one.ps_cpu_cores / one.size.ps))

    def worker_cpu(self) -> Figure | str:
        return self._learnt(WORKER_CPU, "worker", self._windows(lambda one: one.trainer_cpu_cores))

    def speed(self) -> Figure | str:
        """By the time of a step, of which examples per second follow."""
        if self.model.batch_size <= 0:
            return (
                f"{EXAMPLES_PER_SECOND}: the batch size is not known; ElasticTrainingHook(examples_per_step=…) tells it"
            )
        rows = self._windows(lambda one: one.size.trainers * one.examples_per_step / one.examples_per_second)
        made = self._learnt(EXAMPLES_PER_SECOND, "job", rows, costs=step_costs)
        if isinstance(made, str):
            return made
        a_step = self.size.trainers * self.model.batch_size
        return dataclasses.replace(
            made, predicted=a_step / made.predicted, low=a_step / made.high, high=a_step / made.low
        )

    # ------------------------------------------------------------------------------------------------ learning

    def _windows(self, value: Callable[[Window], float]) -> list[Told]:
        return [(job, one, value(one)) for job in self.jobs for one in job.windows if _can_be(one)]

    def _learnt(
        self, name: str, role: str, rows: Sequence[Told], *, timed: bool = True,
        costs: Callable[[Model, Size], tuple[float, ...]] = lambda model, size: (),
    ) -> Figure | str:  # fmt: skip
        """Of one process, or of a step.

        Args:
            rows: the newest job first.
            timed: the figure depends on how fast the machine is.
            costs: of which the figure is a sum.
        """
        rows = [row for row in rows if row[2] > 0 and math.isfinite(row[2])]
        if not rows:
            return f"{name}: no finished job tells it"
        here = [row for row in rows if not timed or not is_elsewhere(row[0], self.machine)]
        if len(set(_groups([job for job, _, _ in here]))) >= JOBS_MIN or _parted(here, self.model, self.fingerprint)[1]:
            rows = here
        reader = _Reader.of(self.model, [job for job, _, _ in rows], timed)
        others, mine = _parted(rows, self.model, self.fingerprint)
        reader = dataclasses.replace(reader, costs=costs)
        if (learned := _learned(others, reader)) is not None:
            ground = f"{learned.learner} over {learned.jobs} jobs, {learned.error:.0%} off for those left out"
            base = _Base(
                lambda at: math.log(learned.predict(at.features, at.costs)), learned.spread / NORMAL, ground, learned
            )
            query = reader.read(self.model, self.size, self.cores)
            figure = _heard(_figure(name, role, base, query), base, reader, query, mine)
            if not (mine or figure.strange) and (words := unlike_all(self.computes, [job for job, _, _ in others])):
                doubt = (OTHER_FAMILY - 1) * NORMAL * base.spread
                figure = dataclasses.replace(_wider(figure, doubt, f"; {words}", add=True), strange=True)
        elif mine:
            figure = _figure(name, role, self._nearest(mine, timed))
        else:
            return f"{name}: {counted(len({id(row[0]) for row in rows}), 'finished job')}, too few like it to tell"
        if len(rows) > len(here):
            figure = _wider(figure, ELSEWHERE, "; of jobs on another machine, or one that is not known")
        return figure

    def _nearest(self, mine: Sequence[Told], timed: bool) -> _Base:
        """What runs of the same job did at the nearest size."""
        nearest = min(mine, key=lambda row: _apart(row[1].size, self.size))[1].size
        values = [math.log(value) for _, window, value in mine if _apart(window.size, nearest) == 0]
        far = _apart(nearest, self.size)
        spread = math.hypot(_own_spread(values, timed), OTHER_SIZE * min(1.0, far))
        ground = f"{counted(len(values), 'run')} of the same job"
        ground += f", at {nearest.ps} PS and {counted(nearest.workers, 'worker')}" if far else ""
        middle = statistics.fmean(values)
        return _Base(lambda at: middle, spread, ground)


SIZES, CORES = ("ps", "trainers", "more than one PS"), ("cores of a PS", "cores of a trainer")


def step_costs(model: Model, size: Size) -> tuple[float, ...]:
    """What the time of a step is made of: work of a trainer, of PS, and messages; each once, and once for each trainer, since
    all may share the processors."""
    each = (
        1.0, model.flops_per_example * model.batch_size, model.lookups_per_step, model.lookups_per_step * model.row_bytes,
        float(model.dense_bytes), model.dense_bytes * (1 + model.optimizer_slots), float(model.table_bytes),
        float(model.variables), float(model.variables * size.ps),
    )  # fmt: skip
    return (*each, *(size.trainers * one for one in each))


def is_elsewhere(job: Finished, machine: str) -> bool:
    """On another kind of machine than this, or one that is not known; empty: this one is not, and none is another."""
    return bool(machine) and job.machine != machine


def is_same(job: Finished, model: Model, fingerprint: str) -> bool:
    """The same variables, and the same batch as far as it is known."""
    batch, other = model.batch_size, job.model.batch_size
    near = batch <= 0 or other <= 0 or abs(math.log(batch / other)) < SAME_BATCH
    return bool(fingerprint) and job.fingerprint == fingerprint and near


def unlike_all(computes: Sequence[str], jobs: Sequence[Finished]) -> str:
    """How the nearest of the jobs differs in what it computes; empty: one computes the same, or of most nobody knows."""
    told = [job for job in jobs if job.computes]
    if not computes or 2 * len(told) <= len(jobs):
        return ""
    mine = set(computes)
    nearest = min(told, key=lambda job: len(mine.symmetric_difference(job.computes)))
    more, less = sorted(mine.difference(nearest.computes)), sorted(set(nearest.computes) - mine)
    if not more and not less:
        return ""
    parts = [f"has no {few(more, 2)}"] if more else []
    parts += [f"has {few(less, 2)} besides"] if less else []
    return f"no finished job computes the same (the nearest, {nearest.name or nearest.script}, {' and '.join(parts)})"


def known(model: Model) -> dict[str, float]:
    """Features that say something, by name."""
    values = {name: float(value) for name, value in dataclasses.asdict(model).items()}
    declared = model.table_bytes + model.dense_bytes > 0
    none = (*TABLES, "optimizer_slots") if model.table_bytes == 0 else ("optimizer_slots",)
    return {name: value for name, value in values.items() if value > 0 or (value == 0 and declared and name in none)}


@dataclass(frozen=True)
class _Reader:
    """Which numbers a learner reads: features of the model by name, and the size. `timed`: the CPU that there is, too."""

    features: tuple[str, ...]
    timed: bool
    costs: Callable[[Model, Size], tuple[float, ...]] = lambda model, size: ()

    @classmethod
    def of(cls, model: Model, jobs: Sequence[Finished], timed: bool) -> _Reader:
        """Features that are known of this model and of most of the jobs."""
        mine, theirs = known(model), [known(job.model) for job in jobs]
        return cls(tuple(name for name in mine if 2 * sum(name in one for one in theirs) > len(theirs)), timed)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.features, *SIZES, *(CORES if self.timed else ()))

    def read(self, model: Model, size: Size, cores: float) -> _Query:
        """As `names` say. Logarithms, of 1 more where 0 is a value."""
        cpu = (math.log1p(size.ps_cpu or cores), math.log1p(size.worker_cpu or cores)) if self.timed else ()
        model_ = (math.log1p(getattr(model, name)) for name in self.features)
        features = (*model_, math.log(size.ps), math.log(size.trainers), float(size.ps > 1), *cpu)
        return _Query(features, self.costs(model, size))

    def can_read(self, model: Model) -> bool:
        return bool(self.features) and all(name in known(model) for name in self.features)

    def row(self, job: Finished, window: Window) -> _Query:
        return self.read(job.model, window.size, window.host_cores)


def _groups(jobs: Sequence[Finished]) -> list[int]:
    """A number for each: the same for rows of one job, and for runs of the same job."""
    numbers: dict[object, int] = {}
    keys = [
        (job.fingerprint, round(math.log1p(max(0.0, job.model.batch_size)), 1)) if job.fingerprint else id(job)
        for job in jobs
    ]
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _parted(rows: Sequence[Told], model: Model, fingerprint: str) -> tuple[list[Told], list[Told]]:
    """(of other jobs, of this one)"""
    same = [is_same(job, model, fingerprint) for job, _, _ in rows]
    return [row for row, one in zip(rows, same) if not one], [row for row, one in zip(rows, same) if one]


def _learned(rows: Sequence[Told], reader: _Reader) -> Learned | None:
    """Without features, or without the extra `autoscale`, nothing is learnt from other jobs."""
    rows = [row for row in rows if reader.can_read(row[0].model)]
    numbers = _groups([job for job, _, _ in rows])
    asked = [reader.row(job, window) for job, window, _ in rows]
    made = [Row(number, at.features, value, at.costs) for number, at, (_, _, value) in zip(numbers, asked, rows)]
    with contextlib.suppress(ImportError):
        return learn(made)
    return None


def _fewest(job: Finished) -> Window | None:
    """Of its fewest PS, where each process has most."""
    return min(filter(_can_be, job.windows), key=lambda one: (one.size.ps, -one.size.workers), default=None)


def _can_be(window: Window) -> bool:
    """A record of the history may be damaged."""
    return window.examples_per_second > 0 and window.size.ps > 0 and window.size.trainers > 0


def _apart(one: Size, other: Size) -> float:
    """Of two sizes: the logarithm of their largest ratio."""
    return max(abs(math.log(one.ps / other.ps)), abs(math.log(one.trainers / other.trainers)))


def _heard(figure: Figure, base: _Base, reader: _Reader, query: _Query, mine: Sequence[Told]) -> Figure:
    """The figure that the base gives, once runs of the same job have been heard: a normal prior, normal errors. A base that was
    farther off for them than its spread says is trusted no more than that."""
    if base.learned is not None:
        figure = dataclasses.replace(figure, learner=base.learned.learner, features=reader.names)
        mine = [row for row in mine if reader.can_read(row[0].model)]  # an unknown feature would be read as a 0
    if not mine:
        place = base.learned.strange(query.features) if base.learned is not None else None
        if place is None:
            return figure
        words = f"; unlike every job that is known, most by {reader.names[place]}: this is a guess"
        doubt = (STRANGE - 1) * NORMAL * base.spread
        return dataclasses.replace(_wider(figure, doubt, words, add=True), strange=True)
    off = [math.log(value) - base.value(reader.row(job, window)) for job, window, value in mine]
    middle, own = statistics.fmean(off), _own_spread(off, reader.timed)
    prior = max(base.spread, abs(middle))
    trust = len(off) * prior**2 / (len(off) * prior**2 + own**2)
    spread = math.hypot(own, prior * math.sqrt(1 - trust))
    ground = f"{counted(len(off), 'run')} of the same job; beside them {base.ground}"
    heard = _figure(figure.name, figure.role, _Base(lambda at: base.value(at) + trust * middle, spread, ground), query)
    return dataclasses.replace(heard, learner=figure.learner, features=figure.features)


def _own_spread(values: Sequence[float], timed: bool) -> float:
    least = REPEATED_TIMED if timed else REPEATED
    return max(least, statistics.stdev(values)) if len(values) >= REPEATS_MIN else least


def _figure(name: str, role: str, base: _Base, query: _Query = NOTHING) -> Figure:
    predicted, factor = math.exp(base.value(query)), math.exp(min(NORMAL * base.spread, WIDEST))
    return Figure(name, role, predicted, predicted / factor, predicted * factor, base.ground)


def _wider(figure: Figure, doubt: float, words: str, *, add: bool = False) -> Figure:
    """`doubt`: a logarithm, independent of what it is in doubt by already; `add`: not so, they add up."""
    before = math.log(figure.high / figure.predicted)
    factor = math.exp(min(before + doubt if add else math.hypot(before, doubt), WIDEST))
    return dataclasses.replace(
        figure, low=figure.predicted / factor, high=figure.predicted * factor, ground=figure.ground + words
    )


def used(figure: Figure, size: Size, job: Finished) -> float | str:
    """What came of a figure that was estimated at this size; a text: why nobody knows.

    Memory is that of a whole job, of its highest process: where PS have come or gone it may be that of a change.
    """
    others = any(window.size.ps != size.ps for window in job.windows)
    if others and figure.name in (PS_MEMORY, WORKER_MEMORY):
        return f"the job did not have {size.ps} PS all the time, and its peak may be of then"
    at = [one for one in job.windows if (one.size.ps, one.size.workers) == (size.ps, size.workers) and _can_be(one)]
    window = max(at, key=lambda one: one.seconds, default=None)
    found = {
        PS_MEMORY: job.ps_memory_bytes, WORKER_MEMORY: job.worker_memory_bytes,
        PS_CPU: window.ps_cpu_cores / size.ps if window else 0.0, WORKER_CPU: window.trainer_cpu_cores if window else 0.0,
        EXAMPLES_PER_SECOND: window.examples_per_second if window else 0.0,
    }  # fmt: skip
    if found[figure.name]:
        return float(found[figure.name])
    if window is None and figure.name not in (PS_MEMORY, WORKER_MEMORY):
        return f"the job was never long enough at {size.ps} PS and {counted(size.workers, 'worker')} to be measured"
    return "it was never measured"


def lines(estimates: Estimates) -> Iterator[str]:
    """For people, one line each."""
    yield from map(said, estimates.figures)
    for word in estimates.words:
        name, why = word.split(": ", 1)
        yield f"{NAMES[name]}: not known; {why}"


def said(figure: Figure, came: float | str = "", *, running: bool = False) -> str:
    """`came`: what was used; a text: why that is not known; empty: it is not over yet. `running`: what was used so far."""
    amount = _amount(figure)
    predicted, low, high = map(amount, (figure.predicted, figure.low, figure.high))
    after = ""
    if isinstance(came, str):
        after = f"; what came of it is not known: {came}" if came and not running else ""
    else:
        off = came / figure.predicted - 1
        outside = "" if figure.low <= came <= figure.high else ", outside of that"
        so_far = "so far it is" if running else "it was"
        after = f"; {so_far} {amount(came)}, {abs(off):.0%} {'more' if off > 0 else 'less'}{outside}"
    return f"{NAMES[figure.name]}: {predicted}, {low} to {high} in nine of ten jobs{after}; {figure.ground}"


def told_in(estimator: Any) -> list[str]:
    """As `said`, of what a summary's `estimator` has; nothing of what is no such figure."""
    found = []
    for name in NAMES:
        with contextlib.suppress(TypeError, ValueError, KeyError, AttributeError, ArithmeticError):
            for values in estimator.get(name, ()):
                came, why = values["used"], values.get("unknown", "")
                figure = Figure(name, **{key: value for key, value in values.items() if key not in ("used", "unknown")})
                found.append(said(figure, str(why) if came is None else float(came)))
    return found


def heard(like: Sequence[Like]) -> str:
    """`ctr-3 (92 % alike), ctr-1 (80 % alike, on another kind of machine)`"""
    return ", ".join(
        f"{one.name or one.script} ({one.likeness:.0%} alike{', on another kind of machine' if one.elsewhere else ''})"
        for one in like
    )


def _amount(figure: Figure) -> Callable[[float], str]:
    return format_bytes if figure.name.endswith("memory") else _figures


def _figures(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
