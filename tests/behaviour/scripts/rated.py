"""A script whose updates tell its learning rate: SGD of rate 1 and a gradient of -1, of each trainer in an element of its own.

What a step has added is written into `rates/<role>` of the run directory, one number a line: MonitoredTrainingSession reads the
element after each step. The chief ends when there is a file `rates/stop`.
"""

import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf

v1 = tf.compat.v1


def main():
    v1.disable_eager_execution()
    environment = json.loads(os.environ["TF_CONFIG"])
    cluster, task = environment["cluster"], environment["task"]
    chief = task["type"] == "chief"
    block = 0 if chief else 1 + task["index"]
    directory = os.path.join(os.environ["DEEPREC_EXT_WORKDIR"], "rates")
    os.makedirs(directory, exist_ok=True)
    server = v1.train.Server(cluster, job_name=task["type"], task_index=task["index"])
    worker = f"/job:{task['type']}/task:{task['index']}"
    with v1.device(v1.train.replica_device_setter(cluster=cluster, worker_device=worker)):
        own = v1.get_variable("own", [8], initializer=v1.zeros_initializer(), use_resource=True)
        table = v1.get_variable("table", [8, 4], initializer=v1.zeros_initializer(), use_resource=True)
        loss = -own[block] - tf.reduce_mean(v1.nn.embedding_lookup(table, [block])) * 4
        train = v1.train.GradientDescentOptimizer(1.0).minimize(loss, v1.train.get_or_create_global_step())
        values = tf.stack([own.read_value()[block], table.read_value()[block, 0]])
    with (
        v1.train.MonitoredTrainingSession(server.target, chief, save_summaries_steps=None) as session,
        open(os.path.join(directory, f"{task['type']}-{task['index']}"), "a", buffering=1) as file,
    ):
        before = session.run_step_fn(lambda step_context: step_context.session.run(values))
        while not session.should_stop():
            session.run(train)
            if session.should_stop():
                break
            after = session.run_step_fn(lambda step_context: step_context.session.run(values))
            file.write("{:g} {:g}\n".format(*(after - before)))
            before = after
            time.sleep(0.02)
            if chief and os.path.exists(os.path.join(directory, "stop")):
                break


if __name__ == "__main__":
    main()
