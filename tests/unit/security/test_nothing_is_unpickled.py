"""Bytes from a network or a file never become code: no module that could do that is imported anywhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

CODE_FROM_BYTES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}


def imported(source: str) -> set[str]:
    """The top-level modules that a program imports, also inside of functions."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def dangerous_calls(source: str) -> list[str]:
    """YAML's loaders but the safe ones, `eval` and `exec`, and NumPy's reader when it may unpickle."""
    found = re.findall(r"\byaml\.(?:C?Loader|C?FullLoader|C?UnsafeLoader)\b", source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            if ast.unparse(node.func) in ("yaml.unsafe_load", "yaml.full_load", "eval", "exec"):
                found.append(ast.unparse(node))
            found += [ast.unparse(node) for word in node.keywords if word.arg == "allow_pickle"]
    return found


def sources(root: Path) -> list[Path]:
    return [path for package in ("deeprec_ext", "tfjob") for path in sorted((root / package).rglob("*.py"))]


def test_no_source_imports_what_makes_objects_of_bytes(root: Path) -> None:
    assert len(sources(root)) > 300
    for path in sources(root):
        assert not CODE_FROM_BYTES & imported(path.read_text()), path
        assert not dangerous_calls(path.read_text()), path


@pytest.mark.parametrize(
    "source", ["import pickle", "def f():\n    from cloudpickle import loads", "import pickle as p"]
)
def test_the_check_would_notice(source: str) -> None:
    assert CODE_FROM_BYTES & imported(source)


@pytest.mark.parametrize("call", ["numpy.load('x', allow_pickle=True)", "yaml.load(text, yaml.Loader)", "exec(text)"])
def test_a_call_that_makes_objects_or_code_would_be_noticed(call: str) -> None:
    assert dangerous_calls(call)
