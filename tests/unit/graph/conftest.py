"""Servers inside this process, on free ports, and sessions with a propagated ClusterSpec, as in training."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
v1 = tf.compat.v1
v1.logging.set_verbosity(v1.logging.ERROR)

WORKER = "/job:worker/task:0"


class _Packed(v1.Session):
    """Each run in a session of its own, packed: so are all tests of passes with `DEEPREC_EXT_TEST_PACK=on`."""

    def __init__(self, target, graph, config) -> None:
        super().__init__(target, graph=graph, config=config)
        self._given, self._packed = (target, config), {}

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        from deeprec_ext.graph import Run, pack, told_by

        graph = self.graph
        wanted = [graph.as_graph_element(one) for one in tf.nest.flatten(fetches)]
        feeds = {graph.as_graph_element(key).name: value for key, value in (feed_dict or {}).items()}
        targets = tuple(one.name for one in wanted if isinstance(one, tf.Operation))
        run = Run(tuple(feeds), tuple(one.name for one in wanted if not isinstance(one, tf.Operation)), targets)
        if run not in self._packed:
            found = pack(graph.as_graph_def(), run, WORKER, "on", told_by(graph)).definition
            self._packed[run] = found and self._opened(found)
        session = self._packed[run]
        if session is None:
            return super().run(fetches, feed_dict, options, run_metadata)
        names = tf.nest.pack_sequence_as(fetches, [one.name for one in wanted])
        return session.run(names, feeds, options, run_metadata)

    def _opened(self, definition) -> v1.Session:
        with tf.Graph().as_default() as graph:
            tf.graph_util.import_graph_def(definition, name="")
        return v1.Session(self._given[0], graph=graph, config=self._given[1])

    def close(self) -> None:
        for session in self._packed.values():
            if session is not None:
                session.close()
        super().close()


class Cluster:
    """One worker and two PS, each a server that knows nobody."""

    def __init__(self) -> None:
        alone = {"localhost": ["127.0.0.1:0"]}
        servers = [v1.train.Server(alone, job_name="localhost", task_index=0) for _ in range(3)]
        self.servers = servers
        addresses = [server.target.removeprefix("grpc://") for server in servers]
        self.target = servers[0].target
        cluster = tf.train.ClusterSpec({"worker": {0: addresses[0]}, "ps": {0: addresses[1], 1: addresses[2]}})
        self.config = v1.ConfigProto()
        self.config.cluster_def.CopyFrom(cluster.as_cluster_def())
        self.config.experimental.share_session_state_in_clusterspec_propagation = True

    def open(self, definition, *, quick: bool = False) -> v1.Session:
        """A session on a private copy of a placed definition; `quick`: without TensorFlow's optimiser."""
        graph = tf.Graph()
        with graph.as_default():
            tf.graph_util.import_graph_def(definition, name="")
        kind = _Packed if os.environ.get("DEEPREC_EXT_TEST_PACK") == "on" else v1.Session
        config = v1.ConfigProto()
        config.CopyFrom(self.config)
        if quick:
            config.graph_options.rewrite_options.disable_meta_optimizer = True
            config.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
        return kind(self.target, graph=graph, config=config)

    def once(self, build: Callable[[], object]):
        """Builds a small graph and runs what `build` returns."""
        with tf.Graph().as_default() as graph:
            fetches = build()
        with v1.Session(self.target, graph=graph, config=self.config) as session:
            return session.run(fetches)

    def handle(self, name: str, dtype, shape, ps: int):
        with v1.device(f"/job:ps/task:{ps}"):
            return tf.raw_ops.VarHandleOp(dtype=dtype, shape=shape, shared_name=name)

    def fill(self, bitmap: str, rows: int, value: bool, ps: int = 0) -> None:
        self.once(
            lambda: tf.raw_ops.AssignVariableOp(
                resource=self.handle(bitmap, tf.bool, [rows], ps), value=tf.fill([rows], value)
            )
        )

    def marked(self, bitmap: str, rows: int, ps: int = 0) -> set[int]:
        handle = lambda: tf.raw_ops.ReadVariableOp(resource=self.handle(bitmap, tf.bool, [rows], ps), dtype=tf.bool)  # noqa: E731
        return set(np.flatnonzero(self.once(handle)).tolist())


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    yield Cluster()


@pytest.fixture
def setter():
    """What a user's script places its variables with: four slots."""
    return v1.train.replica_device_setter(4, worker_device=WORKER)
