"""The way of the first distributed tutorials: a `Supervisor`, before there was a MonitoredSession.

python supervisor.py --steps 3000
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
flags.DEFINE_integer("batch_size", 50, "records in a step")
flags.DEFINE_string("slow_while", "", "as long as this file is there, every step takes half a second more")

INPUTS, CLASSES = 100, 5


class Signals:
    """Made-up signals of five kinds."""

    def __init__(self, seed):
        self.kinds = np.random.RandomState(5).normal(0, 1, (CLASSES, INPUTS))
        self.random = np.random.RandomState(seed)

    def next_batch(self, size):
        kind = self.random.randint(0, CLASSES, size)
        return self.kinds[kind] + self.random.normal(0, 2.0, (size, INPUTS)), np.eye(CLASSES)[kind]


def main(_):
    tf.logging.set_verbosity(tf.logging.INFO)
    config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    cluster, task = config.get("cluster"), config.get("task", {"type": "chief", "index": 0})
    is_chief = task["type"] == "chief"
    target, device = "", None
    if cluster:
        cluster = tf.train.ClusterSpec(cluster)
        server = tf.train.Server(cluster, job_name=task["type"], task_index=task["index"])
        if task["type"] == "ps":
            server.join()
        target = server.target
        device = tf.train.replica_device_setter(
            worker_device=f"/job:{task['type']}/task:{task['index']}", cluster=cluster
        )

    with tf.device(device):
        global_step = tf.Variable(0, name="global_step", trainable=False)
        hidden_w = tf.Variable(tf.truncated_normal([INPUTS, 32], stddev=1.0 / INPUTS**0.5), name="hidden_w")
        hidden_b = tf.Variable(tf.zeros([32]), name="hidden_b")
        softmax_w = tf.Variable(tf.truncated_normal([32, CLASSES], stddev=1.0 / 32**0.5), name="softmax_w")
        softmax_b = tf.Variable(tf.zeros([CLASSES]), name="softmax_b")
        x = tf.placeholder(tf.float32, [None, INPUTS])
        y_ = tf.placeholder(tf.float32, [None, CLASSES])
        hidden = tf.nn.relu(tf.nn.xw_plus_b(x, hidden_w, hidden_b))
        y = tf.nn.xw_plus_b(hidden, softmax_w, softmax_b)
        cross_entropy = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=y_, logits=y))
        accuracy = tf.reduce_mean(tf.to_float(tf.equal(tf.argmax(y, 1), tf.argmax(y_, 1))))
        train_step = tf.train.GradientDescentOptimizer(0.05).minimize(cross_entropy, global_step=global_step)
        tf.summary.scalar("cross_entropy", cross_entropy)

    supervisor = tf.train.Supervisor(
        is_chief=is_chief, logdir=FLAGS.model_dir or tempfile.mkdtemp(), init_op=tf.global_variables_initializer(),
        global_step=global_step, summary_op=None, save_model_secs=20, recovery_wait_secs=1,
    )  # fmt: skip
    signals = Signals(task["index"] + (0 if is_chief else 1000))
    count, recent = 0, []
    with supervisor.managed_session(target) as session:
        while not supervisor.should_stop():
            inputs, kinds = signals.next_batch(FLAGS.batch_size)
            _, step, value = session.run([train_step, global_step, accuracy], feed_dict={x: inputs, y_: kinds})
            count += 1
            recent = recent[-99:] + [value]
            if os.path.exists(FLAGS.slow_while):
                time.sleep(0.5)
            if step >= FLAGS.steps:
                break
        if is_chief:
            supervisor.saver.save(session, supervisor.save_path, global_step=global_step)
    print(f"steps of this process: {count}")
    print(f"accuracy: {np.mean(recent):.4f}")


if __name__ == "__main__":
    tf.app.run()
