"""What packing could do to a run that is out of the ordinary: it must give what it gave, or be left alone."""

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.graph import Context, Run, pack, rewrite, told_by
from tests.unit.graph.test_packing import DIM, FIELDS, IDS, ROWS, TWO_PS, WORKER, Model, assert_same

v1 = tf.compat.v1
PS, OTHER = "/job:ps/task:0", "/job:ps/task:1"


class Step:
    """A step that looks up in eight tables; `build` makes the loss of the rows and the tables."""

    def __init__(self, scope, setter, build, columns=None, control_flow_v2=True):
        (v1.enable_control_flow_v2 if control_flow_v2 else v1.disable_control_flow_v2)()
        try:
            with (
                tf.Graph().as_default() as graph,
                v1.device(setter),
                v1.variable_scope(scope, use_resource=True, auxiliary_name_scope=False),
            ):
                step = v1.train.get_or_create_global_step()
                ids = v1.placeholder(tf.int64, [None, columns], name="ids")
                start = v1.random_uniform_initializer(-1, 1, seed=5)
                tables = [v1.get_variable(f"t{number}", [ROWS, DIM], initializer=start) for number in range(8)]
                loss = tf.identity(build(ids, tables), name="loss")
                self.train = v1.train.AdagradOptimizer(0.1).minimize(loss, step).name
                self.init = v1.global_variables_initializer().name
                self.values = {v.op.name: v.read_value().name for v in v1.global_variables()}
        finally:
            v1.enable_control_flow_v2()
        self.graph = graph
        self.run = Run(("ids:0",), ("loss:0",), (self.train,))
        self.plain = rewrite(graph.as_graph_def(), Context(TWO_PS, dedup="off", worker_device=WORKER)).definition

    def pack(self, run=None, mode="auto"):
        return pack(self.plain, run or self.run, WORKER, mode, told_by(self.graph))

    def made(self, cluster, stepping, feeds, run=None):
        """Losses of steps with these feeds, and the variables after them."""
        run = run or self.run
        with cluster.open(self.plain) as session, cluster.open(stepping) as other:
            session.run(self.init)
            losses = [other.run([*run.fetches, *run.targets], one)[: len(run.fetches)] for one in feeds]
            return losses, session.run(self.values)

    def same(self, cluster, *feeds, run=None, mode="auto", equal=np.testing.assert_array_equal):
        packed = self.pack(run, mode)
        assert packed.definition is not None, packed.report.detail
        stock, ours = (self.made(cluster, one, feeds, run) for one in (self.plain, packed.definition))
        for one, other in zip(stock[0], ours[0]):
            for value, found in zip(one, other):
                equal(value, found)
        for name, value in stock[1].items():
            equal(value, ours[1][name], err_msg=name)
        return packed


def rows_of(ids, tables):
    return [v1.nn.embedding_lookup(table, ids[:, number % 4]) for number, table in enumerate(tables)]


def some_ids(records, columns=4, seed=1):
    return {"ids:0": np.random.default_rng(seed).integers(0, ROWS, [records, columns])}


def test_two_loops_one_after_the_other(cluster, setter):
    """Of TensorFlow 1, with their gradients: each is a unit of its own, and what stands between them is in none."""

    def build(ids, tables):
        found = tf.add_n(rows_of(ids, tables))
        for _ in range(2):
            found = tf.while_loop(lambda n, _: n < 3, lambda n, x: (n + 1, tf.tanh(x) * 1.5), [0, found])[1]
            found = tf.reduce_sum(found, 1, keepdims=True) * found
        return tf.reduce_mean(found**2)

    step = Step("doubt_loops", setter, build, 4, control_flow_v2=False)
    step.same(cluster, some_ids(5), some_ids(3))


def test_a_loop_in_a_loop(cluster, setter):
    def inner(x):
        return tf.while_loop(lambda n, _: n < 2, lambda n, x: (n + 1, tf.tanh(x)), [0, x])[1]

    def build(ids, tables):
        found = tf.add_n(rows_of(ids, tables))
        found = tf.while_loop(lambda n, _: n < 3, lambda n, x: (n + 1, inner(x) * 1.5 + 0.1), [0, found])[1]
        return tf.reduce_mean(found**2)

    step = Step("doubt_nested", setter, build, 4, control_flow_v2=False)
    step.same(cluster, some_ids(5), some_ids(3))


@pytest.mark.parametrize("v2", [True, False], ids=["functions", "frames"])
def test_a_loop_over_look_ups_in_branches(cluster, setter, v2):
    def build(ids, tables):
        rows = rows_of(ids, tables)
        total = tf.add_n(rows[:4])
        total = tf.cond(tf.reduce_sum(ids) % 2 > 0, lambda: total + tf.add_n(rows_of(ids, tables)[4:]), lambda: total)
        more = lambda n, x: (n + 1, x * 0.5 + v1.nn.embedding_lookup(tables[0], ids[:, n]))  # noqa: E731
        total = tf.while_loop(lambda n, _: n < 3, more, [0, total])[1]
        return tf.reduce_mean(total**2)

    step = Step(f"doubt_mixed_{v2}", setter, build, 4, control_flow_v2=v2)
    step.same(cluster, some_ids(5, seed=1), some_ids(5, seed=2), some_ids(5, seed=3))


@pytest.mark.parametrize("real", [50, 40, 25])
def test_a_script_may_say_another_length_than_its_records_have(cluster, setter, real):
    """Batches are padded to the longest record, and the script has said with `set_shape` how long they are: nobody checks it.
    40 × 25 ids could also be put into rows of 50."""

    def build(ids, tables):
        ids = tf.identity(ids)
        ids.set_shape([None, 50])
        rows = [tf.reduce_mean(v1.nn.embedding_lookup(table, ids + n), 1) for n, table in enumerate(tables)]
        return tf.reduce_mean(tf.add_n(rows) ** 2)

    step = Step("doubt_length", setter, build)
    ids = {"ids:0": np.random.default_rng(real).integers(0, ROWS - 8, [40, real])}
    packed = step.same(cluster, ids, ids, mode="on")
    assert any("packed_told" in node.name for node in packed.definition.node)


def test_what_is_fed_comes_from_the_trainer_wherever_its_op_is(setter):
    """It does not cross from the PS, and is nothing that could be packed there."""
    with tf.Graph().as_default() as graph:
        with v1.device(PS):
            fed = [v1.placeholder(tf.float32, [None], name=f"fed{number}") for number in range(2)]
        with v1.device(WORKER):
            here = [tf.exp(one) for one in fed]
        with v1.device(OTHER):
            there = [tf.sin(one) for one in fed]
    feeds = tuple(one.name for one in fed)
    run = Run(feeds, tuple(one.name for one in here), ())
    assert pack(graph.as_graph_def(), run, WORKER, "on", told_by(graph)).definition is None
    run = Run(feeds, tuple(one.name for one in there), ())
    packed = pack(graph.as_graph_def(), run, WORKER, "on", told_by(graph))
    assert packed.report.changed == 1
    (message,) = (one for one in packed.definition.node if one.name.endswith("__packed"))
    assert message.device.startswith(WORKER)


def conditional(graph, taken):
    """Two tensors of a branch, one of them under another name, which a run may feed."""
    with graph.as_default():
        with v1.device(WORKER):
            fed = [v1.placeholder(tf.float32, [None], name=f"x{number}") for number in range(2)]
            wanted = v1.placeholder(tf.bool, [], name="wanted")
            again = tf.identity(wanted, name="again")
            one = tf.raw_ops.Switch(data=fed[0], pred=wanted).output_true
            other = tf.raw_ops.Switch(data=fed[1], pred=again).output_true
            one, other = tf.exp(one), tf.sin(other, name="other")
        with v1.device(PS):
            return fed, tf.tan(one, name="first"), tf.cos(other, name="second")


def test_a_condition_that_is_fed_is_another_one(cluster):
    graph = tf.Graph()
    conditional(graph, True)
    given = {"x0:0": [1.0], "x1:0": [2.0], "wanted:0": False, "again:0": True}
    same = Run(("x0:0", "x1:0", "wanted:0"), ("first:0", "second:0"), ())
    assert pack(graph.as_graph_def(), same, WORKER, "on", told_by(graph)).report.changed == 1
    run = Run(tuple(given), ("second:0",), ())
    packed = pack(graph.as_graph_def(), Run(tuple(given), ("first:0", "second:0"), ()), WORKER, "on", told_by(graph))
    assert packed.definition is None
    with cluster.open(graph.as_graph_def()) as session:
        np.testing.assert_allclose(session.run(run.fetches, given)[0], np.cos(np.sin([2.0])), rtol=1e-6)


def test_what_is_fed_is_there_on_a_branch_that_is_not_taken():
    graph = tf.Graph()
    conditional(graph, False)
    run = Run(("x0:0", "x1:0", "wanted:0", "other:0"), ("first:0", "second:0"), ())
    assert pack(graph.as_graph_def(), run, WORKER, "on", told_by(graph)).definition is None


def test_nothing_is_sent_for_what_is_fed_instead(setter):
    """Whatever the op needs that would make it."""
    with tf.Graph().as_default() as graph:
        with v1.device(WORKER):
            fed = [v1.placeholder(tf.float32, [None], name=f"fed{number}") for number in range(3)]
            sent = [tf.exp(one) for one in fed]
        with v1.device(PS):
            middle = tf.add(sent[1], sent[2], name="middle")
            wanted = [tf.sin(sent[0]), tf.cos(sent[1]), tf.tan(middle)]
    run = Run((*(one.name for one in fed), "middle:0"), (*(one.name for one in (*sent, *wanted)),), ())
    packed = pack(graph.as_graph_def(), run, WORKER, "on", told_by(graph))
    assert packed.report.detail.startswith("3 tensors"), "two of `sent`, and what is fed"
    (message,) = (one for one in packed.definition.node if one.name.endswith("__packed"))
    assert sent[2].op.name not in message.input


def test_an_id_that_is_no_row_is_the_error_that_it_was(cluster, setter):
    model = Model("doubt_bad", setter)
    plain = model.placed().definition
    found = []
    for stepping in (plain, model.pack(plain).definition):
        with cluster.open(plain) as session, cluster.open(stepping) as other:
            session.run(model.init)
            with pytest.raises(tf.errors.InvalidArgumentError, match="embedding_lookup") as caught:
                other.run(["loss:0", model.train], {"ids:0": np.full([3, FIELDS], ROWS + 7)})
            found.append(type(caught.value))
            assert np.isfinite(other.run("loss:0", {"ids:0": IDS}))
    assert found[0] == found[1]


def test_text_and_booleans_travel_alone(cluster, setter):
    """Their bits are not copied; what goes with them is."""

    def build(ids, tables):
        with v1.device(WORKER):
            words, true = tf.strings.as_string(ids[:, 0]), ids[:, 1] > 3
        with v1.device(PS):
            lengths, chosen = tf.strings.length(tf.identity(words)), tf.cast(tf.identity(true), tf.float32)
        return tf.reduce_mean(tf.add_n(rows_of(ids, tables)) ** 2 * (tf.cast(lengths, tf.float32) + chosen)[:, None])

    step = Step("doubt_text", setter, build, 4)
    step.same(cluster, some_ids(5), some_ids(0), some_ids(9))


def test_what_stands_behind_a_table_on_a_ps(cluster, setter):
    """A hash table there, which has a name: TensorFlow runs its look-ups beside it, whatever the script says."""

    def build(ids, tables):
        with v1.device(OTHER):
            table = tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.int64, shared_name="doubt_table")
        with v1.device(WORKER):
            keys = ids[:, 0]
            found = tf.raw_ops.LookupTableFindV2(table_handle=table, keys=keys, default_value=tf.constant(3, tf.int64))
            found = tf.reshape(found, tf.shape(keys))
        rows = rows_of(ids, tables)
        rows += [v1.nn.embedding_lookup(one, found + number) for number, one in enumerate(tables)]
        return tf.reduce_mean(tf.add_n(rows) ** 2)

    step = Step("doubt_table", setter, build, 4)
    step.same(cluster, some_ids(5), some_ids(7))


def test_code_of_the_user_in_a_step(cluster, setter):
    def build(ids, tables):
        def weigh(some):
            return np.float32(some % 3)

        with v1.device(WORKER):
            weights = v1.py_func(weigh, [ids[:, 0]], tf.float32)
            more = tf.numpy_function(weigh, [ids[:, 1]], tf.float32)
        return tf.reduce_mean(tf.add_n(rows_of(ids, tables)) ** 2 * tf.reshape(weights + more, [-1, 1]))

    step = Step("doubt_code", setter, build, 4)
    step.same(cluster, some_ids(5), some_ids(6))


def test_summaries_and_rows_are_fetched_as_they_were(cluster, setter):
    def build(ids, tables):
        rows = rows_of(ids, tables)
        tf.identity(rows[0], name="rows")
        v1.summary.scalar("s", tf.reduce_max(rows[2]))
        tf.identity(v1.summary.merge_all(), name="summaries")
        return tf.reduce_mean(tf.add_n(rows) ** 2)

    def equal(one, other, err_msg=""):
        """Without packing, too, a step that keeps rows for its caller adds them up in another order now and then."""
        assert one == other if isinstance(one, bytes) else np.allclose(one, other, rtol=1e-5, atol=1e-6), err_msg

    step = Step("doubt_summaries", setter, build, 4)
    run = Run(("ids:0",), ("loss:0", "summaries:0", "rows:0"), (step.train,))
    step.same(cluster, some_ids(5), some_ids(6), run=run, equal=equal)


def test_variables_of_the_trainer_are_those_of_the_other_runs(cluster, setter):
    """Metrics count in local variables, by handle and by reference: the packed step in the same as all others."""
    model = None
    local = []

    def extra(found, ids, variable):
        with v1.device(WORKER):
            counts = [
                v1.get_local_variable(f"count{number}", [], tf.int64, v1.zeros_initializer(), use_resource=bool(number))
                for number in range(2)
            ]
            added = [one.assign_add(tf.cast(tf.size(ids), tf.int64)) for one in counts]
        local.extend(counts)
        with tf.control_dependencies(added):
            return tf.identity(found)

    model = Model("doubt_local", setter, extra=extra)
    with model.graph.as_default():
        start = v1.variables_initializer(local).name
        reads = [one.read_value().name for one in local]
    model.definition = model.graph.as_graph_def()
    plain = model.placed().definition
    packed = model.pack(plain).definition
    with cluster.open(plain) as session, cluster.open(packed) as other:
        session.run([model.init, start])
        other.run(model.train, {"ids:0": IDS})
        session.run(model.train, {"ids:0": IDS})
        assert session.run(reads) == [2 * IDS.size] * 2


def test_many_more_records_than_are_taken_for_typical(cluster, setter):
    model = Model("doubt_many", setter)
    ids = np.random.default_rng(5).integers(0, ROWS, [70_000, FIELDS])
    assert_same(cluster, model, model.placed().definition, ids)
