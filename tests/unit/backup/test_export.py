"""A cut becomes a checkpoint that stock TensorFlow reads, also with other partitions."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.backup import export
from deeprec_ext.backup.errors import DamagedError, WrongBackupError
from deeprec_ext.errors import UsageError
from tests.unit.backup.made import ROWS, Backup, Model

v1 = tf.compat.v1


@pytest.fixture
def backup(tmp_path):
    made = Backup(tmp_path / "backup")
    made.write(base=True)
    made.write(changed=["t/part_0"])
    made.write(changed=["t/part_0", "u"])
    return made


@pytest.mark.parametrize("shard_bytes", [1, 200, 1 << 20])
def test_stock_tensorflow_reads_it(backup, tmp_path, monkeypatch, shard_bytes):
    monkeypatch.setattr(export, "SHARD_BYTES", shard_bytes)
    made = export.export(backup.place, backup.manifests[-1], str(tmp_path / "out" / "model.ckpt-1"))
    assert (made.step, made.tensors, made.left_out) == (25, 4, ("local",))
    reader = tf.train.load_checkpoint(made.prefix)
    assert reader.get_variable_to_shape_map() == {"t": [ROWS, 3], "u": [50, 2], "words": [3], "global_step": []}
    for name in ("t", "u", "words", "global_step"):
        np.testing.assert_array_equal(reader.get_tensor(name), backup.model.whole(name))
    assert not list((tmp_path / "out").glob("*part*"))


@pytest.mark.parametrize("parts", [1, 5])
def test_a_saver_restores_it_with_other_partitions(backup, tmp_path, parts):
    made = export.export(backup.place, backup.manifests[-1], str(tmp_path / "model.ckpt-1"))
    with tf.Graph().as_default(), v1.Session() as session:
        partitioner = v1.fixed_size_partitioner(parts) if parts > 1 else None
        table = v1.get_variable("t", [ROWS, 3], partitioner=partitioner)
        v1.train.Saver().restore(session, made.prefix)
        np.testing.assert_array_equal(session.run(tf.convert_to_tensor(table)), backup.model.whole("t"))


def test_an_earlier_cut_is_what_it_was_then(backup, tmp_path):
    for manifest, state in zip(backup.manifests, backup.states):
        made = export.export(backup.place, manifest, str(tmp_path / f"model.ckpt-{manifest.number}"))
        np.testing.assert_array_equal(tf.train.load_checkpoint(made.prefix).get_tensor("u"), state["u"])


def test_damage_leaves_nothing_behind(backup, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "SHARD_BYTES", 1)
    backup.flip(backup.manifests[0].cut.files[1].name)
    with pytest.raises(DamagedError, match="slot0001"):
        export.export(backup.place, backup.manifests[-1], str(tmp_path / "out" / "model.ckpt-1"))
    assert not list((tmp_path / "out").iterdir())


def test_restore_makes_it_the_newest_checkpoint_with_the_ledger_beside_it(backup, tmp_path):
    model_dir = tmp_path / "model"
    made = export.restore(backup.place, backup.manifests[-1], str(model_dir))
    assert tf.train.latest_checkpoint(str(model_dir)) == made.prefix == str(model_dir / "model.ckpt-25")
    assert (model_dir / "model.ckpt-25.ledger").read_bytes() == b"ledger"
    again = export.restore(backup.place, backup.manifests[-1], str(model_dir))  # the same once more
    assert tf.train.load_checkpoint(again.prefix).get_tensor("global_step") == 25


def test_restore_does_not_go_back_behind_a_checkpoint_unless_forced(backup, tmp_path):
    model_dir = str(tmp_path / "model")
    export.restore(backup.place, backup.manifests[-1], model_dir)
    with pytest.raises(UsageError, match=r"checkpoint of step 25, the backup is of step 15: add --force"):
        export.restore(backup.place, backup.manifests[0], model_dir)
    assert tf.train.latest_checkpoint(model_dir).endswith("-25")
    export.restore(backup.place, backup.manifests[0], model_dir, force=True)
    assert tf.train.latest_checkpoint(model_dir).endswith("-15")


def test_another_model_is_refused_naming_both(backup, tmp_path):
    other = Model()
    other.variables = [v for v in other.variables if v.name != "u"]
    second = Backup(tmp_path / "second", "another job", other)
    second.write(base=True)
    model_dir = str(tmp_path / "model")
    export.restore(backup.place, backup.manifests[-1], model_dir)
    with pytest.raises(WrongBackupError) as error:
        export.restore(second.place, second.manifests[-1], model_dir)
    assert "another job" in str(error.value) and model_dir in str(error.value) and "u [50, 2]" in str(error.value)
