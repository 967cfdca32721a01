"""A small model, trained in a way that leaves the PS out, or in part: `python beside.py WAY --while FILE`.

Trains for as long as the file is there, and at least twenty steps.
"""

import argparse
import json
import os
import tempfile
import time

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
parser = argparse.ArgumentParser()
parser.add_argument("way")
parser.add_argument("--while", dest="file", default="")
arguments = parser.parse_args()
way = arguments.way


def going_on():
    """Twenty times, and then while the file is there."""
    steps = 0
    while steps < 20 or os.path.exists(arguments.file):
        yield steps
        steps += 1
        time.sleep(0.02)


def joined():
    """(cluster, server, is_chief) by TF_CONFIG."""
    config = json.loads(os.environ["TF_CONFIG"])
    cluster, task = v1.train.ClusterSpec(config["cluster"]), config["task"]
    server = v1.train.Server(cluster, task["type"], task["index"])
    return cluster, server, task["type"] == "chief"


def loss_of(weights, rows=8):
    inputs = tf.random.uniform([rows, 4], seed=1)
    return tf.reduce_mean(tf.square(tf.matmul(inputs, weights) - tf.reduce_sum(inputs, 1, keepdims=True)))


def train_in(make_session, setter=None, beside=None):
    with v1.device(setter):
        step = v1.train.get_or_create_global_step()
        weights = v1.get_variable("weights", [4, 1])
    with v1.device(beside or setter):
        more = v1.get_variable("more", [4, 1])
    with v1.device(setter):
        loss = loss_of(weights + more)
        if way == "wrong shapes":
            two, three = (v1.placeholder_with_default([1.0] * length, [None]) for length in (2, 3))
            loss += tf.reduce_sum(tf.multiply(two, three, name="Mul"))
        train = v1.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=step)
    with make_session() as session:
        for _ in going_on():
            session.run([train, loss])


def sessions_of(server, is_chief):
    return lambda: v1.train.MonitoredTrainingSession(server.target, is_chief)


def session_of_its_own():
    session = v1.Session()
    session.run(v1.global_variables_initializer())
    return session


if way == "fit":
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(4,))])
    model.compile(optimizer="sgd", loss="mse", run_eagerly=True)
    model.fit(np.ones((64, 4), np.float32), np.ones((64, 1), np.float32), batch_size=8, verbose=0)
elif way == "eager":
    weights = tf.Variable(tf.zeros([4, 1]))
    optimizer = tf.keras.optimizers.SGD(0.01)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = loss_of(weights)
        optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])

    for _ in going_on():
        step()
else:
    v1.disable_eager_execution()

if way in ("no setter", "wrong shapes", "part"):
    cluster, server, is_chief = joined()
    setter = v1.train.replica_device_setter(
        cluster=cluster, worker_device=f"/job:{'chief' if is_chief else 'worker'}/task:0"
    )
    own = setter if way == "wrong shapes" else None
    train_in(
        sessions_of(server, is_chief),
        setter if way != "no setter" else None,
        "/job:chief/task:0" if way == "part" else own,
    )
elif way == "ignores TF_CONFIG":
    train_in(session_of_its_own)
elif way == "no master":
    train_in(lambda: v1.train.MonitoredTrainingSession())
elif way == "keras":
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(4,))])
    model.compile(optimizer="sgd", loss="mse")
    for _ in going_on():
        model.fit(np.ones((64, 4), np.float32), np.ones((64, 1), np.float32), batch_size=8, verbose=0)
elif way == "raw session":
    cluster, server, is_chief = joined()
    with v1.device(v1.train.replica_device_setter(cluster=cluster)):
        weights = v1.get_variable("weights", [4, 1])
        train = v1.train.GradientDescentOptimizer(0.01).minimize(loss_of(weights))
    with v1.Session(server.target) as session:
        session.run(v1.global_variables_initializer())
        for _ in going_on():
            session.run(train)
elif way in ("estimator", "estimator of its own"):
    options = {"model_dir": tempfile.mkdtemp()} if way == "estimator of its own" else {}
    column = tf.feature_column.numeric_column("x", [4])
    estimator = tf.estimator.LinearRegressor(
        [column], config=tf.estimator.RunConfig(save_checkpoints_steps=20), **options
    )

    def input_fn():
        data = {"x": np.ones((8, 4), np.float32)}, np.ones((8, 1), np.float32)
        return tf.data.Dataset.from_tensors(data).repeat()

    train = tf.estimator.TrainSpec(input_fn, max_steps=100)
    tf.estimator.train_and_evaluate(
        estimator, train, tf.estimator.EvalSpec(input_fn, steps=2, start_delay_secs=0, throttle_secs=0)
    )
    print(f"global step of the last checkpoint: {estimator.get_variable_value('global_step')}")
elif way == "looks first":
    with tf.Graph().as_default(), v1.Session() as session:
        counted = v1.get_variable("counted", [], initializer=v1.zeros_initializer(), trainable=False)
        session.run(v1.global_variables_initializer())
        for _ in range(20):
            session.run(v1.assign_add(counted, 1.0))
    cluster, server, is_chief = joined()
    setter = v1.train.replica_device_setter(
        cluster=cluster, worker_device=f"/job:{'chief' if is_chief else 'worker'}/task:0"
    )
    train_in(sessions_of(server, is_chief), setter)
print("the script has ended", flush=True)
