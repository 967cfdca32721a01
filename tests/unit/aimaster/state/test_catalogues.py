"""What trainers tell of their variables is merged; two models under one name are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from deeprec_ext.aimaster.state.catalogues import FINGERPRINTS_MAX, Catalogues, fingerprint, merged, tables_fingerprint
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.errors import RefusedError
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.scaling.test_queue import play
from tests.unit.aimaster.world import World

SLOTS = 8
DENSE, ROWS, UNKNOWN = pb.Variable.DENSE, pb.Variable.ROWS, pb.Variable.UPDATE_UNSPECIFIED


def variable(name: str, **more: object) -> pb.Variable:
    values = {"slot": 1, "shape": [4], "bytes": 16, "dtype": 1, "update": DENSE, "saved_name": name, **more}
    return pb.Variable(name=name, **values)  # type: ignore[arg-type]


def told(*variables: pb.Variable, **more: object) -> pb.Catalogue:
    made = pb.Catalogue(variables=variables, **more)  # type: ignore[arg-type]
    made.fingerprint = made.fingerprint or fingerprint(made)
    return made


def names(catalogue: pb.Catalogue) -> list[str]:
    return [one.name for one in catalogue.variables]


@pytest.fixture
def catalogues(tmp_path: Path) -> Catalogues:
    return Catalogues(Store(tmp_path / "store.db"), SLOTS)


SHARED, OWN = variable("shared"), variable("history", slot=2)


@pytest.mark.parametrize("order", [("chief-0", "worker-0"), ("worker-0", "chief-0")])
def test_what_only_one_role_has_stays_whoever_tells_last(catalogues, order):
    tell = {"chief-0": told(SHARED, OWN), "worker-0": told(SHARED)}
    for name in order:
        catalogues.add(name, tell[name], 1)
    assert names(catalogues.present) == ["history", "shared"]
    assert catalogues.present.fingerprint == tell["chief-0"].fingerprint
    assert not catalogues.add("worker-1", told(SHARED), 1), "nothing new"


def test_a_new_catalogue_is_another_one_only_if_it_adds_something(catalogues):
    catalogues.add("chief-0", told(SHARED, OWN), 1)
    before = catalogues.present.fingerprint
    assert not catalogues.add("worker-0", told(SHARED, warnings=[]), 1)
    assert catalogues.present.fingerprint == before
    assert catalogues.add("worker-0", told(SHARED, variable("of a worker")), 1)
    assert catalogues.present.fingerprint not in ("", before)
    assert names(catalogues.present) == ["history", "of a worker", "shared"]


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        ({"shape": [5], "bytes": 20}, r"shape \(5,\) instead of \(4,\)"),
        ({"dtype": 3}, "type 3 instead of 1"),
        ({"slot": 3}, "slot 3 instead of 1"),
        ({"reference": True}, "kind of variable reference instead of resource"),
        ({"slice": "8 0,4"}, "cut 8 0,4 instead of 8 4,4"),
    ],
)
def test_two_variables_of_one_name_are_refused_by_name(catalogues, difference, words):
    catalogues.add("chief-0", told(variable("shared", slice="8 4,4")), 1)
    with pytest.raises(
        RefusedError, match=f"shared is another one in the graph of worker-3 than in that of chief-0: {words}"
    ):
        catalogues.add("worker-3", told(variable("shared", **difference)), 1)
    assert catalogues.present.variables[0].slot == 1


def test_a_shape_that_is_not_known_before_the_run_is_no_difference():
    known = merged(pb.Catalogue(), told(variable("table", shape=[], bytes=0)), "worker-0", 1, SLOTS)
    known = merged(known, told(variable("table", shape=[9, 2], bytes=72)), "chief-0", 1, SLOTS)
    known = merged(known, told(variable("table", shape=[], bytes=0)), "worker-1", 1, SLOTS)
    assert (list(known.variables[0].shape), known.variables[0].bytes) == ([9, 2], 72)


def test_what_one_role_writes_whole_is_copied_whole(catalogues):
    rows = variable("table", update=ROWS, bitmap="table@dirty")
    catalogues.add("worker-0", told(rows), 1)
    catalogues.add("chief-0", told(variable("table")), 1)
    catalogues.add("worker-1", told(rows, SHARED), 1)
    assert [(one.update, one.bitmap) for one in catalogues.present.variables] == [(DENSE, ""), (DENSE, "")]


def test_before_anybody_knows_a_step_nothing_is_there_to_be_moved_and_then_everything(catalogues):
    early = [variable("shared", update=UNKNOWN), variable("history", slot=2, update=UNKNOWN)]
    catalogues.add("chief-0", told(*early), 1)
    assert not catalogues.present.variables and not catalogues.present.fingerprint
    catalogues.add("worker-0", told(SHARED), 1)
    assert {one.name: one.update for one in catalogues.present.variables} == {"history": UNKNOWN, "shared": DENSE}
    catalogues.add("chief-0", told(SHARED, variable("history", slot=2, update=ROWS, bitmap="b")), 1)
    catalogues.add("chief-0", told(*early, variable("later", update=UNKNOWN)), 1)
    assert {one.name: one.update for one in catalogues.present.variables} == {
        "history": ROWS, "shared": DENSE, "later": UNKNOWN,
    }  # fmt: skip


def test_checkpoints_are_the_chiefs(catalogues):
    catalogues.add("worker-0", told(variable("part", saved_name="", slice="")), 1)
    catalogues.add("chief-0", told(variable("part", saved_name="whole", slice="8 0,4")), 1)
    catalogues.add("worker-1", told(variable("part", saved_name="another", slice="8 0,4"), SHARED), 1)
    part = catalogues.present.variables[0]
    assert (part.saved_name, part.slice, part.declared_by) == ("whole", "8 0,4", "worker-0")


def test_a_model_that_begins_anew_may_be_another_one(catalogues):
    catalogues.add("chief-0", told(SHARED, OWN, variable("gone")), 1)
    catalogues.add("worker-0", told(SHARED, variable("of a worker")), 2)
    assert names(catalogues.present) == ["gone", "history", "of a worker", "shared"]
    catalogues.add("chief-0", told(SHARED, variable("history", slot=5, shape=[2], bytes=8)), 2)
    assert {one.name: one.slot for one in catalogues.present.variables} == {"history": 5, "of a worker": 1, "shared": 1}


def test_the_store_keeps_it_and_what_need_not_be_told_again(tmp_path):
    first = Catalogues(Store(tmp_path / "store.db"), SLOTS)
    for number in range(FINGERPRINTS_MAX + 5):
        first.add("chief-0", told(SHARED, OWN, fingerprint=f"f{number}"), 1)
    again = Catalogues(Store(tmp_path / "store.db"), SLOTS)
    assert again.known == first.known
    assert list(again.told(1)) == [f"f{number}" for number in range(5, FINGERPRINTS_MAX + 5)]
    assert not again.told(2)


@pytest.mark.parametrize("slot", [-1, SLOTS])
def test_a_slot_that_the_job_does_not_have_is_refused_by_name(catalogues, slot):
    with pytest.raises(
        RefusedError, match=rf"the variable x of worker-0 is on slot {slot}, but the job has the slots 0 to 7;"
    ):
        catalogues.add("worker-0", told(SHARED, variable("x", slot=slot)), 1)
    assert not catalogues.present.variables and not catalogues.told(1)


def test_a_slot_that_the_job_does_not_have_ends_the_job_and_no_aimaster(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await it.until(lambda: it.master.job.cluster.live)
        await it.agent("chief-0").say(catalogue=told(variable("x", slot=99)))
        await it.until(lambda: it.master.job.ending == "failed")
        assert it.master.job.failure.startswith("the variable x of chief-0 is on slot 99, but")
        assert not it.master.broken.is_set()
        await it.crash()
        await it.start()
        assert "x" not in names(it.master.job.catalogues.known) and not it.master.broken.is_set()

    play(tmp_path, scenario)


def test_a_trainer_that_comes_and_goes_takes_no_variable_away(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        own = pb.Variable(name="own", slot=7, update=DENSE, bytes=8, shape=[2])
        everything = pb.Catalogue(variables=[*it.catalogue.variables, own], fingerprint="chief")
        await it.agent("chief-0").say(catalogue=everything)
        await it.until(lambda: len(it.master.job.catalogue.variables) == 17)
        await it.scale(workers=2)
        await it.ended()
        await it.until(lambda: it.agent("worker-1").call is not None)
        await it.agent("worker-1").say(catalogue=it.catalogue)
        await it.agent("worker-1").say(catalogue=pb.Catalogue(variables=[own], fingerprint="other"))
        await it.until(lambda: "other" in it.master.job.catalogues.told(1))
        await it.scale(ps=1)
        assert (await it.ended(2)).outcome == "committed"
        moved = {move.variable.name for move in it.agent("ps-0").command("copy").copy.moves} or {
            move.variable.name for command in it.agent("ps-0").commands for move in command.copy.moves
        }
        assert "own" in moved

    play(tmp_path, scenario)


def test_another_model_under_the_same_names_stops_the_job_with_the_remedy(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        other = pb.Variable(name="dense3", slot=4, update=DENSE, bytes=100, shape=[25])
        await it.until(lambda: {"chief-0", "worker-0"} <= it.master.job.members.trained)
        first = it.agent("worker-0")
        await first.say(catalogue=pb.Catalogue(variables=[other], fingerprint="other"))
        await it.until(lambda: it.backend.agents.get("worker-0") not in (None, first))  # its process is another one
        assert not it.master.job.ending
        await it.until(lambda: it.agent("worker-0").call is not None)
        await it.agent("worker-0").say(catalogue=pb.Catalogue(variables=[other], fingerprint="other"))
        await it.until(lambda: it.master.job.ending == "failed")
        assert "dense3 is another one in the graph of worker-0 than in that of chief-0: slot 4" in it.master.job.failure
        assert "same script" in it.master.job.failure

    play(tmp_path, scenario)


def test_a_further_dense_variable_needs_no_other_marks_and_another_table_does():
    table = variable("table", update=ROWS, bitmap="table@dirty")
    before = tables_fingerprint(told(table, SHARED))
    assert tables_fingerprint(told(table, SHARED, OWN)) == before
    assert tables_fingerprint(told(table, SHARED, variable("other", update=ROWS, bitmap="other@dirty"))) != before
    assert tables_fingerprint(told(variable("table", update=ROWS, bitmap="b"), SHARED)) != before


def test_a_variable_that_is_told_while_slots_move_rolls_the_change_back(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        it.agent("worker-0").mute.add("prepare")
        await it.scale(ps=1)
        await it.until(lambda: "prepare" in it.agent("worker-0").told)
        own = [pb.Variable(name=f"own{slot}", slot=slot, bytes=8, shape=[2]) for slot in range(8)]
        await it.agent("chief-0").say(catalogue=pb.Catalogue(variables=own, fingerprint="early"))
        await it.until(lambda: "early" in it.master.job.catalogues.told(1))
        prepare = it.agent("worker-0").command("prepare")
        await it.agent("worker-0").say(ack=pb.Ack(command_id=prepare.id, ok=True))
        ended = await it.ended()
        assert (ended.outcome, "variables of the model changed" in ended.reason) == ("rolled_back", True)
        it.agent("worker-0").mute.clear()
        await it.scale(ps=1)
        assert (await it.ended(2)).outcome == "committed"
        moved = {move.variable.name for command in it.agent("ps-0").commands for move in command.copy.moves}
        assert {one.name for one in own} & moved

    play(tmp_path, scenario)
