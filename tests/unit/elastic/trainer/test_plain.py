"""Training beside the PS is seen: sessions of the script's own, Keras, eager; and nothing else is taken for it."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import tensorflow as tf

from deeprec_ext.elastic.trainer.noticing import Noticing
from deeprec_ext.elastic.trainer.plain import EAGER, PATIENCE_SECONDS, SESSION, STEPS, Watch
from deeprec_ext.tf_private import eager

v1 = tf.compat.v1


class World:
    """A watch whose time and jobs are in the hands of the test."""

    def __init__(self):
        self.now, self.trained, self.jobs, self.sent, self.refused = 100.0, False, [], [], []
        self.asked = False
        self.watch = Watch(
            Noticing(self.sent.append), self.refused.append, lambda: self.trained, lambda: self.asked, self.jobs.append,
            lambda: self.now,
        )  # fmt: skip

    def later(self, seconds=PATIENCE_SECONDS + 1):
        """What is said after so long."""
        while self.jobs:
            self.jobs.pop(0)()
        self.now += seconds
        self.watch.beat()
        while self.jobs:
            self.jobs.pop(0)()
        self.watch.beat()
        return [message.notice.text for message in self.sent]

    def run(self, operation, times=STEPS):
        for _ in range(times):
            self.watch.ran(operation.graph, [operation.name])


@pytest.fixture
def world():
    return World()


def model(graph, device=None):
    with graph.as_default(), v1.device(device):
        weights = v1.get_variable("weights", [3])
        return v1.train.AdamOptimizer().minimize(tf.reduce_sum(weights))


def test_a_loop_in_a_session_of_its_own_is_told_after_a_while_and_once(world):
    train = model(tf.Graph())
    world.run(train)
    assert world.later(PATIENCE_SECONDS - 1) == []
    assert world.later(2) == [SESSION[0]]
    world.run(train)
    assert world.later() == [SESSION[0]]
    assert world.watch.over and world.watch.conclude() == ": ".join(SESSION)


def test_devices_of_a_ps_put_nothing_there_without_a_master(world):
    world.run(model(tf.Graph(), v1.train.replica_device_setter(ps_tasks=2)))
    assert world.later() == [SESSION[0]]


def test_two_steps_are_no_loop_and_a_script_that_comes_to_the_ps_may_train_first(world):
    train = model(tf.Graph())
    world.run(train, STEPS - 1)
    assert world.later() == [] and world.watch.conclude() == ""
    world.run(train)
    world.trained = True
    assert world.later() == [] and world.watch.over and world.watch.conclude() == ""


def test_looking_at_data_initialising_restoring_and_evaluating_is_no_training(world, tmp_path):
    graph = tf.Graph()
    model(graph)
    with graph.as_default():
        batch = v1.data.make_one_shot_iterator(tf.data.Dataset.range(9)).get_next()
        count = v1.get_local_variable("count", [], initializer=v1.zeros_initializer())
        _, mean = v1.metrics.mean(tf.cast(batch, tf.float32))
        saver = v1.train.Saver()
        for operation in (
            batch.op, v1.global_variables_initializer(), v1.assign_add(count, 1.0).op, mean.op,
            graph.get_operation_by_name(saver.saver_def.restore_op_name),
        ):  # fmt: skip
            world.run(operation, 50)
    assert world.later() == [] and world.watch.conclude() == ""


def test_a_short_script_is_told_at_its_end(world):
    world.run(model(tf.Graph()))
    assert world.watch.conclude() == ": ".join(SESSION)
    assert [message.notice.code for message in world.sent] == ["local-training"]


def test_what_is_counted_is_bounded_and_a_graph_is_not_held(world):
    import gc
    import weakref

    graph = tf.Graph()
    train = model(graph)
    for number in range(1000):
        world.watch.ran(graph, [train.name, str(number)])
    assert len(world.watch._runs[graph]) <= 64
    gone = weakref.ref(graph)
    del graph, train
    gc.collect()
    assert gone() is None


def test_eager_updates_by_an_optimizer_by_hand_and_in_a_function(world):
    for _ in range(STEPS):
        world.watch.updated(world)
    assert world.later() == [EAGER[0]]
    other = World()
    optimizer = tf.keras.optimizers.SGD(0.1)
    weights = tf.Variable(tf.ones([3]))

    @tf.function
    def step():
        other.watch.applies(optimizer)
        optimizer.apply_gradients([(weights, weights)])

    step()
    assert other.later() == []
    for _ in range(STEPS):
        step()
    other.later()
    assert other.later() == [EAGER[0]]


def steps(world, count):
    """Of an eager loop."""
    for _ in range(count):
        world.watch.taped()
        world.watch.updated(world)


def test_an_eager_loop_that_goes_on_and_on_when_it_was_told_is_refused(world):
    steps(world, 10)
    assert world.later() == [EAGER[0]] and not world.refused
    for _ in range(4):
        world.later()
    for count in (1, 0, 9, 0):
        steps(world, count)
        world.later()
    assert not world.refused, "it has stopped"
    for _ in range(2):
        steps(world, 2)
        world.later()
    assert world.later() == [EAGER[0]] and world.refused == [": ".join(EAGER)] and world.watch.over
    assert world.watch.conclude() == ": ".join(EAGER) and len(world.refused) == 1


def test_sums_by_hand_and_what_goes_on_beside_fit_are_told_and_no_more(world):
    for _ in range(9):
        steps(world, 0)
        world.watch.updated(world)
        world.later()
    assert world.later() == [EAGER[0]] and not world.refused and world.watch.conclude()
    beside = World()
    beside.asked = True  # fit has been called, and others have left nothing
    for _ in range(9):
        steps(beside, 5)
        beside.later()
    assert not beside.refused and beside.watch.conclude(refuse=False) and not beside.refused


def test_an_eager_loop_before_fit_may_end_and_one_that_was_all_is_refused_at_the_end(world):
    steps(world, STEPS)
    world.later()
    world.trained = True
    steps(world, STEPS)
    world.later()
    assert world.watch.conclude() == "" and not world.refused
    short = World()
    steps(short, STEPS)
    assert short.watch.conclude() == "" and short.refused == [": ".join(EAGER)]
    assert [message.notice.code for message in short.sent] == ["local-training"]


def test_an_optimizer_whose_steps_are_counted_on_a_ps_trains_nothing_beside_it(world):
    """Its counter is a window: who looks at it sees the steps of the job, or is told that the PS are gone."""

    class Gone:
        def looked_at(self):
            raise RuntimeError("it is on parameter servers")

    optimizer = tf.keras.optimizers.SGD(0.1)
    optimizer.iterations.assign(1000)
    eager.watch(optimizer.iterations, Gone())
    with tf.Graph().as_default():
        world.watch.applies(optimizer)
    assert world.later() == [] and world.watch.conclude() == ""


SCRIPT = """
import sys
import numpy as np
import tensorflow as tf
from deeprec_ext.elastic.trainer import plain
from deeprec_ext.elastic.trainer.noticing import Noticing
from deeprec_ext.elastic.runtime.ops import Program
from deeprec_ext.tf_private.sessions import OwnSession
from deeprec_ext.errors import RefusedError
v1, sent, way = tf.compat.v1, [], sys.argv[1]
server = v1.train.Server({"localhost": ["127.0.0.1:0"]}, job_name="localhost", task_index=0) if way == "raw" else None
watch = plain.Watch(Noticing(sent.append), print, lambda: False, lambda: False, lambda job: job())
reasons = []
plain.watch_sessions(watch, lambda target: server is not None and target == server.target, reasons.append)
plain.watch_optimizer(v1.train.Optimizer, watch)
plain.watch_variables(watch)
if way == "eager v1":
    weights = tf.Variable(tf.ones([3]))
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    for _ in range(3):
        optimizer.apply_gradients([(weights, weights)])
elif way == "by hand":
    weights = tf.Variable(tf.ones([3]))
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weights)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
elif way == "loaded":
    weights, mean, count = tf.Variable(tf.ones([3])), tf.Variable(0.0, trainable=False), tf.Variable(0)
    for _ in range(9):
        weights.assign(tf.ones([3]))
        mean.assign_add(1.0)
        count.assign_add(1)
else:
    v1.disable_eager_execution()
if way == "keras":
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
    model.compile("adam", "mse")
    data = np.ones((32, 2), np.float32)
    if len(sys.argv) < 3:
        model.fit(data, data[:, :1], batch_size=8, verbose=0)
    model.evaluate(data, data[:, :1], batch_size=2, verbose=0)
    model.predict(data, batch_size=2, verbose=0)
elif way == "session":
    weights = v1.get_variable("weights", [3])
    train = v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(weights))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run([train, weights])
elif way == "raw":
    try:
        v1.Session(server.target)
    except RefusedError as error:
        assert reasons == [str(error)]
        print(error)
    Program(server.target, v1.ConfigProto())
    OwnSession(server.target).close()
    v1.Session().close()
print("concluded", watch.conclude())
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["session"], "a session of its own"), (["keras"], "model_to_estimator"), (["keras", "only evaluates"], ""),
        (["eager v1"], "eager"), (["by hand"], "eager"), (["loaded"], ""),
    ],
)  # fmt: skip
def test_what_tensorflow_runs_is_seen(tmp_path, words, said):
    told = ran(tmp_path, words)
    assert said in told and (said or told.endswith("concluded"))


def test_a_raw_session_on_the_servers_target_is_refused_by_name_and_ours_is_not(tmp_path):
    told = ran(tmp_path, ["raw"])
    assert "tf.compat.v1.Session(server.target) cannot be made elastic" in told and "MonitoredTrainingSession" in told


def ran(tmp_path, words):
    """A process of its own: what is exchanged stays exchanged. Its last lines."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [sys.executable, str(script), *words], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0 and "Exception ignored" not in done.stderr, done.stderr
    return done.stdout.strip()
