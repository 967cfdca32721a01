"""What scripts for Horovod are made of, in a process that is alone; and what rings make of numbers."""

from __future__ import annotations

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import deeprec_ext.horovod as hvd  # noqa: E402
from deeprec_ext.errors import RefusedError, UsageError  # noqa: E402
from deeprec_ext.horovod import reducing  # noqa: E402
from deeprec_ext.horovod.rings import ALONE, Shared  # noqa: E402
from deeprec_ext.horovod.world import WORLD  # noqa: E402
from deeprec_ext.keras.optimizers import settings_of  # noqa: E402
from tests.unit.allreduce.members import all_of  # noqa: E402
from tests.unit.allreduce.test_ring import ring_of  # noqa: E402


@pytest.fixture(autouse=True)
def begun():
    hvd.init()


def model_of(optimizer):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(optimizer, "mse", metrics=["mae"])
    model.build((None, 3))
    return model


X = np.arange(24, dtype="float32").reshape(8, 3) / 24


def rings_do(work):
    rings = ring_of(2)
    try:
        return all_of([lambda ring=ring: work(ring) for ring in rings])
    finally:
        all_of([ring.leave for ring in rings])


@pytest.mark.parametrize("name, expected", [
    ("Average", [1.5, 3.0]), ("Sum", [3.0, 6.0]), ("Min", [1.0, 2.0]), ("Max", [2.0, 4.0]), ("Product", [2.0, 8.0]),
])  # fmt: skip
def test_numbers_are_put_together_in_types_of_their_own(name, expected):
    def work(ring):
        given = [np.array([1.0, 2.0], kind) * (1 + ring.rank) for kind in (np.float32, np.float64, np.float16)]
        return reducing._reduced(ring, given, getattr(hvd, name), None, 2)

    for found in rings_do(work):
        assert [one.dtype for one in found] == [np.float32, np.float64, np.float16]
        assert all(one.tolist() == expected for one in found)


def test_compressed_they_are_as_exact_as_16_bits_are_and_alike():
    found = rings_do(
        lambda ring: reducing._reduced(ring, [np.array([0.1], np.float32)], hvd.Sum, hvd.Compression.fp16.kind, 2)[0]
    )
    assert found[0].dtype == np.float32 and found[0][0] == found[1][0] == np.float32(np.float16(0.1) * 2)


def test_rows_of_all_are_gathered_in_the_order_of_ranks():
    found = rings_do(lambda ring: np.concatenate(reducing.gather_arrays(ring, np.full((1 + ring.rank, 2), ring.rank))))
    assert found[0].tolist() == found[1].tolist() == [[0, 0], [1, 1], [1, 1]]


def test_a_process_alone_is_rank_0_of_1():
    assert (hvd.size(), hvd.rank(), hvd.local_size(), hvd.local_rank(), hvd.cross_size(), hvd.cross_rank()) == (
        1,
        0,
    ) * 3
    assert hvd.allreduce(tf.constant([1, 2])).numpy().tolist() == [1, 2]
    assert hvd.allreduce(tf.constant([1.0]), postscale_factor=3.0).numpy().tolist() == [3.0]
    assert hvd.broadcast_object({"a": 1}) == {"a": 1} and hvd.allgather_object(5) == [5]
    assert tf.function(lambda: hvd.allgather(tf.constant([[1.0]])))().numpy().tolist() == [[1.0]]


@pytest.mark.parametrize(
    "name", ["alltoall", "reducescatter", "join", "run", "add_process_set", "SyncBatchNormalization"]
)
def test_what_is_not_followed_is_refused_by_name(name):
    with pytest.raises(RefusedError, match=f"hvd.{name} is not followed"):
        getattr(hvd, name)()


def test_words_that_mean_something_else_are_refused_too():
    for words in ({"op": hvd.Adasum}, {"process_set": object()}, {"op": hvd.Min}):
        with pytest.raises(RefusedError):
            hvd.DistributedOptimizer(tf.keras.optimizers.SGD(), **words)
    with pytest.raises(RefusedError, match="mixed_bfloat16"):
        hvd.DistributedOptimizer(tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD()))


def test_the_other_names_of_the_module_are_the_same():
    import deeprec_ext.horovod.keras as keras
    import deeprec_ext.horovod.tensorflow.keras as both
    from deeprec_ext.horovod import tensorflow

    assert (
        keras.DistributedOptimizer
        is both.DistributedOptimizer
        is tensorflow.DistributedOptimizer
        is hvd.DistributedOptimizer
    )
    assert keras.elastic is hvd.elastic and keras.callbacks is hvd.callbacks and keras.size is hvd.size
    with pytest.raises(RefusedError):
        both.join()


def test_gradients_of_several_batches_are_applied_at_once():
    one = model_of(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), backward_passes_per_step=2,
                                            average_aggregated_gradients=True))  # fmt: skip
    other = model_of(tf.keras.optimizers.SGD(0.1))
    other.set_weights(one.get_weights())
    one.fit(X, X.sum(1), batch_size=4, epochs=3, shuffle=False, verbose=0)
    other.fit(X, X.sum(1), batch_size=8, epochs=3, shuffle=False, verbose=0)
    for mine, theirs in zip(one.get_weights(), other.get_weights()):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_what_is_saved_loads_with_and_without_it(tmp_path):
    model = model_of(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.1)))
    model.fit(X, X.sum(1), verbose=0)
    model.save(tmp_path / "model.keras")
    plain = tf.keras.models.load_model(tmp_path / "model.keras")
    loaded = hvd.load_model(tmp_path / "model.keras")
    assert type(plain.optimizer) is tf.keras.optimizers.Adam and type(loaded.optimizer) is not tf.keras.optimizers.Adam
    assert int(loaded.optimizer.iterations.numpy()) == 1


class Given:
    """A process that is given a model in the midst of a step, and whose steps are led by another."""

    def __init__(self, monkeypatch, variables, rate):
        self.kinds, self.variables, self.rate = [], variables, rate
        monkeypatch.setattr(type(WORLD), "is_alone", False)
        monkeypatch.setattr(WORLD, "call", self.call)
        monkeypatch.setattr(WORLD, "was_given", False)
        monkeypatch.setattr(type(WORLD), "led", [rate])

    def call(self, kind, work, like="", says=(), gathers=False):
        self.kinds.append(f"{kind} {like}")
        for one in self.variables:
            one.assign(tf.ones_like(one))
        WORLD.was_given = bool(self.variables)
        return work(ALONE, 1)


@pytest.mark.parametrize("compiled", [False, True])
def test_what_a_tape_is_given_an_optimizer_has_in_the_same_step(monkeypatch, compiled):
    def moved(optimizer, given):
        weight = tf.Variable([2.0])
        optimizer.build([weight])
        slots = [one for one in map(reducing.raw, optimizer.variables) if one.shape == (1,)]
        assert len(slots) == 2

        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weight * 3)
            if given:
                tape = hvd.DistributedGradientTape(tape)
            optimizer.apply_gradients(zip(tape.gradient(loss, [weight]), [weight]))

        if given:
            monkeypatch.setattr(WORLD, "shared", Shared())
            WORLD.shared.variables = lambda: slots
            WORLD.shared.settings = lambda: settings_of(optimizer)
            Given(monkeypatch, slots, 0.5)
        else:
            for one in slots:
                one.assign(tf.ones_like(one))
        (tf.function(step) if compiled else step)()
        return [weight.numpy()[0], *(one.numpy()[0] for one in slots)]

    assert moved(tf.keras.optimizers.Adam(0.1), True) == moved(tf.keras.optimizers.Adam(0.5), False)


@pytest.mark.parametrize("eagerly", [False, True])
def test_what_callbacks_set_is_what_the_one_that_leads_has_set(monkeypatch, eagerly):
    def moved(optimizer):
        model = model_of(optimizer)
        model.set_weights([np.ones((3, 1)), np.ones(1)])
        model.compile(optimizer, "mse", run_eagerly=eagerly, jit_compile=False)
        model.fit(X, X.sum(1), batch_size=8, epochs=1, shuffle=False, verbose=0)
        return [one.tolist() for one in model.get_weights()], float(np.asarray(optimizer.learning_rate))

    plain = moved(tf.keras.optimizers.SGD(0.25))
    Given(monkeypatch, [], 0.25)
    assert moved(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))) == plain


def test_an_optimizer_has_all_of_its_variables_before_it_is_given_others(monkeypatch):
    optimizer, weight = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.1)), tf.Variable([2.0])
    counts = []
    given = Given(monkeypatch, [], 0.1)
    monkeypatch.setattr(WORLD, "call", lambda *args, **words: (
        counts.append(len(list(optimizer.variables))), given.call(*args, **words))[1])  # fmt: skip
    optimizer.apply_gradients([(tf.constant([1.0]), weight)])
    assert counts == [len(list(optimizer.variables))]


def test_calls_of_a_graph_are_told_apart_by_their_place_in_it(monkeypatch):
    given = Given(monkeypatch, [], 0.1)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        one, other = hvd.allreduce(tf.constant(1.0)), hvd.allreduce(tf.constant(2.0))
        assert session.run([other, one]) == [2.0, 1.0]
    assert sorted(kind.split()[1] for kind in given.kinds) == ["000001", "000002"]


def test_a_session_begins_with_the_variables_of_the_others(monkeypatch):
    monkeypatch.setattr(WORLD, "shared", Shared())
    with tf.Graph().as_default():
        variable = tf.compat.v1.get_variable("v", [2], initializer=tf.compat.v1.zeros_initializer())
        tf.compat.v1.train.get_or_create_global_step()
        hook = hvd.BroadcastGlobalVariablesHook(0)
        with tf.compat.v1.train.MonitoredSession(hooks=[hook]) as session:
            taken = WORLD.shared.take()
            assert sorted(one.shape for one in taken) == [(), (2,)]
            WORLD.shared.put([one + 3 for one in taken])
            assert session.run(variable).tolist() == [3.0, 3.0]
            with pytest.raises(UsageError, match="2 variables, not the 1"):
                WORLD.shared.put(taken[:1])
        had = WORLD.shared.take()  # a newcomer asks between two sessions
        assert [one.tolist() for one in had if one.shape] == [[3.0, 3.0]]
        WORLD.shared.put([one + 1 for one in had])
        assert [one.tolist() for one in WORLD.shared.take() if one.shape] == [[4.0, 4.0]]
        with tf.compat.v1.train.MonitoredSession(hooks=[hook]) as session:
            assert session.run(variable).tolist() == [0.0, 0.0], "another session has its own"
            assert [one.tolist() for one in WORLD.shared.take() if one.shape] == [[0.0, 0.0]]


def test_local_gradients_are_divided_and_left_out():
    layer = tf.keras.layers.Dense(1)
    layer.build((None, 3))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(X))
    tape = hvd.PartialDistributedGradientTape(tape, local_layers=layer)
    kernel, bias = tape.gradient(loss, layer.trainable_weights)
    np.testing.assert_allclose(kernel[:, 0], X.sum(0), rtol=1e-5)
    assert float(bias[0]) == 8.0


def test_a_loss_goes_back_to_the_commit_and_a_change_does_not():
    model, told = model_of(tf.keras.optimizers.SGD(0.1)), []
    state = hvd.elastic.KerasState(model, batch=0, losses=[])
    state.register_reset_callbacks([lambda: told.append(state.batch)])
    first = model.get_weights()

    @hvd.elastic.run
    def train(state, word):
        assert word == "given"
        if not told:  # the first time
            state.batch = 1
            state.losses.append(1.0)
            model.set_weights([one + 1 for one in first])
            state.commit()
            state.batch = 2
            state.losses.append(2.0)
            model.set_weights([one + 2 for one in first])
            raise hvd.HorovodInternalError("lost")
        if len(told) == 1:
            assert (state.batch, state.losses) == (1, [1.0])
            np.testing.assert_array_equal(model.get_weights()[0], first[0] + 1)
            state.batch = 3
            raise hvd.HostsUpdatedInterrupt("more")
        return state.batch

    assert train(state, "given") == 3 and told == [1, 3] and not WORLD.resets


def test_the_rate_warms_up_and_the_metrics_are_numbers():
    rates = []
    model = model_of(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.4)))
    schedule = hvd.callbacks.LearningRateScheduleCallback(0.4, lambda epoch: 0.5**epoch, start_epoch=1)
    see = tf.keras.callbacks.LambdaCallback(
        on_batch_end=lambda batch, logs: rates.append(round(float(np.asarray(model.optimizer.learning_rate)), 3))
    )
    history = model.fit(
        X, X.sum(1), batch_size=4, epochs=3, verbose=0,
        callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback(),
                   hvd.callbacks.LearningRateWarmupCallback(0.4, warmup_epochs=1, verbose=1), schedule, see],
    )  # fmt: skip
    assert rates == [0.4, 0.4, 0.2, 0.2, 0.1, 0.1]
    assert all(isinstance(one, float) for one in history.history["mae"])
