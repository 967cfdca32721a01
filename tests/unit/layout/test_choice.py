"""Which name a script gets for its chief, by its text."""

from __future__ import annotations

from pathlib import Path

import pytest

from deeprec_ext.layout import choose, facts_of_command

COMPAT = Path(__file__).resolve().parents[2] / "compat" / "scripts"
READS = "import os, json\nconfig = json.loads(os.environ['TF_CONFIG'])\n"
FLAGS = "".join(f"parser.add_argument('--{name}')\n" for name in ("ps_hosts", "worker_hosts", "job_name", "task_index"))


def layout_of(tmp_path: Path, text: str, *words: str, wanted: str = "auto"):
    script = tmp_path / "train.py"
    script.write_text(text)
    command = ("python", str(script), *words)
    return choose(facts_of_command(command), command, wanted)


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        (READS + "if config['task']['type'] == 'chief': pass", "chief"),
        (READS + "hosts = config['cluster'].get('chief', []) + config['cluster']['worker']", "chief"),
        (READS + "if job in ('chief', 'master'): pass", "chief"),
        (READS + "if job == 'master': pass", "master"),
        (READS + "master = cluster.get('master')", "master"),
        (
            READS + "flags.DEFINE_string('master', '', 'where the session runs')\nif job == 'ps': server.join()",
            "workers",
        ),
        (READS + "hosts = config['cluster']['worker']\nis_chief = index == 0", "workers"),
        (READS + "print(config)", "chief"),
        ("import tensorflow as tf\ntf.estimator.train_and_evaluate(a, b, c)  # on the master", "chief"),
        (READS + "tf.estimator.RunConfig()\nif job == 'worker': pass", "chief"),
        ("x = 'master'", "chief"),
        ("this is no Python", "chief"),
    ],
)
def test_a_name_that_the_text_lacks_is_not_given(tmp_path, text, layout):
    assert layout_of(tmp_path, text).layout == layout


def test_who_says_the_layout_has_it(tmp_path):
    choice = layout_of(tmp_path, READS + "'chief'", wanted="workers")
    assert (choice.layout, choice.reason) == ("workers", "--layout workers")


def test_modules_beside_the_script_are_read_too(tmp_path):
    (tmp_path / "cluster.py").write_text(READS + "if config['task']['type'] == 'master': pass")
    assert layout_of(tmp_path, "from cluster import config").layout == "master"
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "roles.py").write_text("CHIEF = 'chief'")
    assert layout_of(tmp_path, "import cluster\nfrom tools import roles").layout == "chief"


OWN = READS + "if config['task']['type'] in ('master', 'worker'): "


@pytest.mark.parametrize(
    "text",
    [
        OWN + "train_and_evaluate(args)\ndef train_and_evaluate(args): pass",
        OWN + "RunConfig()\nclass RunConfig: pass",
        OWN + "train_and_evaluate()\ntrain_and_evaluate = lambda: 0",
        OWN + "from own import train_and_evaluate; train_and_evaluate()",
        OWN + "from own import train_and_evaluate as t; t()",
        OWN + "import own; own.train_and_evaluate()",
        OWN + "import own as model; model.RunConfig()",
        OWN + "from .own import train_and_evaluate",
        OWN + "from package import part; part.train_and_evaluate()",
        OWN + "self.train_and_evaluate()",
        OWN + "pass\ndef main(trainer): trainer.train_and_evaluate()",
    ],
)
def test_what_a_script_calls_like_estimators_is_not_estimators(tmp_path, text):
    (tmp_path / "own.py").write_text("def train_and_evaluate(): pass\nclass RunConfig: pass")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "part.py").write_text("def train_and_evaluate(): pass")
    assert layout_of(tmp_path, text).layout == "master"


@pytest.mark.parametrize(
    "text",
    [
        OWN + "tf.estimator.train_and_evaluate(a, b, c)",
        OWN + "from tensorflow.estimator import train_and_evaluate as t; t(a, b, c)",
        OWN + "from tensorflow_estimator import estimator as e; e.RunConfig()",
        OWN + "learn = tf.contrib.learn; learn.RunConfig()",
        OWN + "from tensorflow.estimator import *; train_and_evaluate(a, b, c)",
        OWN + "tf.estimator.train_and_evaluate(a, b, c)\ndef train_and_evaluate(args): pass",
        OWN + "from tensorflow import estimator; estimator.RunConfig()\ndef export(estimator): pass",
        OWN + "from own import estimator_of\nRunConfig = tf.estimator.RunConfig",
    ],
)
def test_estimators_own_are(tmp_path, text):
    (tmp_path / "own.py").write_text("def estimator_of(): pass")
    choice = layout_of(tmp_path, text)
    assert (choice.layout, choice.reason) == ("chief", "Estimator wants one called chief")


def test_a_package_is_read_where_the_command_runs(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "task.py").write_text("import package.cluster as cluster\ncluster.train_and_evaluate()")
    (tmp_path / "package" / "cluster.py").write_text(OWN + "pass\ndef train_and_evaluate(): pass")
    facts = facts_of_command(["python", "-m", "package.task"], tmp_path)
    assert choose(facts).layout == "master"


def test_a_module_is_found_where_the_command_runs(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").write_text(READS + "job == 'master'")
    facts = facts_of_command(["python", "-m", "package.train", "--steps", "3"], tmp_path)
    assert choose(facts).layout == "master"
    assert facts_of_command(["python", "-m", "elsewhere"], tmp_path) is None
    assert facts_of_command(["bash", "-c", "python train.py"], tmp_path) is None
    assert choose(None).layout == "chief"


def test_a_script_that_takes_its_cluster_from_flags_gets_them(tmp_path):
    given = ("--steps=3", "--job_name=ps", "--task_index", "7", "--ps_hosts=a:1,b:2")
    choice = layout_of(tmp_path, FLAGS, *given)
    assert choice.layout == "workers"
    assert choice.command[2:] == (
        "--steps=3", "--job_name={job_name}", "--task_index", "{task_index}", "--ps_hosts={ps_hosts}",
        "--worker_hosts={worker_hosts}",
    )  # fmt: skip
    untouched = layout_of(tmp_path, FLAGS + READS, *given)
    assert untouched.command[2:] == given, "it reads TF_CONFIG, and may have its reasons"


def test_what_the_scripts_of_the_compatibility_course_get():
    names = {"knows_master": "master", "hosts_in_flags": "workers", "init_everywhere": "workers"}
    for script in sorted(COMPAT.glob("*.py")):
        layout = choose(facts_of_command(["python", str(script)])).layout
        assert layout == names.get(script.stem, layout) and (script.stem in names or layout == "chief"), script
