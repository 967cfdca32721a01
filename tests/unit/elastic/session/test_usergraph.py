"""What is to be expected of a script's runs, and in which order it is prepared."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext.elastic.session import usergraph as module  # noqa: E402
from deeprec_ext.elastic.session.placed import Signature  # noqa: E402
from deeprec_ext.elastic.session.usergraph import UserGraph  # noqa: E402
from deeprec_ext.errors import RefusedError  # noqa: E402
from deeprec_ext.graph import Partitioning  # noqa: E402

v1 = tf.compat.v1


def graph():
    made = tf.Graph()
    with made.as_default():
        with v1.device("/job:ps/task:0"):
            weight = v1.get_variable("weight", [2], use_resource=True)
        with v1.device("/job:chief/task:0"):
            tf.group(v1.assign_add(weight, [1.0, 1.0]), name="step")
            tf.identity(weight.read_value(), name="summary")
            tf.constant(3.0, name="local")
            tf.identity(weight.read_value(), name="save")
            tf.group(v1.global_variables_initializer(), name="begin")
    return made


def run(user: UserGraph, name: str, times: int = 1) -> Signature:
    signature = Signature((), (), (name,))
    for _ in range(times):
        user.count(signature)
    return signature


def test_what_costs_most_comes_first_and_what_reaches_no_ps_last():
    user = UserGraph(graph())
    run(user, "local", 200)
    run(user, "summary", 2)
    run(user, "step", 100)
    assert [one.targets[0] for one in user.expected()] == ["step", "summary", "local"]


def test_a_run_of_a_hook_is_not_taken_for_the_step_although_it_is_made_more_often():
    made = tf.Graph()
    with made.as_default():
        with v1.device("/job:ps/task:0"):
            step = v1.get_variable("global_step", [], use_resource=True)
            weight = v1.get_variable("weight", [], use_resource=True)
        with v1.device("/job:chief/task:0"):
            tf.identity(step.read_value(), name="hook")
            with tf.control_dependencies([v1.assign_add(step, 1.0)]):
                tf.group(v1.assign_add(weight, weight * 2.0 + 1.0), name="train")
            tf.group(made.get_operation_by_name("train"), weight.read_value(), name="summary")
            tf.constant(1.0, name="local")
    user = UserGraph(made)
    assert not user.each_step()
    run(user, "local", 300)
    run(user, "hook", 110)
    run(user, "train", 100)
    run(user, "summary", 2)
    assert [one.targets[0] for one in user.each_step()] == ["train", "hook"]
    assert next(one.targets[0] for one in user.expected()) == "train"


def test_a_run_made_once_is_expected_again_unless_training_began_with_it():
    user = UserGraph(graph())
    run(user, "begin")
    run(user, "save")
    run(user, "step", 3)
    assert [one.targets[0] for one in user.expected()] == ["step", "save"]
    run(user, "begin")  # it recurs: then it is no beginning
    assert {one.targets[0] for one in user.expected()} == {"step", "save", "begin"}


def test_a_step_that_assigns_is_expected_with_its_summaries_as_well():
    """A learning rate or a moving average that each step assigns is nothing that a training begins with."""
    made = tf.Graph()
    with made.as_default(), made.device("/job:ps/task:0"), v1.variable_scope("", use_resource=True):
        rate, other = v1.get_variable("rate", []), v1.get_variable("other", [])
        with tf.control_dependencies([rate.assign(rate.read_value() * 0.5)]):
            tf.no_op("step")
        with tf.control_dependencies([made.get_operation_by_name("step")]):
            tf.no_op("step_with_summary")
        with tf.control_dependencies([made.get_operation_by_name("step"), other.assign(1.0)]):
            tf.no_op("step_that_begins")
    user = UserGraph(made)
    run(user, "step", 3)
    run(user, "step_with_summary")
    run(user, "step_that_begins")
    assert [one.targets[0] for one in user.expected()] == ["step", "step_with_summary"]


def test_a_script_that_makes_new_fetches_for_ever_is_not_prepared_for_all_of_them(monkeypatch):
    monkeypatch.setattr(module, "EXPECTED_MAX", 5)
    monkeypatch.setattr(module, "EXPECTED_ONCE_MAX", 3)
    made = tf.Graph()
    with made.as_default():
        for number in range(20):
            tf.constant(number, name=f"once{number}")
        for number in range(4):
            tf.constant(number, name=f"often{number}")
    user = UserGraph(made)
    for number in range(20):
        run(user, f"once{number}")
    for number in range(4):
        run(user, f"often{number}", 2 + number)
    assert [one.targets[0] for one in user.expected()] == ["often3", "often2", "often1", "often0", "once17"]


def test_an_op_that_was_left_out_is_there_once_somebody_fetches_it():
    """A look-up of one part, of a table whose parts are one: with it comes everything, in all sessions on the graph."""
    made = tf.Graph()
    with made.as_default(), made.device(v1.train.replica_device_setter(4, worker_device="/job:worker/task:0")):
        with v1.variable_scope("", use_resource=True, partitioner=v1.fixed_size_partitioner(4)):
            table = v1.get_variable("table", [40, 2])
        rows = tf.identity(v1.nn.embedding_lookup(table, tf.constant([1, 39], tf.int64)), name="rows")
    gather = next(one.name for one in made.get_operations() if one.type == "ResourceGather")
    user, other = (UserGraph(made, lambda reason: None, partitioning=lambda: Partitioning(4)) for _ in range(2))
    user.facts_of(Signature((), (rows.name,), ()))
    exported = user.exported()
    assert exported.cuts.joined.left_out and gather not in exported.index.nodes and other.exported() is exported
    assert user.facts_of(Signature((), (f"{gather}:0",), ())).remote
    assert gather in user.exported().index.nodes and user.exported().version != exported.version
    assert other.exported() is user.exported() and user.facts_of(Signature((), (rows.name,), ())).remote
    assert user.exported().cuts.joined.tables.keys() == exported.cuts.joined.tables.keys() == {"table"}


def test_a_run_that_writes_one_part_of_a_variable_that_is_one_is_refused_by_name():
    """`part.load(value)`, or an assignment of one part: it would write the others too."""
    made = tf.Graph()
    with made.as_default(), made.device(v1.train.replica_device_setter(4, worker_device="/job:worker/task:0")):
        with v1.variable_scope("", use_resource=True, partitioner=v1.fixed_size_partitioner(4)):
            table = v1.get_variable("table", [40, 2])
        begin = v1.global_variables_initializer().name
    told = []
    user = UserGraph(made, told.append, partitioning=lambda: Partitioning(4))
    assert user.exported().cuts.joined.tables and user.facts_of(Signature((), (), (begin,))).begins
    part = next(iter(table)).initializer.name
    with pytest.raises(RefusedError, match=r"writes a part of a variable .*'table/part_0/Assign'.*--setting cut=off"):
        user.facts_of(Signature((), (), (part,)))
    assert len(told) == 1
