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
from deeprec_ext.launch.environment import python_path

ROOT = Path(__file__).resolve().parents[2]


def test_slots_are_the_parameter_servers_and_workers_are_padded_to_the_own_index():
    config = autoload.user_tf_config("worker", 2, slots=4)
    assert config["cluster"]["ps"] == [f"slot-{slot}:2222" for slot in range(4)]
    assert len(config["cluster"]["worker"]) == 3
    assert config["task"] == {"type": "worker", "index": 2}
    assert autoload.user_tf_config("chief", 0, slots=4)["task"] == {"type": "chief", "index": 0}


def test_worker_0_may_be_the_chief_and_so_may_a_master():
    chief = autoload.user_tf_config("chief", 0, slots=2, layout="workers")
    assert chief["task"] == {"type": "worker", "index": 0} and set(chief["cluster"]) == {"ps", "worker"}
    worker = autoload.user_tf_config("worker", 1, slots=2, layout="workers")
    assert worker["task"] == {"type": "worker", "index": 2} and len(worker["cluster"]["worker"]) == 3
    assert autoload.user_tf_config("chief", 0, slots=2, layout="master")["task"] == {"type": "master", "index": 0}
    assert autoload.user_tf_config("worker", 1, slots=2, layout="master")["task"] == {"type": "worker", "index": 1}


@pytest.mark.parametrize("layout", ["chief", "master"])
def test_run_config_accepts_what_user_code_sees(monkeypatch, layout):
    tf = pytest.importorskip("tensorflow")
    for role, index in [("chief", 0), ("worker", 0), ("worker", 5), ("evaluator", 0)]:
        monkeypatch.setenv("TF_CONFIG", json.dumps(autoload.user_tf_config(role, index, slots=8, layout=layout)))
        config = tf.estimator.RunConfig()
        assert config.task_type == (layout if role == "chief" else role)
        assert config.is_chief == (role == "chief")
        assert config.num_ps_replicas == (0 if role == "evaluator" else 8)


def test_the_arguments_of_a_command_are_filled_in_before_the_script_runs():
    job = dict(env.process_environment(
        aimaster="127.0.0.1:1", job="j", role="worker", index=0, slots=2, certificates=None, workdir="/w", layout="workers",
    ))  # fmt: skip
    words = [
        "--job_name={job_name}",
        "--task_index",
        "{task_index}",
        "--ps={ps_hosts}",
        "--worker_hosts={worker_hosts}",
        "{a}",
    ]
    done = python("import sys; print(*sys.argv[1:])", *words, **job)
    expected = (
        "--job_name=worker --task_index 1 --ps=slot-0:2222,slot-1:2222 --worker_hosts=worker-0:2222,worker-1:2222 {a}"
    )
    assert done.stdout.strip() == expected, done.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cluster['worker']; task == 'worker'", "worker 2"),  # as Kubeflow has it
        ("'chief' in cluster", "worker 1"),
        ("tf.estimator.train_and_evaluate", "worker 1"),
    ],
)
def test_a_tfjob_without_a_chief_calls_worker_0_so_unless_the_script_wants_a_chief(tmp_path, text, told):
    job = dict(env.process_environment(
        aimaster="127.0.0.1:1", job="j", role="worker", index=1, slots=2, certificates=None, workdir="/w", chief="worker",
    ))  # fmt: skip
    script = tmp_path / "train.py"
    script.write_text(
        "import json, os\ntask = json.loads(os.environ['TF_CONFIG'])['task']\nprint(task['type'], task['index'])\n"
        f"def never():\n    return {text}\n"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "deeprec_ext" / "_autoload")])
    environment = {**os.environ, "PYTHONPATH": path, **job}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == told, done.stderr
    assert "TF_CONFIG has" in done.stderr


@pytest.mark.parametrize("chief", ["worker", "chief"])
def test_in_a_tfjob_a_script_with_flags_gets_them_whatever_the_job_calls_its_chief(tmp_path, chief):
    job = dict(env.process_environment(
        aimaster="127.0.0.1:1", job="j", role="chief", index=0, slots=2, certificates=None, workdir="/w", chief=chief,
    ))  # fmt: skip
    script = tmp_path / "train.py"
    flags = "".join(
        f"parser.add_argument('--{flag}')\n" for flag in ("ps_hosts", "worker_hosts", "job_name", "task_index")
    )
    script.write_text(
        f"import argparse\nparser = argparse.ArgumentParser()\n{flags}f = parser.parse_args()\n"
        "print(f.job_name, f.task_index, f.worker_hosts, f.ps_hosts)\n"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "deeprec_ext" / "_autoload")])
    environment = {**os.environ, "PYTHONPATH": path, **job}
    words = [sys.executable, str(script), "--job_name=theirs"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["worker", "0", "worker-0:2222", "slot-0:2222,slot-1:2222"], done.stderr


def test_the_own_command_is_known_to_a_python_that_does_not_tell_it(monkeypatch):
    told = sys.orig_argv
    monkeypatch.delattr(sys, "orig_argv")
    assert autoload.own_command() == told


def python(code: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """With autoload, unless the variables have another PYTHONPATH."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "deeprec_ext" / "_autoload")])
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    return subprocess.run(
        [sys.executable, "-c", code, *words], env=environment, capture_output=True, text=True, timeout=120
    )


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


CHAINS = """
import importlib.util, os, sys
from importlib.machinery import PathFinder
sys.ran = getattr(sys, "ran", 0) + 1
here = os.path.dirname(os.path.abspath(__file__))
spec = PathFinder.find_spec("sitecustomize", [one for one in sys.path if os.path.abspath(one or ".") != here])
if spec is not None:
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
"""


@pytest.mark.parametrize("first", [True, False])
def test_another_sitecustomize_that_calls_the_next_one_runs_once_and_so_does_ours(tmp_path, first):
    """As those of tracers do; each found the other again and again, until the stack was full."""
    (tmp_path / "sitecustomize.py").write_text(CHAINS)
    job = dict(env.process_environment(
        aimaster="127.0.0.1:1", job="j", role="worker", index=1, slots=3, certificates=None, workdir="/w",
    ))  # fmt: skip
    others = [str(ROOT), str(ROOT / "deeprec_ext" / "_autoload")]
    path = os.pathsep.join([str(tmp_path), *others] if first else [*others, str(tmp_path)])
    done = python("import os, sys; print(sys.ran, 'TF_CONFIG' in os.environ)", **job, PYTHONPATH=path)
    assert (done.stdout, done.stderr) == ("1 True\n", "")


def test_a_sitecustomize_of_the_users_that_calls_no_other_runs_and_so_does_ours(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.ran = 1\n")
    job = dict(env.process_environment(
        aimaster="127.0.0.1:1", job="j", role="worker", index=1, slots=3, certificates=None, workdir="/w",
    ))  # fmt: skip
    path = python_path(str(tmp_path), autoload=True)
    done = python("import os, sys; print(sys.ran, 'TF_CONFIG' in os.environ)", **job, PYTHONPATH=path)
    assert (done.stdout, done.stderr) == ("1 True\n", "")


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
