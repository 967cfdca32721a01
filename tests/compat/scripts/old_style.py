"""A script from the days of TensorFlow 1: reference variables, placeholders, `feed_dict` and `tf.layers`.

python old_style.py --steps 3000
"""

import json
import os
import tempfile
import time

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

flags = tf.app.flags
FLAGS = flags.FLAGS
flags.DEFINE_string("model_dir", None, "where checkpoints go")
flags.DEFINE_integer("steps", 3000, "training steps of all workers together")
flags.DEFINE_integer("batch_size", 64, "records in a step")
flags.DEFINE_string("slow_while", "", "as long as this file is there, every step takes half a second more")

WORDS, LENGTH = 5000, 12


class Reviews:
    """Made-up film reviews: some words are kind, some are not, most say nothing."""

    def __init__(self, seed):
        planted = np.random.RandomState(7)
        self.kindness = planted.normal(0, 1.5, WORDS) * (planted.rand(WORDS) < 0.4)
        self.random = np.random.RandomState(seed)

    def next_batch(self, size):
        words = (WORDS * self.random.rand(size, LENGTH) ** 3).astype(np.int32)
        kind = self.random.rand(size) < 1 / (1 + np.exp(-self.kindness[words].sum(1)))
        return words, kind.astype(np.float32)[:, None]


def build_model(words, labels, is_training):
    table = tf.get_variable("embedding", [WORDS, 16], initializer=tf.random_uniform_initializer(-0.1, 0.1))
    net = tf.reduce_mean(tf.nn.embedding_lookup(table, words), axis=1)
    net = tf.layers.dense(net, 32, activation=tf.nn.relu, name="hidden")
    net = tf.layers.dropout(net, rate=0.1, training=is_training)
    logits = tf.layers.dense(net, 1, name="logits")
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    accuracy = tf.reduce_mean(tf.to_float(tf.equal(logits > 0, labels > 0.5)))
    return loss, accuracy


def main(_):
    tf.logging.set_verbosity(tf.logging.INFO)
    config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    cluster = config.get("cluster")
    task_type, task_id = config.get("task", {}).get("type", "worker"), config.get("task", {}).get("index", 0)
    is_chief = not cluster or task_type in ("chief", "master")
    master = ""
    if cluster:
        server = tf.train.Server(cluster, job_name=task_type, task_index=task_id)
        if task_type == "ps":
            server.join()
        master = server.target

    worker = f"/job:{task_type}/task:{task_id}" if cluster else None
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=worker) if cluster else None):
        words = tf.placeholder(tf.int32, [None, LENGTH], name="words")
        labels = tf.placeholder(tf.float32, [None, 1], name="labels")
        is_training = tf.placeholder_with_default(False, [], name="is_training")
        loss, accuracy = build_model(words, labels, is_training)
        global_step = tf.train.get_or_create_global_step()
        rate = tf.train.exponential_decay(0.5, global_step, 2000, 0.9, staircase=True)
        train_op = tf.train.AdagradOptimizer(rate).minimize(loss, global_step=global_step)
        tf.summary.scalar("loss", loss)

    reviews = Reviews(task_id + (0 if is_chief else 1000))
    hooks = [tf.train.StopAtStepHook(last_step=FLAGS.steps), tf.train.NanTensorHook(loss)]
    count = 0
    with tf.train.MonitoredTrainingSession(
        master=master, is_chief=is_chief, checkpoint_dir=FLAGS.model_dir or tempfile.mkdtemp(), hooks=hooks,
        save_checkpoint_secs=30, config=tf.ConfigProto(allow_soft_placement=True),
    ) as session:  # fmt: skip
        recent = []
        while not session.should_stop():
            batch, liked = reviews.next_batch(FLAGS.batch_size)
            _, step, value = session.run(
                [train_op, global_step, accuracy], feed_dict={words: batch, labels: liked, is_training: True}
            )
            count += 1
            recent = recent[-99:] + [value]
            if count % 500 == 0:
                tf.logging.info("step %d: accuracy %.4f", step, np.mean(recent))
            if os.path.exists(FLAGS.slow_while):
                time.sleep(0.5)
    print(f"steps of this process: {count}")
    print(f"accuracy: {np.mean(recent):.4f}")


if __name__ == "__main__":
    tf.app.run()
