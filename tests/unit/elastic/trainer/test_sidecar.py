"""The data ledger's position beside a checkpoint."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from deeprec_ext.elastic.trainer import sidecar


class Inputs:
    """Of a trainer that reads an elastic dataset."""

    has_training_data = True

    def __init__(self) -> None:
        self.restored: list[tuple[bytes, bool]] = []

    def note_restored(self, ledger: bytes, fresh: bool) -> None:
        self.restored.append((ledger, fresh))


def test_what_was_written_is_restored_without_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    inputs = Inputs()
    sidecar.write(str(tmp_path / "model.ckpt-7"), b"position")
    with caplog.at_level(logging.WARNING, "deeprec_ext"):
        sidecar.note_restored(inputs, str(tmp_path / "model.ckpt-7"))
    assert inputs.restored == [(b"position", False)] and not caplog.records
    assert [path.name for path in tmp_path.iterdir()] == ["model.ckpt-7.ledger"]


def test_a_checkpoint_without_one_is_restored_with_a_warning_and_no_position(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inputs = Inputs()
    with caplog.at_level(logging.WARNING, "deeprec_ext"):
        sidecar.note_restored(inputs, str(tmp_path / "model.ckpt-7"))
    assert inputs.restored == [(b"", False)]
    assert "model.ckpt-7 has no data ledger beside it" in caplog.text


def test_a_model_that_begins_is_no_reason_to_warn(caplog: pytest.LogCaptureFixture) -> None:
    inputs = Inputs()
    with caplog.at_level(logging.WARNING, "deeprec_ext"):
        sidecar.note_restored(inputs, None)
    assert inputs.restored == [(b"", True)] and not caplog.records


def test_the_chief_tells_of_a_checkpoint_when_it_is_written_and_not_before(tmp_path: Path) -> None:
    import tensorflow as tf

    v1, saved = tf.compat.v1, []

    class Writes(v1.train.Saver):
        def save(self, *args: object, **kwargs: object) -> object:
            assert not saved
            return super().save(*args, **kwargs)

    inputs = Inputs()
    inputs.has_training_data = False
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        listener = sidecar.LedgerListener(inputs, lambda: str(tmp_path / "model.ckpt"), saved.append)
        hook = v1.train.CheckpointSaverHook(str(tmp_path), save_steps=100, saver=Writes(), listeners=[listener])
        hook.begin()
        with v1.Session() as session:
            session.run(v1.assign(step, 7))
            hook.after_create_session(session, None)
    assert saved == [7]


def test_sidecars_go_with_their_checkpoints_but_the_newest_stays(tmp_path: Path) -> None:
    prefix = tmp_path / "model.ckpt"
    for step in (1, 20, 3):
        sidecar.write(f"{prefix}-{step}", b"x")
    (tmp_path / "model.ckpt-3.index").touch()
    sidecar.remove_old(str(prefix))
    assert sorted(path.name for path in tmp_path.glob("*.ledger")) == ["model.ckpt-20.ledger", "model.ckpt-3.ledger"]
