"""A training script that ends in the way it is told, `ends.py WAY`, with stock TensorFlow and in a job alike.

`ends.py --each FILE WAY...` runs one after the other in a process of its own and writes exit codes and seconds to FILE (JSON).
As the command of a job's chief it never imports TensorFlow itself, and each of its children becomes `chief-0`.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
import time

LIMIT_SECONDS = 150  # a start takes a minute where many want the processor


def each(path, ways):
    """Every way, and what became of it; exit code None: it was not gone in time."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its background commands ignore it
    results = {}
    for way in ways:
        began = time.monotonic()
        child = subprocess.Popen([sys.executable, __file__, way])
        try:
            code = child.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            code = None
        results[way] = code, time.monotonic() - began
        with open(path + ".new", "w") as file:
            json.dump(results, file)
        os.replace(path + ".new", path)


def train(way):
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    if way == "imported":
        raise ImportError("no module of the script's own")
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    if "cluster" in config:
        cluster, task = tf.train.ClusterSpec(config["cluster"]), config["task"]
        server = v1.train.Server(cluster, job_name=task["type"], task_index=task["index"])
        place = v1.train.replica_device_setter(
            worker_device=f"/job:{task['type']}/task:{task['index']}", cluster=cluster
        )
    else:
        server = v1.train.Server.create_local_server()
        place = None
    graph = tf.Graph()
    with graph.as_default(), v1.device(place):
        step, train_op = build(tf, v1, way)

    def init(scaffold, session):
        if way == "init":
            raise ValueError("this init_fn fails")

    class Hook(v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            if way == "hook":
                raise ValueError("this hook fails")

    with graph.as_default():
        scaffold = v1.train.Scaffold(init_fn=init)
        session = v1.train.MonitoredTrainingSession(server.target, True, scaffold=scaffold, hooks=[Hook()])

    if way != "forgotten session":
        globals()["session"] = session  # as if all this were the module's own lines: it lives until the very end

    def steps(count):
        for _ in range(count):
            session.run(train_op)

    steps(
        2 if way == "two steps" else 20
    )  # after three Python is told to leave all there is to no collection of garbage
    if way == "return":
        session.close()
    elif way == "closed exit 3":
        session.close()
        sys.exit(3)
    elif way == "exit 3":
        sys.exit(3)
    elif way == "raised exit 5":
        raise SystemExit(5)
    elif way == "os._exit 4":
        os._exit(4)
    elif way in ("SIGTERM", "SIGKILL", "SIGINT"):
        os.kill(os.getpid(), getattr(signal, way))
        steps(1_000_000)
    elif way == "step":
        session.run(train_op, {graph.get_tensor_by_name("bad:0"): True})
    elif way == "daemon thread":
        threading.Thread(target=steps, args=(1_000_000,), daemon=True).start()
        time.sleep(0.5)
    elif way == "thread":  # works for a while after the last line, in the session
        threading.Thread(target=lambda: (time.sleep(0.5), steps(50), print("the thread has ended"))).start()
    elif way == "thread fails":
        threading.Thread(target=lambda: 1 / 0).start()
    elif way == "atexit":  # has work to do, for longer than a process may live when its script has ended
        atexit.register(lambda: (time.sleep(4), steps(5), print("the handler has ended")))
    elif way == "two sessions":
        with graph.as_default():
            another = v1.train.MonitoredTrainingSession(server.target, True)
        another.run(train_op)
        globals()["kept"] = session, another
    elif way == "finaliser":  # not TensorFlow's, and it never ends
        sys.kept = (
            Endless()
        )  # `sys` is taken apart by name; the module's own objects are left to the collector, or to nobody
        sys.exit(6)
    elif way == "forgotten session":
        with graph.as_default():
            session = v1.train.MonitoredTrainingSession(server.target, True)
        steps(20)
        session.close()
    print(f"training is over: {step.name}")


class Endless:
    def __del__(self, sleep=time.sleep):
        sleep(1000)


def build(tf, v1, way):
    step = v1.train.get_or_create_global_step()
    weights = v1.get_variable("weights", [64, 8], initializer=v1.zeros_initializer())
    if way == "queue":
        numbers = v1.train.batch([v1.train.range_input_producer(64).dequeue()], 16)
    elif way == "generator":  # which has nothing to give after some batches, and waits inside TensorFlow

        def generate():
            for _ in range(25):
                yield [1] * 16
            time.sleep(1000)

        dataset = tf.data.Dataset.from_generator(generate, tf.int32, [16]).prefetch(4)
        numbers = v1.data.make_one_shot_iterator(dataset).get_next()
    else:
        numbers = tf.range(16)
    if way == "graph":
        tf.matmul(weights, tf.ones([3, 3]))
    bad = v1.placeholder_with_default(False, [], name="bad")
    fail = tf.debugging.Assert(tf.logical_not(bad), ["this step fails"])
    with v1.device("/device:GPU:7" if way == "device" else None), tf.control_dependencies([fail]):
        loss = tf.reduce_sum(tf.square(tf.gather(weights, numbers) - 1.0))
    return step, v1.train.GradientDescentOptimizer(0.01).minimize(loss, step)


if __name__ == "__main__":
    if sys.argv[1] == "--each":
        each(sys.argv[2], sys.argv[3:])
    elif sys.argv[1] == "import":
        raise ImportError("no module of the script's own")
    else:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        train(sys.argv[1])
