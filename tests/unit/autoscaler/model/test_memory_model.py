"""Memory of a PS, added up by hand."""

from __future__ import annotations

import pytest

from deeprec_ext.autoscaler.model import memory_model
from deeprec_ext.autoscaler.model.memory_model import CHUNK_BYTES, PROCESS_BYTES, VARIABLE_BYTES, Layout, PsMemory
from deeprec_ext.autoscaler.observe.observed import Model
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.autoscaler.facts import fact

ROWS, DENSE = pb.Variable.ROWS, pb.Variable.DENSE
MB = 10**6


def table(name: str, slot: int, rows: int = 10_000, dim: int = 25) -> list[pb.Variable]:
    """A table of 1 MB and its accumulator, which share a bitmap."""
    return [
        pb.Variable(
            name=name + more, slot=slot, shape=[rows, dim], bytes=4 * rows * dim, update=ROWS, bitmap=f"{name}:dirty"
        )
        for more in ("", "/Adagrad")
    ]


CATALOGUE = pb.Catalogue(
    variables=[
        *table("a", 0), *table("b", 1), *table("c", 2), *table("d", 3),
        pb.Variable(name="kernel", slot=0, shape=[500, 500], bytes=MB, update=DENSE),
        pb.Variable(name="global_step", slot=0, bytes=8, update=DENSE),
    ]
)  # fmt: skip
LAYOUT = Layout.of(CATALOGUE, 4)


def test_a_layout_adds_up_what_is_on_each_slot():
    assert LAYOUT.sizes == (3 * MB + 8, 2 * MB, 2 * MB, 2 * MB)
    assert LAYOUT.tables == (2 * MB,) * 4
    assert LAYOUT.rows == (10_000,) * 4  # an accumulator shares the marks of its table
    assert LAYOUT.counts == (4, 2, 2, 2)


def test_one_ps_has_everything_once_and_marks_nothing():
    (one,) = memory_model.ps_memory(LAYOUT, (7, 7, 7, 7)).values()
    assert one == PsMemory(PROCESS_BYTES + 10 * VARIABLE_BYTES, 9 * MB + 8, 0, 0, 0, 8 * MB)
    assert one.total == PROCESS_BYTES + 10 * VARIABLE_BYTES + 9 * MB + 8
    assert one.peak == one.total + 8 * MB  # a checkpoint copies the tables


def test_with_peer_backups_each_has_its_own_the_others_and_marks_for_both():
    found = memory_model.ps_memory(LAYOUT, (0, 1, 0, 1), (1, 0, 1, 0))
    assert found[0].variables == 5 * MB + 8
    assert found[0].backups == 4 * MB
    assert found[1].backups == 5 * MB + 8
    assert found[0].marks == 2 * 40_000  # marks, and what the peer reader has pending: of four tables
    assert found[0].buffers == CHUNK_BYTES + memory_model.GUARDING_BYTES + memory_model.DIRTY_SHARE * 4 * MB
    assert found[0].process == PROCESS_BYTES + 10 * VARIABLE_BYTES  # kernels of backups too


def test_a_ps_copies_its_own_tables_to_write_them_and_more_ps_copy_less():
    parts = [
        pb.Variable(name=f"wide/part_{slot}@8", saved_name="wide", slice=f"8 1,{slot},1:0,1", slot=slot, update=ROWS,
                    bytes=MB) for slot in range(8)
    ]  # fmt: skip
    layout = Layout.of(pb.Catalogue(variables=parts), 8)
    copied = {count: one.peak - one.total for count in (1, 2, 4) for one in [memory_model.for_count(layout, count)]}
    assert copied == {1: 8 * MB, 2: 4 * MB, 4: 2 * MB}


def test_disk_backups_have_marks_of_their_own():
    assert memory_model.ps_memory(LAYOUT, (0,) * 4, disk=True)[0].marks == 2 * 40_000
    both = memory_model.ps_memory(LAYOUT, (0, 1, 0, 1), (1, 0, 1, 0), disk=True)
    assert both[0].marks == 3 * 40_000


def test_the_fullest_of_so_many_ps_is_what_a_request_must_cover():
    alone = memory_model.for_count(LAYOUT, 1)
    two, four = memory_model.for_count(LAYOUT, 2), memory_model.for_count(LAYOUT, 4)
    assert alone.backups == 0
    assert two.variables + two.backups == 9 * MB + 8  # two PS: each has everything, own or guarded
    assert four.variables + four.backups == 5 * MB + 8
    assert memory_model.for_count(LAYOUT, 2, backups=False).variables == 5 * MB + 8
    assert memory_model.for_count(LAYOUT, 2, backups=False).backups == 0


def test_a_scaling_has_what_moves_twice():
    old, new = (0, 0, 0, 0), (0, 0, 1, 1)
    before = memory_model.ps_memory(LAYOUT, old)
    height = memory_model.moving(LAYOUT, before, old, new)
    assert (
        height[1] == PROCESS_BYTES + 4 * VARIABLE_BYTES + 4 * MB + 20_000 + CHUNK_BYTES
    )  # new: only what comes, and its marks
    assert height[0] == before[0].total + 20_000 + CHUNK_BYTES  # it gives nothing up before the end
    assert memory_model.moving(LAYOUT, before, old, old) == {0: before[0].total}


@pytest.mark.parametrize("slots", [1, 3])
def test_variables_of_slots_that_are_not_there_count_nowhere(slots):
    assert len(Layout.of(CATALOGUE, slots).sizes) == slots
    assert sum(Layout.of(CATALOGUE, slots).counts) == sum(LAYOUT.counts[:slots])


def test_an_empty_catalogue_is_a_process():
    assert memory_model.for_count(Layout.of(pb.Catalogue(), 8), 1).total == PROCESS_BYTES


def test_features_alone_give_a_share_that_falls_with_ps_but_not_below_the_largest_slot():
    model = fact(Model, table_bytes=900 * MB, dense_bytes=100 * MB, largest_slot_bytes=400 * MB)
    assert memory_model.even_share(model, 1, True) == PROCESS_BYTES + 1000 * MB
    assert memory_model.even_share(model, 2, False) == PROCESS_BYTES + 500 * MB
    assert (
        memory_model.even_share(model, 2, True)
        == PROCESS_BYTES + 1000 * MB + 2 * CHUNK_BYTES + memory_model.GUARDING_BYTES
    )
    assert memory_model.even_share(model, 10, False) == PROCESS_BYTES + 400 * MB


def test_a_trainer_that_keeps_the_copies_of_a_single_ps_needs_all_its_variables_optimizer_slots_included():
    needed = memory_model.of_holder(LAYOUT)
    assert needed == 9 * MB + 8 + 10 * VARIABLE_BYTES + CHUNK_BYTES + 8 * MB // 10
    assert memory_model.of_holder(Layout.of(pb.Catalogue(), 8)) == 0
    assert memory_model.of_holder_of(Model.unknown()) == 0
    model = fact(Model, table_bytes=8 * MB, dense_bytes=MB + 8)
    assert memory_model.of_holder_of(model) == needed - 10 * VARIABLE_BYTES
