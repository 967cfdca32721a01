"""A MonitoredTrainingSession, or an Estimator, as of any script for one machine; it writes down what it has after each step."""

import argparse
import os
import time
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
ME = f"{os.environ.get('DEEPREC_EXT_ROLE', 'alone')}-{os.environ.get('DEEPREC_EXT_INDEX', '0')}.{os.getpid()}"
OUT = os.environ.get("DEEPREC_EXT_WORKDIR", ".")
WEIGHTS = np.arange(1, 9) / 4


def append(kind, *words):
    os.makedirs(os.path.join(OUT, kind), exist_ok=True)
    descriptor = os.open(os.path.join(OUT, kind, ME), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, (" ".join(map(str, words)) + "\n").encode())
    os.close(descriptor)


class Watch(v1.train.SessionRunHook):
    """Slow until the test says otherwise."""

    def begin(self):
        self.everything = v1.global_variables()
        self.step = v1.train.get_global_step()

    def after_run(self, run_context, run_values):
        step, *values = run_context.session.run([self.step, *self.everything])
        check = 0
        for one in values:
            check = zlib.crc32(np.ascontiguousarray(one).tobytes(), check)
        append("steps", int(step), check)
        if not os.path.exists(os.path.join(OUT, "hurry")):
            time.sleep(arguments.seconds)


def records():
    chance = np.random.default_rng()
    while True:
        x = chance.normal(size=(32, 8)).astype("float32")
        yield x, (x @ WEIGHTS).astype("float32")


def batches():
    dataset = tf.data.Dataset.from_generator(records, (tf.float32, tf.float32), ((32, 8), (32,)))
    return dataset.map(lambda x, y: ({"x": x}, y))


def train_op(x, y):
    """Two optimizers, of a part each; statistics that no optimizer has."""
    hidden = tf.nn.relu(tf.matmul(x, v1.get_variable("first", [8, 16])))
    mean = v1.get_variable("mean", [16], trainable=False, initializer=v1.zeros_initializer())
    moved = mean.assign(0.9 * mean + 0.1 * tf.reduce_mean(hidden, 0))
    out = tf.squeeze(tf.matmul(hidden - tf.stop_gradient(mean), v1.get_variable("second", [16, 1])), 1)
    loss = tf.reduce_mean((out - y) ** 2)
    step = v1.train.get_or_create_global_step()
    first, second = v1.trainable_variables()
    with tf.control_dependencies([moved]):
        trains = [
            v1.train.AdamOptimizer(0.01).minimize(loss, global_step=step, var_list=[first]),
            v1.train.AdagradOptimizer(0.1).minimize(loss, var_list=[second]),
        ]
    return loss, tf.group(*trains)


def model_fn(features, labels, mode):
    if mode == tf.estimator.ModeKeys.TRAIN:
        loss, train = train_op(features["x"], labels)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)
    loss, _ = train_op(features["x"], labels)
    return tf.estimator.EstimatorSpec(mode, loss=loss)


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--seconds", type=float, default=0.02)
parser.add_argument("--estimator", action="store_true")
parser.add_argument("--buckets", action="store_true", help="gradients travel as those of large models do")
arguments = parser.parse_args()
if arguments.buckets:
    from deeprec_ext.allreduce import given

    given.BUCKET_BYTES = 1
if arguments.estimator:
    estimator = tf.estimator.Estimator(
        model_fn,
        os.path.join(OUT, "model"),
        tf.estimator.RunConfig(save_checkpoints_steps=100, log_step_count_steps=100),
    )
    result, _ = tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(batches, max_steps=arguments.steps, hooks=[Watch()]),
        tf.estimator.EvalSpec(batches, steps=5, start_delay_secs=0, throttle_secs=0),
    )
    append("measured", (result or {}).get("loss"))
    append("evaluated", estimator.evaluate(batches, steps=5)["global_step"])
else:
    v1.disable_eager_execution()
    features, labels = v1.data.make_one_shot_iterator(batches()).get_next()
    loss, train = train_op(features["x"], labels)
    with v1.train.MonitoredTrainingSession(
        checkpoint_dir=os.path.join(OUT, "model"), save_checkpoint_secs=5,
        hooks=[v1.train.StopAtStepHook(last_step=arguments.steps), Watch()],
    ) as session:  # fmt: skip
        while not session.should_stop():
            session.run(train)
