"""A census of made-up people, in the manner of the first cloud trainers: the chief is called master, and devices are default.

python knows_master.py --steps 3000
"""

import argparse
import json
import os
import tempfile
import time

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()

JOBS, TOWNS, NUMBERS = 300, 1500, 5


def people(seed, count):
    planted = np.random.RandomState(11)
    wages, rents = planted.normal(0, 1.2, JOBS), planted.normal(0, 0.8, TOWNS)
    weights = planted.normal(0, 0.4, NUMBERS)
    random = np.random.RandomState(seed)
    jobs, towns = random.randint(0, JOBS, count), random.randint(0, TOWNS, count)
    numbers = random.normal(0, 1, (count, NUMBERS)).astype(np.float32)
    rich = random.rand(count) < 1 / (1 + np.exp(-1.5 * (wages[jobs] + rents[towns] + numbers @ weights)))
    return {"job": jobs, "town": towns, "numbers": numbers}, rich.astype(np.float32)


def run(target, cluster_spec, is_chief, seed, args):
    """The training loop of the master and of each worker."""
    with tf.Graph().as_default():
        with tf.device(tf.train.replica_device_setter(cluster=cluster_spec) if cluster_spec else None):
            dataset = tf.data.Dataset.from_tensor_slices(people(seed, 20000)).repeat().shuffle(5000)
            iterator = tf.data.make_initializable_iterator(dataset.batch(args.batch_size))
            tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
            person, rich = iterator.get_next()
            jobs = tf.get_variable("jobs", [JOBS, 8], initializer=tf.random_normal_initializer(stddev=0.05))
            towns = tf.get_variable("towns", [TOWNS, 8], initializer=tf.random_normal_initializer(stddev=0.05))
            net = tf.concat(
                [tf.gather(jobs, person["job"]), tf.gather(towns, person["town"]), person["numbers"]], axis=1
            )
            net = tf.layers.dense(net, 24, tf.nn.relu, name="hidden")
            logits = tf.squeeze(tf.layers.dense(net, 1, name="logits"), 1)
            loss = tf.losses.sigmoid_cross_entropy(rich, logits)
            accuracy = tf.reduce_mean(tf.cast(tf.equal(logits > 0, rich > 0.5), tf.float32))
            global_step = tf.train.get_or_create_global_step()
            train_op = tf.train.AdagradOptimizer(0.1).minimize(loss, global_step=global_step)

        count, recent = 0, []
        with tf.train.MonitoredTrainingSession(
            master=target, is_chief=is_chief, checkpoint_dir=args.model_dir or tempfile.mkdtemp(),
            hooks=[tf.train.StopAtStepHook(last_step=args.steps)], save_checkpoint_secs=20, save_summaries_steps=None,
        ) as session:  # fmt: skip
            while not session.should_stop():
                _, value = session.run([train_op, accuracy])
                count, recent = count + 1, [*recent[-99:], value]
                if os.path.exists(args.slow_while):
                    time.sleep(0.5)
        print(f"steps of this process: {count}")
        print(f"accuracy: {np.mean(recent):.4f}")


def dispatch(args):
    """One task of the cluster that TF_CONFIG describes, or all of it."""
    tf_config = os.environ.get("TF_CONFIG")
    if not tf_config:
        return run("", None, True, 0, args)
    tf_config_json = json.loads(tf_config)
    cluster = tf_config_json.get("cluster")
    job_name = tf_config_json.get("task", {}).get("type")
    task_index = tf_config_json.get("task", {}).get("index")
    if job_name is None or task_index is None:
        return run("", None, True, 0, args)
    cluster_spec = tf.train.ClusterSpec(cluster)
    server = tf.train.Server(cluster_spec, job_name=job_name, task_index=task_index)
    if job_name == "ps":
        server.join()
    elif job_name in ["master", "worker"]:
        is_chief = job_name == "master"
        return run(server.target, cluster_spec, is_chief, 0 if is_chief else 1 + task_index, args)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-dir", default=None)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--slow-while", default="")
    dispatch(parser.parse_args())
