"""TensorFlow's runtime without its Python API: what it has is the real thing, and the rest can be had."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from deeprec_ext.tf_private import bare

KERNELS = """
import sys
{first}
import tensorflow as tf
from deeprec_ext.elastic.ps import parameter_server
from deeprec_ext.elastic.runtime import starting
starting.start_server()
from tensorflow.python.framework import kernels
print(*sorted(str(kernel).replace("\\n", " ") for kernel in kernels.get_all_registered_kernels().kernel), sep="\\n")
print(tf.__version__, "keras" in sys.modules)
"""
BARE = "from deeprec_ext.tf_private import bare; assert bare.install()"


def run(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **variables}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done


def test_a_ps_has_every_kernel_and_no_keras() -> None:
    *of_whole, whole = run(KERNELS.format(first="")).stdout.splitlines()
    *of_bare, version = run(KERNELS.format(first=BARE)).stdout.splitlines()
    assert len(of_bare) > 10_000
    assert of_bare == of_whole
    assert version == whole.replace("True", "False")


@pytest.mark.parametrize("dotted", sorted(bare._SOURCES))
def test_each_name_is_what_the_whole_has_under_it(dotted: str) -> None:
    import tensorflow

    expected: Any = tensorflow
    for part in dotted.split("."):
        expected = getattr(expected, part)
    found = bare._from_source(*bare._SOURCES[dotted])
    if isinstance(expected, types.ModuleType):
        public = [name for name in dir(expected) if name[0].isupper()]
        assert len(public) > 10
        assert [getattr(found, name) for name in public] == [getattr(expected, name) for name in public]
    else:
        assert found is expected


def test_there_is_every_name_that_the_modules_of_a_ps_use() -> None:
    listed = f"""
import sys
{BARE}
from deeprec_ext.elastic.ps import parameter_server
print(*[one.__file__ for name, one in sys.modules.items() if name.startswith("deeprec_ext.") and one.__file__], sep="\\n")
"""
    files = run(listed).stdout.splitlines()
    assert any(file.endswith("disk_cut.py") for file in files)
    used = {name: file for file in files for name in names_of_tensorflow(Path(file).read_text(encoding="utf-8"))}
    assert "errors.OpError" in used
    known = {*bare._SOURCES, *(parent for name in bare._SOURCES for parent in parents(name))}
    assert {
        name: file
        for name, file in used.items()
        if name not in known and not any(parent in bare._SOURCES for parent in parents(name))
    } == {}


def names_of_tensorflow(source: str) -> set[str]:
    """`errors.OpError` for tf.errors.OpError, `compat.v1.Graph` for v1.Graph."""
    aliases = {"tf": (), "v1": ("compat", "v1")}
    found = set()
    for node in ast.walk(ast.parse(source)):
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if parts and isinstance(node, ast.Name) and node.id in aliases:
            found.add(".".join([*aliases[node.id], *parts]))
    return found


def parents(name: str) -> list[str]:
    """`a.b.c` → a, a.b."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def test_any_other_name_imports_the_whole_and_says_so() -> None:
    done = run(
        f"""
import logging
logging.basicConfig(level=logging.INFO)
{BARE}
import tensorflow as tf
error = tf.errors.AbortedError
session = tf.compat.v1.Session
doubled = 2 * tf.constant([3])  # eager, as in the whole
assert doubled.numpy().tolist() == [6]
import tensorflow
assert tensorflow is not tf and tensorflow.__file__ == tf.__file__
assert tensorflow.compat.v1.Session is session and tensorflow.errors.AbortedError is error
assert tf.compat.v1.train.Saver is tensorflow.compat.v1.train.Saver
assert tf.keras.layers.Dense(1)(doubled[:, None]).shape == (1, 1)
"""
    )
    assert done.stderr.count("all of TensorFlow is imported for its constant") == 1
    assert done.stderr.count("all of TensorFlow is imported") == 1


def test_a_build_that_has_a_name_elsewhere_is_imported_as_a_whole() -> None:
    done = run(
        f"""
import logging
logging.basicConfig(level=logging.INFO)
from deeprec_ext.tf_private import bare
bare._SOURCES["TensorShape"] = ("python.framework.moved", "TensorShape")
bare._SOURCES["Graph"] = ("python.framework.ops", "RenamedGraph")
{BARE}
import tensorflow as tf
print(tf.TensorShape([2]).as_list(), tf.Graph.__name__)
"""
    )
    assert done.stdout == "[2] Graph\n"
    assert done.stderr.count("all of TensorFlow is imported") == 1


def test_threads_that_ask_meanwhile_wait_for_the_whole() -> None:
    done = run(
        f"""
import concurrent.futures
{BARE}
import tensorflow as tf
def ask(number):
    return tf.math.add(number, 1).numpy()
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    print(*pool.map(ask, range(8)))
"""
    )
    assert done.stdout.split() == [str(number + 1) for number in range(8)]


def test_a_name_that_nobody_has_is_an_error() -> None:
    done = run(
        f"""
{BARE}
import tensorflow as tf
for namespace, name in [(tf, "__wrapped__"), (tf, "no_such_name"), (tf.compat.v1, "no_such_name")]:
    try:
        getattr(namespace, name)
    except AttributeError as error:
        print(error)
"""
    )
    assert len(done.stdout.splitlines()) == 3


def test_who_has_imported_tensorflow_keeps_it() -> None:
    import tensorflow

    assert not bare.install()
    assert sys.modules["tensorflow"] is tensorflow


@pytest.mark.parametrize("how", ["directory", "variable"])
def test_plugins_for_devices_are_loaded_by_the_whole_alone(how: str, tmp_path: Path) -> None:
    script = "from deeprec_ext.tf_private import bare; print(bare.install())"
    (tmp_path / "tensorflow-plugins").mkdir()
    variables = {
        "directory": {"PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(tmp_path)])},
        "variable": {"TF_PLUGGABLE_DEVICE_LIBRARY_PATH": str(tmp_path / "tensorflow-plugins")},
    }
    assert run(script, **variables[how]).stdout.split() == ["False"]
