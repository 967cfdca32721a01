"""On which slot the variables of a graph lie, where `replica_device_setter` is asked."""

import collections

import pytest
import tensorflow as tf

from deeprec_ext.graph import TurnBySize
from deeprec_ext.tf_private.training import exchange_turns

v1 = tf.compat.v1
SLOTS = 8


@pytest.fixture
def setter(monkeypatch):
    from tensorflow.python.training import device_setter

    monkeypatch.setattr(
        device_setter, "_RoundRobinStrategy", device_setter._RoundRobinStrategy
    )  # back again behind the test
    exchange_turns(TurnBySize)
    return lambda: v1.train.replica_device_setter(cluster={"ps": [f"ps:{n}" for n in range(SLOTS)], "worker": ["w:0"]})


def slots(made):
    """Of the variables that `made` makes in a graph of its own: slot by name."""
    with tf.Graph().as_default() as graph:
        made()
        nodes = [one for one in graph.as_graph_def().node if one.op in ("VarHandleOp", "VariableV2")]
    return {one.name: int(one.device.partition("task:")[2]) for one in nodes}


@pytest.mark.parametrize("resource", [True, False])
def test_each_size_has_its_turn(setter, resource):
    def made():
        with v1.device(setter()), v1.variable_scope("", use_resource=resource):
            for field in range(26):
                v1.get_variable(f"deep{field}", [1000, 16])
                v1.get_variable(f"wide{field}", [1000, 1])

    found = slots(made)
    for kind in ("deep", "wide"):
        on = collections.Counter(slot for name, slot in found.items() if name.startswith(kind))
        assert sorted(on.values()) == [3] * 6 + [4] * 2, kind
    assert max(collections.Counter(found.values()).values()) <= 7
    assert slots(made) == found, "the same in every role"


def test_variables_of_all_sizes_and_of_none_are_spread_by_their_number(setter):
    def made():
        with v1.device(setter()), v1.variable_scope("", use_resource=True):
            for number in range(16):
                v1.get_variable(f"one{number}", [2**number])
            v1.get_variable("word", [], tf.string, v1.zeros_initializer())
            v1.Variable(v1.placeholder(tf.float32), name="unknown", validate_shape=False)
            v1.train.get_or_create_global_step()

    on = collections.Counter(slots(made).values())
    assert sorted(on.values()) == [2] * 5 + [3] * 3


def test_a_strategy_of_the_scripts_own_stays(setter):
    def made():
        with v1.device(v1.train.replica_device_setter(SLOTS, ps_strategy=lambda op: 5)):
            v1.get_variable("one", [3])

    assert slots(made) == {"one": 5}
