"""Click prediction whose cluster has workers only: a chief in TF_CONFIG becomes worker 0, and the others count from one.

    python folded_chief.py --steps 3000

With TF_CONFIG it is one task of a cluster. Large tables are cut over the parameter servers.
"""

import argparse
import json
import os
import tempfile
import time

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
tf.logging.set_verbosity(tf.logging.INFO)

FIELDS, BUCKETS, WIDTH = 6, 2000, 8


def generate(seed, size):
    """Clicks that hang on which fields come together."""
    taste = np.random.RandomState(5).normal(0, 1.0, (FIELDS, BUCKETS))
    random = np.random.RandomState(seed)
    while True:
        fields = (BUCKETS * random.rand(size, FIELDS) ** 2).astype(np.int64)
        score = taste[np.arange(FIELDS), fields].sum(1)
        yield fields, (random.rand(size) < 1 / (1 + np.exp(-2 * score))).astype(np.float32)


def read_cluster():
    """(ps hosts, worker hosts, job, task); the chief is the first of the workers."""
    tf_config = os.environ.get("TF_CONFIG")
    if not tf_config:
        return [], [], "worker", 0
    tf_config = json.loads(tf_config)
    ps_hosts, worker_hosts, chief_hosts = [], [], []
    for key, value in tf_config["cluster"].items():
        if key == "ps":
            ps_hosts = value
        elif key == "worker":
            worker_hosts = value
        elif key == "chief":
            chief_hosts = value
    job, index = tf_config["task"]["type"], tf_config["task"]["index"]
    if chief_hosts:
        worker_hosts = chief_hosts + worker_hosts
        if job == "chief":
            job, index = "worker", 0
        elif job == "worker":
            index += 1
    return ps_hosts, worker_hosts, job, index


def build_model(fields, labels, num_ps):
    partitioner = tf.min_max_variable_partitioner(max_partitions=max(num_ps, 1), min_slice_size=32 << 10)
    with tf.variable_scope("input_layer", partitioner=partitioner):
        table = tf.get_variable(
            "embedding", [FIELDS * BUCKETS, WIDTH], initializer=tf.truncated_normal_initializer(0.0, 0.05)
        )
        wide = tf.get_variable("wide", [FIELDS * BUCKETS, 1], initializer=tf.zeros_initializer())
    places = fields + np.arange(FIELDS) * BUCKETS
    deep = tf.reshape(tf.nn.embedding_lookup(table, places, partition_strategy="div"), [-1, FIELDS * WIDTH])
    deep = tf.layers.dense(deep, 32, activation=tf.nn.relu, name="hidden")
    logits = tf.layers.dense(deep, 1, name="logits") + tf.reduce_sum(
        tf.nn.embedding_lookup(wide, places, partition_strategy="div"), 1
    )
    logits = tf.squeeze(logits, 1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    return loss, tf.reduce_mean(tf.cast(tf.equal(logits > 0, labels > 0.5), tf.float32))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-dir", default=None)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--slow-while", default="")
    args = parser.parse_args()

    ps_hosts, worker_hosts, job_name, task_index = read_cluster()
    print(f"ps_hosts = {ps_hosts}\nworker_hosts = {worker_hosts}\n{job_name} {task_index}", flush=True)
    target, device = "", None
    if ps_hosts:
        cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts})
        server = tf.train.Server(cluster, job_name=job_name, task_index=task_index)
        if job_name == "ps":
            server.join()
            return
        target = server.target
        device = tf.train.replica_device_setter(worker_device=f"/job:worker/task:{task_index}", cluster=cluster)
    is_chief = task_index == 0

    with tf.Graph().as_default(), tf.device(device):
        dataset = tf.data.Dataset.from_generator(
            lambda: generate(task_index, args.batch_size), (tf.int64, tf.float32), ([None, FIELDS], [None])
        )
        fields, labels = tf.data.make_one_shot_iterator(dataset.prefetch(1)).get_next()
        loss, accuracy = build_model(fields, labels, len(ps_hosts))
        global_step = tf.train.get_or_create_global_step()
        train_op = tf.train.AdagradOptimizer(0.2).minimize(loss, global_step=global_step)
        tf.summary.scalar("loss", loss)
        hooks = [tf.train.StopAtStepHook(last_step=args.steps), tf.train.LoggingTensorHook([global_step, loss], 500)]
        config = tf.ConfigProto(allow_soft_placement=True)
        if ps_hosts:
            config.device_filters.extend(["/job:ps", f"/job:worker/task:{task_index}"])

        count, recent = 0, []
        with tf.train.MonitoredTrainingSession(
            master=target, is_chief=is_chief, checkpoint_dir=args.model_dir or tempfile.mkdtemp(), hooks=hooks,
            save_checkpoint_steps=1000, save_summaries_steps=100, log_step_count_steps=500, config=config,
        ) as session:  # fmt: skip
            while not session.should_stop():
                _, value = session.run([train_op, accuracy])
                count, recent = count + 1, [*recent[-99:], value]
                if os.path.exists(args.slow_while):
                    time.sleep(0.5)
    print(f"steps of this process: {count}")
    print(f"accuracy: {np.mean(recent):.4f}")


if __name__ == "__main__":
    main()
