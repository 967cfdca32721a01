"""What a script runs against a live model sets nothing back that is trained, and does all the rest."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext.elastic.session.overwriting import entangled, notice  # noqa: E402
from deeprec_ext.elastic.session.session import ElasticSession  # noqa: E402
from deeprec_ext.errors import RefusedError  # noqa: E402
from tests.unit.elastic.cluster import FakeHost, LocalCluster  # noqa: E402

v1 = tf.compat.v1
HERE = "/job:chief/task:0"


@pytest.fixture(scope="module")
def cluster():
    return LocalCluster(2)


class Model:
    """A graph with everything that a script may initialise, its session, and the model as it is once it has trained.

    Args:
      scope: names of its own in a cluster that other tests use.
      cut: the table is in parts.
    """

    def __init__(self, cluster, scope, *, resource=True, cut=False):
        self.host = FakeHost(cluster, cluster.view(0, 1))
        if cut:
            wanted = self.host._wanted
            self.host._wanted = dataclasses.replace(wanted, context=dataclasses.replace(wanted.context, cut="on"))
        self.graph = tf.Graph()
        with self.graph.as_default(), v1.variable_scope(scope, use_resource=resource):
            with v1.device("/job:ps/task:0"):
                self.table = v1.get_variable("table", [20_000, 4], initializer=v1.zeros_initializer())
                self.seen = v1.get_variable(
                    "seen", [], initializer=v1.zeros_initializer(), trainable=False,
                    collections=[v1.GraphKeys.LOCAL_VARIABLES],
                )  # fmt: skip
                self.rate = v1.get_variable("rate", [], initializer=v1.ones_initializer(), trainable=False)
            with v1.device("/job:ps/task:1"):
                self.step = v1.get_variable(
                    "steps", [], tf.int64, initializer=v1.zeros_initializer(), trainable=False,
                    collections=[v1.GraphKeys.GLOBAL_VARIABLES, v1.GraphKeys.GLOBAL_STEP],
                )  # fmt: skip
            with v1.device(HERE):
                self.here = v1.get_variable("here", [], initializer=v1.constant_initializer(5.0), trainable=False)
                self.value = v1.placeholder(tf.float32, [])
                self.words = tf.lookup.StaticHashTable(
                    tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1, 2], tf.int64)), 0
                )
                self.found = self.words.lookup(tf.constant("b"))
            adagrad = v1.train.AdagradOptimizer(1.0, initial_accumulator_value=0.5)
            rows = tf.gather(self.table, [3, 17_000])
            self.train = adagrad.minimize(tf.reduce_sum(rows), self.step)
            self.slot = adagrad.get_slot(self.table, "accumulator")
            self.more = [v1.assign_add(self.rate, 1.0), v1.assign_add(self.seen, 1.0), v1.assign_add(self.here, 1.0)]
            self.set = v1.assign(self.here, self.value)
            self.everything = tf.group(
                v1.global_variables_initializer(), v1.local_variables_initializer(), v1.tables_initializer(),
                v1.no_op(name="nothing"),
            )  # fmt: skip
            self.saver = v1.train.Saver([self.table, self.step, self.rate, self.here])
        self.session = ElasticSession("grpc://x", self.graph, None, self.host)
        self.session.run(self.everything)
        assert bool(self.session.cut()) == cut
        self.session.run(self.train)
        self.session.run(self.more)
        self.host.model_lives = True

    def values(self):
        table, slot, step, rate, seen, here = self.session.run(
            [self.table, self.slot, self.step, self.rate, self.seen, self.here]
        )
        return table[3, 0], table[0, 0], slot[17_000, 1], slot[0, 0], step, rate, seen, here

    def new_session(self):
        self.session.close()
        self.session = ElasticSession("grpc://x", self.graph, None, self.host)
        return self.session


TRAINED = (-1 / np.sqrt(1.5), 0.0, 1.5, 0.5, 1)
KINDS = pytest.mark.parametrize(
    "kind", [{}, {"resource": False}, {"cut": True}], ids=["resource", "reference", "cut"]
)  # fmt: skip


@KINDS
@pytest.mark.parametrize("chief", [True, False])
def test_initialising_once_more_leaves_the_model_and_does_the_rest(request, cluster, kind, chief):
    model = Model(cluster, request.node.name.strip("]").replace("[", "_"), **kind)
    model.host.chief = chief
    model.session.run(model.set, {model.value: 40.0})
    before = model.values()
    np.testing.assert_allclose(before, (*TRAINED, 2.0, 1.0, 40.0), rtol=1e-5)
    session = model.new_session()  # of a worker that came later
    assert session.run([model.everything]) == [None]
    np.testing.assert_allclose(model.values(), (*before[:-2], 0.0, 5.0), rtol=1e-5)
    assert session.run(model.found) == 2
    assert not model.host.asked, "everything is there"
    (said,) = model.host.notices
    scope = model.table.op.name.rpartition("/")[0]
    assert f"4 variables ({scope}/rate, {scope}/steps, {scope}/table and 1 more)" in said
    assert "only the chief initialises: give init_op to MonitoredTrainingSession's scaffold" in said
    session.close()


@KINDS
def test_a_restore_of_the_scripts_leaves_the_model_and_restores_what_is_its_own(request, cluster, tmp_path, kind):
    model = Model(cluster, request.node.name.strip("]").replace("[", "_"), **kind)
    with model.graph.as_default():
        path = model.saver.save(model.session, str(tmp_path / "model.ckpt"), write_meta_graph=False)
    model.session.run(model.train)
    model.session.run(model.set, {model.value: 40.0})
    before = model.values()
    assert before[4] == 2
    with model.graph.as_default():
        model.saver.restore(model.session, path)
    np.testing.assert_allclose(model.values(), (*before[:-1], 6.0), rtol=1e-5)
    assert [one.split(":")[0] for one in model.host.notices] == ["restore-held-back"]
    model.session.close()


def test_before_the_model_lives_nothing_is_held_back(cluster):
    model = Model(cluster, "before")
    model.host.model_lives = False
    model.session.run(model.everything)
    assert model.values()[4] == 0
    assert not model.host.notices
    model.session.close()


def test_what_is_not_trained_may_be_set_back(cluster):
    model = Model(cluster, "untrained")
    model.session.run([model.rate.initializer, model.seen.initializer])
    with model.graph.as_default():
        model.session.run(v1.assign(model.step, 7))
    np.testing.assert_allclose(model.values(), (*TRAINED[:-1], 7, 1.0, 0.0, 6.0), rtol=1e-5)
    assert not model.host.notices
    model.session.close()


def test_one_variable_by_itself_is_held_back_and_one_that_is_loaded(cluster):
    model = Model(cluster, "one")
    model.session.run(model.table.initializer)
    with model.graph.as_default():
        model.step.load(0, model.session)
    np.testing.assert_allclose(model.values(), (*TRAINED, 2.0, 1.0, 6.0), rtol=1e-5)
    model.session.close()


def test_steps_in_the_same_run_are_made_and_fetched(cluster):
    model = Model(cluster, "beside")
    assert model.session.run([model.everything, model.train, model.step])[2] in (1, 2)
    assert model.values()[4] == 2
    model.session.close()


def test_who_needs_what_is_held_back_is_refused_by_name(cluster):
    model = Model(cluster, "needs")
    with model.graph.as_default(), v1.device(HERE), tf.control_dependencies([model.everything]):
        after = tf.constant(1.0, name="after")
    with pytest.raises(RefusedError, match=r"initialises .* of the live model, and after:0 in the same run needs that"):
        model.session.run(after)
    assert model.host.refusals and not model.host.notices
    assert model.values()[4] == 1
    model.session.close()


@KINDS
def test_the_chief_initialises_what_the_model_has_never_had_by_order(request, cluster, kind):
    """A script keeps some variables out of the collection that its session waits for."""
    model = Model(cluster, request.node.name.strip("]").replace("[", "_"), **kind)
    resource = kind.get("resource", True)
    with model.graph.as_default(), v1.device("/job:ps/task:1"):
        late = v1.get_variable("late" + str(len(kind)) + str(resource), [2], use_resource=resource)
        there = v1.is_variable_initialized(late)
        init = v1.global_variables_initializer()
    model.session.run(init)
    assert not model.session.run(there), "the AIMaster has not said so"
    assert model.host.asked == [[late.op.name]]
    model.host.new = frozenset([late.op.name])
    model.session.run(init)
    assert model.session.run(there)
    np.testing.assert_allclose(model.values()[:5], TRAINED, rtol=1e-5)
    model.host.chief = False
    model.session.run(init)
    assert len(model.host.asked) == 2
    model.session.close()


def test_a_step_costs_nothing_more(cluster, monkeypatch):
    model = Model(cluster, "costs")
    monkeypatch.setattr(type(model.session._user), "overwrites", lambda *_: pytest.fail("looked at again"))
    model.session.run(model.train)
    model.session.close()


def test_both_texts_name_the_line_to_change():
    from deeprec_ext.graph import Overwrite

    some = Overwrite(True, ("a", "b"), (), ("c:0",))
    assert notice(some)[0] == "restore-held-back" and "2 variables (a, b)" in notice(some)[1]
    assert "restores a, b of the live model, and c:0" in entangled(some)
