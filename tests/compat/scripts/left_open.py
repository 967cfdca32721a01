"""Will a passenger tip? Rides come from a generator; the session is made without `with`, and nobody closes it.

python left_open.py --steps 3000
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

ZONES, COMPANIES = 1200, 40


def rides(seed):
    """One ride after another, for ever."""
    planted = np.random.RandomState(17)
    zones, companies = planted.normal(0, 1.2, ZONES), planted.normal(0, 0.7, COMPANIES)
    random = np.random.RandomState(seed)
    while True:
        zone, company = int(ZONES * random.rand() ** 2), random.randint(COMPANIES)
        miles, hour = random.gamma(2.0, 1.5), random.uniform(0, 24)
        score = zones[zone] + companies[company] + 0.3 * (miles - 3.0)
        yield (
            {"zone": zone, "company": company, "numbers": [miles, hour / 24]},
            random.rand() < 1 / (1 + np.exp(-2 * score)),
        )


def input_fn(seed, batch_size):
    types = ({"zone": tf.int64, "company": tf.int64, "numbers": tf.float32}, tf.bool)
    shapes = ({"zone": [], "company": [], "numbers": [2]}, [])
    dataset = tf.data.Dataset.from_generator(lambda: rides(seed), types, shapes)
    return tf.data.make_one_shot_iterator(dataset.batch(batch_size).prefetch(2)).get_next()


def build_model(ride, tipped):
    zones = tf.get_variable("zones", [ZONES, 8], initializer=tf.random_normal_initializer(stddev=0.1))
    companies = tf.get_variable("companies", [COMPANIES, 4], initializer=tf.random_normal_initializer(stddev=0.1))
    net = tf.concat(
        [
            tf.nn.embedding_lookup(zones, ride["zone"]), tf.nn.embedding_lookup(companies, ride["company"]),
            tf.layers.batch_normalization(ride["numbers"], training=True, name="numbers"),
        ],
        axis=1,
    )  # fmt: skip
    net = tf.layers.dense(net, 24, tf.nn.relu, name="hidden")
    logits = tf.squeeze(tf.layers.dense(net, 1, name="logits"), 1)
    label = tf.cast(tipped, tf.float32)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=logits))
    return loss, tf.reduce_mean(tf.cast(tf.equal(logits > 0, tipped), tf.float32))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-dir", default=None)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--slow-while", default="")
    args = parser.parse_args()

    tf_config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    task = tf_config.get("task", {"type": "chief", "index": 0})
    target, device = "", None
    if "cluster" in tf_config:
        cluster = tf.train.ClusterSpec(tf_config["cluster"])
        server = tf.train.Server(cluster, job_name=task["type"], task_index=task["index"])
        if task["type"] == "ps":
            server.join()
        target = server.target
        device = tf.train.replica_device_setter(cluster=cluster)
    is_chief = task["type"] == "chief"

    with tf.device(device):
        ride, tipped = input_fn(task["index"] + (0 if is_chief else 100), args.batch_size)
        loss, accuracy = build_model(ride, tipped)
        global_step = tf.train.get_or_create_global_step()
        with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
            train_op = tf.train.AdamOptimizer(0.01).minimize(loss, global_step=global_step)

    session = tf.train.MonitoredTrainingSession(
        master=target, is_chief=is_chief, checkpoint_dir=args.model_dir or tempfile.mkdtemp(),
        hooks=[tf.train.StopAtStepHook(last_step=args.steps)], save_checkpoint_steps=100, save_summaries_steps=None,
    )  # fmt: skip
    count, recent = 0, []
    while not session.should_stop():
        _, value, step = session.run([train_op, accuracy, global_step])
        count, recent = count + 1, [*recent[-99:], value]
        if count % 500 == 0:
            print(f"step {step}: accuracy {np.mean(recent):.4f}", flush=True)
        if os.path.exists(args.slow_while):
            time.sleep(0.5)
    print(f"steps of this process: {count}")
    print(f"accuracy: {np.mean(recent):.4f}")
    print("training is over")


if __name__ == "__main__":
    main()
