"""Traced steps: the same step as ever, whatever goes wrong with the trace. Servers in this process, no AIMaster."""

from __future__ import annotations

import itertools
import threading
from types import SimpleNamespace

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext.elastic.ps.collector import make_bitmaps  # noqa: E402
from deeprec_ext.elastic.ps.variables import Facts, Located, bitmap_of  # noqa: E402
from deeprec_ext.elastic.runtime.ops import Ops, Program  # noqa: E402
from deeprec_ext.elastic.runtime.view import elastic_config  # noqa: E402
from deeprec_ext.elastic.session import tracing  # noqa: E402
from deeprec_ext.elastic.session.probe import TIMED_RUNS, Recorded  # noqa: E402
from deeprec_ext.elastic.session.session import ElasticSession  # noqa: E402
from deeprec_ext.elastic.session.tracing import make_probe  # noqa: E402
from deeprec_ext.graph import read_trace, role_by_view  # noqa: E402
from tests.unit.elastic.cluster import FakeHost, LocalCluster, move_unseen, slowly  # noqa: E402

v1 = tf.compat.v1
ROWS, DIM, BATCH, SLOTS = 20_000, 4, 64, 4
NAMES = {0: "ps-0", 1: "ps-1"}


class Model:
    """A table on slot 0 and one on slot 1; batch n looks up rows that depend on n."""

    def __init__(self, batches: int = 10**6, check: bool = False, python: bool = False) -> None:
        self.graph = tf.Graph()
        setter = v1.train.replica_device_setter(SLOTS, worker_device="/job:chief/task:0")
        with self.graph.as_default(), v1.device(setter), v1.variable_scope("m", use_resource=True):
            self.step = v1.train.get_or_create_global_step()
            self.scale = v1.placeholder(tf.float32, [], name="scale")
            dataset = tf.data.Dataset.range(batches).map(
                lambda i: (i, (i * 7 + tf.range(BATCH, dtype=tf.int64) * 31) % ROWS)
            )
            if python:
                dataset = dataset.map(lambda i, ids: (tf.reshape(tf.py_function(slowly, [i], tf.int64), []), ids))
                options = tf.data.Options()
                options.experimental_optimization.inject_prefetch = False  # a batch is read when it is wanted
                dataset = dataset.with_options(options)
            iterator = v1.data.make_initializable_iterator(dataset)
            self.start = iterator.initializer
            self.record, ids = iterator.get_next()
            self.text = tf.strings.as_string(self.record, name="text")
            tables = [v1.get_variable(f"table{i}", [ROWS, DIM], initializer=v1.ones_initializer()) for i in range(2)]
            found = tf.concat([v1.nn.embedding_lookup(table, ids) for table in tables], 1)
            if check:
                with tf.control_dependencies([v1.assert_none_equal(self.record % 7, tf.constant(5, tf.int64))]):
                    found = tf.identity(found)
            self.loss = tf.reduce_mean((found * self.scale) ** 2)
            self.train = v1.train.AdagradOptimizer(0.1).minimize(self.loss, self.step)
            self.values = {variable.op.name: variable.read_value() for variable in v1.global_variables()}
            self.init = v1.global_variables_initializer()

    def open(self, host: FakeHost) -> ElasticSession:
        session = ElasticSession("grpc://x", self.graph, None, host)
        session.run(self.init)
        session.run(self.start)
        return session

    def once(self, session: ElasticSession):
        """(record, its name, loss) of one step."""
        _, *seen = session.run([self.train, self.record, self.text, self.loss], {self.scale: 0.5})
        return seen


class Probed:
    """A session with a probe, and what it has recorded."""

    def __init__(self, host: FakeHost, model: Model) -> None:
        self.recorded: list[Recorded] = []
        self.model, self.session = model, model.open(host)
        self.seen = [model.once(self.session) for _ in range(3)]
        self.attach()

    def attach(self) -> None:
        found = self.session.pool.traceable()
        assert found is not None
        self.placed, self.probe = found.placed, make_probe(found, self.recorded.append)
        assert found.placed.attach(self.probe)

    def steps(self, count: int) -> None:
        self.seen += [self.model.once(self.session) for _ in range(count)]

    def trace(self):
        """The next steps, the last of them traced."""
        self.probe.arm()
        self.steps(TIMED_RUNS + 1)
        return self.read()

    def read(self):
        one = self.recorded[-1]
        metadata = tracing.config_pb2.RunMetadata.FromString(one.metadata)
        return read_trace(metadata, one.known, "chief-0", role_by_view("chief-0", NAMES))


@pytest.fixture(scope="module")
def cluster():
    return LocalCluster(2)


@pytest.fixture
def host(cluster):
    return FakeHost(cluster, cluster.view(0, 1, 0, 1))


def marked_rows(cluster, view, tables) -> dict[str, set[int]]:
    """Bitmap -> rows marked on its PS; clears the marks."""
    found = {}
    for table in {table.bitmap: table for table in tables}.values():
        task = view.slot_map[table.slot]
        ops = Ops()
        bits = Located(ops, bitmap_of(Facts.from_proto(table)), task)
        program = Program("grpc://" + cluster.ps[task], elastic_config({task: cluster.ps[task]}))
        value, clear = bits.read(), bits.zeros()
        program.load(ops)
        found[table.bitmap] = set(np.flatnonzero(program.compile(fetches=[value])()[0]).tolist())
        program.compile(targets=[clear])()
        program.close()
    return found


def replay(count: int, **how):
    """What the same number of steps sees and leaves behind when none is traced."""
    other = LocalCluster(1)
    model = Model(**how)
    session = model.open(FakeHost(other, other.view(0, 0, 0, 0)))
    seen = [model.once(session) for _ in range(count)]
    values = session.run(model.values)
    session.close()
    return seen, values


def assert_same(probed: Probed, **how) -> None:
    seen, values = replay(len(probed.seen), **how)
    assert probed.seen == seen
    assert [type(one) for one in probed.seen[-1]] == [type(one) for one in seen[-1]]
    got = probed.session.run(probed.model.values)
    for name, value in values.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)


def test_a_traced_step_is_a_step_like_any_other(host):
    probed = Probed(host, Model())
    for _ in range(3):
        trace = probed.trace()
        probed.steps(1)
    assert len(probed.recorded) == 3 and not probed.probe.armed
    assert_same(probed)
    assert sum(use.lookup_rows for use in trace.slots) == 2 * BATCH
    assert sum(use.update_rows for use in trace.slots) == 2 * BATCH
    probed.session.close()


def test_every_transfer_of_the_traced_step_is_recorded(host):
    probed = Probed(host, Model())
    edges = {(edge.source, edge.target): edge.bytes for edge in probed.trace().edges}
    row = DIM * 4
    assert sum(size for (source, _), size in edges.items() if source != "chief-0") == 2 * BATCH * row
    assert sum(size for (source, _), size in edges.items() if source == "chief-0") >= 2 * BATCH * (8 + row)
    probed.session.close()


def test_the_traced_step_marks_the_rows_it_writes(cluster, host):
    probed, view = Probed(host, Model()), cluster.view(0, 1, 0, 1)
    session = probed.session
    tables = [variable for variable in session.catalogue().variables if variable.bitmap]
    tracked = {table.name: table.bitmap for table in tables}
    for task, address in cluster.ps.items():
        make_bitmaps("grpc://" + address, task, [table for table in tables if view.slot_map[table.slot] == task])
    wanted = host.make(view, tracked)
    session.pool.prepare(wanted)
    host.set(view, tracked)
    session.pool.exchange(wanted)
    probed.steps(1)
    probed.attach()
    probed.probe.arm()
    probed.steps(TIMED_RUNS)
    taken = marked_rows(cluster, view, tables)
    assert set(taken) == set(tracked.values())
    probed.steps(1)
    assert probed.recorded
    batch = int(probed.seen[-1][0])
    expected = {int(row) for row in (batch * 7 + np.arange(BATCH) * 31) % ROWS}
    assert marked_rows(cluster, view, tables) == dict.fromkeys(taken, expected)
    session.close()


@pytest.mark.parametrize("error", [tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError])
def test_a_trace_that_fails_costs_no_step(host, error):
    """Before anything was run: what follows is exactly what it would have been."""
    probed = Probed(host, Model())

    def fail(*_):
        raise error(None, None, "the trace failed")

    probed.probe._session.run = fail
    probed.probe.arm()
    probed.steps(TIMED_RUNS + 3)
    assert not probed.recorded and probed.probe.broken
    probed.probe.arm()
    assert not probed.probe.armed
    assert not host.failures  # no PS was suspected
    assert_same(probed)
    probed.session.close()


def test_a_probe_that_is_armed_again_during_the_traced_step_traces_a_later_one(host):
    probed = Probed(host, Model())
    run = probed.probe._session.run

    def during(*arguments):
        probed.probe.arm()
        return run(*arguments)

    probed.probe._session.run = during
    probed.probe.arm()
    probed.steps(2 * TIMED_RUNS + 2)
    assert len(probed.recorded) == 2
    assert_same(probed)
    probed.session.close()


def broken(*_):
    raise RuntimeError("Gazer is broken")


@pytest.mark.parametrize("where", ["_record", "_transfers.begin", "array", "packed"])
def test_whatever_else_breaks_in_a_trace_costs_no_step(host, monkeypatch, where):
    probed = Probed(host, Model())
    probe = probed.probe
    if where == "array":
        monkeypatch.setattr("deeprec_ext.elastic.session.probe.array", broken)
    elif where == "packed":
        monkeypatch.setattr(
            "deeprec_ext.elastic.session.probe.tf", SimpleNamespace(errors=tf.errors, make_tensor_proto=broken)
        )
    else:
        owner, _, name = where.rpartition(".")
        setattr(getattr(probe, owner) if owner else probe, name, broken)
    probe.arm()
    probed.steps(TIMED_RUNS + 3)
    assert probe.broken and not probed.recorded and not host.failures
    records = [int(seen[0]) for seen in probed.seen]
    assert len(records) == 3 + TIMED_RUNS + 3 and sorted(set(records)) == records
    if where != "array":
        assert_same(probed)  # nothing was run twice
    probed.session.close()


def test_a_trace_whose_session_is_gone_costs_no_step(host):
    probed = Probed(host, Model())
    assert probed.probe._session.close()
    probed.probe.arm()
    probed.steps(TIMED_RUNS + 3)
    assert not probed.recorded
    assert_same(probed)
    probed.session.close()


def test_a_traced_step_on_variables_that_have_moved_is_run_again_on_the_next_view(cluster):
    one, two = cluster.view(0, 0, 0, 0), cluster.view(1, 1, 1, 1, epoch=2)
    host = FakeHost(cluster, one)
    probed = Probed(host, Model())
    probed.probe.arm()
    probed.steps(TIMED_RUNS)
    move_unseen(cluster, host, probed.session, one, two)
    probed.steps(2)
    assert len(host.failures) == 1
    records = [seen[0] for seen in probed.seen]
    assert sorted(set(records)) == records and len(records) == 3 + TIMED_RUNS + 2
    probed.session.close()


def test_the_end_of_the_data_in_a_traced_step_is_the_end_of_the_data(host):
    batches = 3 + TIMED_RUNS
    probed = Probed(host, Model(batches))
    probed.probe.arm()
    probed.steps(TIMED_RUNS)
    with pytest.raises(tf.errors.OutOfRangeError):
        probed.steps(1)
    assert not host.failures and not probed.recorded
    probed.session.close()


def test_an_error_of_the_step_itself_is_raised_and_the_step_not_repeated(host):
    """Record 5 is bad; it is in the traced step."""
    model = Model(check=True)
    probed = Probed(host, model)
    host.next_view = lambda error, failed: False
    probed.probe.arm()
    assert 3 + TIMED_RUNS > 5
    with pytest.raises(tf.errors.InvalidArgumentError):
        probed.steps(TIMED_RUNS + 1)
    assert model.once(probed.session)[0] == 6
    probed.session.close()


def test_a_traced_step_that_hangs_is_given_up_like_any_other(host):
    probed = Probed(host, Model())
    hanging, going = threading.Event(), threading.Event()

    def hang(*_):
        hanging.set()
        assert going.wait(30)
        raise tf.errors.CancelledError(None, None, "")

    probed.probe._session.run = hang
    probed.probe.arm()
    probed.steps(TIMED_RUNS)
    failures = []

    def step():
        try:
            probed.steps(1)
        except tf.errors.AbortedError as error:
            failures.append(error)

    thread = threading.Thread(target=step)
    thread.start()
    assert hanging.wait(30)
    host.runner.abandon("a PS was lost")
    thread.join(30)
    going.set()
    assert len(failures) == 1 and host.failures
    probed.session.close()


def test_input_that_a_failed_trace_was_reading_goes_on(host):
    """The traced run is cancelled while it reads: TensorFlow says at the next run that the data has ended."""
    probed = Probed(host, Model(python=True))
    probed.probe.arm()
    probed.steps(TIMED_RUNS)
    run = probed.probe._session.run

    def cut_off(*arguments):
        threading.Timer(
            0.02, probed.probe._session.close
        ).start()  # the server cancels it; a batch takes 0.05 s to read
        return run(*arguments)

    probed.probe._session.run = cut_off
    probed.steps(4)
    records = [int(seen[0]) for seen in probed.seen]
    assert not probed.recorded
    assert all(later - earlier == 1 for earlier, later in itertools.pairwise(records[-4:]))
    probed.session.close()


def test_the_probe_ends_with_its_session(cluster):
    one, two = cluster.view(0, 0, 0, 0), cluster.view(0, 0, 1, 1, epoch=2)
    host = FakeHost(cluster, one)
    model = Model()
    probed = Probed(host, model)
    first, second = probed.placed, host.make(two, {})
    assert first.pinned
    probed.session.pool.prepare(second)
    host.set(two)
    probed.session.pool.exchange(second)
    closed = [thread for thread in threading.enumerate() if thread.name == "deeprec-close"]
    for thread in closed:
        thread.join(30)
    assert first.probe is None and probed.probe.broken
    assert not first.attach(probed.probe)
    probed.session.close()


def test_a_session_that_is_closed_takes_its_probe_with_it(host):
    probed = Probed(host, Model())
    probed.trace()
    probed.session.close()
    assert probed.placed.probe is None and probed.probe.broken
    with pytest.raises(tf.errors.OpError):
        probed.probe._session.run(probed.probe._number, [])


def test_what_is_no_plain_array_is_not_traced(host):
    model = Model()
    with model.graph.as_default():
        handle = next(op.outputs[0] for op in model.graph.get_operations() if op.type == "VarHandleOp")
    session = model.open(host)
    for _ in range(5):
        session.run([model.train, handle], {model.scale: 1.0})
    assert session.pool.traceable() is None
    session.close()
