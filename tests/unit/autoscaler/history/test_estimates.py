"""What a job will use, from nothing, from others, from runs of itself."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from deeprec_ext.autoscaler.history import estimates as estimates_module
from deeprec_ext.autoscaler.history.estimates import (
    EXAMPLES_PER_SECOND,
    NAMES,
    PS_CPU,
    PS_MEMORY,
    WORKER_CPU,
    WORKER_MEMORY,
    Estimates,
    estimate,
    lines,
)
from deeprec_ext.autoscaler.history.history import Finished
from deeprec_ext.autoscaler.model.memory_model import Layout, PsMemory, for_count, of_holder_of
from deeprec_ext.autoscaler.observe.observed import Model, Size, Window
from tests.unit.autoscaler.facts import fact

MB = 10**6
HERE = "2 x AMD EPYC"
PAIR = Size(1, 1)


def layout(table_bytes: int) -> Layout:
    """Eight even slots with one table each."""
    return Layout((table_bytes // 8,) * 8, (table_bytes // 8,) * 8, (table_bytes // 8 // 64,) * 8, (1,) * 8)


def model(table_bytes: int = 800 * MB, batch: float = 512.0, lookups: float = 26.0, flops: float = 1e5) -> Model:
    return fact(Model, table_bytes, 10**5, 8, batch, lookups * batch, flops, table_bytes // 8, 12, 128.0, 1.0)


def step_seconds(of: Model, size: Size) -> float:
    """The truth of these tests: trainers share two cores with the PS."""
    return 0.002 + size.trainers * (2e-10 * of.flops_per_example * of.batch_size + 2e-7 * of.lookups_per_step)


def used(computed: PsMemory, heavier: float) -> int:
    """Of a PS that has so many times what is computed beside what it stores."""
    return round(computed.stored + heavier * (computed.total - computed.stored))


def ran(of: Model, size: Size = PAIR, *, fingerprint: str = "", faster: float = 1.0, heavier: float = 1.0,
        machine: str = HERE, noise: float = 1.0) -> Finished:  # fmt: skip
    seconds = step_seconds(of, size) / faster * noise
    window = fact(
        Window, 0.0, 60.0, size, size.trainers * of.batch_size / seconds, of.batch_size, trainer_cpu_cores=0.6,
        ps_cpu_cores=0.3 * size.ps, host_cores=2.0,
    )  # fmt: skip
    computed = for_count(layout(of.table_bytes), size.ps)
    held = of_holder_of(of) if size.ps == 1 else 0
    return Finished(
        "zoo", 1e9, "succeeded", 60.0, of, (window,), used(computed, heavier), 600 * MB + held, 10**6,
        fingerprint=fingerprint, machine=machine, ps_computed_bytes=computed.total, ps_stored_bytes=computed.stored,
    )  # fmt: skip


def many(count: int = 16, scatter: float = 0.03, **how: object) -> list[Finished]:
    chance, found = random.Random(5), []
    for number in range(count):
        of = model(chance.choice((50, 200, 800)) * MB, chance.choice((64.0, 256.0, 1024.0)), chance.uniform(4, 60),
                   10 ** chance.uniform(4, 7))  # fmt: skip
        size = Size(*chance.choice(((1, 0), (1, 1), (2, 1), (2, 2))))
        found.append(ran(of, size, fingerprint=f"job {number}", noise=chance.lognormvariate(0, scatter), **how))  # type: ignore[arg-type]
    return found


def of_me(jobs: list[Finished], size: Size = PAIR, of: Model | None = None, **how: object) -> Estimates:
    """Of a job that writes no checkpoints, as the finished ones wrote none."""
    of = of or model()
    words = {"layout": layout(of.table_bytes), "fingerprint": "me", "machine": HERE, "cores": 2.0, "checkpoints": False}
    return estimate(of, size, jobs, **{**words, **how})  # type: ignore[arg-type]


def test_without_history_only_what_is_computed_is_said():
    found = of_me([], checkpoints=True)
    assert [figure.name for figure in found.figures] == [PS_MEMORY]
    memory = found[PS_MEMORY]
    assert memory is not None
    computed = for_count(layout(800 * MB), 1)
    assert memory.predicted == computed.peak  # nobody has shown what a checkpoint takes
    assert memory.low < computed.total and memory.high > computed.peak  # nor that there is one
    assert [words.partition(":")[0] for words in found.words] == [
        WORKER_MEMORY,
        PS_CPU,
        WORKER_CPU,
        EXAMPLES_PER_SECOND,
    ]
    assert all("no finished job" in words for words in found.words)


def test_what_is_not_declared_is_not_computed():
    found = estimate(Model.unknown(), Size(1, 0), many())
    assert PS_MEMORY in found.words[0] and "not declared" in found.words[0]
    assert found[EXAMPLES_PER_SECOND] is None  # no feature is known: nothing is taken from strangers


def test_ps_memory_learns_from_what_jobs_used_beside_what_they_stored():
    (plain, corrected) = (of_me(jobs)[PS_MEMORY] for jobs in ([], many(heavier=1.3)))
    assert plain is not None and corrected is not None
    assert corrected.predicted == pytest.approx(used(for_count(layout(800 * MB), 1), 1.3), rel=0.01)
    assert "on top by" in corrected.ground


def test_a_job_ten_times_as_large_as_any_has_what_it_stores_and_is_a_stranger():
    large = model(20_000 * MB)
    told = of_me(many(heavier=1.3), of=large)[PS_MEMORY]
    computed = for_count(layout(large.table_bytes), 1)
    assert told is not None and told.strange and "_bytes" in told.ground
    assert told.low < computed.stored + 0.5 * (computed.total - computed.stored) < told.high
    assert told.predicted == pytest.approx(used(computed, 1.3), rel=0.03)
    assert told.high - told.predicted > 0.08 * computed.stored


def test_what_a_checkpoint_copies_is_on_top_whatever_other_jobs_did():
    """It grows with the tables, and what other jobs used beside theirs does not say how."""
    for jobs in ([], many(), [ran(model(50 * MB))], [ran(model(), fingerprint="me")]):
        without, with_ = (of_me(jobs, checkpoints=written)[PS_MEMORY] for written in (False, True))
        assert without is not None and with_ is not None
        assert with_.predicted - without.predicted == pytest.approx(800 * MB)
        assert with_.high - without.high == pytest.approx(800 * MB) and with_.low == without.low


def test_a_run_that_wrote_checkpoints_shows_what_it_used_beside_them():
    plain = ran(model(), fingerprint="me", heavier=1.2)
    wrote = dataclasses.replace(plain, ps_memory_bytes=plain.ps_memory_bytes + 800 * MB, ps_copied_bytes=800 * MB)
    figures = [of_me([job], checkpoints=True)[PS_MEMORY] for job in (plain, wrote)]
    assert figures[0] is not None and figures[1] is not None
    assert figures[0].predicted == pytest.approx(figures[1].predicted)


def test_a_job_that_died_does_not_teach_that_what_it_had_was_enough():
    computed = for_count(layout(800 * MB), 1)
    died, ended = (
        dataclasses.replace(ran(model(), fingerprint="me", heavier=0.6), status=status)
        for status in ("failed", "succeeded")
    )
    low, high = (of_me([job])[PS_MEMORY] for job in (ended, died))
    assert low is not None and high is not None
    assert low.predicted < 0.97 * computed.total and high.predicted == pytest.approx(computed.total)


def test_a_run_of_the_same_job_whose_features_are_not_known_is_not_asked_about():
    """Jobs from before models were declared know no look-ups: a 0 there is none."""
    blind = dataclasses.replace(
        ran(model(), fingerprint="me"), model=dataclasses.replace(model(), lookups_per_step=0.0)
    )
    others = many()
    assert of_me([blind, *others])[EXAMPLES_PER_SECOND] == of_me(others)[EXAMPLES_PER_SECOND]


def test_variables_of_unknown_size_are_told():
    of = model()
    told = of_me([], layout=dataclasses.replace(layout(of.table_bytes), unknown=3))[PS_MEMORY]
    assert told is not None and "but for 3 of unknown size" in told.ground


def test_runs_of_the_same_job_outweigh_all_others():
    others = many(scatter=0.2, heavier=1.0)
    mine = [ran(model(), fingerprint="me", heavier=1.5, faster=2.0) for _ in range(3)]
    before, after = of_me(others), of_me([*mine, *others])
    for name, ratio in ((PS_MEMORY, 1.5), (EXAMPLES_PER_SECOND, 2.0)):
        one, other = before[name], after[name]
        assert one is not None and other is not None
        assert other.ground.startswith("3 runs of the same job")
        assert other.high / other.low < one.high / one.low or name == PS_MEMORY
        truth = {PS_MEMORY: used(for_count(layout(800 * MB), 1), 1.5),
                 EXAMPLES_PER_SECOND: ratio * 2 * 512.0 / step_seconds(model(), Size(1, 1))}[name]  # fmt: skip
        assert abs(math.log(other.predicted / truth)) < abs(math.log(one.predicted / truth))
        assert other.low <= truth <= other.high


def test_scikit_learn_decides_where_it_says_so_and_names_what_it_read():
    found = of_me(many())
    for name in (WORKER_MEMORY, PS_CPU, WORKER_CPU, EXAMPLES_PER_SECOND):
        figure = found[name]
        assert figure is not None
        assert figure.learner and figure.learner in figure.ground
        assert {"batch_size", "lookups_per_step", "flops_per_example", "ps", "trainers"} <= set(figure.features)
        assert 0 < figure.low < figure.predicted < figure.high
        assert not figure.strange
    speed = found[EXAMPLES_PER_SECOND]
    assert speed is not None
    assert speed.low <= 2 * 512 / step_seconds(model(), PAIR) <= speed.high


def test_a_stranger_is_told_and_its_interval_is_wider():
    jobs = many()
    usual, strange = of_me(jobs)[EXAMPLES_PER_SECOND], of_me(jobs, of=model(flops=1e12))[EXAMPLES_PER_SECOND]
    assert usual is not None and strange is not None
    assert strange.strange and "flops_per_example" in strange.ground
    assert strange.high / strange.low > usual.high / usual.low


@pytest.mark.parametrize(
    ("mine", "said"),
    [
        (("MatMul", "Relu"), ""), ((), ""),
        (("Einsum", "MatMul", "Relu"), "(the nearest, zoo, has no Einsum)"),
        (("MatMul",), "(the nearest, zoo, has Relu besides)"),
    ],
)  # fmt: skip
def test_a_model_that_computes_something_else_is_a_stranger_for_what_takes_time(mine, said):
    """However much its figures are like those of others."""
    jobs = [dataclasses.replace(one, computes=("MatMul", "Relu")) for one in many()]
    usual, found = of_me(jobs), of_me(jobs, computes=mine)
    for name in (EXAMPLES_PER_SECOND, PS_CPU):
        before, figure = usual[name], found[name]
        assert before is not None and figure is not None
        assert figure.strange == bool(said) and said in figure.ground
        assert (figure.high > before.high) == bool(said) and figure.predicted == before.predicted
    memory = found[PS_MEMORY]
    assert memory is not None and not memory.strange
    assert not of_me(many(), computes=mine)[EXAMPLES_PER_SECOND].strange, "nobody knows what they computed"
    again = [*jobs, dataclasses.replace(ran(model(), fingerprint="me"), computes=("Mul",))]
    assert not of_me(again, computes=mine)[EXAMPLES_PER_SECOND].strange, "it is the same job"


def test_the_speed_of_another_machine_is_told_with_doubt_and_its_memory_is_not():
    here, elsewhere = of_me(many()), of_me(many(machine="64 x other"))
    for name in (EXAMPLES_PER_SECOND, WORKER_CPU):
        one, other = here[name], elsewhere[name]
        assert one is not None and other is not None
        assert "another machine" in other.ground and "another machine" not in one.ground
        assert other.high / other.low > 1.5 * one.high / one.low
    assert here[WORKER_MEMORY] == elsewhere[WORKER_MEMORY]
    assert here[PS_MEMORY] == elsewhere[PS_MEMORY]


def test_jobs_of_another_machine_are_not_heard_where_there_are_enough_of_this_one():
    assert (
        of_me([*many(machine="64 x other", faster=30.0), *many()])[EXAMPLES_PER_SECOND]
        == of_me(many())[EXAMPLES_PER_SECOND]
    )


def test_one_run_of_the_same_job_is_enough_for_its_size_and_doubted_at_another():
    job = ran(model(), Size(1, 1), fingerprint="me")
    same, other = of_me([job])[EXAMPLES_PER_SECOND], of_me([job], Size(2, 3))[EXAMPLES_PER_SECOND]
    assert same is not None and other is not None
    assert same.predicted == pytest.approx(job.windows[0].examples_per_second)
    assert "at 1 PS and 1 worker" in other.ground
    assert other.high / other.low > same.high / same.low
    assert not same.learner


def test_a_few_strangers_say_nothing():
    found = of_me(many(3))
    assert found[EXAMPLES_PER_SECOND] is None
    assert any("too few like it" in words for words in found.words)


def test_another_batch_is_another_job():
    job = ran(model(batch=64.0), fingerprint="me")
    assert of_me([job])[EXAMPLES_PER_SECOND] is None


def test_a_trainer_that_keeps_the_copies_of_a_single_ps_has_them_in_its_memory():
    jobs = many()
    one, two = of_me(jobs, Size(1, 1))[WORKER_MEMORY], of_me(jobs, Size(2, 1))[WORKER_MEMORY]
    assert one is not None and two is not None
    assert one.predicted - two.predicted == pytest.approx(of_holder_of(model()), rel=0.15)
    assert two.predicted == pytest.approx(600 * MB, rel=0.1)


@pytest.mark.parametrize(
    "broken",
    [dataclasses.replace(ran(model()), windows=(), fingerprint="me"),
     dataclasses.replace(ran(model()), ps_memory_bytes=0, worker_memory_bytes=0, ps_computed_bytes=0, ps_stored_bytes=0),
     dataclasses.replace(ran(model()), windows=(fact(Window, 0.0, 60.0, Size(1, 1), math.nan, 512.0),)),
     dataclasses.replace(ran(model()), windows=(fact(Window, 0.0, 60.0, Size(1, 1), 0.0),)),
     dataclasses.replace(ran(model()), windows=(fact(Window, 0.0, 60.0, Size(0, -1), 100.0, 512.0),)),
     dataclasses.replace(ran(model(batch=-9.0)), ps_memory_bytes=math.nan, ps_stored_bytes=math.inf),
     dataclasses.replace(ran(model()), model=model(-5, math.nan, -1.0, math.inf), ps_computed_bytes=math.inf)],
)  # fmt: skip
def test_jobs_that_are_damaged_or_never_trained_do_no_harm(broken):
    broken = [dataclasses.replace(broken, fingerprint=f"job {number}") for number in range(9)]
    told = of_me(broken)
    assert told[EXAMPLES_PER_SECOND] is None or told[PS_MEMORY] == of_me([])[PS_MEMORY]
    assert all(0 < figure.low <= figure.predicted <= figure.high < math.inf for figure in told.figures)


def test_estimates_are_told_in_lines():
    told = list(lines(of_me(many())))
    assert len(told) == 5
    assert all("\n" not in line for line in told)


def test_what_came_of_a_figure_is_that_of_its_size_or_not_known():
    found, ended = of_me(many()), ran(model())
    assert {figure.name for figure in found.figures} == set(NAMES)

    def came(job: Finished) -> dict[str, float | str]:
        return {one.name: estimates_module.used(one, found.size, job) for one in found.figures}

    (window,) = ended.windows
    assert came(ended) == {
        PS_MEMORY: ended.ps_memory_bytes, WORKER_MEMORY: ended.worker_memory_bytes, PS_CPU: 0.3, WORKER_CPU: 0.6,
        EXAMPLES_PER_SECOND: window.examples_per_second,
    }  # fmt: skip
    larger = ran(model(), Size(1, 3))
    assert came(larger)[PS_MEMORY] == larger.ps_memory_bytes
    assert came(larger)[PS_CPU] == "the job was never long enough at 1 PS and 1 worker to be measured"
    two = dataclasses.replace(found, size=Size(2, 1))
    came_of_two = str(estimates_module.used(found.figures[0], two.size, ended))
    assert "did not have 2 PS all the time" in came_of_two, "all of it lay on one PS"


def test_why_it_is_not_known_what_came_of_a_figure_is_told_for_people_and_in_a_summary():
    (memory, *_) = of_me(many()).figures
    values = {**memory.to_values(), "used": None, "unknown": "it was never measured"}
    assert all(type(values[name]) is int for name in ("predicted", "low", "high")), "there is no part of a byte"
    for line in (
        *estimates_module.told_in({memory.name: [values]}),
        estimates_module.said(memory, "it was never measured"),
    ):
        assert "what came of it is not known: it was never measured; " in line
    old = {name: value for name, value in values.items() if name != "unknown"}
    assert "what came" not in estimates_module.told_in({memory.name: [old]})[0], "of an earlier release"
