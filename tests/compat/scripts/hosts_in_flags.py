"""Rings of points, told apart by a small network; the cluster comes from flags, as in TensorFlow's first guide to it.

python hosts_in_flags.py --steps 3000                     # one process
python hosts_in_flags.py --ps_hosts=a:2222 --worker_hosts=b:2222,c:2222 --job_name=worker --task_index=0
"""

import argparse
import os
import sys
import tempfile
import time

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()

FLAGS = None


def points(random, count):
    label = random.randint(0, 2, count)
    radius, angle = 1.0 + label + random.normal(0, 0.25, count), random.uniform(0, 2 * np.pi, count)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype(np.float32), label.astype(np.int64)


def main():
    ps_hosts = FLAGS.ps_hosts.split(",") if FLAGS.ps_hosts else []
    worker_hosts = FLAGS.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts}) if ps_hosts else None
    target = ""
    if cluster:
        server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
        if FLAGS.job_name == "ps":
            server.join()
            sys.exit(0)
        target = server.target

    device = tf.train.replica_device_setter(worker_device=f"/job:worker/task:{FLAGS.task_index}", cluster=cluster)
    with tf.device(device if cluster else None):
        place = tf.placeholder(tf.float32, [None, 2])
        label = tf.placeholder(tf.int64, [None])
        hidden_w = tf.Variable(tf.truncated_normal([2, 48], stddev=0.7), name="hidden_w")
        hidden_b = tf.Variable(tf.zeros([48]), name="hidden_b")
        sm_w = tf.Variable(tf.truncated_normal([48, 2], stddev=0.3), name="sm_w")
        sm_b = tf.Variable(tf.zeros([2]), name="sm_b")
        logits = tf.nn.xw_plus_b(tf.nn.relu(tf.nn.xw_plus_b(place, hidden_w, hidden_b)), sm_w, sm_b)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits))
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), label), tf.float32))
        global_step = tf.train.get_or_create_global_step()
        train_op = tf.train.AdagradOptimizer(0.05).minimize(loss, global_step=global_step)

    random, count, recent = np.random.RandomState(FLAGS.task_index), 0, []
    hooks = [tf.train.StopAtStepHook(last_step=FLAGS.steps)]
    with tf.train.MonitoredTrainingSession(
        master=target,
        is_chief=(FLAGS.task_index == 0),
        checkpoint_dir=FLAGS.model_dir or tempfile.mkdtemp(),
        hooks=hooks,
    ) as mon_sess:
        while not mon_sess.should_stop():
            places, labels = points(random, 64)
            _, value = mon_sess.run([train_op, accuracy], feed_dict={place: places, label: labels})
            count, recent = count + 1, [*recent[-99:], value]
            if os.path.exists(FLAGS.slow_while):
                time.sleep(0.5)
    print(f"steps of this process: {count}")
    print(f"accuracy: {np.mean(recent):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", type=str, default="", help="Comma-separated list of hostname:port pairs")
    parser.add_argument("--worker_hosts", type=str, default="", help="Comma-separated list of hostname:port pairs")
    parser.add_argument("--job_name", type=str, default="", help="One of 'ps', 'worker'")
    parser.add_argument("--task_index", type=int, default=0, help="Index of task within the job")
    parser.add_argument("--model-dir", default=None)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--slow-while", default="")
    FLAGS = parser.parse_args()
    main()
