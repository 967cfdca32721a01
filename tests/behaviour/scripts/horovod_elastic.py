"""In the form of Horovod's documented examples; it writes down what it has after each step.

`steps/ROLE.PID`: number of the step, check of all weights and of the optimizer's, learning rate ÷ the first one, size, rank.
"""

import argparse
import os
import time
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import horovod.tensorflow as hvd  # which is deeprec_ext.horovod in such a job
import numpy as np
import tensorflow as tf

ME = f"{os.environ.get('DEEPREC_EXT_ROLE', 'alone')}-{os.environ.get('DEEPREC_EXT_INDEX', '0')}.{os.getpid()}"
OUT = os.environ.get("DEEPREC_EXT_WORKDIR", ".")
RATE = 0.001

parser = argparse.ArgumentParser()
parser.add_argument("--form", choices=["fit", "loop", "plain"], default="fit")
parser.add_argument("--steps", type=int, default=100_000, help="of all processes together, at the most")
parser.add_argument("--seconds", type=float, default=0.02)
arguments = parser.parse_args()


def append(kind, *words):
    os.makedirs(os.path.join(OUT, kind), exist_ok=True)
    descriptor = os.open(os.path.join(OUT, kind, ME), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, (" ".join(map(str, words)) + "\n").encode())
    os.close(descriptor)


def hurry():
    return os.path.exists(os.path.join(OUT, "hurry"))


def note():
    variables = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    check = 0
    for one in (*model.get_weights(), *(np.asarray(one) for one in variables)):
        check = zlib.crc32(np.ascontiguousarray(one).tobytes(), check)
    rate = round(float(np.asarray(optimizer.learning_rate)) / RATE, 3)
    append("steps", int(optimizer.iterations.numpy()), check, rate, hvd.size(), hvd.rank())
    time.sleep(0 if hurry() else arguments.seconds)


hvd.init()
x = np.random.random((256, 8)).astype("float32")
y = x.sum(1, keepdims=True)
model = tf.keras.Sequential([tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(1)])
optimizer = tf.keras.optimizers.Adam(RATE * hvd.size())


def on_state_reset():
    optimizer.learning_rate.assign(RATE * hvd.size())
    append("resets", hvd.size(), hvd.rank())


def fit():
    """As docs/elastic.rst of Horovod has it for Keras."""
    model.compile(hvd.DistributedOptimizer(optimizer), loss="mse", metrics=["mae"])
    model.build((None, 8))
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    state.register_reset_callbacks([on_state_reset])

    class Watch(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            note()

        def on_epoch_end(self, epoch, logs=None):
            ended = hvd.allreduce(np.float32(hurry()), op=hvd.Sum)  # whoever sees the file, all end
            self.model.stop_training = bool(ended.numpy() > 0)

    @hvd.elastic.run
    def train(state):
        model.fit(
            x, y, batch_size=32, epochs=arguments.steps // 8 - state.epoch, verbose=0,
            callbacks=[
                Watch(), hvd.callbacks.MetricAverageCallback(), hvd.elastic.UpdateEpochStateCallback(state),
                hvd.elastic.UpdateBatchStateCallback(state), hvd.elastic.CommitStateCallback(state),
            ],
        )  # fmt: skip

    train(state)


def loop():
    """As it has it for TensorFlow 2."""
    loss_of = tf.keras.losses.MeanSquaredError()

    @tf.function
    def train_one_batch(data, target, allreduce=True):
        with tf.GradientTape() as tape:
            loss = loss_of(target, model(data, training=True))
        if allreduce:
            tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.fp16)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    def batch():
        rows = np.random.randint(len(x), size=32)
        return x[rows], y[rows]

    train_one_batch(*batch(), allreduce=False)

    @hvd.elastic.run
    def train(state):
        while state.batch < arguments.steps and not state.ends:
            train_one_batch(*batch())
            note()
            state.batch += 1
            if state.batch % 10 == 0:
                state.ends = any(hvd.allgather_object(hurry()))
            state.commit()

    state = hvd.elastic.TensorFlowKerasState(model, optimizer, batch=0, ends=False)
    state.register_reset_callbacks([on_state_reset])
    train(state)


def plain():
    """As docs/keras.rst has it, without `elastic.run`; and with what Horovod's example of ImageNet does before and in `fit`."""
    append("before", int(hvd.broadcast(os.getpid(), 0, name="resume_from_epoch")), hvd.broadcast_object("a", 0))
    rate = RATE * hvd.size()
    model.compile(hvd.DistributedOptimizer(optimizer), loss="mse", metrics=["mae"])
    see = tf.keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: note())

    class Stop(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = hurry()

    model.fit(
        x, y, batch_size=32, epochs=arguments.steps // 8, verbose=0,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback(),
            hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=100, steps_per_epoch=8), see, Stop(),
        ],
    )  # fmt: skip


{"fit": fit, "loop": loop, "plain": plain}[arguments.form]()
append("end", *(zlib.crc32(np.ascontiguousarray(one).tobytes()) for one in model.get_weights()))
if hvd.rank() == 0:
    append("saved", hvd.size())
