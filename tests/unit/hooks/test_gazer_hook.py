"""`GazerHook`: options, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext.elastic.trainer import process  # noqa: E402
from deeprec_ext.errors import UsageError  # noqa: E402
from deeprec_ext.hooks import GazerHook  # noqa: E402


def test_without_an_aimaster_it_does_nothing_and_says_so(caplog, tmp_path):
    with tf.Graph().as_default(), caplog.at_level("INFO", "deeprec_ext"):
        tf.compat.v1.train.get_or_create_global_step()
        hook = GazerHook(trace_seconds=1.0)
        with tf.compat.v1.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=[hook]) as session:
            session.run(tf.compat.v1.train.get_global_step())
    said = [record.message for record in caplog.records if "GazerHook" in record.message]
    assert said == ["no AIMaster: GazerHook does nothing, this is stock training"]
    assert not (tmp_path / "gazer").exists()


def test_in_a_job_it_hands_over_its_options(monkeypatch):
    asked = []
    gazer = SimpleNamespace(wish=lambda *options: asked.append(options))
    monkeypatch.setattr(process, "_trainer", SimpleNamespace(gazer=gazer))
    GazerHook()
    GazerHook(trace_seconds=0.0, tensorboard=False, sample_seconds=10.0)
    assert asked == [(None, None, True), (0.0, 10.0, False)]


@pytest.mark.parametrize("wrong", [
    {"trace_seconds": -1.0}, {"trace_seconds": float("nan")}, {"sample_seconds": 0.0}, {"sample_seconds": float("nan")},
])  # fmt: skip
def test_times_that_cannot_be_are_refused_by_name(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        GazerHook(**wrong)
