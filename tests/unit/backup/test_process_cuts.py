"""Disk backups of jobs without PS: cuts of one process's arrays, who writes them, and what begins with them."""

from __future__ import annotations

import json
import os
import time
from types import SimpleNamespace

import numpy as np
import pytest

from deeprec_ext.allreduce.kept import Kept
from deeprec_ext.backup import process_cuts, snapshots
from deeprec_ext.backup.__main__ import main
from deeprec_ext.backup.errors import WrongBackupError
from deeprec_ext.backup.files import directory
from deeprec_ext.elastic.member import keeping
from deeprec_ext.elastic.member.keeping import Keeping


class Model:
    called = "fit 1"

    def __init__(self, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.arrays = [
            random.normal(size=(50, 3)).astype("float32"),
            np.array(7, "int64"),
            np.zeros((0, 4)),
            np.array(True),
            np.array(2.0),
        ]

    def names(self):
        return ["dense/kernel", "iterations", "empty", "_site", "__rate"]

    def take(self):
        return self.arrays

    def put(self, arrays):
        self.arrays = list(arrays)


def write(path, model, step=5, job_id="aaaa", **how):
    state = process_cuts.State(model.called, model.names(), model.take(), step, b"position", 12.0)
    return process_cuts.write(directory(str(path)), state, job="j", job_id=job_id, **{"writer": 1, "keep": 2, **how})


def equal(one, other):
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(one, other)) and len(one) == len(other)


def test_a_cut_is_read_as_it_was_written_whatever_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(process_cuts, "CHUNK_BYTES", 100)
    model = Model()
    made = write(tmp_path, model)
    assert (made.step, made.ledger, process_cuts.called(made)) == (5, b"position", "fit 1")
    assert equal(list(process_cuts.read(directory(str(tmp_path)), made)), model.arrays)
    assert snapshots.check_files(directory(str(tmp_path)), made.cut.files) == {}


def test_so_many_cuts_of_this_job_are_kept_and_all_of_others(tmp_path):
    model = Model()
    write(tmp_path, model, job_id="bbbb")
    for step, writer in ((5, 1), (6, 4), (7, 2)):  # whoever has the lowest place then
        model.arrays[1] = np.array(step)
        write(tmp_path, model, step, writer=writer)
    found = snapshots.look(directory(str(tmp_path)))
    assert [(one.number, one.step, one.job_id) for one in found.manifests] == [
        (4, 7, "aaaa"),
        (3, 6, "aaaa"),
        (1, 5, "bbbb"),
    ]
    assert len(os.listdir(tmp_path)) == 6


def test_backups_of_another_model_are_left_alone(tmp_path):
    write(tmp_path, Model(), job_id="bbbb")
    other = Model()
    other.arrays[0] = np.zeros((50, 4), "float32")
    with pytest.raises(WrongBackupError, match="backups of another model: cut 1 of job 'j'"):
        write(tmp_path, other)
    assert len(os.listdir(tmp_path)) == 2


def test_what_a_writer_that_died_has_left_is_removed_with_the_next_cut(tmp_path):
    made = write(tmp_path, Model())
    os.remove(tmp_path / made.name)
    write(tmp_path, Model(), step=6, writer=2)
    assert [name for name in os.listdir(tmp_path) if "-1-" in name] == []


def ask(capsys, *words):
    code = main([str(word) for word in words])
    return code, capsys.readouterr()


def test_commands_list_verify_and_restore_what_the_next_job_begins_with(tmp_path, capsys):
    model = Model()
    write(tmp_path / "backups", model)
    code, said = ask(capsys, "list", tmp_path / "backups", "--json")
    assert code == 0 and json.loads(said.out)["cuts"][0]["step"] == 5 and json.loads(said.out)["cuts"][0]["ledger"]
    assert ask(capsys, "verify", tmp_path / "backups")[0] == 0
    place = tmp_path / "run" / "model"
    assert ask(capsys, "restore", tmp_path / "backups", place, "--dry-run")[0] == 0 and not place.exists()
    assert ask(capsys, "restore", tmp_path / "backups", place)[0] == 0
    kept, other = Kept(place), Model(1)
    kept.of("fit 1")
    assert kept.is_there and kept.back(other) and kept.position == b"position"
    assert equal(other.arrays, model.arrays[:-1])  # what is of the sums of that job stays there
    code, said = ask(capsys, "restore", tmp_path / "backups", place)
    assert code == 2 and "Add --force" in said.err
    assert ask(capsys, "restore", tmp_path / "backups", place, "--force")[0] == 0


def test_a_flipped_byte_is_named_and_nothing_is_restored(tmp_path, capsys):
    made = write(tmp_path / "backups", Model())
    file = tmp_path / "backups" / made.cut.files[0].name
    data = bytearray(file.read_bytes())
    data[200] ^= 1
    file.write_bytes(data)
    assert ask(capsys, "verify", tmp_path / "backups")[0] == 1
    assert ask(capsys, "restore", tmp_path / "backups", tmp_path / "model")[0] == 1
    assert not (tmp_path / "model").exists()


def test_an_export_is_a_checkpoint_without_what_is_of_sums_alone(tmp_path, capsys):
    tf = pytest.importorskip("tensorflow")
    model = Model()
    write(tmp_path / "backups", model)
    assert ask(capsys, "export", tmp_path / "backups", tmp_path / "out" / "model.ckpt")[0] == 0
    reader = tf.train.load_checkpoint(str(tmp_path / "out" / "model.ckpt"))
    assert set(reader.get_variable_to_shape_map()) == {"dense/kernel", "iterations", "empty"}
    assert np.array_equal(reader.get_tensor("dense/kernel"), model.arrays[0])


# ------------------------------------------------------------------------------------------------ who writes, and when


class Process:
    def __init__(self, path, seconds=0.0, first=True):
        self.settings = SimpleNamespace(disk_backup=str(path), disk_backup_seconds=seconds, disk_backup_keep=2)
        self.first, self.told, self.asked = first, [], 0
        self.keeping = Keeping(
            "j", lambda: self.settings, lambda: (self.first, 3), lambda: b"secret", self.position,
            lambda *words: self.told.append(words),
        )  # fmt: skip

    def position(self):
        self.asked += 1
        return b"at %d" % self.asked

    def look(self, model, step):
        """As often as it takes until something is being written."""
        before = self.keeping._writing
        for _ in range(500):
            self.keeping.look(model, step)
            if self.keeping._writing is not before:
                self.keeping.wait(30.0)
                return True
            if self.keeping._asked is None:
                return False
            time.sleep(0.01)
        raise AssertionError("nobody told the position")


def test_the_first_of_a_ring_writes_a_copy_with_a_position_that_is_not_ahead(tmp_path):
    process, model = Process(tmp_path), Model()
    assert process.look(model, 9)
    (made,) = snapshots.look(directory(str(tmp_path))).manifests
    assert (made.step, made.ledger, made.epoch) == (9, b"at 1", 3)
    before = [np.array(one) for one in model.arrays]
    model.arrays[0] += 1  # the next step, while it is written
    assert equal(list(process_cuts.read(directory(str(tmp_path)), made)), before)


@pytest.mark.parametrize("what", ["not the first", "not yet", "no step", "between", "off"])
def test_nothing_is_written(tmp_path, what):
    process, model = (
        Process(tmp_path, seconds=100.0 if what == "not yet" else 0.0, first=what != "not the first"),
        Model(),
    )
    model.between = what == "between"
    if what == "off":
        process.settings.disk_backup = "off"
    assert not process.look(model, 0 if what == "no step" else 9)
    assert os.listdir(tmp_path) == [] and not process.asked


def test_a_directory_that_cannot_be_written_is_told_once_and_tried_again(tmp_path, monkeypatch):
    process, model = Process(tmp_path), Model()

    def full(*words, **how):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(process_cuts, "write", full)
        assert process.look(model, 9) and process.look(model, 10)
    assert len(process.told) == 1 and "No space left on device" in process.told[0][0]
    assert process.look(model, 11) and snapshots.look(directory(str(tmp_path))).manifests[0].step == 11
    with monkeypatch.context() as patch:
        patch.setattr(keeping.process_cuts, "write", full)
        assert process.look(model, 12)
    assert len(process.told) == 2


def test_names_are_given_once_each(tmp_path):
    process, model = Process(tmp_path), Model()
    model.names = lambda: ["w", "w", "w", "_site", "__rate"]
    assert process.look(model, 9)
    (made,) = snapshots.look(directory(str(tmp_path))).manifests
    assert [one.name for one in made.variables] == ["w", "w_2", "w_3", "_site", "__rate"]
