"""Scripts in the style of TensorFlow's tutorials, which know nothing of this project, and what is done to each of them."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.behaviour.jobs import RealJob
from tests.behaviour.losses import Losses

SCRIPTS = Path(__file__).resolve().parent / "scripts"
FLAGS = (
    "--strict", "--ps", "1", "--workers", "1", "--max-ps", "2", "--backup", "peer",
    "--setting", "peer_backup_seconds=0.5", "--setting", "ps_heartbeat_limit_seconds=30",
)  # fmt: skip

ESTIMATOR = importlib.util.find_spec("tensorflow_estimator") is not None
"""TensorFlow has it up to 2.15."""

WITH_KERAS_2 = {} if ESTIMATOR else {"TF_USE_LEGACY_KERAS": "1"}
"""What a script with `tf.layers` needs in its environment; later TensorFlow then takes Keras 2 from the package `tf_keras`."""

TRAINERS = (pb.CHIEF, pb.WORKER)

READ = """
import sys
import numpy as np
import tensorflow as tf
reader = tf.train.load_checkpoint(sys.argv[1])
values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
assert all(np.all(np.isfinite(value)) for value in values.values()), "values that are no numbers"
assert set(sys.argv[2:]) <= set(values), sorted(values)
assert all(np.any(values[name]) for name in sys.argv[2:]), "never trained"
assert not any(name.startswith("deeprec_ext") for name in sys.modules), "this is not stock TensorFlow"
print("global_step", int(values["global_step"]))
"""
"""What a fresh process does that has TensorFlow alone: a checkpoint, and variables that are to be in it."""


@dataclass(frozen=True)
class Script:
    """One of `scripts/` and what is expected of it."""

    name: str
    accuracy: float
    """It is to be better than this after training."""
    variables: tuple[str, ...]
    """Some that stock TensorFlow has to find in the checkpoint."""
    guess: float = 0.55
    """Already after 400 steps it is to be better than this: than the most frequent answer."""
    steps: int = 3000
    said: tuple[str, ...] = ()
    """What hooks and listeners of the chief have printed besides."""
    begins_again: bool = False
    """With stock TensorFlow it throws away the checkpoint that it has restored."""
    unsaved: int = 0
    """Its last checkpoint may be so many steps before its end: nobody closes its session."""

    @property
    def lacks(self) -> str:
        """What this TensorFlow does not have of what the script uses; empty: nothing."""
        text = (SCRIPTS / f"{self.name}.py").read_text()
        if "tf.estimator" in text and not ESTIMATOR:
            return "tf.estimator ended with TensorFlow 2.15"
        if ".layers." in text and not ESTIMATOR and importlib.util.find_spec("tf_keras") is None:
            return "tf.layers needs the package tf_keras with this TensorFlow"
        return ""

    def command(self, directory: Path, steps: int, *more: str, slow_while: Path | None = None) -> tuple[str, ...]:
        data = ("--data_dir", str(directory.parent / "data")) if self.name == "linear_csv" else ()
        words = {"model_dir": str(directory), "steps": str(steps), "slow_while": str(slow_while or "")}
        dashes = "_" if self.name in ("linear_csv", "old_style", "file_queues", "init_everywhere") else "-"
        flags = [word for name, value in words.items() for word in (f"--{name.replace('_', dashes)}", value)]
        return ("python", str(SCRIPTS / f"{self.name}.py"), *flags, *data, *more)


ALL = (
    Script(
        "wide_and_deep", 0.7, guess=0.6, variables=(
            "linear/linear_model/hour_bucketized_X_station/weights", "dnn/hiddenlayer_0/kernel",
            "training/Ftrl/linear/linear_model/station/weights/linear",
            "dnn/input_from_feature_columns/input_layer/station_embedding/embedding_weights",
        ),
    ),
    Script(
        "linear_csv", 0.75, guess=0.65,
        variables=("linear/linear_model/banner/weights", "training/Ftrl/linear/linear_model/banner_X_page/weights/linear"),
    ),
    Script(
        "custom_model_fn", 0.7, guess=0.52, variables=("users", "users/Adagrad", "films", "tower/weights"),
        said=("global step seen: ", "loss = "),
    ),
    Script(
        "monitored_session", 0.9, guess=0.5, variables=("first/kernel", "first/kernel/Momentum"),
        said=("a session was made", "checkpoints: "),
    ),
    Script("old_style", 0.75, guess=0.6, variables=("embedding", "embedding/Adagrad", "hidden/kernel")),
    Script(
        "numpy_queues", 0.95, guess=0.8,
        variables=("dnn/hiddenlayer_0/kernel", "training/Adagrad/dnn/hiddenlayer_0/kernel/accumulator"),
    ),
    Script(
        "moving_averages", 0.9, guess=0.75, variables=(
            "batch_normalization/moving_variance", "dense/kernel/Adam_1", "dense/kernel/ExponentialMovingAverage",
        ),
    ),
    Script(
        "warm_start", 0.7, guess=0.6,
        variables=("dnn/input_from_feature_columns/input_layer/items_embedding/embedding_weights",),
    ),
    Script(
        "folded_chief", 0.7, guess=0.58, variables=("input_layer/embedding", "input_layer/wide/Adagrad", "hidden/kernel"),
        said=("worker 0\n", "what it places there runs here"),
    ),
    Script("knows_master", 0.7, guess=0.58, variables=("jobs", "towns/Adagrad", "hidden/kernel")),
    Script("hosts_in_flags", 0.9, guess=0.8, variables=("hidden_w", "sm_b/Adagrad")),
    Script(
        "left_open", 0.75, guess=0.65, variables=("zones", "companies/Adam_1", "numbers/moving_variance"), unsaved=200,
        said=("training is over",),
    ),
    Script(
        "init_everywhere", 0.85, guess=0.65, variables=("embedding", "wide/Adagrad", "hidden/kernel"), begins_again=True,
        said=("the script initialises the live model once more; that was held back: ",),
    ),
    Script("file_queues", 0.8, guess=0.65, variables=("species", "places/Momentum", "hidden/kernel")),
    Script(
        "vocabularies", 0.75, guess=0.55, variables=("cities", "titles/RMSProp", "hidden/kernel/RMSProp_1"),
        said=("area under the curve: ",),
    ),
    Script(
        "own_hooks", 0.7, guess=0.53, variables=("tables/songs", "tables/listeners/Adagrad", "tower/first/kernel"),
        said=("session 1 begins at step 0, 0 behind", "saved ", "norm of the tables: "),
    ),
    Script(
        "crossed_columns", 0.75, guess=0.65, variables=(
            "linear/linear_model/from_X_to/weights", "linear/linear_model/carrier_X_from_X_hour_bucketized/weights/Ftrl",
            "dnn/input_from_feature_columns/input_layer/from_to_shared_embedding/embedding_weights",
            "dnn/input_from_feature_columns/input_layer/tail_embedding/embedding_weights/Adagrad",
        ),
    ),
)  # fmt: skip


def accuracy_in(text: str) -> float:
    """The last one that a script has printed."""
    found = re.findall(r"^accuracy: ([0-9.]+)$", text, re.MULTILINE)
    assert found, text[-3000:]
    return float(found[-1])


def counted_in(text: str) -> int:
    """Steps that the script's own hook has counted, of all runs in this log."""
    return sum(int(count) for count in re.findall(r"^steps of this process: (\d+)$", text, re.MULTILINE))


def stock(words: tuple[str, ...], directory: Path, seconds: float = 500.0) -> str:
    """Runs it without this project in reach; what it has written."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("TF_CONFIG", "DEEPREC_", "PYTHON"))
    }
    done = subprocess.run(
        [sys.executable, *words], cwd=directory, env={**kept, "TF_CPP_MIN_LOG_LEVEL": "2"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def run_stock(script: Script, directory: Path, steps: int, *more: str) -> str:
    """The script in one process, with stock TensorFlow."""
    return stock(script.command(directory, steps, *more)[1:], directory.parent)


def prepared(script: Script, directory: Path) -> tuple[str, ...]:
    """Further arguments; what they name is made, with stock TensorFlow, where it is not there."""
    if script.name != "warm_start":
        return ()
    first = directory / "first"
    run_stock(script, first, 300)
    return ("--warm-start-from", str(first))


def wait_steps(job: RealJob) -> None:
    """Until each trainer that there is has made a step beyond those that all have made by now."""
    status = job.until(job.status, "status")
    names = {role.name for role in status.roles if role.role in TRAINERS and role.state == "running"}

    def on() -> bool:
        now = job.status()
        stepped = {} if now is None else {role.name for role in now.roles if role.heartbeat.step > status.step}
        return names <= set(stepped)

    job.until(on, f"steps of {sorted(names)}", every=0.1)


def wait_trainers(job: RealJob, count: int) -> None:
    """Until so many train."""

    def there() -> bool:
        status = job.status()
        roles = () if status is None else status.roles
        return sum(one.role in TRAINERS and one.state == "running" and one.heartbeat.training for one in roles) == count

    job.until(there, f"{count} trainers", every=0.1)
    wait_steps(job)


def fullest_ps(job: RealJob) -> str:
    """The PS whose loss costs most."""
    status = job.until(job.status, "status")
    return max((role.bytes, role.name) for role in status.roles if role.role == pb.PS and role.state == "running")[1]


KILLED_WORKER = "worker-1"
"""The one that came during training."""

SLOW_STEP_SECONDS = 0.5
"""What a step takes at least while a script is told to be slow."""


@dataclass(frozen=True)
class Disturbed:
    ps: str
    """Which one was killed."""
    uncounted: int
    """So many steps at most were made by the worker that was killed, whose hook told nobody of them."""


def disturb(job: RealJob) -> Disturbed:
    """PS 1 → 2, a worker more, the fullest PS killed and taken over, that worker killed, and back to where it began."""
    job.wait_scalable()
    wait_steps(job)
    before = job.running()
    assert job.scale(ps=2).outcome == "committed"
    asked = time.monotonic()
    assert job.scale(workers=2).outcome == "committed"
    wait_trainers(job, 3)

    losses = Losses(job, 2)
    losses.wait_protected()
    name = fullest_ps(job)
    killed = job.kill(name)
    losses.wait_event("promoted", 1)
    losses.wait_protected()  # another of this name has slots again
    assert job.pid(name) != killed
    wait_trainers(job, 3)

    killed = job.kill(KILLED_WORKER)
    uncounted = int((time.monotonic() - asked) / SLOW_STEP_SECONDS) + 1
    job.until(
        lambda: (one := job.role(KILLED_WORKER)) and one.pid not in (0, killed) and one.heartbeat.training,
        f"{KILLED_WORKER} to train again",
    )
    wait_trainers(job, 3)

    assert job.scale(workers=1).outcome == "committed"
    assert job.scale(ps=1).outcome == "committed"
    wait_trainers(job, 2)
    after = {**job.running(), name: before.get(name, 0)}
    assert {one: after[one] for one in ("ps-0", "chief-0", "worker-0")} == before, "a process was started again"
    return Disturbed(name, uncounted)


def check(script: Script, job: RealJob, steps: int, disturbed: Disturbed) -> None:
    """What the job has told, and its checkpoint as stock TensorFlow reads it and goes on with it."""
    summary, chief = job.summary(), job.log("chief-0")
    assert [f"{one['role']}-{one['id']}" for one in summary["failures"]] == [disturbed.ps, KILLED_WORKER], summary[
        "failures"
    ]
    assert summary["failures"][0]["recovered_by"] == "promotion", summary["failures"]
    assert all(one["recovered_seconds"] is not None and not one["steps_lost"] for one in summary["failures"]), summary
    assert {one["outcome"] for one in summary["scaling"]} == {"committed"}, summary["scaling"]
    died = (disturbed.ps, KILLED_WORKER)
    assert all(role["restarted"] == (name in died) for name, role in summary["roles"].items()), summary["roles"]
    assert summary["steps"] >= steps

    counts = {name: counted_in(job.log(name)) for name in ("chief-0", "worker-0", "worker-1")}
    assert all(counts.values()), f"hooks of the script have not ended: {counts}"
    for said in script.said:
        assert said in chief, f"{said!r} is not in the chief's log"
    accuracy = summary["metrics"]["accuracy"] if "accuracy" in summary["metrics"] else accuracy_in(chief)
    assert accuracy > script.accuracy

    model = job.directory / "model"
    told = stock(("-c", READ, str(model), *script.variables), job.directory.parent).split()
    reached = int(told[told.index("global_step") + 1])
    assert reached >= steps - script.unsaved
    slack, unseen = 0.02 * reached + script.unsaved, reached - sum(counts.values())
    assert -slack < unseen < slack + disturbed.uncounted, f"hooks saw {counts}, the global step is {reached}"
    print(f"{script.name}: accuracy {accuracy}, counted {counts}, global step {reached}")
    if script.begins_again:
        return
    more = run_stock(script, model, reached + 40)
    assert accuracy_in(more) > script.accuracy
    assert counted_in(more) == 40, "stock TensorFlow has not gone on from the checkpoint of the job"
