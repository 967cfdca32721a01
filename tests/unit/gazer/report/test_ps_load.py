"""What a better spread of slots would do, and what the rules about load say."""

from __future__ import annotations

import pytest

from deeprec_ext.gazer.report.findings import load as rules
from deeprec_ext.gazer.report.ps_load import Move, rebalance, saved_by, spread
from deeprec_ext.gazer.report.story import Placement, Table
from deeprec_ext.gazer.report.work import table_of
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.gazer.report.stories import BEGAN, TABLES, case, loaded, steady, trace, traces


def found(busy, slots, rows=None, **parts):
    """A case with these loads; three trainers with ten steps a second each."""
    return case({**steady(), **loaded(busy, slots, rows)}, **parts)


EVEN = ({"ps-0": 0.6, "ps-1": 0.6}, dict.fromkeys(range(4), 0.3))
HOT = ({"ps-0": 0.2, "ps-1": 1.2}, {0: 0.1, 1: 0.6, 2: 0.1, 3: 0.6})
ONE_SLOT = ({"ps-0": 0.2, "ps-1": 1.2}, {0: 0.1, 1: 1.1, 2: 0.1, 3: 0.1})


def test_part_of_a_step_is_the_busy_share_by_trainer():
    """Three trainers, ten steps a second: 1.2 s of work a second are 40 ms of each step of 100 ms."""
    loads = found(*HOT).loads
    assert (loads.trainers, loads.ps[0].name) == (3, "ps-1")
    assert loads.part_of_step(loads.ps[0].busy) == pytest.approx(0.4)


def test_a_rebalance_moves_what_helps_most_until_nothing_does():
    loads = found(*HOT).loads
    ratio, moves = rebalance(loads)
    assert moves == (Move(1, "ps-1", "ps-0"), Move(0, "ps-0", "ps-1"))
    assert ratio == pytest.approx(0.7 / 1.2)
    assert saved_by(loads, ratio) == pytest.approx(0.4 * (1 - 0.7 / 1.2))


def test_a_rebalance_of_what_is_even_moves_nothing():
    assert rebalance(found(*EVEN).loads) == (1.0, ())


def test_no_rebalance_divides_a_slot():
    ratio, _ = rebalance(found(*ONE_SLOT).loads)
    assert ratio == pytest.approx(1.1 / 1.2)


def test_a_rebalance_ends_with_any_loads():
    slots = {slot: 0.01 * (slot * 7919 % 97) for slot in range(4)}
    assert 0 < rebalance(found({"ps-0": 1.0, "ps-1": 1.0}, slots).loads)[0] <= 1.0


def test_unevenness():
    assert spread({"a": 3.0, "b": 1.0}) == 1.5
    assert spread({"a": 0.0}) == 0.0


# ------------------------------------------------------------------------------------------------------------ hot PS


def test_a_hot_ps_is_named_with_what_a_rebalance_saves():
    [finding] = rules.hot_ps(found(*HOT, {0: 1, 1: 4, 2: 1, 3: 4}))
    assert finding.text == (
        "PS ps-1 does 80 % of the look-ups and 86 % of the work of 2 PS: "
        "a rebalance by load would save about 17 % of the step time"
    )
    assert (finding.subject, finding.level) == ("ps-1", "advice")
    assert "slot-1 to ps-0" in finding.advice


@pytest.mark.parametrize(
    "why",
    [
        {"busy": EVEN[0], "slots": EVEN[1]},  # even
        {"busy": {"ps-0": 0.02, "ps-1": 0.12}, "slots": {0: 0.01, 1: 0.06, 2: 0.01, 3: 0.06}},  # hardly at work
        {"busy": ONE_SLOT[0], "slots": ONE_SLOT[1]},  # moving does not help
        {"busy": {"ps-0": 1.2}, "slots": {0: 0.6, 1: 0.6}, "placements": ()},  # nowhere to move to
        {"busy": HOT[0], "slots": HOT[1], "traces": traces(2)},  # thin evidence
        {"busy": {}, "slots": {}},  # nothing is known
    ],
)
def test_no_hot_ps(why):
    busy, slots = why.pop("busy"), why.pop("slots")
    assert not list(rules.hot_ps(found(busy, slots, **why)))


# ---------------------------------------------------------------------------------------------------------- hot slot


def test_a_slot_that_fills_a_ps_by_itself_is_named_with_its_table():
    ops = [pb.OpTime(name="Adagrad/update_C2/weight/ResourceSparseApplyAdagrad", seconds=0.001, slot=1),
           pb.OpTime(name="Adagrad/update_C2/embedding/ResourceSparseApplyAdagrad", seconds=0.02, slot=1),
           pb.OpTime(name="embedding_lookup_7", seconds=0.03, slot=1)]  # fmt: skip
    [finding] = rules.hot_slot(found(*ONE_SLOT, traces=traces(ops=ops)))
    assert finding.text.startswith(
        "Slot 1 (table C2/embedding, on ps-1) alone has 79 % of the load of all slots: no rebalance"
    )
    assert finding.subject == "slot-1"
    assert "Cut C2/embedding" in finding.advice


def test_a_slot_whose_tables_share_the_work_is_not_cut_but_taken_apart():
    ops = [pb.OpTime(name=f"Adagrad/update_T{number}/Apply", seconds=0.01, slot=1) for number in range(3)]
    tables = {1: tuple(Table(f"T{number}", 1000, 10, True) for number in range(3))}
    [finding] = rules.hot_slot(found(*ONE_SLOT, traces=traces(ops=ops), tables=tables))
    assert "its tables have to lie apart" in finding.text
    assert "--slots" in finding.advice


@pytest.mark.parametrize(
    "why",
    [
        {"busy": EVEN[0], "slots": EVEN[1]},
        {"busy": HOT[0], "slots": HOT[1]},  # two hot slots: a rebalance helps
        {"busy": {"ps-0": 0.02, "ps-1": 0.12}, "slots": {0: 0.01, 1: 0.11, 2: 0.01, 3: 0.01}},  # hardly at work
        {"busy": ONE_SLOT[0], "slots": ONE_SLOT[1], "traces": ()},
        {"busy": {"ps-0": 1.2}, "slots": {0: 1.2}},  # one PS: cutting alone gains nothing
    ],
)
def test_no_hot_slot(why):
    busy, slots = why.pop("busy"), why.pop("slots")
    assert not list(rules.hot_slot(found(busy, slots, **why)))


def test_a_slot_whose_ops_name_no_table_is_told_by_its_largest():
    unnamed = traces(ops=[pb.OpTime(name="embedding_lookup", seconds=1.0, slot=1)])
    assert table_of(1, TABLES[1], unnamed) == ("C2/embedding", pytest.approx(640 / 680))
    assert table_of(9, (), traces()) == ("", 0.0)


# ------------------------------------------------------------------------------------------------- PS and transfer bound


def test_evenly_busy_ps_that_steps_wait_for():
    [finding] = rules.ps_bound(found({"ps-0": 1.8, "ps-1": 1.7}, dict.fromkeys(range(4), 0.9)))
    assert "one more PS would save about 21 %" in finding.text
    assert "--ps 3" in finding.advice


@pytest.mark.parametrize(
    ("busy", "slots"),
    [
        (EVEN[0], EVEN[1]),  # a fifth of a step
        ({"ps-0": 0.5, "ps-1": 2.6}, {0: 0.3, 1: 1.3, 2: 0.2, 3: 1.3}),  # uneven: another rule says what comes first
        ({"ps-0": 1.8, "ps-1": 1.8}, {0: 1.8, 1: 1.8}),  # two slots, two PS
    ],
)
def test_not_ps_bound(busy, slots):
    owners = tuple(f"ps-{slot % 2}" for slot in slots)
    assert not list(rules.ps_bound(found(busy, slots, placements=(Placement(BEGAN, owners),))))


def edges(seconds):
    return [pb.EdgeUse(source="ps-1", target="worker-0", bytes=3_000_000, tensors=3, seconds=seconds)]


def test_steps_that_wait_for_a_connection():
    [finding] = rules.transfer_bound(case(traces=traces(edges=edges(0.07))))
    assert "70 %" in finding.text
    assert "ps-1 → worker-0, 3.0 MB in 3 tensors" in finding.evidence[0]


def test_between_processes_of_one_machine_there_is_no_network_to_look_at():
    here = {**steady(), "host-a": {"cores": 2.0}}
    [finding] = rules.transfer_bound(case(here, traces=traces(edges=edges(0.07))))
    assert "network" not in finding.advice and "one machine" in finding.advice
    [finding] = rules.transfer_bound(case({**here, "host-b": {"cores": 2.0}}, traces=traces(edges=edges(0.07))))
    assert "check the network between these two" in finding.advice


@pytest.mark.parametrize(
    "steps", [traces(edges=edges(0.03)), traces(2, edges=edges(0.09)), traces(), (trace(50, seconds=0),)]
)
def test_not_transfer_bound(steps):
    assert not list(rules.transfer_bound(case(traces=steps)))
