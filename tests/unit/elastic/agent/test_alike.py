"""What a script makes by chance is the same in all processes of a job."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deeprec_ext import env
from deeprec_ext.elastic.agent.alike import is_wanted
from deeprec_ext.layout import facts_of_command

DRAWS = "import numpy as np\nprint(np.random.random(3).tolist(), np.random.permutation(5).tolist())\n"
DEADLINE = 60.0


@pytest.fixture
def run(tmp_path: Path):
    def of(text: str, role: str = "worker", job: str = "a-job") -> str:
        script = tmp_path / "train.py"
        script.write_text(text)
        environment = env.process_environment(
            aimaster="127.0.0.1:1", job=job, role=role, index=0, slots=1, certificates=None, workdir=str(tmp_path),
        )  # fmt: skip
        done = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, timeout=DEADLINE,
            env={**env_of_tests(), **environment},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return of


def env_of_tests() -> dict[str, str]:
    import os

    root = Path(__file__).resolve().parents[4]
    paths = (str(root / "deeprec_ext" / "_autoload"), str(root))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


KERAS = "def model():\n    from tensorflow import keras\n    return keras\n"


def test_what_a_script_of_keras_draws_is_the_same_in_all_processes_of_a_job_and_of_no_other(run):
    assert run(KERAS + DRAWS, "chief") == run(KERAS + DRAWS, "worker")
    assert run(KERAS + DRAWS) != run(KERAS + DRAWS, job="another")


def test_within_fit_each_process_has_its_own_and_afterwards_all_have_the_same_again(run):
    fit = "from deeprec_ext.elastic.agent.alike import ALIKE\nimport os\n" \
        "with ALIKE.apart(os.environ['DEEPREC_EXT_ROLE']):\n    print(np.random.random())\n"  # fmt: skip
    chief, worker = (run(KERAS + DRAWS + fit + DRAWS, role).splitlines() for role in ("chief", "worker"))
    assert [one == other for one, other in zip(chief, worker)] == [True, False, True] and chief[0] != chief[2]


def test_other_scripts_are_left_to_their_own_chance(run):
    assert run(DRAWS) != run(DRAWS)


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("import tensorflow as tf\ntf.keras.Sequential()", True), ("from tensorflow.keras import layers", True),
        ("import keras", True), ("from tf_keras.layers import Dense", True), ("import tensorflow as tf", False),
        ("import keras\nimport os\nos.environ['TF_CONFIG']", False),
        ("import keras\nimport deeprec_ext.horovod as hvd", False),
        ("import tensorflow as tf\ntf.keras.estimator.model_to_estimator(tf.keras.Sequential())", False),
        ("import tensorflow as tf\ntf.compat.v1.train.MonitoredTrainingSession()\ntf.keras.layers.Dense", False),
    ],
)  # fmt: skip
def test_it_is_for_scripts_of_keras_that_know_of_no_cluster(tmp_path: Path, text: str, wanted: bool):
    (tmp_path / "train.py").write_text(text)
    assert is_wanted(facts_of_command(("python", "train.py"), tmp_path)) is wanted
