"""Batch normalisation, averages of the weights, and a learning rate that decays; evaluated with the averages.

python moving_averages.py --model-dir /tmp/averages
"""

import argparse
import os
import tempfile
import time

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

SENSORS = 20


def make_readings(count, seed):
    """Sensors with quite different scales; a machine is faulty when two groups of them disagree."""
    scale, shift = 10.0 ** np.linspace(-2, 2, SENSORS), np.linspace(-50, 50, SENSORS)
    random = np.random.default_rng(seed)
    plain = random.normal(0, 1, (count, SENSORS))
    faulty = plain[:, :10].mean(1) * plain[:, 10:].mean(1) + plain[:, 3] * 0.2 > 0
    return (plain * scale + shift).astype(np.float32), faulty.astype(np.float32)[:, None]


def input_fn(count, seed, batch_size, training):
    dataset = tf.data.Dataset.from_tensor_slices(make_readings(count, seed))
    return dataset.shuffle(count).repeat().batch(batch_size) if training else dataset.batch(batch_size)


class Counter(v1.train.SessionRunHook):
    def __init__(self, slow_while):
        self.count, self.slow_while = 0, slow_while

    def after_run(self, run_context, run_values):
        self.count += 1
        if os.path.exists(self.slow_while):
            time.sleep(0.5)

    def end(self, session):
        print(f"steps of this process: {self.count}", flush=True)


def model_fn(features, labels, mode, params):
    training = mode == tf.estimator.ModeKeys.TRAIN
    net = features
    for width in (64, 32):
        net = v1.layers.batch_normalization(net, momentum=0.98, training=training)
        net = v1.layers.dense(net, width, tf.nn.relu)
    logits = v1.layers.dense(net, 1)
    loss = v1.losses.sigmoid_cross_entropy(labels, logits)
    global_step = v1.train.get_or_create_global_step()
    averages = tf.train.ExponentialMovingAverage(0.99, num_updates=global_step)
    if not training:
        restored = v1.train.Saver(
            {**averages.variables_to_restore(v1.trainable_variables()), "global_step": global_step}
        )
        return tf.estimator.EstimatorSpec(
            mode, loss=loss, scaffold=v1.train.Scaffold(saver=restored),
            eval_metric_ops={"accuracy": v1.metrics.accuracy(labels, tf.cast(logits > 0, tf.float32))},
        )  # fmt: skip
    rate = v1.train.exponential_decay(params["rate"], global_step, 1000, 0.8)
    v1.summary.scalar("rate", rate)
    with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
        step = v1.train.AdamOptimizer(rate).minimize(loss, global_step=global_step)
    with tf.control_dependencies([step]):
        train_op = averages.apply(v1.trainable_variables())
    return tf.estimator.EstimatorSpec(
        mode, loss=loss, train_op=train_op, training_hooks=[Counter(params["slow_while"])]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-dir", default=None)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument(
        "--slow-while", default="", help="as long as this file is there, every step takes half a second more"
    )
    arguments = parser.parse_args()
    v1.logging.set_verbosity(v1.logging.INFO)
    config = tf.estimator.RunConfig(save_checkpoints_steps=1000)
    params = {"rate": 0.003, "slow_while": arguments.slow_while}
    estimator = tf.estimator.Estimator(model_fn, arguments.model_dir or tempfile.mkdtemp(), config, params)
    seed = config.global_id_in_cluster or 0
    result = tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(lambda: input_fn(20_000, seed, arguments.batch_size, True), max_steps=arguments.steps),
        tf.estimator.EvalSpec(lambda: input_fn(3_000, 555, 500, False), None, start_delay_secs=0, throttle_secs=60),
    )
    if result and result[0]:
        print(f"accuracy: {result[0]['accuracy']:.4f}")


if __name__ == "__main__":
    main()
