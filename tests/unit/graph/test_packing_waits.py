"""What an op waits for is the same, however it is told."""

import pytest
import tensorflow as tf

from deeprec_ext.graph import GraphIndex, Run, pack, told_by
from deeprec_ext.graph.index import op_name
from deeprec_ext.graph.packing.processes import Processes
from deeprec_ext.graph.packing.reaching import reached
from deeprec_ext.graph.packing.waits import straighten

v1 = tf.compat.v1
WORKER = "/job:worker/task:0"


def ps(number):
    return f"/job:ps/task:{number}"


def begun_after(index, name):
    """What must be over before it begins, through ops that do nothing; and in which order of devices it is told."""
    over, through = set(), set()
    own = [name, *(op_name(one) for one in index.inputs(name))]  # of a count it is the 1 that waits
    stack = [one for node in own for one in index.inputs(node) if one[0] == "^"]
    while stack:
        node = index.nodes[op_name(stack.pop())]
        if node.op == "NoOp" and index.inputs(node.name):
            through.add(tf.DeviceSpec.from_string(node.device).job)
            stack += index.inputs(node.name)
        else:
            over.add(node.name)
    return over, through


class Rig:
    """Updates, a meeting of theirs on the worker, and what waits for that."""

    def __init__(self, updates, users, meeting=WORKER, wanted=False):
        with tf.Graph().as_default() as graph:
            made = []
            for number, device in enumerate(updates):
                with v1.device(device):
                    made.append(tf.constant(1.0, name=f"update{number}").op)
            with v1.device(meeting), tf.control_dependencies(made):
                met = tf.no_op("met")
            ends = []
            for number, device in enumerate(users):
                with v1.device(device), tf.control_dependencies([met]):
                    ends.append(tf.constant(2.0, name=f"user{number}"))
            with v1.device(WORKER):
                self.train = tf.group(*ends, name="train").name
        self.targets = ["train", "met"] if wanted else ["train"]
        self.updates = {op.name for op in made}
        self.index = GraphIndex(graph.as_graph_def())

    def straighten(self):
        names = reached(self.index, Run((), (), (self.train,)))
        return straighten(self.index, names, Processes(self.index, names, WORKER), {}, self.targets)


def test_a_step_is_counted_when_every_ps_has_told_its_own(setter):
    with tf.Graph().as_default() as graph, v1.device(setter):
        step = v1.train.get_or_create_global_step()
        ids = v1.placeholder(tf.int64, [None], name="ids")
        with v1.variable_scope("counted", use_resource=True):
            rows = [v1.nn.embedding_lookup(v1.get_variable(f"t{one}", [50, 8]), ids) for one in range(6)]
        train = v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_mean(tf.add_n(rows) ** 2), step)
    definition = graph.as_graph_def()
    before = begun_after(GraphIndex(definition), train.name)
    packed = pack(definition, Run(("ids:0",), (), (train.name,)), WORKER, "on", told_by(graph))
    after = begun_after(GraphIndex(packed.definition), train.name)
    assert len(before[0]) == 6 and "worker" in before[1]
    assert after == (before[0], {"ps"}) and "1 waits told directly" in packed.report.detail


@pytest.mark.parametrize("own", [(), (WORKER,)], ids=["of PS alone", "of the worker too"])
def test_whoever_was_waited_for_still_is(own):
    rig = Rig([ps(0), ps(1), ps(1), ps(2), *own], [ps(0), ps(0)])
    assert rig.straighten() == 2
    for user in ("user0", "user1"):
        over, _ = begun_after(rig.index, user)
        assert over == rig.updates
        assert not any(one == "^met" for one in rig.index.inputs(user))
    told = {node.device: len(node.input) for node in rig.index.nodes.values() if "__packed_there" in node.name}
    assert told == {f"{ps(1)}/device:CPU:0": 2}, "of two of one PS it is told once"


def test_it_never_makes_more_messages():
    every = [ps(number) for number in range(4)]
    rig = Rig(every, every)
    assert rig.straighten() == 0 and rig.index.inputs("user1") == ["^met"]
    assert Rig([ps(0), ps(1), ps(2)], [ps(0)], wanted=True).straighten() == 0, "the worker is still to be told"
    assert Rig([ps(0), ps(1)], [ps(0)], wanted=True).straighten() == 1


def test_nothing_is_changed_where_no_detour_is_made():
    for rig in (Rig([WORKER], [ps(0)]), Rig([ps(0)], [WORKER]), Rig([ps(0), ps(0)], [ps(0)], meeting=ps(0))):
        assert rig.straighten() == 0
