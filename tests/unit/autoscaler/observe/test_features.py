from __future__ import annotations

from deeprec_ext.autoscaler.observe.features import declared_model, fingerprint_of, model_of, trained, with_declared
from deeprec_ext.autoscaler.observe.observed import Model
from deeprec_ext.proto import deeprec_ext_pb2 as pb

ROWS, DENSE = pb.Variable.ROWS, pb.Variable.DENSE


def variable(name: str, shape: list[int], update: int, slot: int = 0, saved: str = "") -> pb.Variable:
    size = 4
    for length in shape:
        size *= length
    return pb.Variable(name=name, shape=shape, update=update, slot=slot, bytes=size, saved_name=saved)


CATALOGUE = pb.Catalogue(
    variables=[
        variable("a", [1000, 8], ROWS, 0), variable("a/Adagrad", [1000, 8], ROWS, 0),
        variable("b/part_0", [500, 8], ROWS, 1, "b"), variable("b/part_1", [500, 8], ROWS, 2, "b"),
        variable("b/part_0/Adagrad", [500, 8], ROWS, 1, "b/Adagrad"),
        variable("dense/kernel", [16, 4], DENSE, 1), variable("dense/kernel/Adam", [16, 4], DENSE, 1),
        variable("dense/kernel/Adam_1", [16, 4], DENSE, 1), variable("dense/bias", [4], DENSE, 2),
        variable("global_step", [], DENSE, 0),
    ]
)  # fmt: skip


def test_a_model_is_described_by_its_catalogue():
    model = model_of(CATALOGUE, batch_size=128.0)
    assert model.table_bytes == 4 * 8 * (1000 + 1000 + 3 * 500)
    assert model.dense_bytes == 4 * (3 * 64 + 4 + 1)
    assert model.fields == 2  # a, and b in two parts
    assert model.flops_per_example == 6 * 64  # optimizer slots and biases compute nothing
    assert model.largest_slot_bytes == 64_000 + 4
    assert (model.batch_size, model.lookups_per_step) == (128.0, 0.0)
    assert model.variables == 5  # a, b, a kernel, a bias, the step
    assert model.row_bytes == model.table_bytes / 2000
    weights = 4 * (8 * 2000 + 64 + 4 + 1)
    assert model.optimizer_slots == (model.table_bytes + model.dense_bytes) / weights - 1


def test_lookups_are_the_median_of_traced_steps():
    traces = [
        pb.Trace(slots=[pb.SlotUse(slot=0, lookup_rows=rows), pb.SlotUse(slot=1, lookup_rows=5)])
        for rows in (10, 20, 90)
    ]
    assert model_of(CATALOGUE, traces=traces).lookups_per_step == 25.0


def test_what_is_called_like_a_variable_and_more_is_its_optimizer_slot():
    names = {one.name for one in trained(list(CATALOGUE.variables))}
    assert names == {"a", "b/part_0", "b/part_1", "dense/kernel", "dense/bias", "global_step"}


def test_the_fingerprint_is_that_of_the_variables_however_they_lie_and_are_cut():
    moved, whole, other, halved = (pb.Catalogue() for _ in range(4))
    for catalogue in (moved, whole, other, halved):
        catalogue.CopyFrom(CATALOGUE)
    for number, one in enumerate(reversed(moved.variables)):
        one.slot = number
    for one in list(whole.variables):
        if "/part_" in one.name:
            whole.variables.remove(one)
    whole.variables.extend(
        [variable("b", [1000, 8], ROWS), variable("b/Adagrad", [500, 8], ROWS)]
    )  # of which the catalogue has only the first half
    other.variables[0].shape[1], other.variables[0].bytes = 16, 64_000
    halved.variables[0].dtype = 19
    mine = fingerprint_of(CATALOGUE)
    assert mine and len(mine) == 16
    assert fingerprint_of(moved) == mine
    assert fingerprint_of(whole) == mine
    assert len({mine, fingerprint_of(other), fingerprint_of(halved)}) == 3


def test_an_empty_catalogue_describes_nothing():
    assert model_of(pb.Catalogue()) == Model.unknown()
    assert fingerprint_of(pb.Catalogue()) == ""


def test_what_the_graph_tells_is_known_before_anything_has_run():
    declared = pb.Declaration(catalogue=CATALOGUE, batch_size=128, lookups_per_example=3.5, flops_per_example=1e6)
    model = declared_model(declared, slots=4)
    assert (model.batch_size, model.lookups_per_step, model.flops_per_example) == (128.0, 448.0, 1e6)
    assert model.table_bytes == model_of(CATALOGUE).table_bytes


def test_what_it_does_not_tell_stays_as_it_is_known():
    model = model_of(CATALOGUE, batch_size=64.0)
    assert with_declared(model, pb.Declaration()) == model
    assert with_declared(model, pb.Declaration(lookups_per_example=2)).lookups_per_step == 128.0
