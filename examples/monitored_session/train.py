"""Low-level TensorFlow: MonitoredTrainingSession, replica_device_setter, a one-shot iterator, and no Estimator.

The classic between-graph PS script, as in TensorFlow's own guide. It knows nothing of DeepRec Extension:

    python train.py --steps 2000                                        # stock TensorFlow, one process
    deeprec-ext run --ps 2 --workers 1 -- python train.py               # elastic
    deeprec-ext run --ps 2 --workers 1 -- python train.py --v1          # with reference variables, as older scripts have

The task: find the weights by which made-up records (64 sparse features out of 10 000) were labelled.
"""

import argparse
import json
import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf

v1 = tf.compat.v1

ROWS, ACTIVE, BATCH = 10_000, 64, 128


def make_batch(number, seed):
    """Batch `number`: ids of the active features, and labels that follow from planted weights."""
    ids = tf.random.stateless_uniform([BATCH, ACTIVE], seed=[seed, number], maxval=ROWS, dtype=tf.int64)
    planted = tf.sin(tf.cast(ids, tf.float32) * 1.7)
    return ids, tf.cast(tf.reduce_sum(planted, 1) > 0, tf.float32)


def dense(inputs, units, name):
    """A layer, as `v1.layers.dense` would make it, which is gone with Keras 3 (TensorFlow 2.16)."""
    with v1.variable_scope(name):
        kernel = v1.get_variable("kernel", [inputs.shape[-1], units])
        return tf.matmul(inputs, kernel) + v1.get_variable("bias", [units], initializer=v1.zeros_initializer())


def build(seed):
    """The graph; returns what the loop fetches."""
    dataset = tf.data.Dataset.range(2**60).map(lambda number: make_batch(number, seed)).prefetch(2)
    ids, labels = v1.data.make_one_shot_iterator(dataset).get_next()
    weights = v1.get_variable("weights", [ROWS, 1], initializer=v1.zeros_initializer())
    embedding = v1.get_variable("embedding", [ROWS, 8], initializer=v1.random_normal_initializer(stddev=0.05))
    pooled = tf.reduce_sum(tf.nn.embedding_lookup(embedding, ids), 1)
    hidden = tf.nn.relu(dense(pooled, 32, "dense"))
    logits = tf.reduce_sum(tf.nn.embedding_lookup(weights, ids), [1, 2]) + dense(hidden, 1, "dense_1")[:, 0]
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    accuracy = tf.reduce_mean(tf.cast(tf.equal(logits > 0, labels > 0.5), tf.float32))
    step = v1.train.get_or_create_global_step()
    train = v1.train.AdagradOptimizer(0.1).minimize(loss, global_step=step)
    return {"train": train, "step": step, "loss": loss, "accuracy": accuracy}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3000, help="training steps of all workers together")
    parser.add_argument(
        "--model-dir", help="where checkpoints go (default: below $DEEPREC_EXT_WORKDIR, else a temporary directory)"
    )
    parser.add_argument("--v1", action="store_true", help="call disable_v2_behavior() first: reference variables")
    arguments = parser.parse_args()
    if arguments.v1:
        v1.disable_v2_behavior()
    else:
        v1.disable_eager_execution()

    environment = json.loads(os.environ.get("TF_CONFIG", "{}"))
    cluster, task = environment.get("cluster"), environment.get("task", {"type": "chief", "index": 0})
    is_chief = task["type"] in ("chief", "master") or ("chief" not in (cluster or {}) and task["index"] == 0)
    target, device, filters = "", None, None
    if cluster:
        server = v1.train.Server(cluster, job_name=task["type"], task_index=task["index"])
        if task["type"] == "ps":
            server.join()
        target = server.target
        device = v1.train.replica_device_setter(
            cluster=cluster, worker_device=f"/job:{task['type']}/task:{task['index']}"
        )
        filters = ["/job:ps", f"/job:{task['type']}/task:{task['index']}"]  # a worker need not wait for the others

    workdir = os.environ.get("DEEPREC_EXT_WORKDIR")
    model_dir = arguments.model_dir or (
        os.path.join(workdir, "model") if workdir else tempfile.mkdtemp(prefix="monitored-")
    )
    seed = 0 if is_chief else 1 + task["index"]  # every worker has its own records
    with v1.device(device):
        fetches = build(seed)
        hooks = [v1.train.StopAtStepHook(last_step=arguments.steps)]
        with v1.train.MonitoredTrainingSession(
            master=target, is_chief=is_chief, checkpoint_dir=model_dir if is_chief else None, hooks=hooks,
            save_checkpoint_secs=60, save_summaries_steps=None, config=v1.ConfigProto(device_filters=filters),
        ) as session:  # fmt: skip
            recent, printed = [], 0
            while not session.should_stop():
                values = session.run(fetches)
                recent = [*recent[-99:], values["accuracy"]]
                if values["step"] >= printed + 500:
                    printed = values["step"]
                    print(
                        f"step {printed}: loss {values['loss']:.4f}, accuracy {sum(recent) / len(recent):.4f}",
                        flush=True,
                    )
    print(f"accuracy {sum(recent) / len(recent):.4f} over the last {len(recent)} steps of this worker", flush=True)


if __name__ == "__main__":
    main()
