"""A chief attaches to a model that lives: what is its own it initialises, for the rest it asks, and it restores nothing."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

tf = pytest.importorskip("tensorflow")

from tensorflow.python.training import session_manager  # noqa: E402

from deeprec_ext.elastic.session.session import ElasticSession  # noqa: E402
from deeprec_ext.elastic.trainer import attaching  # noqa: E402
from deeprec_ext.elastic.trainer.attaching import Attaching, named_absent  # noqa: E402
from deeprec_ext.proto import deeprec_ext_pb2 as pb  # noqa: E402
from tests.unit.elastic.cluster import FakeHost, LocalCluster  # noqa: E402

v1 = tf.compat.v1
HERE = "/job:chief/task:0"


class Chief(FakeHost):
    """A trainer as far as `Attaching` needs one."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.view = cluster.view(0, 1)
        super().__init__(cluster, self.view)
        self.model_lives = True

    def wait_generation(self, generation: int, timeout_seconds: float) -> bool:
        self.generation = generation + 1
        self.view = dataclasses.replace(self.view, live=False)
        return True


@pytest.fixture
def cluster():
    """With a model of one variable that lives, at 7."""
    made = LocalCluster(2)
    with tf.Graph().as_default() as graph:
        shared = variables(graph)[0]
        session = ElasticSession("grpc://x", graph, None, FakeHost(made, made.view(0, 1)))
        session.run(shared.initializer)
        session.run(v1.assign(shared, 7.0))
        session.close()
    return made


def variables(graph):
    with graph.as_default():
        with v1.device("/job:ps/task:0"):
            shared = v1.get_variable("shared", [], initializer=v1.zeros_initializer(), use_resource=True)
        with v1.device("/job:ps/task:1"):
            new = v1.get_variable("new", [3], initializer=v1.ones_initializer(), use_resource=True)
        with v1.device(HERE):
            here = v1.get_variable("here", [], initializer=v1.constant_initializer(5.0), use_resource=True)
    return shared, new, here


def attach(cluster, monkeypatch, *verdicts):
    """(Session, its values, what was asked, the chief)."""
    asked, answers = [], iter(verdicts)

    def ask(agent, names, generation, epoch):
        asked.append((sorted(names), generation, epoch))
        return pb.MissingReply(verdict=next(answers), variables=names)

    monkeypatch.setattr(attaching, "ask", ask)
    monkeypatch.setattr(attaching, "LOOK_AGAIN_SECONDS", 0.01)
    with tf.Graph().as_default() as graph:
        made = variables(graph)
        everything, local = v1.report_uninitialized_variables(), tf.no_op()
        manager = session_manager.SessionManager(local, everything, everything, graph)
        chief = Chief(cluster)
        session = Attaching(manager, chief, "grpc://x", None).session()
        values = session.run(made) if session is not None else None
        if session is not None:
            session.close()
    return session, values, asked, chief


def test_its_own_variables_are_initialised_and_no_others(cluster, monkeypatch):
    _, (shared, new, here), asked, chief = attach(
        cluster, monkeypatch, pb.MissingReply.LATER, pb.MissingReply.THERE, pb.MissingReply.INITIALISE
    )
    assert (shared, new.tolist(), here) == (7.0, [1.0, 1.0, 1.0], 5.0)
    assert asked == [(["new"], 0, 1)] * 3
    assert [one.name for one in chief.declared[0].variables] == ["new", "shared"], "told before anything was run"


def test_without_a_model_that_lives_there_is_nothing_to_attach_to(cluster, monkeypatch):
    session, _, asked, chief = attach(cluster, monkeypatch, pb.MissingReply.RESTORE)
    assert session is None and len(asked) == 1
    assert not chief.view.live
    assert not chief.sessions, "the one that attached is closed"


def test_a_live_model_that_does_not_become_ready_is_an_error_and_no_restore(cluster, monkeypatch):
    monkeypatch.setattr(attaching, "LIMIT_SECONDS", 2.0)
    with pytest.raises(tf.errors.DeadlineExceededError, match=r"have not got new; LATER; nothing was restored"):
        attach(cluster, monkeypatch, *[pb.MissingReply.LATER] * 1000)


def absent(resource, use):
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.get_variable("scope/it", [4, 2], use_resource=resource)
        op = use(variable)
        with pytest.raises(tf.errors.OpError) as caught:
            session.run(op)
    return named_absent(caught.value)


@pytest.mark.parametrize("resource", [True, False])
@pytest.mark.parametrize(
    "use",
    [
        lambda it: it + 1.0,
        lambda it: tf.gather(it, [1, 2]),
        lambda it: v1.assign_add(it, tf.ones([4, 2])),
        lambda it: v1.scatter_add(it, [1], tf.ones([1, 2])),
        lambda it: v1.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(tf.gather(it, [1]) ** 2)),
    ],
)
def test_what_tensorflow_has_not_found_is_known_by_name(resource, use):
    assert absent(resource, use) == {"scope/it"}


def test_other_errors_name_nothing():
    assert not named_absent(tf.errors.InvalidArgumentError(None, None, "indices[0] = 7 is not in [0, 4)"))
    table = "Resource localhost/table/N10tensorflow6lookup15LookupInterfaceE does not exist."
    assert not named_absent(tf.errors.NotFoundError(None, None, table))


def test_nobody_is_asked_about_an_error_that_names_no_variable(monkeypatch):
    monkeypatch.setattr(attaching, "ask", lambda *_: pytest.fail("asked"))
    error = tf.errors.InvalidArgumentError(None, None, "nan")
    assert not attaching.await_order(
        error, SimpleNamespace(), SimpleNamespace(), SimpleNamespace(live=True, generation=1)
    )


class Waits:
    """A cluster in which something may happen while a run waits."""

    live, generation, epoch = True, 1, 5

    def __init__(self, views: int = 0) -> None:
        self.views = views

    def wait_generation(self, generation: int, timeout_seconds: float) -> bool:
        self.generation += 1
        return True

    def wait_other(self, failed, lost):
        self.views -= 1
        return self.views == 0


def order(monkeypatch, cluster, *verdicts):
    answers = iter(verdicts)
    monkeypatch.setattr(attaching, "ask", lambda *_: pb.MissingReply(verdict=next(answers)))
    monkeypatch.setattr(attaching, "LOOK_AGAIN_SECONDS", 0.01)
    gone = "Resource localhost/history/N10tensorflow3VarE does not exist."
    error = tf.errors.NotFoundError(None, None, gone)
    return attaching.await_order(error, SimpleNamespace(), SimpleNamespace(), cluster)


def test_a_run_whose_variable_is_lost_ends_so_that_its_session_is_made_again(monkeypatch):
    with pytest.raises(tf.errors.AbortedError, match="has lost history"):
        order(monkeypatch, Waits(), pb.MissingReply.LATER, pb.MissingReply.RESTORE)


def test_what_the_model_has_never_had_is_initialised_when_the_aimaster_says_so(monkeypatch):
    answers = iter([
        pb.MissingReply(verdict=pb.MissingReply.LATER), pb.MissingReply(verdict=pb.MissingReply.INITIALISE, variables=["a"])
    ])  # fmt: skip
    monkeypatch.setattr(attaching, "ask", lambda *_: next(answers))
    monkeypatch.setattr(attaching, "LOOK_AGAIN_SECONDS", 0.01)
    assert attaching.new_variables(["a", "b"], SimpleNamespace(), Waits()) == {"a"}


def test_what_the_model_has_or_has_lost_is_not(monkeypatch):
    monkeypatch.setattr(attaching, "ask", lambda *_: pb.MissingReply(verdict=pb.MissingReply.THERE))
    assert not attaching.new_variables(["a"], SimpleNamespace(), Waits())
    monkeypatch.setattr(attaching, "ask", lambda *_: pb.MissingReply(verdict=pb.MissingReply.RESTORE))
    with pytest.raises(tf.errors.AbortedError, match="has lost a"):
        attaching.new_variables(["a"], SimpleNamespace(), Waits())


def test_a_run_whose_variable_has_moved_waits_for_the_view_and_one_that_errs_gets_its_error(monkeypatch):
    assert order(monkeypatch, Waits(views=2), pb.MissingReply.LATER, pb.MissingReply.LATER)
    assert not order(monkeypatch, Waits(), pb.MissingReply.THERE)
    assert not order(monkeypatch, Waits(), pb.MissingReply.INITIALISE)
