"""Variables that only the chief's graph has, as statistics and moving averages are: `count.py --own`.

On the PS: a table of which each step writes one row, and two dense ones. In the chief itself: a counter. What they must be
follows from the number of the step alone (`expected`), and a step is counted in `count/own/` when it is known to be done;
one that is not is done again, with the same result. So whatever is killed, the last checkpoint has exactly what is expected,
unless a value was lost. While there is a file `count/hold-own` nothing is written: what was before is then in every backup.
"""

import os

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

ROWS, DIM, WINDOW = 4096, 8, 64  # 128 KiB: large enough to be tracked by rows
VISITS, AVERAGE, HISTORY = "own_visits", "own_average", "own_history"
HERE = "own_here"  # on no PS


def expected(steps):
    """{name: value} after so many steps."""
    visits, history = np.zeros([ROWS, DIM], np.float32), np.zeros([WINDOW], np.float32)
    for step in range(max(0, steps - ROWS), steps):
        visits[step % ROWS] = step + 1
    for step in range(max(0, steps - WINDOW), steps):
        history[step % WINDOW] = step + 1
    return {VISITS: visits, AVERAGE: average(steps), HISTORY: history}


def average(steps):
    return np.array([steps, steps / 2, steps % 7], np.float32)


class Own:
    """Made in the chief's graph after everything that the others have too: the slots of those are the same in every role."""

    def __init__(self, here):
        """here: device of this process."""
        zeros = v1.zeros_initializer()
        visits = v1.get_variable(VISITS, [ROWS, DIM], initializer=zeros, trainable=False)
        mean = v1.get_variable(AVERAGE, [3], initializer=zeros, trainable=False)
        history = v1.get_variable(HISTORY, [WINDOW], initializer=zeros, trainable=False)
        with v1.device(here):
            counter = v1.get_variable(HERE, [], initializer=v1.constant_initializer(1000.0), trainable=False)
        self.rows = v1.placeholder_with_default(tf.zeros([0], tf.int64), [None])
        self.steps = v1.placeholder_with_default(tf.constant(-1, tf.int64), [])
        value = tf.cast(self.steps, tf.float32)
        written, places = tf.fill([tf.size(self.rows), DIM], value), tf.range(WINDOW, dtype=tf.int64)
        now = tf.stack([value, value / 2, tf.math.floormod(value, 7)])
        self.op = tf.group(
            v1.scatter_update(visits, self.rows, written),
            v1.assign(mean, tf.where(self.steps >= 0, now, mean)),
            v1.assign(history, tf.where(tf.equal(places, (self.steps - 1) % WINDOW) & (self.steps >= 0),
                                        tf.fill([WINDOW], value), history)),
            v1.assign_add(counter, 1.0),
        )  # fmt: skip


class OwnHook(v1.train.SessionRunHook):
    def __init__(self, own, ledger):
        self.own, self.ledger, self.step = own, ledger, None
        path = ledger.path("own/steps.npy")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if not os.path.exists(path):
            np.save(path, np.zeros([1], np.int64))
        self.done = np.lib.format.open_memmap(path, "r+")

    def before_run(self, run_context):
        self.step = None if self.ledger.ask("hold-own") is not None else int(self.done[0])
        if self.step is None:
            return v1.train.SessionRunArgs(self.own.op)
        feeds = {self.own.rows: np.array([self.step % ROWS]), self.own.steps: np.int64(self.step + 1)}
        return v1.train.SessionRunArgs(self.own.op, feeds)

    def after_run(self, run_context, run_values):
        if self.step is not None:
            self.done[0] = self.step + 1
