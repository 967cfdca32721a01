"""Which tensors travel together: those that have waited for the same, so that none waits longer for being packed."""

import pytest
import tensorflow as tf

from deeprec_ext.graph import GraphIndex, Run, pack, told_by
from deeprec_ext.graph.packing.sparing import instead

v1 = tf.compat.v1
WORKER, PS, OTHER = "/job:worker/task:0", "/job:ps/task:0", "/job:ps/task:1"


class Drawn:
    """A graph drawn by hand: what is made on which process."""

    def __init__(self):
        self.graph = tf.Graph()
        self.fetches, self.feeds = [], []

    def fed(self, shape=(None,), dtype=tf.float32):
        with self.graph.as_default(), v1.device(WORKER):
            self.feeds.append(v1.placeholder(dtype, shape))
            return self.feeds[-1]

    def on(self, process, function, *inputs):
        with self.graph.as_default(), v1.device(process):
            return function(*inputs)

    def want(self, *tensors):
        self.fetches += tensors

    def pack(self, mode="on"):
        run = Run(tuple(one.name for one in self.feeds), tuple(one.name for one in self.fetches), ())
        self.packed = pack(self.graph.as_graph_def(), run, WORKER, mode, told_by(self.graph))
        return self.packed

    def together(self):
        """The names of what is in each message, sorted."""
        if self.packed.definition is None:
            return []
        index = GraphIndex(self.packed.definition)
        found = []
        for name, node in index.nodes.items():
            if node.op == "ConcatV2" and name.endswith("__packed"):
                inputs = [one for one in index.inputs(name)[:-1] if "_bits" not in one and "_sizes" not in one]
                flat = [index.inputs(one)[0] if one.endswith("__flat") else one for one in inputs]
                found.append(sorted(one.split(":")[0] for one in flat))
        return sorted(found)


def names(*tensors):
    return sorted(tensor.op.name for tensor in tensors)


@pytest.fixture
def drawn():
    return Drawn()


def test_what_is_ready_at_once_travels_together(drawn):
    one, two = drawn.on(WORKER, tf.exp, drawn.fed()), drawn.on(WORKER, tf.sin, drawn.fed())
    drawn.want(drawn.on(PS, tf.cos, one), drawn.on(PS, tf.tan, two))
    assert drawn.pack().report.changed == 1
    assert drawn.together() == [names(one, two)]


def test_not_to_different_processes_nor_of_different_types(drawn):
    some = [drawn.on(WORKER, tf.exp, drawn.fed(dtype=dtype)) for dtype in (tf.float32, tf.float32, tf.float64)]
    drawn.want(*(drawn.on(where, tf.cos, one) for where, one in zip((PS, OTHER, PS), some)))
    assert drawn.pack().definition is None


def test_what_follows_from_an_answer_does_not_travel_with_the_question(drawn):
    """They would wait for each other for ever."""
    question, beside = drawn.on(WORKER, tf.exp, drawn.fed()), drawn.on(WORKER, tf.sin, drawn.fed())
    answer = drawn.on(PS, tf.cos, question)
    second = drawn.on(WORKER, tf.exp, answer)
    drawn.want(drawn.on(PS, tf.tan, beside), drawn.on(PS, tf.tan, second))
    drawn.pack()
    assert drawn.together() == [names(question, beside)]


def test_two_messages_that_would_wait_for_each_other_are_not_made(drawn):
    """a → (PS) → d, c → (PS) → b: neither {a, b} with {c, d}, nor any other circle."""
    a, c = drawn.on(WORKER, tf.exp, drawn.fed()), drawn.on(WORKER, tf.sin, drawn.fed())
    d = drawn.on(WORKER, tf.exp, drawn.on(PS, tf.cos, a))
    b = drawn.on(WORKER, tf.exp, drawn.on(OTHER, tf.cos, c))
    drawn.want(drawn.on(PS, tf.tan, b), drawn.on(OTHER, tf.tan, d))
    assert drawn.pack().definition is None


def test_answers_to_one_message_travel_together_and_others_do_not(drawn):
    some = [drawn.on(WORKER, tf.exp, drawn.fed()) for _ in range(2)]
    slow = drawn.on(WORKER, tf.exp, drawn.on(OTHER, tf.cos, drawn.on(WORKER, tf.sin, drawn.fed())))
    answers = [drawn.on(PS, tf.cos, one) for one in (*some, slow)]
    drawn.want(*(drawn.on(WORKER, tf.tan, one) for one in answers))
    drawn.pack()
    assert drawn.together() == sorted([names(*some), names(*answers[:2])])


def test_what_waits_for_other_input_travels_alone(drawn):
    def read(name):
        dataset = tf.data.Dataset.from_tensors(1.0).batch(1)
        return v1.data.make_initializable_iterator(dataset, shared_name=name).get_next()

    some = [drawn.on(WORKER, tf.exp, drawn.on(WORKER, read, name)) for name in ("one", "one", "other")]
    some[1] = drawn.on(WORKER, tf.sin, some[0].op.inputs[0])
    drawn.want(*(drawn.on(PS, tf.cos, one) for one in some))
    drawn.pack()
    assert drawn.together() == [names(*some[:2])]


def test_a_large_product_keeps_nothing_else_waiting(drawn):
    fed = drawn.fed((None, 256))
    product = drawn.on(WORKER, lambda one: tf.matmul(one, tf.ones([256, 256])), fed)
    early, late = drawn.on(WORKER, tf.reduce_sum, fed, 1), drawn.on(WORKER, tf.reduce_sum, product, 1)
    late_too = drawn.on(WORKER, tf.reduce_max, product, 1)
    drawn.want(*(drawn.on(PS, tf.cos, one) for one in (early, late, late_too)))
    drawn.pack()
    assert drawn.together() == [names(late, late_too)]


def test_small_gradients_wait_for_one_another(drawn):
    product = drawn.on(WORKER, lambda one: tf.matmul(one, tf.ones([256, 256])), drawn.fed((512, 256)))
    more = drawn.on(WORKER, lambda one: tf.matmul(one, tf.ones([256, 256])), product)
    some = [drawn.on(WORKER, tf.reduce_sum, one, 0) for one in (product, more)]
    drawn.want(*(drawn.on(PS, tf.cos, one) for one in some))
    drawn.pack()
    assert drawn.together() == [names(*some)]


def test_a_small_tensor_for_which_something_comes_back_waits_for_no_work(drawn):
    product = drawn.on(WORKER, lambda one: tf.matmul(one, tf.ones([256, 256])), drawn.fed((512, 256)))
    more = drawn.on(WORKER, lambda one: tf.matmul(one, tf.ones([256, 256])), product)
    some = [drawn.on(PS, tf.cos, drawn.on(WORKER, tf.reduce_sum, one, 0)) for one in (product, more)]
    drawn.want(drawn.on(WORKER, tf.add_n, some))
    assert drawn.pack().definition is None


def fused(one):
    """What TensorFlow's optimiser makes of a product, a bias and a Relu."""
    weights, bias = tf.ones([256, 256]), tf.ones([256])
    attributes = {
        "T": v1.AttrValue(type=tf.float32.as_datatype_enum),
        "num_args": v1.AttrValue(i=1),
        "fused_ops": v1.AttrValue(list=v1.AttrValue.ListValue(s=[b"BiasAdd", b"Relu"])),
    }
    made = one.graph.create_op("_FusedMatMul", [one, weights, bias], [tf.float32], attrs=attributes, name="fused")
    made.outputs[0].set_shape([None, 256])
    return made.outputs[0]


@pytest.mark.parametrize(
    "product", [fused, lambda one: tf.nn.relu(tf.matmul(one, tf.ones([256, 256])))], ids=["fused", "not"]
)
def test_nothing_waits_for_a_product_though_the_optimiser_has_fused_it(drawn, product):
    fed = drawn.fed((None, 256))
    after = drawn.on(WORKER, product, fed)
    early, *late = (
        drawn.on(WORKER, how, one, 1)
        for how, one in ((tf.reduce_sum, fed), (tf.reduce_sum, after), (tf.reduce_max, after))
    )
    drawn.want(*(drawn.on(PS, tf.cos, one) for one in (early, *late)))
    drawn.pack()
    assert drawn.together() == [names(*late)]


def test_what_is_large_or_of_unknown_shape_travels_alone(drawn):
    large = [drawn.on(WORKER, tf.exp, drawn.fed((300, 300))) for _ in range(2)]
    unknown = [drawn.on(WORKER, tf.exp, drawn.fed(None)) for _ in range(2)]
    both = [drawn.on(WORKER, tf.exp, drawn.fed((None, None))) for _ in range(2)]
    drawn.want(*(drawn.on(PS, tf.cos, one) for one in (*large, *unknown, *both)))
    assert drawn.pack().definition is None


def test_a_constant_is_not_sent(drawn):
    constant = drawn.on(WORKER, tf.constant, 0.5)
    fed = drawn.on(WORKER, tf.exp, drawn.fed())
    drawn.want(drawn.on(PS, tf.multiply, constant, fed))
    assert drawn.pack().report.changed == 1
    copies = [node for node in drawn.packed.definition.node if node.op == "Const" and node.device.startswith(PS)]
    assert len(copies) == 1


def test_the_same_ids_are_sent_once(drawn):
    ids = drawn.fed(dtype=tf.int64)
    flat = drawn.on(WORKER, lambda one: tf.reshape(one, [tf.size(one)]), ids)
    drawn.want(drawn.on(PS, tf.bitwise.invert, ids), drawn.on(PS, tf.abs, flat))
    assert drawn.pack().report.changed == 1
    assert drawn.together() == []


def test_what_takes_the_place_of_an_op_sorts_as_the_op_did():
    """TensorFlow's optimiser adds up in the order of names, and the last bit of a sum depends on its order."""
    old = [
        "a/lookup",
        "a/lookup_2",
        "a/lookup_10",
        "a/lookup/Identity",
        "a/lookup1",
        "a/lookups",
        "a/lookup.1",
        "a",
        "b",
    ]
    for names_of_some in (old, old[::2], old[1::2]):
        new = {one: instead(one, "unpacked") if one in names_of_some else one for one in old}
        assert sorted(old) == sorted(old, key=new.get)
