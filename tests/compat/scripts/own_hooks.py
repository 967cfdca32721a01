"""Which of two songs is heard next? Layers cut by a partitioner, and a saver and hooks that the script makes itself.

    python own_hooks.py --steps 3000

With TF_CONFIG it is one task of a cluster of ps and workers; a chief is its worker 0.
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

SONGS, LISTENERS = 800, 600


def make_plays(count, seed):
    planted = np.random.RandomState(41)
    songs, listeners = planted.normal(0, 1, (SONGS, 2)), planted.normal(0, 1, (LISTENERS, 2))
    random = np.random.RandomState(seed)
    listener = (LISTENERS * random.rand(count) ** 3).astype(np.int64)
    pair = (SONGS * random.rand(count, 2) ** 3).astype(np.int64)
    better = (
        ((songs[pair[:, 0]] - songs[pair[:, 1]]) * listeners[listener]).sum(1)
        + songs[pair[:, 0], 0]
        - songs[pair[:, 1], 0]
    )
    return listener, pair, (random.rand(count) < 1 / (1 + np.exp(-2 * better))).astype(np.float32)


class Watch(tf.train.SessionRunHook):
    """Looks into each session that is made, counts steps, and asks for more values at every hundredth."""

    def __init__(self, accuracy, norm, slow_while):
        self.accuracy, self.norm, self.slow_while = accuracy, norm, slow_while
        self.count, self.sessions, self.norms, self.recent = 0, 0, [], []

    def begin(self):
        self.step = tf.train.get_global_step()
        self.least = tf.placeholder(tf.int64, [])
        self.behind = tf.maximum(self.least - self.step, 0)

    def after_create_session(self, session, coord):
        self.sessions += 1
        at, behind = session.run([self.step, self.behind], {self.least: 0})
        print(f"session {self.sessions} begins at step {at}, {behind} behind", flush=True)

    def before_run(self, run_context):
        fetches = {"accuracy": self.accuracy}
        if self.count % 100 == 0:
            fetches["norm"] = self.norm
        return tf.train.SessionRunArgs(fetches)

    def after_run(self, run_context, run_values):
        self.count += 1
        self.recent = [*self.recent[-99:], run_values.results["accuracy"]]
        if "norm" in run_values.results:
            self.norms.append(float(run_values.results["norm"]))
        if os.path.exists(self.slow_while):
            time.sleep(0.5)

    def end(self, session):
        print(f"steps of this process: {self.count}", flush=True)
        print(f"accuracy: {np.mean(self.recent):.4f}", flush=True)
        print(
            f"norm of the tables: {self.norms[0]:.3f} to {self.norms[-1]:.3f}, at the end {session.run(self.norm):.3f}",
            flush=True,
        )


class Told(tf.train.CheckpointSaverListener):
    def begin(self):
        self.saved = 0

    def after_save(self, session, global_step_value):
        self.saved += 1

    def end(self, session, global_step_value):
        print(f"saved {self.saved} times, the last at step {global_step_value}", flush=True)


def read_cluster():
    tf_config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    if not tf_config:
        return None, "worker", 0
    cluster, task = tf_config["cluster"], tf_config["task"]
    workers = cluster.get("chief", []) + cluster.get("worker", [])
    number = task["index"] + (1 if task["type"] == "worker" and "chief" in cluster else 0)
    return {"ps": cluster["ps"], "worker": workers}, "ps" if task["type"] == "ps" else "worker", number


def build_model(listener, pair):
    with tf.variable_scope("tables", partitioner=tf.fixed_size_partitioner(3)):
        songs = tf.get_variable("songs", [SONGS, 8], initializer=tf.random_normal_initializer(stddev=0.4))
        listeners = tf.get_variable("listeners", [LISTENERS, 8], initializer=tf.random_normal_initializer(stddev=0.4))
    who = tf.nn.embedding_lookup(listeners, listener, partition_strategy="div")
    first, second = tf.unstack(tf.nn.embedding_lookup(songs, pair), axis=1)  # parts by the remainder
    layers = tf.min_max_variable_partitioner(max_partitions=4, min_slice_size=512)
    with tf.variable_scope("tower", partitioner=layers, reuse=tf.AUTO_REUSE):
        scores = []
        for song in (first, second):
            net = tf.concat([who * song, who, song], axis=1)
            net = tf.layers.dense(net, 32, tf.nn.relu, name="first", reuse=tf.AUTO_REUSE)
            net = tf.layers.dense(net, 16, tf.nn.relu, name="second", reuse=tf.AUTO_REUSE)
            scores.append(
                tf.layers.dense(net, 1, name="score", reuse=tf.AUTO_REUSE) + tf.reduce_sum(who * song, 1, True)
            )
    norm = tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(part)) for part in [*songs, *listeners]]))
    return tf.squeeze(scores[0] - scores[1], 1), norm


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-dir", default=None)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--slow-while", default="")
    args = parser.parse_args()

    cluster, job_name, task_index = read_cluster()
    target, device = "", None
    if cluster:
        server = tf.train.Server(tf.train.ClusterSpec(cluster), job_name=job_name, task_index=task_index)
        if job_name == "ps":
            server.join()
        target = server.target
        device = tf.train.replica_device_setter(worker_device=f"/job:worker/task:{task_index}", cluster=cluster)
    is_chief = task_index == 0
    model_dir = args.model_dir or tempfile.mkdtemp()

    with tf.Graph().as_default(), tf.device(device):
        dataset = tf.data.Dataset.from_tensor_slices(make_plays(30000, task_index)).shuffle(8000).repeat()
        listener, pair, label = tf.data.make_one_shot_iterator(dataset.batch(args.batch_size)).get_next()
        logits, norm = build_model(listener, pair)
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=logits))
        accuracy = tf.reduce_mean(tf.cast(tf.equal(logits > 0, label > 0.5), tf.float32))
        global_step = tf.train.get_or_create_global_step()
        optimizer = tf.train.AdagradOptimizer(0.4)
        gradients, variables = zip(*optimizer.compute_gradients(loss))
        gradients, length = tf.clip_by_global_norm(gradients, 5.0)
        train_op = optimizer.apply_gradients(zip(gradients, variables), global_step=global_step)
        tf.summary.scalar("loss", loss)
        tf.summary.scalar("length", length)
        tf.summary.histogram("logits", logits)

        saver = tf.train.Saver(tf.global_variables(), sharded=True, max_to_keep=2)
        hooks = [
            tf.train.StopAtStepHook(last_step=args.steps),
            tf.train.NanTensorHook(loss),
            tf.train.FinalOpsHook(global_step),
            Watch(accuracy, norm, args.slow_while),
        ]
        if is_chief:
            hooks += [
                tf.train.CheckpointSaverHook(model_dir, save_steps=500, saver=saver, listeners=[Told()]),
                tf.train.SummarySaverHook(save_steps=100, output_dir=model_dir, summary_op=tf.summary.merge_all()),
                tf.train.StepCounterHook(every_n_steps=200, output_dir=model_dir),
                tf.train.ProfilerHook(save_steps=1000, output_dir=model_dir),
                tf.train.LoggingTensorHook({"step": global_step, "loss": loss}, every_n_secs=10),
            ]
        with tf.train.MonitoredTrainingSession(
            master=target, is_chief=is_chief, checkpoint_dir=model_dir, scaffold=tf.train.Scaffold(saver=saver), hooks=hooks,
            save_checkpoint_secs=None, save_summaries_steps=None, save_summaries_secs=None, log_step_count_steps=None,
        ) as session:  # fmt: skip
            while not session.should_stop():
                session.run(train_op)


if __name__ == "__main__":
    main()
