"""Steps whose messages are packed: the same steps, in a session beside the others of their view."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext import graph as passes  # noqa: E402
from deeprec_ext.elastic.session import packed  # noqa: E402
from deeprec_ext.elastic.session.tracing import make_probe  # noqa: E402
from deeprec_ext.graph import on_slots  # noqa: E402
from tests.unit.elastic.cluster import FakeHost, LocalCluster, elastic, improved, move  # noqa: E402

v1 = tf.compat.v1
ROWS, DIM, SLOTS, TABLES = 500, 4, 4, 6


def build(rate=0.2):
    """A step that looks up in several tables, with an iterator, dropout and a dense layer."""
    setter = v1.train.replica_device_setter(SLOTS, worker_device="/job:chief/task:0")
    with v1.device(setter), v1.variable_scope("m", use_resource=True):
        step = v1.train.get_or_create_global_step()
        dataset = tf.data.Dataset.range(10**6).map(
            lambda i: tf.random.stateless_uniform([16, TABLES], [i, 3], maxval=ROWS, dtype=tf.int64)
        )
        iterator = v1.data.make_initializable_iterator(dataset)
        v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
        ids = iterator.get_next()
        start = v1.random_uniform_initializer(-1, 1, seed=3)
        tables = [v1.get_variable(f"table{number}", [ROWS, DIM], initializer=start) for number in range(TABLES)]
        found = tf.concat([v1.nn.embedding_lookup(table, ids[:, n]) for n, table in enumerate(tables)], 1)
        kernel = v1.get_variable("kernel", [TABLES * DIM, 1], initializer=start)
        bias = v1.get_variable("bias", [1], initializer=start)
        loss = tf.reduce_mean((tf.nn.dropout(found, rate=rate, seed=7) @ kernel + bias) ** 2)
        train = v1.train.AdagradOptimizer(0.1).minimize(loss, step)
    return train, loss


class Trained:
    """Some steps on one PS, some more on two."""

    def __init__(self, pack: str) -> None:
        cluster = LocalCluster(2)
        one, two = cluster.view(0, 0, 0, 0), cluster.view(0, 1, 0, 1, epoch=2)
        with tf.Graph().as_default() as graph:
            train, loss = build()
            host = FakeHost(cluster, one)
            host.pack = pack
            host.optimise = "auto" if pack == "on" else "off"
            host.set(one)
            self.session = elastic(host, graph)
            self.losses = [self.session.run([train, loss])[1] for _ in range(4)]
            self.reports = [self.report()]
            catalogue = self.session.catalogue()
            self.session.pool.prepare(host.make(two, {}))
            move(cluster, catalogue, one, two)
            self.session.pool.exchange(host.set(two))
            self.losses += [self.session.run([train, loss])[1] for _ in range(4)]
            self.reports.append(self.report())
            self.tensors = self.traced(train, loss)
            self.values = self.session.run({variable.name: variable for variable in v1.global_variables()})
            self.session.close()

    def report(self):
        return {one.name: one for one in self.session.reports()}.get("packing")

    def traced(self, train, loss):
        """What the trace of a step says of it."""
        recorded = []
        found = self.session.pool.traceable()
        probe = make_probe(found, recorded.append)
        assert found.placed.attach(probe)
        probe.arm()
        while not recorded:
            self.losses.append(self.session.run([train, loss])[1])
        metadata = v1.RunMetadata.FromString(recorded[0].metadata)
        roles = passes.role_by_view("chief-0", {0: "ps-0", 1: "ps-1"})
        return sum(edge.tensors for edge in passes.read_trace(metadata, recorded[0].known, "chief-0", roles).edges)


def test_a_packed_step_gives_the_same_before_and_after_a_change_of_ps():
    plain, ours = Trained("off"), Trained("on")
    assert plain.reports == [None, None]
    before, after = ours.reports
    assert before.changed >= 8 and after.changed >= 8 and before.detail != after.detail
    np.testing.assert_array_equal(plain.losses, ours.losses)
    assert len(set(plain.losses)) == len(plain.losses)
    for name, value in plain.values.items():
        np.testing.assert_array_equal(value, ours.values[name], err_msg=name)
    assert ours.tensors <= plain.tensors - 8, "the traced step is the one that is run"


def broken(definition, *_, **__):
    bad = v1.GraphDef()
    bad.CopyFrom(definition)
    bad.node.add(name="bad", op="NoSuchOp")
    return passes.Packed(bad, passes.Report("packing", 9, "", 0.0))


def failing(*_, **__):
    raise KeyError("a mistake of ours")


@pytest.mark.parametrize("pack", [broken, failing])
def test_a_run_that_cannot_be_packed_is_run_as_it_is(monkeypatch, pack):
    monkeypatch.delenv("DEEPREC_EXT_TEST_PACK", raising=False)
    monkeypatch.setattr(passes, "pack", pack)
    cluster = LocalCluster(1)
    with tf.Graph().as_default() as graph:
        train, loss = build()
        session = elastic(FakeHost(cluster, cluster.view(0, 0, 0, 0)), graph)
        assert len({session.run([train, loss])[1] for _ in range(3)}) == 3
        session.close()


def test_only_so_many_runs_have_a_session_of_their_own(monkeypatch):
    monkeypatch.setattr(packed, "OWN_MAX", 1)
    cluster = LocalCluster(1)
    with tf.Graph().as_default() as graph:
        train, loss = build()
        session = elastic(FakeHost(cluster, cluster.view(0, 0, 0, 0)), graph)
        session.run([train, loss])
        session.run(train)
        placed = session.pool.present
        found = [placed.is_packed(one) for one in placed._callables if train.name in one.targets]
        assert sorted(found) == [False, True]
        session.close()


def test_what_is_known_of_runs_does_not_grow_for_ever(monkeypatch):
    monkeypatch.setattr(packed, "LEFT_ALONE_MAX", 3)
    asked = []
    maker = SimpleNamespace(settled=lambda definition, run: asked.append(run))
    runs = packed.OwnRuns(v1.GraphDef, "", v1.ConfigProto(), v1.ConfigProto(), maker)
    some = [passes.Run((), (), (f"op{number}",)) for number in range(5)]
    for run in [*some, some[4], some[0]]:
        assert runs.session(run, hasty=False) is None
    assert asked == [*some, some[0]] and len(runs._left_alone) == 3


def test_two_packed_runs_do_not_draw_the_same_numbers():
    """Each has its own generators."""
    cluster = LocalCluster(1)
    with tf.Graph().as_default() as graph:
        train, loss = build()
        session = elastic(FakeHost(cluster, cluster.view(0, 0, 0, 0)), graph)
        (mask,) = (
            op.outputs[0] for op in graph.get_operations() if op.type == "RandomUniform" and "dropout" in op.name
        )
        one, two = session.run([train, mask])[1], session.run([train, mask, loss])[1]
        placed = session.pool.present
        assert all(placed.is_packed(signature) for signature in placed._callables if train.name in signature.targets)
        assert np.mean(one == two) < 0.1
        session.close()


@pytest.mark.parametrize("standby", [False, True])
def test_another_view_is_made_in_haste_from_what_was_optimised_once(monkeypatch, standby):
    """For all runs that it may need; the session of the whole graph comes last, or when somebody wants something new of it."""
    asked = []
    original = on_slots.optimise_run
    monkeypatch.setattr(on_slots, "optimise_run", lambda *given: asked.append(given[1]) or original(*given))
    cluster = LocalCluster(2)
    one, two = cluster.view(0, 0, 0, 0), cluster.view(0, 1, 0, 1, epoch=2)
    with tf.Graph().as_default() as graph:
        train, loss = build(rate=0.0)
        host = FakeHost(cluster, one)
        host.pack = "auto"
        host.set(one)
        session = elastic(host, graph)
        step = v1.train.get_global_step()
        for _ in range(4):
            session.run([train, loss])
            session.run(step)
        catalogue = session.catalogue()
        session.pool.prepare(host.make(two, {}), standby=standby)
        move(cluster, catalogue, one, two)
        session.pool.exchange(host.set(two))
        found = [session.run([train, loss])[1], session.run(step)]
        placed = session.pool.present
        assert found[1] == 5 and hasty_of(session, train) == [True] and placed.late == 0
        assert placed.opened != standby, "iterators begin there, which is not prepared first where a PS may be lost"
        assert len(asked) == len(set(asked)) == 2, "the step, and the reading of its number"
        assert any(one.name == "packing" and one.changed > 0 for one in session.reports())
        assert any(one.name == "optimiser" and "operations of" in one.detail for one in session.reports())
        session.run(loss)
        assert placed.opened and placed.late == 1
        improved(session)
        assert packed_of(session, train) == [True] and placed is session.pool.present
        session.pool.prepare(host.make(one, {}), standby=standby)
        assert len(asked) == 3, "the new one"
        assert session.run([train, loss])[1] < found[0]
        session.close()


@pytest.mark.parametrize("pack", ["on", "off"])
def test_until_a_change_a_seeded_op_draws_what_it_draws_without_us(pack):
    """Also where the graph has grown, and other runs were made, before training begins."""
    cluster = LocalCluster(1)
    with tf.Graph().as_default() as graph:
        train, loss = build()
        host = FakeHost(cluster, cluster.view(0, 0, 0, 0))
        host.pack = pack
        session = elastic(host, graph)
        session.run(v1.report_uninitialized_variables())
        session.run(loss.graph.get_tensor_by_name("m/table0/Initializer/random_uniform/RandomUniform:0"))
        with v1.device("/job:chief/task:0"):
            fetched = tf.identity(next(
                op.outputs[0] for op in graph.get_operations() if op.type == "RandomUniform" and "dropout" in op.name
            ))  # fmt: skip
        drawn = [session.run([train, fetched])[1] for _ in range(5)]
        session.close()
    with tf.Graph().as_default(), v1.Session() as stock:
        plain = v1.random_uniform(drawn[0].shape, seed=7)
        np.testing.assert_array_equal(drawn, [stock.run(plain) for _ in range(5)])


def test_a_session_that_was_prepared_before_anything_recurred_draws_apart():
    """It may be used hours later."""
    cluster = LocalCluster(2)
    one, two = cluster.view(0, 0, 0, 0), cluster.view(0, 1, 0, 1, epoch=2)
    with tf.Graph().as_default() as graph:
        train, _ = build()
        host = FakeHost(cluster, one)
        host.pack = "off"
        host.set(one)
        session = elastic(host, graph)
        (drawn,) = (
            op.outputs[0] for op in graph.get_operations() if op.type == "RandomUniform" and "dropout" in op.name
        )
        before = [session.run([train, drawn])[1]]
        session.pool.prepare(host.make(two, {}))
        before += [session.run([train, drawn])[1] for _ in range(3)]
        move(cluster, session.catalogue(), one, two)
        session.pool.exchange(host.set(two))
        after = [session.run([train, drawn])[1] for _ in range(4)]
        assert all(np.mean(this == that) < 0.1 for this in before for that in after)
        session.close()


def packed_of(session, train):
    placed = session.pool.present
    return [placed.is_packed(one) for one in placed._callables if train.name in one.targets]


def hasty_of(session, train):
    """Whether they have been compiled without TensorFlow's optimiser, from what that once made of them."""
    placed = session.pool.present
    return [
        placed._own.has(placed.run_of(one), hasty=True) for one in placed._callables if train.name in one.targets
    ]  # fmt: skip


def test_the_steps_of_a_session_that_is_in_use_are_packed_beside_the_training():
    """They are the same, before and after, and so they are after a change, whose session packs nothing before it is needed."""
    losses, values = {}, {}
    for pack in ("off", "auto"):
        cluster = LocalCluster(2)
        one, two = cluster.view(0, 0, 0, 0), cluster.view(0, 1, 0, 1, epoch=2)
        with tf.Graph().as_default() as graph:
            train, loss = build(rate=0.0)
            host = FakeHost(cluster, one)
            host.pack = pack
            host.set(one)
            session = elastic(host, graph)
            found = losses.setdefault(pack, [])

            def steps(session=session, train=train, loss=loss, found=found):
                found.extend(session.run([train, loss])[1] for _ in range(4))

            steps()
            assert packed_of(session, train) == [False]
            assert improved(session) == [] and packed_of(session, train) == [pack == "auto"]
            steps()
            catalogue = session.catalogue()
            session.pool.prepare(host.make(two, {}))
            move(cluster, catalogue, one, two)
            session.pool.exchange(host.set(two))
            steps()
            assert packed_of(session, train) == [False] and hasty_of(session, train) == [True]
            improved(session)
            steps()
            assert packed_of(session, train) == [pack == "auto"]
            assert improved(session) == [], "there is nothing left to do"
            values[pack] = session.run({variable.name: variable for variable in v1.global_variables()})
            session.close()
    np.testing.assert_array_equal(losses["off"], losses["auto"])
    for name, value in values["off"].items():
        np.testing.assert_array_equal(value, values["auto"][name], err_msg=name)
