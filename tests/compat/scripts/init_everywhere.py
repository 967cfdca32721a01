"""Does a visitor click on an ad? A network over hashed fields; each process runs the initialisers once its session is open.

python init_everywhere.py --steps=3000                     # one process
python init_everywhere.py --ps_hosts=a:2222 --worker_hosts=b:2222,c:2222 --job_name=worker --task_index=0
"""

import os
import tempfile
import time

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("worker_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("job_name", "", "One of 'ps', 'worker'")
flags.DEFINE_integer("task_index", 0, "Index of task within the job")
flags.DEFINE_string("model_dir", None, "Where checkpoints go")
flags.DEFINE_integer("steps", 3000, "Number of training steps")
flags.DEFINE_string("slow_while", "", "Train slowly while this file is there")
FLAGS = flags.FLAGS

FIELDS, BUCKETS, WIDTH = 8, 500, 6


def read_batch(random, tastes, size=64):
    ids = random.randint(0, BUCKETS, [size, FIELDS])
    score = tastes[np.arange(FIELDS), ids].sum(1)
    return ids + np.arange(FIELDS) * BUCKETS, (score + random.normal(0, 0.3, size) > 0).astype(np.float32)


def inference(ids):
    embedding = tf.get_variable(
        "embedding", [FIELDS * BUCKETS, WIDTH], initializer=tf.random_normal_initializer(0, 0.1)
    )
    wide = tf.get_variable("wide", [FIELDS * BUCKETS, 1], initializer=tf.zeros_initializer())
    looked = tf.reshape(tf.nn.embedding_lookup(embedding, ids), [-1, FIELDS * WIDTH])
    hidden = tf.layers.dense(looked, 16, activation=tf.nn.relu, name="hidden")
    deep = tf.layers.dense(hidden, 1, name="logits")
    return tf.squeeze(deep + tf.reduce_sum(tf.nn.embedding_lookup(wide, ids), 1), 1)


def train(target, cluster):
    with tf.device(
        tf.train.replica_device_setter(worker_device=f"/job:worker/task:{FLAGS.task_index}", cluster=cluster)
    ):
        ids = tf.placeholder(tf.int64, [None, FIELDS])
        label = tf.placeholder(tf.float32, [None])
        logits = inference(ids)
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=logits))
        _, auc = tf.metrics.auc(label, tf.sigmoid(logits))
        correct = tf.reduce_mean(tf.cast(tf.equal(logits > 0, label > 0.5), tf.float32))
        global_step = tf.train.get_or_create_global_step()
        train_op = tf.train.AdagradOptimizer(0.15).minimize(loss, global_step=global_step)
    init_op = tf.group(tf.global_variables_initializer(), tf.local_variables_initializer())

    random, tastes = (
        np.random.RandomState(FLAGS.task_index + os.getpid()),
        np.random.RandomState(1).normal(0, 1, [FIELDS, BUCKETS]),
    )
    count, recent = 0, []
    with tf.train.MonitoredTrainingSession(
        master=target,
        is_chief=FLAGS.task_index == 0,
        checkpoint_dir=FLAGS.model_dir or tempfile.mkdtemp(),
        hooks=[tf.train.StopAtStepHook(last_step=FLAGS.steps)],
    ) as mon_sess:
        mon_sess.run([init_op])
        while not mon_sess.should_stop():
            feed = dict(zip((ids, label), read_batch(random, tastes)))
            _, _, value, step = mon_sess.run([train_op, auc, correct, global_step], feed_dict=feed)
            count, recent = count + 1, [*recent[-99:], value]
            if count % 5 == 0:
                print(f"global_step: {step}", flush=True)
            if os.path.exists(FLAGS.slow_while):
                time.sleep(0.2)
    print(f"steps of this process: {count}")
    print(f"accuracy: {np.mean(recent):.4f}")


def main(_):
    if not FLAGS.worker_hosts:
        return train("", None)
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
    return train(server.target, cluster)


if __name__ == "__main__":
    tf.app.run()
