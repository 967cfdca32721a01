"""Disk backups of real TensorFlow servers in this process: written by rows, sealed, found, restored on another PS."""

from __future__ import annotations

import dataclasses
import queue
import threading
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.backup import manifest as manifests
from deeprec_ext.backup import model
from deeprec_ext.backup.files import directory
from deeprec_ext.elastic.ps import disk_cut
from deeprec_ext.elastic.ps.collector import Marks, make_bitmaps
from deeprec_ext.elastic.ps.disk import Disk
from deeprec_ext.elastic.ps.variables import Facts, Located, bitmap_of
from deeprec_ext.elastic.runtime.ops import Ops, Program
from deeprec_ext.elastic.runtime.view import elastic_config
from deeprec_ext.graph.attributes import kind
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.elastic.cluster import LocalCluster

ROWS, DIM = 1000, 16
LIMIT_SECONDS = 60


def variable(name, dtype, shape, slot=3, reference=False, bitmap=""):
    size = int(np.prod(shape)) * dtype.size if dtype != tf.string else 0
    update = pb.Variable.ROWS if bitmap else pb.Variable.DENSE
    return pb.Variable(
        name=name, dtype=dtype.as_datatype_enum, shape=shape, slot=slot, reference=reference, bitmap=bitmap,
        bytes=size, saved_name=name, update=update,
    )  # fmt: skip


def model_variables(reference=False):
    return [
        variable("table", tf.float32, [ROWS, DIM], reference=reference, bitmap="table@dirty"),
        variable("table/Adagrad", tf.float32, [ROWS, DIM], reference=reference, bitmap="table@dirty"),
        variable("other", tf.float32, [ROWS, 4], slot=5, reference=reference, bitmap="other@dirty"),
        variable("dense", tf.float32, [300, 8], reference=reference),
        variable("half", tf.bfloat16, [6], slot=5, reference=reference),
        variable("words", tf.string, [3], slot=5, reference=reference),
        variable("global_step", tf.int64, [], reference=reference),
    ]


class Ps:
    """One PS: its server, its variables, its disk backups."""

    def __init__(self, cluster: LocalCluster, task: int, variables) -> None:
        self.task, self.target = task, "grpc://" + cluster.ps[task]
        self.facts = {v.name: Facts.from_proto(v) for v in variables}
        self.answers: queue.Queue[pb.Ack] = queue.Queue()
        self.collecting = threading.Lock()
        self.disk = Disk(self.target, lambda: task, self.collecting, self.answer)
        self.count = 0

    def answer(self, command_id: int, error: str = "", **more) -> None:
        self.answers.put(pb.Ack(command_id=command_id, ok=not error, error=error, **more))

    def ask(self, **command) -> pb.Ack:
        self.count += 1
        self.disk.put(pb.Command(id=self.count, **command))
        return self.answers.get(timeout=LIMIT_SECONDS)

    def _run(self, build, fetch=False, values=()):
        program, ops = Program(self.target, elastic_config({self.task: self.target[7:]})), Ops()
        name, feeds = build(ops)
        program.load(ops)
        run = program.compile(fetches=[name] if fetch else [], targets=[] if fetch else [name], feeds=feeds)
        result = run(*values)
        program.close()
        return result[0] if fetch else None

    def set(self, name: str, value) -> None:
        facts = self.facts[name]

        def build(ops):
            feed = ops.add("Placeholder", dtype=kind(facts.dtype))
            return Located(ops, facts, self.task).assign(feed), [feed]

        self._run(build, values=[np.asarray(value, facts.dtype.as_numpy_dtype)])

    def get(self, name: str):
        return self._run(lambda ops: (Located(ops, self.facts[name], self.task).read(), []), fetch=True)

    def train(self, name: str, rows, value: float) -> None:
        """Updates rows and marks them, as a step does."""
        now = self.get(name).copy()
        now[rows] = value
        self.set(name, now)
        bitmap = bitmap_of(self.facts[name])

        def build(ops):
            where = f"/job:ps/task:{self.task}/device:CPU:0"
            marked = ops.constant(rows, tf.int64, where)
            return Located(ops, bitmap, self.task).scatter(marked, ops.constant(True, tf.bool, where)), []

        self._run(build)

    def fill(self) -> dict[str, np.ndarray]:
        random = np.random.default_rng(1)
        for name, facts in self.facts.items():
            if facts.dtype == tf.string:
                self.set(name, np.array([b"one", b"", b"three"], object))
            else:
                self.set(name, random.normal(size=facts.shape) * 10)
        return {name: self.get(name) for name in self.facts}


class World:
    def __init__(self, path: Path, reference=False) -> None:
        self.variables = model_variables(reference)
        cluster = LocalCluster(2)
        self.one, self.two = Ps(cluster, 0, self.variables), Ps(cluster, 1, self.variables)
        self.path, self.chain, self.number = str(path), [], 0

    def write(self, base=False, seal=True) -> pb.Ack:
        self.number += 1
        identifier = manifests.snapshot_id(self.number, 1, "job")
        parent = self.chain[-1].id if self.chain else ""
        command = pb.WriteBackup(
            path=self.path, cut=self.number, base=base, variables=self.variables, id=identifier, parent=parent
        )
        ack = self.one.ask(write_backup=command)
        if seal and ack.ok:
            fields = [field.name for field in dataclasses.fields(manifests.DataFile)]
            files = tuple(manifests.DataFile(**{name: getattr(file, name) for name in fields}) for file in ack.files)
            if base or all(file.whole for file in files):
                self.chain = []
            self.chain.append(manifests.Snapshot(identifier, self.number, files))
            saved = manifests.variables_of(self.variables)
            manifest = manifests.Manifest(
                "a job", "job", model.fingerprint(saved), model.layout(saved), 7, 1, 0.0, b"position", 8, "global_step",
                saved, tuple(self.chain),
            )  # fmt: skip
            text = manifests.dumps(manifest)
            assert self.one.ask(seal_backup=pb.SealBackup(path=self.path, cut=self.number, manifest_json=text)).ok
        return ack

    def restore(self) -> pb.Ack:
        cut = self.chain[-1]
        command = pb.RestoreBackup(path=self.path, cut=cut.number, id=cut.id, variables=self.variables)
        return self.two.ask(restore_backup=command)

    def assert_same(self) -> None:
        for name in self.one.facts:
            np.testing.assert_array_equal(self.one.get(name), self.two.get(name), err_msg=name)


@pytest.fixture(params=[False, True], ids=["resource", "reference"])
def world(request, tmp_path, monkeypatch):
    monkeypatch.setattr(disk_cut, "CHUNK_BYTES", 4096)  # many chunks, and `dense` goes by rows
    return World(tmp_path / "backup", request.param)


def rows_of(ack: pb.Ack) -> dict[int, tuple[bool, int]]:
    return {file.slot: (file.whole, file.rows) for file in ack.files}


def test_a_base_and_its_deltas_are_restored_on_another_ps(world):
    world.one.fill()
    make_bitmaps(world.one.target, 0, world.variables)
    assert all(file.whole for file in world.write(base=True).files)
    world.one.train("table", [1, 500, 999], 5.0)
    world.one.train("table/Adagrad", [1, 500, 999], 6.0)
    world.one.set("dense", np.full((300, 8), 2.5))
    world.one.set("global_step", 77)
    ack = world.write()
    assert rows_of(ack) == {3: (False, 3 + 3 + 300 + 1), 5: (False, 1 + 1)}
    world.one.train("table", [2, 500], 8.0)
    world.one.train("other", [0], 9.0)
    assert rows_of(world.write())[5] == (False, 1 + 1 + 1)
    restored = world.restore()
    assert restored.ok, restored.error
    assert restored.copy.variables == len(world.variables)
    world.assert_same()
    assert not world.two._run(lambda o: (Located(o, bitmap_of(world.two.facts["table"]), 1).read(), []), True).any()


def test_what_changes_while_a_table_is_written_whole_is_in_the_next_delta(world):
    world.one.fill()
    make_bitmaps(world.one.target, 0, world.variables)
    world.one.train("table", [7], 1.0)  # marked before: it need not be sent again
    world.write(base=True)
    world.one.train("table", [8], 2.0)
    assert rows_of(world.write())[3][1] == 2 * 1 + 300 + 1


def test_a_cut_that_is_not_sealed_makes_the_next_one_whole(world):
    world.one.fill()
    make_bitmaps(world.one.target, 0, world.variables)
    world.write(base=True)
    world.one.train("table", [3], 3.0)
    world.write(seal=False)
    assert all(file.whole for file in world.write().files)
    assert world.restore().ok
    world.assert_same()


def test_without_marks_every_cut_is_whole_and_so_is_the_first_with_them(world):
    world.one.fill()
    world.write(base=True)
    make_bitmaps(world.one.target, 0, world.variables)
    assert all(file.whole for file in world.write().files)
    assert not any(file.whole for file in world.write().files)


def test_a_slot_that_left_and_came_back_is_written_whole(world):
    world.one.fill()
    make_bitmaps(world.one.target, 0, world.variables)
    world.write(base=True)
    world.one.disk.forget(v for v in world.variables if v.slot == 5)
    assert {slot: whole for slot, (whole, _) in rows_of(world.write()).items()} == {3: False, 5: True}


def test_a_variable_that_was_not_initialised_is_left_out_and_restored_as_such(world):
    world.one.fill()
    unknown = variable("late", tf.float32, [4])
    world.variables.append(unknown)
    assert world.write(base=True).ok
    assert world.restore().ok


def test_the_write_under_way_is_dropped_when_another_command_comes(world, monkeypatch):
    world.one.fill()
    make_bitmaps(world.one.target, 0, world.variables)
    world.write(base=True)
    world.one.train("table", [1], 1.0)
    reached, go_on = threading.Event(), threading.Event()
    original = disk_cut.Source._dirty

    def slow(self, writer, group):
        reached.set()
        assert go_on.wait(LIMIT_SECONDS)
        original(self, writer, group)

    monkeypatch.setattr(disk_cut.Source, "_dirty", slow)
    command = pb.WriteBackup(path=world.path, cut=2, variables=world.variables, id="two", parent=world.chain[-1].id)
    world.one.disk.put(pb.Command(id=100, write_backup=command))
    assert reached.wait(LIMIT_SECONDS)
    world.one.disk.put(pb.Command(id=101, find_backup=pb.FindBackup(path=world.path)))
    go_on.set()
    first, second = (world.one.answers.get(timeout=LIMIT_SECONDS) for _ in range(2))
    assert (first.command_id, first.ok) == (100, False) and "dropped" in first.error
    assert second.command_id == 101 and '"number": 1' in second.backup_json
    assert not [name for name in directory(world.path).names() if "two" in name]


def test_a_flipped_byte_is_named_by_the_restore(world):
    world.one.fill()
    ack = world.write(base=True)
    file = Path(world.path) / ack.files[0].name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    restored = world.restore()
    assert not restored.ok and ack.files[0].name in restored.error and "flipped" in restored.error


def test_a_directory_that_cannot_be_made_is_an_error_of_one_line(world, tmp_path):
    (tmp_path / "file").write_text("in the way")
    world.path = str(tmp_path / "file" / "backup")
    ack = world.write(base=True)
    assert not ack.ok and "\n" not in ack.error and "file" in ack.error


def test_a_full_disk_leaves_nothing_of_the_cut_behind_and_the_next_one_is_whole(world, monkeypatch):
    world.one.fill()
    make_bitmaps(world.one.target, 0, world.variables)
    world.write(base=True)
    before = directory(world.path).names()
    original = disk_cut.FileWriter.finish

    def full(writer):
        if writer.slot == 5:
            raise OSError(28, "No space left on device")
        original(writer)

    monkeypatch.setattr(disk_cut.FileWriter, "finish", full)
    ack = world.write()
    assert not ack.ok and "No space left on device" in ack.error
    assert directory(world.path).names() == before
    monkeypatch.undo()
    assert all(file.whole for file in world.write().files)
    assert world.restore().ok
    world.assert_same()


def test_files_of_a_cut_that_was_given_up_make_room_for_the_next(world):
    world.one.fill()
    world.write(base=True)
    given_up = world.write(seal=False).files[0].name
    kept = world.write().files[0].name
    names = directory(world.path).names()
    assert given_up not in names and kept in names and world.chain[0].files[0].name in names


def test_a_cut_is_not_sealed_when_the_directory_is_not_shared(world):
    world.one.fill()
    ack = world.write(base=True, seal=False)
    Path(world.path, ack.files[0].name).unlink()
    identifier = ack.files[0].name.partition("-slot")[0].removeprefix("cut-")
    file = manifests.DataFile(ack.files[0].name, ack.files[0].bytes, 0, 3, 1, 1, True)
    saved = manifests.variables_of(world.variables)
    made = manifests.Manifest(
        "a job", "job", "m", "l", 7, 1, 0.0, b"", 8, "global_step", saved, (manifests.Snapshot(identifier, 1, (file,)),)
    )  # fmt: skip
    sealed = world.one.ask(seal_backup=pb.SealBackup(path=world.path, cut=1, manifest_json=manifests.dumps(made)))
    assert not sealed.ok and "missing" in sealed.error and "all PS share" in sealed.error
    assert not [name for name in directory(world.path).names() if name.endswith(".manifest")]


def test_any_path_that_tensorflow_knows_will_do():
    world = World(Path("unused"))
    world.path = "ram://backups/of/a/job"
    world.one.fill()
    make_bitmaps(world.one.target, 0, world.variables)
    assert world.write(base=True).ok
    world.one.train("table", [4], 4.0)
    assert world.write().ok
    assert '"number": 2' in world.one.ask(find_backup=pb.FindBackup(path=world.path)).backup_json
    assert world.restore().ok
    world.assert_same()


def test_updates_and_another_reader_meanwhile_lose_no_row(world):
    """A trainer updates and marks, a peer backup collects marks, cuts are made: the last delta completes the copy."""
    world.one.fill()
    make_bitmaps(world.one.target, 0, world.variables)
    world.write(base=True)
    random, stop, errors = np.random.default_rng(3), threading.Event(), []

    def train() -> None:
        try:
            for number in range(40):
                world.one.train("table", sorted(random.choice(ROWS, 50, replace=False).tolist()), float(number))
        except Exception as error:
            errors.append(error)

    def peer() -> None:
        program = Program(world.one.target, elastic_config({0: world.one.target[7:]}))
        ops = Ops("peer")
        marks = Marks(ops, bitmap_of(world.one.facts["table"]), 0)
        begin, taken = marks.begin("peer"), marks.take("peer")
        program.load(ops)
        program.compile(targets=[begin])()
        take = program.compile(fetches=[taken.rows], targets=list(taken.after))
        try:
            while not stop.is_set():
                with world.one.collecting:
                    take()
        except Exception as error:
            errors.append(error)
        program.close()

    threads = [threading.Thread(target=train), threading.Thread(target=peer)]
    for thread in threads:
        thread.start()
    while threads[0].is_alive():
        assert world.write().ok
    stop.set()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    assert not errors
    assert world.write().ok and len(world.chain) > 2
    assert world.restore().ok
    world.assert_same()
