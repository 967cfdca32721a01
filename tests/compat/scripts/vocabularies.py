"""Is an advertisement for a job real? Words become numbers in lookup tables that the script initialises itself.

python vocabularies.py --steps 3000
"""

import argparse
import json
import os
import tempfile
import time

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import lookup_ops  # where `tf.contrib.lookup` came from

tf.disable_eager_execution()
tf.logging.set_verbosity(tf.logging.INFO)

CITIES = [f"city-{number}" for number in range(300)]
TITLES = [f"title-{number}" for number in range(900)]


def make_adverts(count, seed):
    """(city, title, real): some cities and titles are in no vocabulary."""
    planted = np.random.RandomState(31)
    cities, titles = planted.normal(0, 1, len(CITIES) + 20), planted.normal(0, 1.3, len(TITLES) + 50)
    random = np.random.RandomState(seed)
    city, title = random.randint(0, len(cities), count), (len(titles) * random.rand(count) ** 2).astype(int)
    real = random.rand(count) < 1 / (1 + np.exp(-2 * (cities[city] + titles[title])))
    return np.array([f"city-{one}" for one in city]), np.array([f"title-{one}" for one in title]), real


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-dir", default=None)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--slow-while", default="")
    args = parser.parse_args()

    tf_config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    cluster = tf_config.get("cluster")
    task_type = tf_config.get("task", {}).get("type", "chief")
    task_index = tf_config.get("task", {}).get("index", 0)
    target, device = "", None
    if cluster:
        server = tf.train.Server(tf.train.ClusterSpec(cluster), job_name=task_type, task_index=task_index)
        if task_type == "ps":
            server.join()
        target = server.target
        device = tf.train.replica_device_setter(
            worker_device=f"/job:{task_type}/task:{task_index}/cpu:0", cluster=tf.train.ClusterSpec(cluster)
        )
    is_chief = task_type == "chief"

    vocabulary = os.path.join(tempfile.mkdtemp(), "titles.txt")
    with open(vocabulary, "w") as lines:
        lines.write("\n".join(TITLES) + "\n")

    with tf.device(device):
        adverts = make_adverts(20000, task_index + (0 if is_chief else 100))
        iterator = tf.data.make_initializable_iterator(
            tf.data.Dataset.from_tensor_slices(adverts).repeat().shuffle(4000).batch(args.batch_size)
        )
        city, title, real = iterator.get_next()
        city_ids = lookup_ops.index_table_from_tensor(CITIES, num_oov_buckets=5).lookup(city)
        title_ids = lookup_ops.index_table_from_file(vocabulary, default_value=len(TITLES)).lookup(title)
        names = lookup_ops.index_to_string_table_from_tensor(["false", "real"], default_value="?")

        city_vectors = tf.get_variable("cities", [len(CITIES) + 5, 6])
        title_vectors = tf.get_variable("titles", [len(TITLES) + 1, 6])
        net = tf.concat(
            [tf.nn.embedding_lookup(city_vectors, city_ids), tf.nn.embedding_lookup(title_vectors, title_ids)], axis=1
        )
        net = tf.layers.dense(net, 16, tf.nn.relu, name="hidden")
        logits = tf.squeeze(tf.layers.dense(net, 1, name="logits"), 1)
        loss = tf.losses.sigmoid_cross_entropy(real, logits)
        guess = logits > 0
        said = names.lookup(tf.cast(guess, tf.int64))
        accuracy = tf.reduce_mean(tf.cast(tf.equal(guess, real), tf.float32))
        _, running = tf.metrics.auc(real, tf.sigmoid(logits))
        global_step = tf.train.get_or_create_global_step()
        train_op = tf.train.RMSPropOptimizer(0.01).minimize(loss, global_step=global_step)

    scaffold = tf.train.Scaffold(
        local_init_op=tf.group(tf.local_variables_initializer(), tf.tables_initializer(), iterator.initializer)
    )
    count, recent, area = 0, [], 0.0
    with tf.train.MonitoredTrainingSession(
        master=target, is_chief=is_chief, checkpoint_dir=args.model_dir or tempfile.mkdtemp(), scaffold=scaffold,
        hooks=[tf.train.StopAtStepHook(last_step=args.steps)], save_checkpoint_secs=20, save_summaries_secs=30,
    ) as session:  # fmt: skip
        while not session.should_stop():
            _, value, area, words = session.run([train_op, accuracy, running, said])
            count, recent = count + 1, [*recent[-99:], value]
            if not set(words) <= {b"real", b"false"}:
                raise ValueError(f"a word of no table: {set(words)}")
            if os.path.exists(args.slow_while):
                time.sleep(0.5)
    print(f"steps of this process: {count}")
    print(f"area under the curve: {area:.4f}")
    print(f"accuracy: {np.mean(recent):.4f}")


if __name__ == "__main__":
    main()
