"""Dirty marks with several readers: each gets every row that changed since its own last look, whoever collects when."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.elastic.ps.collector import READERS, Marks, make_bitmaps, pending_of
from deeprec_ext.elastic.ps.variables import Facts, Located, bitmap_of, ps_device
from deeprec_ext.elastic.runtime.ops import INT64, Ops, Program
from deeprec_ext.elastic.runtime.view import elastic_config
from deeprec_ext.graph.attributes import kind, kinds, text
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.elastic.cluster import LocalCluster

ROWS = 1000
TABLE = pb.Variable(
    name="table", dtype=tf.int64.as_datatype_enum, shape=[ROWS, 2], update=pb.Variable.ROWS, bitmap="table@dirty",
    bytes=ROWS * 16,
)  # fmt: skip
FACTS = Facts.from_proto(TABLE)
BITMAP = bitmap_of(FACTS)
DEVICE = ps_device(0)


class Table:
    """A table on a PS of this process, its trainer, and its readers."""

    def __init__(self) -> None:
        cluster = LocalCluster(1)
        self._cluster, self.target = cluster, "grpc://" + cluster.ps[0]
        make_bitmaps(self.target, 0, [TABLE])
        self.set(np.zeros((ROWS, 2), np.int64))
        self._train = self.program(self._training)

    def program(self, build: Callable[[Ops], tuple[list[str], list[str], list[str]]]) -> Callable[..., Any]:
        """`build` returns (targets, fetches, feeds)."""
        ops, program = Ops(), Program(self.target, elastic_config(self._cluster.ps))
        targets, fetches, feeds = build(ops)
        program.load(ops)
        return program.compile(targets=targets, fetches=fetches, feeds=feeds)

    def set(self, value: np.ndarray) -> None:
        def build(ops: Ops) -> tuple[list[str], list[str], list[str]]:
            one = Located(ops, FACTS, 0)
            return [one.assign(ops.constant(value, tf.int64, one.device))], [], []

        self.program(build)()

    def values(self) -> np.ndarray:
        return self.program(lambda ops: ([], [Located(ops, FACTS, 0).read()], []))()[0]

    def length(self, reader: str) -> int:
        """Of a reader's pending set."""
        where = pending_of(BITMAP, reader)
        return int(self.program(lambda ops: ([], [Located(ops, where, 0).dimensions()], []))()[0][0])

    def _training(self, ops: Ops) -> tuple[list[str], list[str], list[str]]:
        table, bitmap = Located(ops, FACTS, 0), Located(ops, BITMAP, 0)
        rows = ops.add("Placeholder", device=table.device, dtype=INT64)
        values = ops.add("Placeholder", device=table.device, dtype=kind(tf.int64))
        written = table.scatter(rows, values)
        return [bitmap.scatter(rows, ops.constant(True, tf.bool, table.device), (written,))], [], [rows, values]

    def update(self, *rows: int, value: int = 1) -> None:
        self._train(np.array(rows), np.full((len(rows), 2), value, np.int64))

    def begin(self, reader: str) -> Callable[[], Any]:
        return self.program(lambda ops: ([Marks(ops, BITMAP, 0).begin(reader)], [], []))

    def take(self, reader: str, most: int = 0) -> Callable[[], tuple[np.ndarray, np.ndarray, int]]:
        """A function that gives (rows, their values, how many were pending)."""

        def build(ops: Ops) -> tuple[list[str], list[str], list[str]]:
            taken = Marks(ops, BITMAP, 0).take(reader, most)
            return [], [taken.rows, Located(ops, FACTS, 0).gather(taken.rows, taken.after), taken.found], []

        run = self.program(build)
        return lambda: tuple(run())

    def held(self, reader: str, before: str) -> Held:
        return Held(self, reader, before)


class Held:
    """A collection that stands still before it clears the marks (`clear`), or before it adds them once more (`again`)."""

    def __init__(self, table: Table, reader: str, before: str) -> None:
        self._result: queue.Queue[Any] = queue.Queue(1)
        self._reached = table.program(lambda ops: ([], [self._get(ops, "reached")], []))
        self._let = table.program(lambda ops: ([self._put(ops, "may")], [], []))

        def build(ops: Ops) -> tuple[list[str], list[str], list[str]]:
            taken = Marks(ops, BITMAP, 0).take(reader)
            nodes = {node.name: node for node in ops.definition.node}
            (clear,) = (node for node in nodes.values() if _writes(node, nodes) == BITMAP.name)
            again = [node for node in nodes.values() if f"^{clear.name}" in node.input]
            done = [name[1:] for name in clear.input if name[0] == "^"] if before == "clear" else [clear.name]
            may = self._get(ops, "may", after=[self._put(ops, "reached", after=done)])
            for node in [clear] if before == "clear" else again:
                node.input.append(f"^{may}")
            return [], [taken.rows, Located(ops, FACTS, 0).gather(taken.rows, taken.after), taken.found], []

        run = table.program(build)
        threading.Thread(target=lambda: self._result.put(tuple(run())), daemon=True).start()
        self._reached()

    def go_on(self) -> tuple[np.ndarray, np.ndarray, int]:
        self._let()
        return self._result.get(timeout=30)

    @staticmethod
    def _queue(ops: Ops, name: str) -> str:
        return ops.add("FIFOQueueV2", device=DEVICE, component_types=kinds([tf.int64]), shared_name=text(name))

    def _put(self, ops: Ops, name: str, after: Sequence[str] = ()) -> str:
        values = [self._queue(ops, name), ops.constant(1, tf.int64, DEVICE)]
        return ops.add("QueueEnqueueV2", values, DEVICE, after, Tcomponents=kinds([tf.int64]))

    def _get(self, ops: Ops, name: str, after: Sequence[str] = ()) -> str:
        return ops.add("QueueDequeueV2", [self._queue(ops, name)], DEVICE, after, component_types=kinds([tf.int64]))


def _writes(node: Any, nodes: dict[str, Any]) -> str:
    """The name of the variable that it scatters into."""
    scatters = node.op == "ResourceScatterUpdate"
    return str(nodes[node.input[0]].attr["shared_name"].s.decode()) if scatters else ""


@pytest.fixture
def table() -> Table:
    return Table()


def rows(taken: tuple[np.ndarray, np.ndarray, int]) -> list[int]:
    return [int(row) for row in taken[0]]


def test_each_reader_gets_every_row_once(table: Table) -> None:
    take = {reader: table.take(reader) for reader in READERS}
    table.update(1)  # before anybody has begun: nobody has asked for it
    for reader in READERS:
        table.begin(reader)()
    assert rows(take["peer"]()) == [1]
    table.update(5, 3)
    assert rows(take["peer"]()) == [3, 5]
    table.update(7, 3)
    assert rows(take["disk"]()) == [1, 3, 5, 7]
    assert rows(take["peer"]()) == [3, 7]
    assert rows(take["move"]()) == [1, 3, 5, 7]
    assert rows(take["hold"]()) == rows(take["next"]()) == [1, 3, 5, 7]
    assert [rows(take[reader]()) for reader in READERS] == [[]] * len(READERS)


def test_readers_that_have_not_begun_cost_no_memory_and_no_writing(table: Table) -> None:
    table.begin("peer")()
    take = table.take("peer")
    table.update(2, 4)
    assert rows(take()) == [2, 4]
    assert {reader: table.length(reader) for reader in READERS} == {**dict.fromkeys(READERS, 0), "peer": ROWS}
    table.begin("disk")()
    table.update(6)
    assert rows(take()) == [6]
    assert rows(table.take("disk")()) == [6]  # what was before it began, its copy has


def test_what_a_limited_round_leaves_stays_pending_and_others_get_it_once(table: Table) -> None:
    table.begin("peer")(), table.begin("disk")()
    take, disk = table.take("peer", 2), table.take("disk")
    table.update(*range(5))
    found = [(rows(taken), int(taken[2])) for taken in (take(), take())]
    assert found == [([0, 1], 5), ([2, 3], 3)]
    assert rows(disk()) == [0, 1, 2, 3, 4]
    table.update(0)
    assert [(rows(taken), int(taken[2])) for taken in (take(), take())] == [([0, 4], 2), ([], 0)]
    assert rows(disk()) == [0]


def test_an_update_between_two_readers_looks_is_given_to_the_other_again(table: Table) -> None:
    table.begin("peer")(), table.begin("disk")()
    disk = table.take("disk")
    table.update(3)
    peer = table.held("peer", before="clear")
    assert rows(disk()) == [3]  # which has the row now as it was
    table.update(3, value=2)
    taken = peer.go_on()  # and clears the mark of the second update as well
    assert (rows(taken), taken[1].tolist()) == ([3], [[2, 2]])
    assert rows(disk()) == [3]


def test_a_reader_that_begins_while_another_collects_misses_nothing(table: Table) -> None:
    table.begin("peer")()
    table.update(3)
    peer = table.held("peer", before="clear")
    table.begin("disk")()
    table.values()  # its copy
    table.update(3, 4, value=2)
    assert rows(peer.go_on()) == [3]
    assert rows(table.take("disk")()) == [3, 4]


def test_a_collector_that_dies_half_way_takes_nothing_from_others(table: Table) -> None:
    table.begin("peer")(), table.begin("disk")()
    table.update(3)
    peer = table.held("peer", before="again")
    assert rows(table.take("disk")()) == [3]
    peer.go_on()


def test_readers_that_come_and_go_beside_training_lose_no_update(table: Table) -> None:
    """A trainer updates and the peer backup collects all the time; a disk backup begins, copies and catches up, again and
    again. Whenever training and the other stand still, what it has is the table."""
    training, collecting, stop, errors = threading.Lock(), threading.Lock(), threading.Event(), []
    random = np.random.default_rng(4)
    take_peer, take_disk, begin_disk = table.take("peer"), table.take("disk"), table.begin("disk")
    table.begin("peer")()
    copies = {"peer": table.values(), "disk": np.zeros((ROWS, 2), np.int64)}

    def catch_up(reader: str, take: Callable[[], tuple[np.ndarray, np.ndarray, int]]) -> None:
        some, values, _ = take()
        copies[reader][some] = values

    def repeat(work: Callable[[], None]) -> None:
        try:
            while not stop.is_set():
                work()
        except Exception as error:
            errors.append(error)

    def train() -> None:
        with training:
            table.update(*random.choice(ROWS, 20, replace=False), value=int(random.integers(1 << 40)))

    def peer() -> None:
        with collecting:
            catch_up("peer", take_peer)

    threads = [threading.Thread(target=repeat, args=[work]) for work in (train, peer)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            begin_disk()
            copies["disk"] = table.values()
            for _ in range(3):
                catch_up("disk", take_disk)
            with training, collecting:
                for reader, take in (("disk", take_disk), ("peer", take_peer)):
                    catch_up(reader, take)
                    np.testing.assert_array_equal(copies[reader], table.values(), err_msg=reader)
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert not errors
