"""One stock parameter server: `python -m benchmarks.stock.serve`, with TF_CONFIG in the environment."""

import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf

if __name__ == "__main__":
    description = json.loads(os.environ["TF_CONFIG"])
    task = description["task"]
    cluster = tf.train.ClusterSpec(description["cluster"])
    tf.compat.v1.train.Server(cluster, job_name=task["type"], task_index=task["index"]).join()
