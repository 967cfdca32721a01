"""What user code sees of the cluster, and what stays untouched outside a job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deeprec_ext import autoload, env

ROOT = Path(__file__).resolve().parents[3]


def test_slots_are_the_parameter_servers_and_workers_are_padded_to_the_own_index():
    config = autoload.user_tf_config("worker", 2, slots=4)
    assert config["cluster"]["ps"] == [f"slot-{slot}:2222" for slot in range(4)]
    assert len(config["cluster"]["worker"]) == 3
    assert config["task"] == {"type": "worker", "index": 2}
    assert autoload.user_tf_config("chief", 0, slots=4)["task"] == {"type": "chief", "index": 0}


def test_worker_0_stands_for_the_chief_of_a_job_without_one(monkeypatch):
    monkeypatch.setenv("DEEPREC_EXT_CHIEF", "worker")
    assert autoload.user_tf_config("worker", 0, slots=2)["task"] == {"type": "chief", "index": 0}
    assert autoload.user_tf_config("worker", 1, slots=2)["task"] == {"type": "worker", "index": 1}


def test_run_config_accepts_what_user_code_sees(monkeypatch):
    tf = pytest.importorskip("tensorflow")
    for role, index in [("chief", 0), ("worker", 0), ("worker", 5), ("evaluator", 0)]:
        monkeypatch.setenv("TF_CONFIG", json.dumps(autoload.user_tf_config(role, index, slots=8)))
        config = tf.estimator.RunConfig()
        assert config.task_type == role
        assert config.num_ps_replicas == (0 if role == "evaluator" else 8)


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """With autoload, unless the variables have another PYTHONPATH."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "deeprec_ext" / "_autoload")])
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)


def test_a_process_outside_a_job_is_left_alone():
    done = python("import os, sys; print(os.environ.get('TF_CONFIG'), 'deeprec_ext' in sys.modules)")
    assert done.stdout.split() == ["None", "False"], done.stderr


def test_a_process_of_a_job_has_its_tf_config_before_the_script_runs():
    job = dict(env.process_environment(
        aimaster="127.0.0.1:1", job="j", role="worker", index=1, slots=3, certificates=None, workdir="/w",
    ))  # fmt: skip
    done = python("import os; print(os.environ['TF_CONFIG'])", **job)
    assert json.loads(done.stdout)["task"] == {"type": "worker", "index": 1}, done.stderr


def test_importing_the_package_is_as_good_as_autoload():
    """For a script whose environment has a `sitecustomize` of its own before ours."""
    job = dict(env.process_environment(
        aimaster="127.0.0.1:1", job="j", role="worker", index=1, slots=3, certificates=None, workdir="/w",
    ))  # fmt: skip
    code = "import os; before = 'TF_CONFIG' in os.environ; import deeprec_ext; print(before, os.environ['TF_CONFIG'])"
    done = python(code, **job, PYTHONPATH=str(ROOT))
    before, _, config = done.stdout.partition(" ")
    assert before == "False" and json.loads(config)["task"] == {"type": "worker", "index": 1}, done.stderr


def test_the_users_command_of_a_ps_becomes_the_server_and_does_not_run():
    job = dict(env.process_environment(
        aimaster="127.0.0.1:1", job="j", role="ps", index=0, slots=3, certificates=None, workdir="/w",
    ))  # fmt: skip
    path = os.pathsep.join([str(ROOT), str(ROOT / "deeprec_ext" / "_autoload")])
    command = [sys.executable, "-c", "print('the script')"]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path, **job}, stdout=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 60
        while b"deeprec_ext.elastic.serve" not in Path(f"/proc/{process.pid}/cmdline").read_bytes():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        assert process.poll() is None  # it waits for its AIMaster, for ever by now
    finally:
        process.kill()
        output, _ = process.communicate(timeout=10)
    assert output == b""


def test_a_child_of_a_role_is_stock(monkeypatch):
    for name, value in env.process_environment(
        aimaster="127.0.0.1:1", job="j", role="chief", index=0, slots=3, certificates=None, workdir="/w",
    ).items():  # fmt: skip
        monkeypatch.setenv(name, value)
    assert env.is_elastic_process()
    monkeypatch.setenv("DEEPREC_EXT_OWNER", str(os.getpid() + 1))
    assert not env.is_elastic_process()


def test_the_server_of_a_ps_and_what_it_starts_are_no_trainers():
    job = dict(env.process_environment(
        aimaster="127.0.0.1:1", job="j", role="ps", index=0, slots=3, certificates=None, workdir="/w",
    ))  # fmt: skip
    done = python("import os, sys; print(os.environ.get('TF_CONFIG'), [type(f).__name__ for f in sys.meta_path])",
                  **job, DEEPREC_EXT_SERVING="1")  # fmt: skip
    assert done.stdout.startswith("None ") and "_AfterImport" not in done.stdout, done.stderr
