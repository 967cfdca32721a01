"""What cannot work is said in one clear line, with what to do; with the real AIMaster and real PS."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tests.behaviour.jobs import ROOT, SCRIPTS, RealJob, environment

REFUSED = ("python", str(SCRIPTS / "refused.py"))


def lines(job: RealJob) -> list[str]:
    return [line for line in job.output.splitlines() if line.strip()]


@pytest.mark.slow
def test_a_loop_of_eager_steps_is_refused_by_name_with_the_remedy(begin):
    job = begin("--ps", "1", "--workers", "0", "--quiet", command=(*REFUSED, "eager"))
    assert job.end() == 2, job.output
    reason = job.summary()["reason"]
    assert "a loop of its own" in reason and "train_step" in reason and "tf.estimator" in reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("sync", ["SyncReplicasOptimizer", "pass the inner optimizer itself"]),
        ("queue", ["my_queue", "is a queue", "use tf.data"]),
        ("trainer", ["my_sum", "/job:worker/task:5 is no place of this process", "Place it on /job:worker"]),
        ("table", ["my_table", "is a mutable hash table", "place it on the worker"]),
    ],
)
def test_a_script_that_cannot_be_elastic_is_refused_by_name_with_the_remedy(begin, what, words):
    job = begin("--ps", "1", "--workers", "0", "--quiet", command=(*REFUSED, what))
    assert job.end() == 2, job.output
    said = [line for line in lines(job) if words[0] in line]
    assert len(said) == 1, job.output
    assert all(word in said[0] for word in words), said
    assert "Traceback" not in job.output
    assert job.summary()["status"] == "failed"
    assert job.summary()["roles"]["chief-0"]["restarted"] == 0


@pytest.mark.slow
def test_a_script_that_reads_tf_config_in_a_job_without_ps_is_refused_with_the_remedy(begin, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import json, os\n\nworkers = json.loads(os.environ['TF_CONFIG'])['cluster']['worker']\n")
    job = begin("--strategy", "allreduce", "--workers", "0", "--quiet", command=("python", str(script)))
    assert job.end() == 2, job.output
    said = "train.py, line 3: the script reads TF_CONFIG, and a job without PS has none"
    assert said in job.summary()["reason"] and said in job.output and "Traceback" not in job.output
    assert job.summary()["roles"]["chief-0"]["restarted"] == 0


@pytest.mark.slow
def test_a_script_that_dies_at_import_shows_its_traceback(begin, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import tensorflow as tf\nimport no_such_module_at_all\n")
    job = begin("--ps", "1", "--workers", "0", command=("python", str(script)))
    assert job.end() == 1
    assert "Traceback (most recent call last)" in job.output
    assert "No module named 'no_such_module_at_all'" in job.output
    assert job.summary()["status"] == "failed"


@pytest.mark.parametrize(
    ("flags", "script", "said"),
    [
        (["--ps", "0"], "count.py", "a job needs at least 1 PS"),
        (["--ps", "9", "--slots", "8"], "count.py", "a PS needs at least one slot"),
        (["--ps", "1"], "no_such_script.py", "no such script"),
        (["--port", "{taken}"], "count.py", "{taken}"),
        (["--events", "{events}"], "count.py", "unknown key `at_stop`"),
    ],
    ids=["no PS", "more PS than slots", "no script", "port in use", "unknown key"],
)
def test_bad_usage_is_one_line_and_exit_code_2_and_leaves_nothing(tmp_path, flags, script, said):
    events = tmp_path / "events.yaml"
    events.write_text("- {at_stop: 10, scale: {ps: 2}}\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        values = {"taken": str(taken.getsockname()[1]), "events": str(events)}
        words = [word.format(**values) for word in flags]
        result = subprocess.run(
            [sys.executable, "-m", "deeprec_ext.cli.main", "run", "--workdir", str(tmp_path / "run"), *words, "--",
             "python", str(SCRIPTS / script)],
            capture_output=True, text=True, timeout=60, cwd=ROOT, env=environment(), check=False,
        )  # fmt: skip
    assert result.returncode == 2, result
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert said.format(**values) in result.stderr
    assert not (tmp_path / "run").exists()
