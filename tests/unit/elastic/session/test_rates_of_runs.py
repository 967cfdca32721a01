"""Runs are given what their learning rates are multiplied by: no graph is made anew for it, and with others it is sent."""

from __future__ import annotations

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext import graph as passes  # noqa: E402
from deeprec_ext.elastic.session.tracing import make_probe  # noqa: E402
from tests.unit.elastic.cluster import FakeHost, LocalCluster, elastic, improved, move  # noqa: E402

v1 = tf.compat.v1
SLOTS, ROWS, DIM, TABLES = 4, 100, 4, 4


def build():
    """Every update is -1 times the rate, of each row of the batch and of a dense variable."""
    setter = v1.train.replica_device_setter(SLOTS, worker_device="/job:chief/task:0")
    with v1.device(setter), v1.variable_scope("m", use_resource=True):
        step = v1.train.get_or_create_global_step()
        ids = v1.placeholder(tf.int64, [8], name="ids")
        zeros = v1.zeros_initializer()
        tables = [v1.get_variable(f"table{number}", [ROWS, DIM], initializer=zeros) for number in range(TABLES)]
        dense = v1.get_variable("dense", [3], initializer=zeros)
        loss = tf.add_n([tf.reduce_sum(v1.nn.embedding_lookup(table, ids)) for table in tables]) + tf.reduce_sum(dense)
        train = v1.train.GradientDescentOptimizer(1.0).minimize(loss, step)
    return train, ids


def tensors_of(session, step) -> int:
    """That cross between processes in a step, as its trace says."""
    recorded: list = []
    found = session.pool.traceable()
    probe = make_probe(found, recorded.append)
    assert found.placed.attach(probe)
    probe.arm()
    while not recorded:
        step()
    metadata = v1.RunMetadata.FromString(recorded[0].metadata)
    roles = passes.role_by_view("chief-0", {0: "ps-0", 1: "ps-1"})
    return sum(edge.tensors for edge in passes.read_trace(metadata, recorded[0].known, "chief-0", roles).edges)


class Trained:
    def __init__(self, pack: str, scaling: str) -> None:
        cluster = LocalCluster(2)
        one, two = cluster.view(0, 1, 0, 1), cluster.view(0, 0, 0, 0, epoch=2)
        with tf.Graph().as_default() as graph:
            train, ids = build()
            self.host = host = FakeHost(cluster, one)
            host.pack, host.rate_scaling = pack, scaling
            host.optimise = "auto" if pack == "on" else "off"
            host.set(one)
            session = self.session = elastic(host, graph)
            variables = {
                name: graph.get_tensor_by_name(f"m/{name}/Read/ReadVariableOp:0") for name in ("dense", "table0")
            }
            rows = np.arange(8) * 3
            self.moved: list[tuple[float, float, float]] = []

            def step() -> None:
                before = session.run(variables)
                session.run(train, {ids: rows})
                after = session.run(variables)
                self.moved.append((
                    float(before["dense"][0] - after["dense"][0]), float(before["table0"][3, 0] - after["table0"][3, 0]),
                    float(before["table0"][4, 0] - after["table0"][4, 0]),
                ))  # fmt: skip

            for _ in range(3):
                step()
            improved(session)
            step()
            placed = session.pool.present
            compiled = placed.late
            for host.factor in (0.5, 0.25):
                step()
            assert (session.pool.present, placed.late) == (placed, compiled), "nothing is made anew"
            self.tensors = tensors_of(session, step)
            self.before = len(self.moved)
            catalogue = session.catalogue()
            session.pool.prepare(host.make(two, {}))
            move(cluster, catalogue, one, two)
            session.pool.exchange(host.set(two))
            late = session.pool.present.late
            step()
            self.late = session.pool.present.late - late
            self.catalogue = sorted(one.name for one in catalogue.variables)
            session.close()


@pytest.mark.parametrize("pack", ["off", "on"])
def test_updates_follow_what_each_run_is_given_and_packed_steps_have_no_message_more(pack):
    ours, plain = Trained(pack, "inverse"), Trained(pack, "none")
    assert ours.moved[:4] == [(1.0, 1.0, 0.0)] * 4
    assert ours.moved[4:6] == [(0.5, 0.5, 0.0), (0.25, 0.25, 0.0)]
    assert set(ours.moved[6:]) == {(0.25, 0.25, 0.0)}, "traced, and in another view too"
    assert set(plain.moved) == {(1.0, 1.0, 0.0)}
    assert ours.tensors <= plain.tensors + (2 if pack == "off" else 0), "unpacked a number for each PS"
    assert ours.late == plain.late == 0, "the session of the other view was prepared with it"
    assert ours.catalogue == plain.catalogue, "no variable is there that was not"


def test_with_none_the_graph_is_the_script_s_byte_for_byte():
    cluster = LocalCluster(1)
    with tf.Graph().as_default() as graph:
        build()
        host = FakeHost(cluster, cluster.view(0, 0, 0, 0))
        session = elastic(host, graph)
        exported = session._user.exported()
        assert exported.rate is None
        assert not any("deeprec_ext_rate" in node.name for node in exported.definition.node)
        session.close()
        host.rate_scaling = "inverse"
        host.set(cluster.view(0, 0, 0, 0))
        session = elastic(host, graph)
        assert session._user.exported().rate == "deeprec_ext_rate:0"
        session.close()


def test_an_update_whose_rate_cannot_be_found_is_refused():
    cluster = LocalCluster(1)
    with tf.Graph().as_default() as graph:
        with v1.device("/job:ps/task:0"):
            x = v1.get_variable("x", [3], use_resource=True, initializer=v1.zeros_initializer())
            v1.assign(x, 0.9 * x + 1.0)
        host = FakeHost(cluster, cluster.view(0))
        host.rate_scaling = "inverse"
        host.set(cluster.view(0))
        with pytest.raises(Exception, match="rate_scaling"):
            elastic(host, graph)
        assert len(host.refusals) == 1
