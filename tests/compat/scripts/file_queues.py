"""Is a mushroom edible? Text files are read by queues, as before there was tf.data; the cluster has workers only.

python file_queues.py --steps 3000
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

SPECIES, PLACES, FILES, LINES = 400, 20, 4, 3000


def write_files(directory, seed):
    """Lines of (species, place, height, width, edible)."""
    planted = np.random.RandomState(23)
    kinds, places = planted.normal(0, 1.5, SPECIES), planted.normal(0, 0.5, PLACES)
    random = np.random.RandomState(seed)
    for number in range(FILES):
        species, place = random.randint(0, SPECIES, LINES), random.randint(0, PLACES, LINES)
        size = random.normal(0, 1, (LINES, 2))
        edible = random.rand(LINES) < 1 / (1 + np.exp(-2 * (kinds[species] + places[place] + 0.5 * size[:, 0])))
        with open(os.path.join(directory, f"part-{number}.csv"), "w") as lines:
            for one in zip(species, place, size[:, 0], size[:, 1], edible):
                lines.write("{:d},{:d},{:.4f},{:.4f},{:d}\n".format(*one))
    return [os.path.join(directory, f"part-{number}.csv") for number in range(FILES)]


def inputs(files, batch_size):
    queue = tf.train.string_input_producer(files, shuffle=True)
    reader = tf.TextLineReader()
    _, line = reader.read(queue)
    species, place, height, width, edible = tf.decode_csv(line, [[0], [0], [0.0], [0.0], [0]])
    return tf.train.shuffle_batch(
        [species, place, tf.stack([height, width]), edible], batch_size=batch_size, capacity=2000, min_after_dequeue=500,
        num_threads=2,
    )  # fmt: skip


def main(_):
    tf.logging.set_verbosity(tf.logging.INFO)
    tf_config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    cluster, task = tf_config.get("cluster", {}), tf_config.get("task", {})
    job_name, task_index = task.get("type", "worker"), task.get("index", 0)
    if "chief" in cluster:  # it is worker 0, and the others are counted from one
        cluster = {"ps": cluster["ps"], "worker": cluster["chief"] + cluster.get("worker", [])}
        task_index += 1 if job_name == "worker" else 0
        job_name = "worker" if job_name == "chief" else job_name
    target, device = "", None
    if cluster:
        server = tf.train.Server(cluster, job_name=job_name, task_index=task_index)
        if job_name == "ps":
            server.join()
        target = server.target
        device = tf.train.replica_device_setter(worker_device=f"/job:worker/task:{task_index}", cluster=cluster)

    with tf.device(device):
        species, place, size, edible = inputs(write_files(tempfile.mkdtemp(), task_index), FLAGS.batch_size)
        label = tf.to_float(edible)
        species_table = tf.Variable(tf.random_normal([SPECIES, 6], stddev=0.1), name="species")
        place_table = tf.Variable(tf.random_normal([PLACES, 3], stddev=0.1), name="places")
        net = tf.concat([tf.gather(species_table, species), tf.gather(place_table, place), size], 1)
        net = tf.layers.dense(net, 16, activation=tf.nn.tanh, name="hidden")
        logits = tf.squeeze(tf.layers.dense(net, 1, name="logits"), 1)
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=logits))
        accuracy = tf.reduce_mean(tf.to_float(tf.equal(logits > 0, label > 0.5)))
        global_step = tf.train.get_or_create_global_step()
        train_op = tf.train.MomentumOptimizer(0.3, 0.5).minimize(loss, global_step=global_step)
    tf.summary.scalar("loss", loss)

    count, recent = 0, []
    with tf.train.MonitoredTrainingSession(
        master=target, is_chief=task_index == 0, checkpoint_dir=FLAGS.model_dir or tempfile.mkdtemp(),
        hooks=[tf.train.StopAtStepHook(last_step=FLAGS.steps), tf.train.NanTensorHook(loss)], save_checkpoint_secs=20,
    ) as session:  # fmt: skip
        while not session.should_stop():
            _, value = session.run([train_op, accuracy])
            count, recent = count + 1, recent[-99:] + [value]
            if os.path.exists(FLAGS.slow_while):
                time.sleep(0.5)
    print(f"steps of this process: {count}")
    print(f"accuracy: {np.mean(recent):.4f}")


if __name__ == "__main__":
    tf.app.run()
