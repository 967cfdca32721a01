"""An elastic dataset in an elastic session: every record trained, failed steps with the same batch again, waits before runs."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext.data import elastic_dataset, streams  # noqa: E402
from deeprec_ext.elastic.session import restarting  # noqa: E402
from deeprec_ext.elastic.session.feeding import Run  # noqa: E402
from deeprec_ext.elastic.session.placed import PlacedSession  # noqa: E402
from deeprec_ext.elastic.session.session import ElasticSession  # noqa: E402
from deeprec_ext.errors import RefusedError  # noqa: E402
from deeprec_ext.proto import deeprec_ext_pb2 as pb  # noqa: E402
from tests.behaviour.jobs import REFUSED  # noqa: E402
from tests.unit.elastic.cluster import FakeHost, LocalCluster  # noqa: E402

v1 = tf.compat.v1
RECORDS, BATCH = 500, 32


@pytest.fixture(scope="module")
def cluster():
    return LocalCluster(2)


@pytest.fixture
def host(cluster, monkeypatch):
    made = FakeHost(cluster, cluster.view(0, 1))
    made.next_view = lambda error, failed: True
    monkeypatch.setattr(streams, "trainer", lambda: made)
    yield made
    feeder = made.inputs.find("train")
    if feeder is not None:
        feeder.close()


class Model:
    """Counts how often each record is trained."""

    def __init__(self, host, one_shot=False, stages=lambda d: d.map(lambda ids: ids).prefetch(3), **options):
        self.host = host
        self.graph = tf.Graph()
        setter = v1.train.replica_device_setter(
            cluster={"ps": ["a", "b"], "chief": ["c"]}, worker_device="/job:chief/task:0"
        )
        with self.graph.as_default(), v1.device(setter):
            self.table = v1.get_variable("times", [RECORDS], initializer=v1.zeros_initializer(), use_resource=True)
            dataset = stages(elastic_dataset(RECORDS, BATCH, shard_records=60, **options))
            if one_shot:
                ids, start = v1.data.make_one_shot_iterator(dataset).get_next(), tf.no_op()
            else:
                iterator = v1.data.make_initializable_iterator(dataset)
                ids, start = iterator.get_next(), iterator.initializer
            if isinstance(ids, dict):
                ids = ids["record"]
            self.train = v1.scatter_add(self.table, ids, tf.ones_like(ids, dtype=tf.float32))
            self.ready, self.start = v1.global_variables_initializer(), start
            self.value = self.table.read_value()

    def session(self):
        session = ElasticSession("grpc://x", self.graph, None, self.host)
        session.run(self.ready)
        session.run(self.start)
        return session

    def finish(self, session):
        steps = 0
        try:
            while True:
                session.run(self.train)
                steps += 1
        except tf.errors.OutOfRangeError:
            return steps


def fail_once(session, error, after):
    """The next run fails, before or after it has done its work."""
    execute = session._do_call

    def failing(*arguments):
        session._do_call = execute
        if after:
            execute(*arguments)
        raise error

    session._do_call = failing


@pytest.mark.parametrize("one_shot", [False, True], ids=["initializable", "one-shot"])
def test_every_record_is_trained_once_an_epoch(host, one_shot):
    model = Model(host, one_shot, epochs=2)
    session = model.session()
    assert model.finish(session) == -(-2 * RECORDS // BATCH)
    assert np.unique(session.run(model.value)).tolist() == [2]
    session.close()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("one_shot", [False, True], ids=["initializable", "one-shot"])
def test_a_step_that_failed_is_run_again_with_its_batch(host, one_shot, after):
    model = Model(host, one_shot)
    session = model.session()
    for _ in range(3):
        session.run(model.train)
    fail_once(session, tf.errors.UnavailableError(None, None, "a PS died"), after)
    model.finish(session)
    times = session.run(model.value)
    assert times.min() == 1 and (times == 2).sum() == (BATCH if after else 0)
    assert host.inputs.find("train")._leases.replayed == BATCH
    session.close()


def test_a_session_that_is_recovered_loses_nothing(host):
    model = Model(host)
    session = model.session()
    session.run(model.train)
    host.next_view = lambda error, failed: False
    fail_once(session, tf.errors.UnavailableError(None, None, "a PS died"), False)
    with pytest.raises(tf.errors.UnavailableError):
        session.run(model.train)
    session.close()
    again = ElasticSession("grpc://x", model.graph, None, host)
    again.run(model.start)
    model.finish(again)
    assert np.unique(again.run(model.value)).tolist() == [1]
    again.close()


def test_the_wait_for_data_holds_no_gate_and_ends_when_the_process_leaves(host):
    host.agent.connected = False  # no lease will come
    model = Model(host)
    session = model.session()
    ended = threading.Event()

    def train():
        model.finish(session)
        ended.set()

    thread = threading.Thread(target=train)
    thread.start()
    assert host.gate.wait_idle(5.0) and not ended.is_set()
    host.leaving.set()
    assert ended.wait(5.0)
    thread.join()
    session.close()


def test_a_closed_session_does_not_wait_for_its_prefetch(host):
    model = Model(host)
    session = model.session()
    session.run(model.train)
    host.agent.connected = False  # what the prefetch wants now never comes
    source, closed = host.inputs.find("train"), threading.Event()
    assert source.begun

    def close():
        session.close()
        closed.set()

    thread = threading.Thread(target=close, daemon=True)
    thread.start()
    assert closed.wait(30.0), "it waits for data"
    thread.join()


def test_a_rewind_starts_the_iterator_anew(host):
    model = Model(host)
    session = model.session()
    for _ in range(3):
        session.run(model.train)
    host.agent.ledgers.clear()
    host.inputs.registered(pb.RegisterReply(aimaster_incarnation=2))  # with an empty ledger
    host.inputs.receive(pb.DataReply(dataset="train", rewinds=1, state=pb.DataReply.MORE))
    model.finish(session)
    assert session.run(model.value).min() == 1
    assert session.run(model.value).max() == 2
    session.close()


def test_a_refused_stage_is_told_to_the_job(host):
    model = Model(host, stages=lambda dataset: dataset.shuffle(10))
    with pytest.raises(RefusedError, match="ShuffleDataset"):
        model.session()
    assert host.refusals and "shuffle=True" in host.refusals[0]
    host.sessions.clear()


@pytest.fixture
def noting():
    """Iterators note the records' ids in the graph, as in a process of a job."""
    from deeprec_ext.elastic.trainer import patches

    before = v1.data.Iterator.get_next
    patches.patch_iterators()
    yield
    v1.data.Iterator.get_next = before


def shuffled(dataset):
    """Records mixed across batches, every third filtered, in batches of another size."""
    dataset = dataset.unbatch().shuffle(100, seed=3)
    return dataset.filter(lambda features: features["record"] % 3 > 0).batch(20).prefetch(2)


def test_with_ids_records_may_be_shuffled_filtered_and_batched_anew(host, noting):
    model = Model(host, stages=shuffled, with_ids=True, epochs=2)
    session = model.session()
    model.finish(session)
    times = session.run(model.value)
    assert times.tolist() == [2.0 if record % 3 else 0.0 for record in range(RECORDS)]
    assert host.inputs.find("train")._leases.state == pb.DataReply.END, "filtered records count as trained"
    session.close()


def test_with_ids_a_failed_step_loses_no_record(host, noting):
    model = Model(host, stages=shuffled, with_ids=True)
    session = model.session()
    for _ in range(4):
        session.run(model.train)
    fail_once(session, tf.errors.UnavailableError(None, None, "a PS died"), True)
    model.finish(session)
    times = session.run(model.value)
    kept = np.arange(RECORDS) % 3 > 0
    assert times[kept].min() == 1 and not times[~kept].any()
    assert (times[kept] - 1).sum() <= host.inputs.find("train")._leases.replayed
    session.close()


def test_with_ids_what_is_trained_behind_a_filtered_record_is_told_and_counts_as_repeated_when_it_is_given_back(
    host, noting
):
    model = Model(host, stages=shuffled, with_ids=True)
    session = model.session()
    for _ in range(4):
        session.run(model.train)
    leases = host.inputs.find("train")._leases
    trained = int(session.run(model.value).sum())
    assert leases.total_trained + leases.beyond == trained == 80
    assert leases.beyond > 40, "of each lease a record near its beginning was filtered"
    assert leases.request(leases._sent_at + 1).beyond_records == leases.beyond
    beyond = leases.beyond
    host.inputs.find("train").finish()
    assert leases.replayed == beyond and leases.beyond == 0
    session.close()


def test_a_step_whose_number_was_in_use_is_run_again_at_once(host, caplog):
    """By chance TensorFlow gives two steps the same number, and refuses the second."""
    model = Model(host)
    session = model.session()
    session.run(model.train)
    host.next_view = lambda error, failed: pytest.fail("no PS is lost")
    fail_once(session, tf.errors.AbortedError(None, None, TWICE), False)
    with caplog.at_level("INFO", "deeprec_ext"):
        model.finish(session)
    assert session.run(model.value).min() == session.run(model.value).max() == 1
    assert REFUSED in caplog.text
    session.close()


def test_a_run_that_was_given_up_while_it_compiled_never_takes_a_batch(host, monkeypatch):
    """It did: the run that was repeated instead then waited for ever for the last batch of the data."""
    model = Model(host)
    session = model.session()
    compiling, go_on, compile_run = threading.Event(), threading.Event(), PlacedSession.callable

    def slow(placed, signature):
        made = compile_run(placed, signature)
        if not compiling.is_set():
            compiling.set()
            assert go_on.wait(30)
        return made

    monkeypatch.setattr(PlacedSession, "callable", slow)
    host.next_view = lambda error, failed: True
    giving_up = threading.Thread(target=lambda: compiling.wait(30) and host.runner.abandon("a PS was lost"))
    giving_up.start()
    session.run(model.train)
    go_on.set()
    giving_up.join()
    training = threading.Thread(target=model.finish, args=(session,), daemon=True)
    training.start()
    training.join(60)
    assert not training.is_alive(), "the last batch never comes"
    assert np.unique(session.run(model.value)).tolist() == [1]
    session.close()


TWICE = "From /job:ps/replica:0/task:1:\nThe same RunGraph (Worker) request was received twice. graph_handle: 1"


@pytest.fixture
def late(monkeypatch):
    """A run that makes an iterator anew does not end before the test says `ended`, as when TensorFlow ends the one before."""
    found, run = SimpleNamespace(begun=threading.Event(), ended=threading.Event(), waited=[]), PlacedSession.run

    def slow(placed, signature, values):
        making = threading.current_thread().name == "deeprec-iterator"
        if making:
            found.begun.set()
        results = run(placed, signature, values)
        if making:
            found.waited.append(found.ended.wait(30))
        return results

    monkeypatch.setattr(PlacedSession, "run", slow)
    yield found
    found.ended.set()


@pytest.mark.parametrize("one_shot", [False, True], ids=["initializable", "one-shot"])
def test_nobody_waits_for_the_end_of_an_iterator_that_is_made_anew(host, one_shot, late):
    model = Model(host, one_shot)
    session = model.session()
    for _ in range(3):
        session.run(model.train)
    fail_once(session, tf.errors.AbortedError(None, None, TWICE), True)
    model.finish(session)
    assert late.begun.is_set() and not late.waited
    late.ended.set()
    times = session.run(model.value)
    assert times.min() == 1 and (times == 2).sum() == BATCH, "nothing but the batch of the step that was run twice"
    session.close()


@pytest.mark.parametrize("prepared", [True, False], ids=["standby", "on-the-spot"])
def test_nobody_waits_for_it_after_the_loss_of_a_ps(cluster, host, prepared, late):
    model = Model(host)
    session = model.session()
    for _ in range(3):
        session.run(model.train)
    before, after_loss = session.pool.present, cluster.view(0, 0, epoch=2)
    if prepared:
        session.pool.prepare(host.make(after_loss), standby=True)
    host.next_view = lambda *_: bool(host.set(after_loss))
    fail_once(session, tf.errors.UnavailableError(None, None, "a PS died"), False)
    model.finish(session)
    assert session.pool.present is not before and late.begun.is_set() and not late.waited
    late.ended.set()
    assert np.unique(session.run(model.value)).tolist() == [1]
    assert host.inputs.find("train")._leases.replayed == BATCH
    session.close()


def test_a_session_may_be_closed_while_an_iterator_is_still_being_ended(host, late):
    model = Model(host)
    session = model.session()
    session.run(model.train)
    fail_once(session, tf.errors.AbortedError(None, None, TWICE), False)
    session.run(model.train)
    assert late.begun.is_set()
    session.close()
    assert not late.waited


def test_a_run_that_comes_before_its_iterator_is_in_place_is_made_again(host, monkeypatch):
    model = Model(host)
    session = model.session()
    for _ in range(3):
        session.run(model.train)
    run, in_vain = PlacedSession.run, []

    def slow(placed, signature, values):
        if threading.current_thread().name == "deeprec-iterator":
            assert in_vain.append("making") is None and runs_again.wait(30)
        return run(placed, signature, values)

    runs_again = threading.Event()
    early = Run._early

    def counted(self, source):
        found = early(self, source)
        if found:
            in_vain.append("early")
            runs_again.set()
        return found

    monkeypatch.setattr(PlacedSession, "run", slow)
    monkeypatch.setattr(Run, "_early", counted)
    fail_once(session, tf.errors.AbortedError(None, None, TWICE), False)
    model.finish(session)
    assert {"making", "early"} <= set(in_vain)
    assert np.unique(session.run(model.value)).tolist() == [1]
    session.close()


def test_an_iterator_that_never_comes_into_place_is_an_error_and_not_the_end_of_the_data(host, monkeypatch):
    model = Model(host)
    session = model.session()
    session.run(model.train)
    run, ended = PlacedSession.run, threading.Event()

    def never(placed, signature, values):
        if threading.current_thread().name == "deeprec-iterator":
            assert ended.wait(30)
        return run(placed, signature, values)

    monkeypatch.setattr(PlacedSession, "run", never)
    monkeypatch.setattr(restarting, "WAIT_SECONDS", 0.5)
    host.next_view = lambda *_: False
    fail_once(session, tf.errors.AbortedError(None, None, TWICE), False)
    with pytest.raises(tf.errors.DeadlineExceededError, match="has not come into place"):
        session.run(model.train)
    ended.set()
    for one in threading.enumerate():
        if one.name == "deeprec-iterator":
            one.join(30)
    model.finish(session)
    assert np.unique(session.run(model.value)).tolist() == [1]
    session.close()


def test_a_planned_change_takes_the_iterators_along(cluster, host):
    model = Model(host)
    session = model.session()
    for _ in range(3):
        session.run(model.train)
    wanted = host.set(cluster.view(0, 0, epoch=2))
    before = session.pool.present
    session.pool.prepare(wanted)
    session.pool.exchange(wanted)
    model.finish(session)
    assert session.pool.present is not before
    assert np.unique(session.run(model.value)).tolist() == [1]
    assert host.inputs.find("train")._leases.replayed == 0
    session.close()


def test_with_ids_the_pipeline_of_a_lost_view_is_given_again(cluster, host, noting):
    model = Model(host, stages=shuffled, with_ids=True)
    session = model.session()
    for _ in range(4):
        session.run(model.train)
    after_loss = cluster.view(0, 0, epoch=2)
    session.pool.prepare(host.make(after_loss), standby=True)
    host.next_view = lambda *_: bool(host.set(after_loss))
    fail_once(session, tf.errors.UnavailableError(None, None, "a PS died"), True)
    model.finish(session)
    times = session.run(model.value)
    kept = np.arange(RECORDS) % 3 > 0
    assert times[kept].min() == 1 and not times[~kept].any()
    assert (times[kept] - 1).sum() <= host.inputs.find("train")._leases.replayed
    session.close()


def test_with_ids_a_run_that_is_not_made_after_all_counts_nothing_as_trained(host, noting):
    """What the pipeline still holds when its stream has ended was acknowledged as filtered."""
    model = Model(host, stages=lambda dataset: dataset.unbatch().shuffle(300, seed=3).batch(20), with_ids=True)
    session = model.session()
    feeder = host.inputs.find("train")
    while not feeder._stream_ended:
        session.run(model.train)
    told = feeder._leases.total_trained
    feeder.withdraw(feeder.begin(1, 1.0))
    assert feeder._leases.total_trained == told < RECORDS
    model.finish(session)
    assert np.unique(session.run(model.value)).tolist() == [1]
    assert feeder._leases.replayed == 0
    session.close()
