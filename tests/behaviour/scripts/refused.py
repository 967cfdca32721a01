"""Scripts that cannot be made elastic, one per argument; each is to be refused with its remedy."""

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf

v1 = tf.compat.v1


def eager():
    weights = tf.Variable([1.0, 2.0])
    for _ in range(10):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weights**2)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
    print("trained eagerly", weights.numpy())


def monitored(what):
    v1.disable_eager_execution()
    environment = json.loads(os.environ["TF_CONFIG"])
    cluster, task = environment["cluster"], environment["task"]
    chief = task["type"] == "chief"
    hooks = [v1.train.StopAtStepHook(last_step=100)]
    with v1.device(
        v1.train.replica_device_setter(cluster=cluster, worker_device=f"/job:{task['type']}/task:{task['index']}")
    ):
        weights = v1.get_variable("weights", [2], initializer=v1.ones_initializer())
        step = v1.train.get_or_create_global_step()
        loss = tf.reduce_sum(weights**2)
        optimizer = v1.train.GradientDescentOptimizer(0.01)
        if what == "sync":
            optimizer = v1.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=2)
            hooks.append(optimizer.make_session_run_hook(chief))
        train = optimizer.minimize(loss, global_step=step)
        with v1.device("/job:ps/task:0"):
            if what == "trainer":
                with v1.device("/job:worker/task:5"):
                    train = tf.group(train, tf.add(loss, 1.0, name="my_sum"))
            if what == "queue":
                queue = v1.FIFOQueue(10, [tf.float32], shapes=[[]], name="my_queue", shared_name="my_queue")
                train = tf.group(train, queue.enqueue(1.0), queue.dequeue())
            if what == "table":
                table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1, name="my_table")
                train = tf.group(train, table.insert(tf.constant([1], tf.int64), tf.constant([2], tf.int64)))
    with v1.train.MonitoredTrainingSession(
        v1.train.Server(cluster, job_name=task["type"], task_index=task["index"]).target, chief, hooks=hooks
    ) as session:
        while not session.should_stop():
            session.run(train)


if __name__ == "__main__":
    eager() if sys.argv[1] == "eager" else monitored(sys.argv[1])
