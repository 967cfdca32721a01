"""What no device is said for runs where it does with TensorFlow's own servers: in this process."""

import pytest
import tensorflow as tf

from deeprec_ext.graph import Context, rewrite

v1 = tf.compat.v1
WORKER = "/job:worker/task:0"
SLOTS = (0, 1, 0, 1)


def placed(graph, **context):
    return rewrite(graph.as_graph_def(), Context(SLOTS, **{"dedup": "off", "worker_device": WORKER, **context}))


def ran(cluster, session, fetches):
    """Process of each op that ran."""
    metadata = v1.RunMetadata()
    session.run(fetches, options=v1.RunOptions(output_partition_graphs=True), run_metadata=metadata)
    return {
        node.name: tf.DeviceSpec.from_string(node.device).job
        for part in metadata.partition_graphs
        for node in part.node
    }


def test_input_that_is_made_outside_of_the_device_block_is_read_by_the_worker(cluster, setter):
    with tf.Graph().as_default() as graph:
        data = tf.data.Dataset.from_generator(lambda: iter([[1.0], [2.0]]), tf.float32, [1]).repeat().prefetch(2)
        extra = tf.random.uniform([1], seed=3, name="extra")
        with v1.device(setter):
            iterator = v1.data.make_initializable_iterator(data)
            tf.add(iterator.get_next() + extra, 0.0, name="found")
    made = placed(graph)
    devices = {node.op: node.device for node in made.definition.node}
    for op in ("FlatMapDataset", "PrefetchDataset", "MakeIterator", "IteratorGetNext", "RandomUniform"):
        assert devices[op].startswith(WORKER), op
    with cluster.open(made.definition) as session:
        session.run(iterator.initializer.name)
        assert ran(cluster, session, "found:0")["extra/RandomUniform"] == "worker"
        assert 1.0 <= session.run("found:0")[0] < 3.0
        session.run(made.drops)  # a thread that reads ahead uses devices of the session


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
def test_what_belongs_to_a_variable_stays_with_it(cluster, setter, use_resource):
    with tf.Graph().as_default() as graph:
        with v1.device(setter), v1.variable_scope(f"home_{use_resource}", use_resource=use_resource):
            table = v1.get_variable("table", [8, 2], initializer=v1.ones_initializer())
        with v1.device(None):
            rows = v1.nn.embedding_lookup(table, tf.constant([1, 3]))
            write = table.scatter_sub(tf.IndexedSlices(rows, tf.constant([1, 3])))
            tf.identity(rows * 2.0, name="twice")
    made = placed(graph)
    with cluster.open(made.definition) as session:
        session.run(table.initializer.name)
        assert session.run("twice:0").tolist() == [[2.0, 2.0]] * 2
        session.run(write.name)
        assert session.run("twice:0").tolist() == [[0.0, 0.0]] * 2
        jobs = ran(cluster, session, "twice:0")
    assert jobs["twice"] == "worker"
    assert "ps" in {job for name, job in jobs.items() if "embedding_lookup" in name}


def test_what_is_colocated_with_something_on_a_ps_stays_there(cluster, setter):
    with tf.Graph().as_default() as graph:
        with v1.device(setter), v1.variable_scope("home_beside", use_resource=False):
            weight = v1.get_variable("weight", [2], initializer=v1.ones_initializer())
        with v1.device(None), v1.colocate_with(weight.op):
            tf.add(weight, 1.0, name="beside")
        with v1.device(None), v1.colocate_with(graph.get_operation_by_name("beside")):
            tf.constant(1.0, name="beside_that")
    made = placed(graph)
    with cluster.open(made.definition) as session:
        session.run(weight.initializer.name)
        jobs = ran(cluster, session, ["beside:0", "beside_that:0"])
    assert jobs["beside"] == "ps"


def test_tables_of_words_are_where_their_words_are(cluster, setter):
    with tf.Graph().as_default() as graph:
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(tf.constant(["a", "b"]), tf.constant([1, 2])), -1
        )
        with v1.device(setter):
            tf.identity(table.lookup(tf.constant(["b", "c"])), name="found")
        init = v1.tables_initializer().name
    made = placed(graph)
    with cluster.open(made.definition) as session:
        session.run(init)
        assert session.run("found:0").tolist() == [2, -1]
        assert "ps" not in ran(cluster, session, "found:0").values()


def test_functions_that_read_what_is_on_a_ps_run_in_the_worker_and_read_it(cluster, setter):
    with tf.Graph().as_default() as graph:
        with v1.device(setter), v1.variable_scope("home_calls", use_resource=True):
            weight = v1.get_variable("weight", [2], initializer=v1.ones_initializer())

        @tf.function
        def doubled(value):
            return value * 2.0 * weight

        tf.identity(doubled(tf.constant([1.0, 2.0])), name="called")
        _, grown = tf.while_loop(lambda n, v: n < 3, lambda n, v: (n + 1, v + weight), [0, tf.zeros([2])])
        tf.identity(grown, name="looped")
    made = placed(graph)
    with cluster.open(made.definition) as session:
        session.run(weight.initializer.name)
        assert session.run("called:0").tolist() == [2.0, 4.0]
        assert session.run("looped:0").tolist() == [3.0, 3.0]
        assert ran(cluster, session, "looped:0")["looped"] == "worker"


def test_a_device_without_a_job_is_of_this_process():
    with tf.Graph().as_default() as graph:
        for number, device in enumerate(("/task:0", "/replica:0/task:0/device:CPU:0", "/device:CPU:0", "")):
            with v1.device(device):
                tf.constant(1.0, name=f"one{number}")
    definition = rewrite(graph.as_graph_def(), Context(SLOTS, worker_device="/job:worker/task:1")).definition
    here = "/job:worker/task:1"
    assert {node.device for node in definition.node} == {here, here + "/device:CPU:0"}


def test_a_group_of_which_something_is_placed_here_is_all_here(setter):
    with tf.Graph().as_default() as graph:
        with v1.device(setter):
            table = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(tf.constant(["a"]), tf.constant([1])), -1
            )
        tf.identity(table.lookup(tf.constant(["a"])), name="found")
    assert {node.device for node in placed(graph).definition.node if "Lookup" in node.op} == {WORKER}


def test_without_a_cluster_nothing_is_said():
    with tf.Graph().as_default() as graph:
        tf.constant(1.0, name="one")
    definition = rewrite(graph.as_graph_def(), Context(None, worker_device=WORKER)).definition
    assert [node.device for node in definition.node] == [""]
