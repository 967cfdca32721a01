"""Between-graph training without Estimator: a server per process, a device setter, a monitored session, and its own hooks.

    python monitored_session.py --steps 3000                    # one process

With TF_CONFIG it is one task of a cluster: a parameter server, the chief, or a worker.
"""

import argparse
import json
import os
import tempfile
import time

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

PIXELS, CLASSES = 14 * 14, 10


def make_digits(count, seed):
    """Blurred pictures of ten made-up digits."""
    shapes = np.random.default_rng(3).random((CLASSES, PIXELS)) < 0.3
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    return (shapes[labels] + random.normal(0, 0.9, (count, PIXELS))).astype(np.float32), labels


class SaveListener(v1.train.CheckpointSaverListener):
    """Says when a checkpoint is written."""

    def __init__(self):
        self.saved = []

    def after_save(self, session, global_step_value):
        self.saved.append(int(global_step_value))
        print(f"checkpoint at step {global_step_value}", flush=True)

    def end(self, session, global_step_value):
        print(f"checkpoints: {len(self.saved)}, the last at step {global_step_value}", flush=True)


class Report(v1.train.SessionRunHook):
    """Counts steps and remembers the newest accuracies."""

    def __init__(self, accuracy, slow_while):
        self.accuracy, self.slow_while = accuracy, slow_while
        self.count, self.recent = 0, []

    def after_create_session(self, session, coord):
        print("a session was made", flush=True)

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(self.accuracy)

    def after_run(self, run_context, run_values):
        self.count += 1
        self.recent = [*self.recent[-99:], float(run_values.results)]
        if os.path.exists(self.slow_while):
            time.sleep(0.5)

    def end(self, session):
        print(f"steps of this process: {self.count}", flush=True)
        print(f"accuracy: {np.mean(self.recent):.4f}", flush=True)


def read_cluster():
    """(cluster, job, task) of TF_CONFIG; (None, "worker", 0) without."""
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    task = config.get("task", {})
    return config.get("cluster"), task.get("type", "worker"), int(task.get("index", 0))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-dir", default=None)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument(
        "--slow-while", default="", help="as long as this file is there, every step takes half a second more"
    )
    arguments = parser.parse_args()
    v1.disable_eager_execution()
    v1.logging.set_verbosity(v1.logging.INFO)

    cluster, job_name, task_index = read_cluster()
    target, device = "", None
    if cluster:
        server = v1.train.Server(tf.train.ClusterSpec(cluster), job_name=job_name, task_index=task_index)
        if job_name == "ps":
            server.join()
            return
        target = server.target
        device = v1.train.replica_device_setter(
            worker_device=f"/job:{job_name}/task:{task_index}", cluster=tf.train.ClusterSpec(cluster)
        )
    is_chief = job_name in ("chief", "master") or not cluster
    model_dir = arguments.model_dir or tempfile.mkdtemp()

    with tf.Graph().as_default(), v1.device(device):
        pictures, labels = make_digits(5000, task_index + (0 if is_chief else 100))
        dataset = tf.data.Dataset.from_tensor_slices((pictures, labels)).shuffle(5000).repeat()
        iterator = v1.data.make_initializable_iterator(dataset.batch(arguments.batch_size))
        picture, label = iterator.get_next()

        first = v1.get_variable("first/kernel", [PIXELS, 64])
        first_bias = v1.get_variable("first/bias", [64], initializer=v1.zeros_initializer())
        second = v1.get_variable("second/kernel", [64, CLASSES])
        second_bias = v1.get_variable("second/bias", [CLASSES], initializer=v1.zeros_initializer())
        logits = tf.matmul(tf.nn.relu(tf.matmul(picture, first) + first_bias), second) + second_bias
        loss = v1.losses.sparse_softmax_cross_entropy(labels=label, logits=logits)
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), label), tf.float32))
        v1.summary.scalar("loss", loss)
        v1.summary.histogram("logits", logits)

        global_step = v1.train.get_or_create_global_step()
        train_op = v1.train.MomentumOptimizer(0.02, 0.9).minimize(loss, global_step=global_step)

        hooks = [
            v1.train.StopAtStepHook(last_step=arguments.steps),
            v1.train.NanTensorHook(loss),
            v1.train.LoggingTensorHook({"step": global_step, "loss": loss}, every_n_iter=500),
            Report(accuracy, arguments.slow_while),
        ]
        chief_only = [
            v1.train.CheckpointSaverHook(model_dir, save_steps=1000, listeners=[SaveListener()]),
            v1.train.SummarySaverHook(save_steps=100, output_dir=model_dir, summary_op=v1.summary.merge_all()),
        ]
        scaffold = v1.train.Scaffold(
            local_init_op=tf.group(v1.local_variables_initializer(), v1.tables_initializer(), iterator.initializer)
        )
        with v1.train.MonitoredTrainingSession(
            master=target, is_chief=is_chief, checkpoint_dir=model_dir, scaffold=scaffold, hooks=hooks,
            chief_only_hooks=chief_only, save_checkpoint_secs=None, save_summaries_steps=None, log_step_count_steps=500,
        ) as session:  # fmt: skip
            while not session.should_stop():
                session.run(train_op)


if __name__ == "__main__":
    main()
