"""A training script whose result can be counted: every update adds exactly 1 to known elements of known variables.

Each trainer has a block of rows of its own. A step adds 1 to 64 rows of its block in every table (SGD with a constant
gradient), 1 to the same rows of the accumulators of two more tables (Adagrad with gradients of 1), and 1 to its own
element of the dense variables. What the trainer knows to be done it counts in `count/<role>.npy`, which survives
kill -9. So an update that a scaling loses, or does twice, shows as a difference in the final checkpoint.

Files below `count/` steer it: `stop` (a JSON list of roles: everybody stops, the chief after these), `stick-<role>` (the
input gives nothing, inside the run, while the file is there), `pass-<role>` (one step may pass nevertheless).
"""

import argparse
import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

BLOCKS, BLOCK, DIM, BATCH = 10, 512, 4, 64
ROWS = BLOCKS * BLOCK  # 80 kB a table: large enough to be tracked by rows
SGD, ADAGRAD, DENSE = ("sgd0", "sgd1", "sgd2"), ("ada0", "ada1"), ("dense0", "dense1", "dense2")
WIDE = "wide"  # with --wide: one more like SGD, with long rows


def place():
    """(role, index, block) of this process."""
    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "chief", "index": 0})
    chief = task["type"] in ("chief", "master")
    return ("chief-0", 0) if chief else (f"{task['type']}-{task['index']}", 1 + task["index"])


class Ledger:
    """What this trainer knows to be done: per row of its block, and at the end [steps, highest step seen, went back]."""

    def __init__(self, directory, role):
        os.makedirs(directory, exist_ok=True)
        self.directory, self.role = directory, role
        path = os.path.join(directory, f"{role}.npy")
        again = os.path.exists(path)
        if not again:  # under its name it is always whole: the test looks at it at any time
            with open(path + ".new", "wb") as file:
                np.save(file, np.zeros(BLOCK + 3, np.int64))
            os.rename(path + ".new", path)
        self.counts = np.lib.format.open_memmap(path, "r+")
        if again:
            self.counts[BLOCK + 1] = 0  # a PS may have been restored meanwhile: "went back" is about one process

    def path(self, name):
        return os.path.join(self.directory, name)

    def ask(self, name):
        """The content of a steering file; None if it is not there."""
        try:
            with open(self.path(name)) as file:
                return file.read()
        except FileNotFoundError:
            return None

    def pace(self, ids):
        """Inside the run: the input of one step."""
        while self.ask(f"stick-{self.role}") is not None:
            try:
                os.remove(self.path(f"pass-{self.role}"))
                break
            except FileNotFoundError:
                time.sleep(0.01)
        return ids


class CountingHook(v1.train.SessionRunHook):
    def __init__(self, ledger, ids, seconds):
        self.ledger, self.ids, self.seconds = ledger, ids, seconds

    def begin(self):
        self.step = v1.train.get_or_create_global_step()
        done = self.ledger.path(f"done-{self.ledger.role}")
        if os.path.exists(done):  # another process of this name has left before, for whom the chief need not wait
            os.remove(done)

    def before_run(self, run_context):
        return v1.train.SessionRunArgs([self.ids, self.step])

    def after_run(self, run_context, run_values):
        ids, step = run_values.results
        counts = self.ledger.counts
        counts[ids % BLOCK] += 1
        counts[BLOCK] += 1
        counts[BLOCK + 2] += step < counts[BLOCK + 1]
        counts[BLOCK + 1] = step
        time.sleep(self.seconds)
        stop = self.ledger.ask("stop")
        if stop and (self.ledger.role != "chief-0" or self.others_are_done(json.loads(stop))):
            run_context.request_stop()

    def others_are_done(self, roles):
        return all(self.ledger.ask(f"done-{role}") is not None for role in roles if role != "chief-0")

    def end(self, session):
        open(self.ledger.path(f"done-{self.ledger.role}"), "w").close()


def batches(ledger, block, paced):
    """Row numbers of every step: 64 different ones of the block, overlapping with those of the next steps."""
    dataset = tf.data.Dataset.range(2**60).map(
        lambda n: block * BLOCK + (n * 37 + tf.range(BATCH, dtype=tf.int64) * 5) % BLOCK
    )
    if paced:
        return dataset.map(lambda ids: tf.ensure_shape(tf.numpy_function(ledger.pace, [ids], tf.int64), [BATCH]))
    return dataset.prefetch(2)


def build(ids, block, wide=0):
    """(loss, train_op); `wide`: floats in a row of the table WIDE, which is updated without being looked up."""
    tables = {name: v1.get_variable(name, [ROWS, DIM], initializer=v1.zeros_initializer()) for name in SGD + ADAGRAD}
    dense = [v1.get_variable(name, [BLOCKS, 3], initializer=v1.zeros_initializer(), trainable=False) for name in DENSE]
    loss = -tf.add_n([tf.reduce_sum(tf.nn.embedding_lookup(table, ids)) for table in tables.values()])
    gradients = dict(zip(tables, tf.gradients(loss, list(tables.values()))))
    one = tf.one_hot(block, BLOCKS)[:, None] * tf.ones([1, 3])
    ops = [
        v1.train.GradientDescentOptimizer(1.0).apply_gradients([(gradients[name], tables[name]) for name in SGD]),
        v1.train.AdagradOptimizer(0.0, 1.0).apply_gradients([(gradients[name], tables[name]) for name in ADAGRAD]),
        *(v1.assign_add(variable, one, use_locking=True) for variable in dense),
        v1.assign_add(v1.train.get_or_create_global_step(), 1, use_locking=True),
    ]
    if wide:
        table = v1.get_variable(WIDE, [ROWS, wide], initializer=v1.zeros_initializer())
        ones = tf.IndexedSlices(-tf.ones([BATCH, wide]), ids, tf.constant([ROWS, wide], tf.int64))
        ops.append(v1.train.GradientDescentOptimizer(1.0).apply_gradients([(ones, table)]))
    return loss, tf.group(*ops)


def estimator(arguments, model_dir, ledger, block):
    def model_fn(features, labels, mode):
        loss, train_op = build(features, block, arguments.wide)
        hooks = [CountingHook(ledger, features, arguments.sleep)]
        if arguments.hook:
            from deeprec_ext.hooks import default_hooks

            hooks += default_hooks()
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=hooks)

    config = tf.estimator.RunConfig(
        model_dir, save_checkpoints_steps=arguments.checkpoint_steps, log_step_count_steps=1000, save_summary_steps=1000
    )
    tf.estimator.train_and_evaluate(
        tf.estimator.Estimator(model_fn, config=config),
        tf.estimator.TrainSpec(lambda: batches(ledger, block, arguments.paced), max_steps=10**9),
        tf.estimator.EvalSpec(
            lambda: tf.data.Dataset.from_tensors(tf.range(BATCH, dtype=tf.int64)), steps=1, start_delay_secs=0,
            throttle_secs=1,
        ),
    )  # fmt: skip


def monitored(arguments, model_dir, ledger, block):
    """Without Estimator: a server, a one-shot iterator, and MonitoredTrainingSession."""
    environment = json.loads(os.environ["TF_CONFIG"])
    cluster, task = environment["cluster"], environment["task"]
    server = v1.train.Server(cluster, job_name=task["type"], task_index=task["index"])
    worker = f"/job:{task['type']}/task:{task['index']}"
    with v1.device(v1.train.replica_device_setter(cluster=cluster, worker_device=worker)):
        if arguments.one_shot:
            ids = v1.data.make_one_shot_iterator(batches(ledger, block, False)).get_next()
            local_init = None
        else:
            iterator = v1.data.make_initializable_iterator(batches(ledger, block, arguments.paced))
            ids = iterator.get_next()
            local_init = iterator.initializer
        _, train_op = build(ids, block, arguments.wide)
        hooks = [CountingHook(ledger, ids, arguments.sleep)]
        if arguments.own and block == 0:
            from own import Own, OwnHook

            hooks.append(OwnHook(Own(worker), ledger))
    if local_init is not None:
        v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, local_init)
    with v1.train.MonitoredTrainingSession(
        server.target, task["type"] == "chief", model_dir if task["type"] == "chief" else None,
        hooks=hooks, save_checkpoint_secs=None,
        save_checkpoint_steps=arguments.checkpoint_steps, save_summaries_steps=None,
        config=v1.ConfigProto(device_filters=["/job:ps", worker]),
    ) as session:  # fmt: skip
        while not session.should_stop():
            session.run(train_op)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--monitored", action="store_true", help="MonitoredTrainingSession instead of Estimator")
    parser.add_argument("--one-shot", action="store_true", help="a one-shot iterator (with --monitored)")
    parser.add_argument("--v1", action="store_true", help="disable_v2_behavior(): reference variables")
    parser.add_argument("--hook", action="store_true", help="add the hooks in the script")
    parser.add_argument(
        "--own", action="store_true", help="the chief has variables of its own (with --monitored): own.py"
    )
    parser.add_argument("--paced", action="store_true", help="the steering files stick- and pass- work")
    parser.add_argument("--wide", type=int, default=0, help="floats in a row of one more table: 16384 make it 335 MB")
    parser.add_argument("--sleep", type=float, default=0.012, help="seconds between two steps")
    parser.add_argument("--checkpoint-steps", type=int, default=10**9)
    arguments = parser.parse_args()
    if arguments.v1:
        v1.disable_v2_behavior()
    else:
        v1.disable_eager_execution()
    v1.logging.set_verbosity(v1.logging.INFO)
    role, block = place()
    workdir = os.environ["DEEPREC_EXT_WORKDIR"]
    ledger = Ledger(os.path.join(workdir, "count"), role)
    run = monitored if arguments.monitored else estimator
    run(arguments, os.path.join(workdir, "model"), ledger, block)


if __name__ == "__main__":
    main()
