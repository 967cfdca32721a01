"""A variable that is initialised while its slot is being moved is not left behind: the change is rolled back."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext.elastic.ps.migration import absent  # noqa: E402
from deeprec_ext.elastic.session.session import ElasticSession  # noqa: E402
from deeprec_ext.errors import DeepRecError  # noqa: E402
from tests.unit.elastic.cluster import FakeHost, LocalCluster, movers  # noqa: E402

v1 = tf.compat.v1


def test_what_is_initialised_after_the_copies_were_armed_stops_the_change():
    cluster = LocalCluster(2)
    one, two = cluster.view(0, 0), cluster.view(1, 0, epoch=2)
    with tf.Graph().as_default() as graph:
        with v1.device("/job:ps/task:0"):
            old = v1.get_variable("old", [3], initializer=v1.zeros_initializer(), use_resource=True)
            late = v1.get_variable("late", [3], initializer=v1.zeros_initializer(), use_resource=True)
        host = FakeHost(cluster, one)
        session = ElasticSession("grpc://x", graph, None, host)
        session.run(old.initializer)
        declared = host.declared[-1]
        assert absent("grpc://" + cluster.ps[0], 0, cluster.ps[0], declared.variables) == ["late"]
        mover = movers(cluster, declared, one, two)[1]
        assert mover.skipped == ["late"]
        mover.final()
        session.run(late.initializer)
        with pytest.raises(DeepRecError, match="late was initialised while its slot was being moved"):
            mover.final()
        session.close()
