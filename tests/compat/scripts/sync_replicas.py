"""Synchronous training with parameter servers: `SyncReplicasOptimizer`.

python sync_replicas.py --steps 500
"""

import argparse
import json
import os
import tempfile

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-dir", default=None)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--replicas", type=int, default=1, help="gradients of so many workers make a step")
    arguments = parser.parse_args()
    v1.disable_eager_execution()
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    cluster, task = config.get("cluster"), config.get("task", {"type": "chief", "index": 0})
    is_chief = task["type"] == "chief"
    target, device = "", None
    if cluster:
        target = v1.train.Server(cluster, job_name=task["type"], task_index=task["index"]).target
        device = v1.train.replica_device_setter(
            cluster=cluster, worker_device=f"/job:{task['type']}/task:{task['index']}"
        )
    random = np.random.default_rng(0)
    inputs = random.normal(0, 1, (1000, 5)).astype(np.float32)
    outputs = inputs @ np.array([[1.0], [-2.0], [0.5], [0.0], [3.0]], np.float32)
    with v1.device(device):
        x, y = v1.placeholder(tf.float32, [None, 5]), v1.placeholder(tf.float32, [None, 1])
        weights = v1.get_variable("weights", [5, 1], initializer=v1.zeros_initializer())
        loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - y))
        optimizer = v1.train.SyncReplicasOptimizer(
            v1.train.GradientDescentOptimizer(0.05), arguments.replicas, total_num_replicas=arguments.replicas
        )
        train_op = optimizer.minimize(loss, global_step=v1.train.get_or_create_global_step())
    hooks = [optimizer.make_session_run_hook(is_chief), v1.train.StopAtStepHook(last_step=arguments.steps)]
    with v1.train.MonitoredTrainingSession(
        target, is_chief, checkpoint_dir=arguments.model_dir or tempfile.mkdtemp(), hooks=hooks
    ) as session:
        while not session.should_stop():
            rows = random.integers(0, 1000, 32)
            _, value = session.run([train_op, loss], {x: inputs[rows], y: outputs[rows]})
    print(f"loss: {value:.6f}")


if __name__ == "__main__":
    main()
