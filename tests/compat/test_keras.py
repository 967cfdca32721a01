"""A script of plain Keras, of the generation that this TensorFlow has, through the same course."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from tests.behaviour.fitting import fit_through_changes
from tests.compat.unchanged import stock

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_keras")]

READ = """
import sys
import keras
model = keras.models.load_model(sys.argv[1])
assert not any(name.startswith("deeprec_ext") for name in sys.modules), "this is not stock Keras"
print(keras.__version__, int(model.optimizer.iterations))
"""
"""What a fresh process does that has Keras alone."""


@pytest.mark.skipif(
    version("tensorflow").startswith("2.15."), reason="tests/behaviour/test_front_doors.py does the same there"
)
@pytest.mark.timeout(700)
def test_fit_goes_on_while_ps_and_workers_change_and_its_model_is_plain_keras(begin, tmp_path):
    job = fit_through_changes(begin, tmp_path)
    version, iterations = stock(("-c", READ, str(job.directory / "wide_deep.keras")), tmp_path).split()[-2:]
    steps = job.summary()["steps"]
    assert 0.9 * steps < int(iterations) <= steps, "but for what the promoted PS had not heard of"
    print(f"Keras {version}: {iterations} steps, AUC {job.summary()['metrics']['auc']:.4f}")
