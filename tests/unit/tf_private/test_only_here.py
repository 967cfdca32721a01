"""What is private in TensorFlow is touched in `deeprec_ext.tf_private` only, and docs/critiques.md lists all of it."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

import deeprec_ext

PACKAGE = Path(deeprec_ext.__file__).parent
ROOM = PACKAGE / "tf_private"
TRAINING = ("elastic", "graph", "data", "hooks", "keras", "estimator.py", "autoload.py")
"""Where objects of TensorFlow are."""

PATHS = re.compile(r"(tensorflow|tensorflow_estimator)\.python|tensorflow\._api|keras\.src")
NOT_THEIRS = {"os._exit", "sys._getframe", "libc._exit", "signature._replace", "tensor._values"}
"""Of Python, public by its documents; the last is tensorflow-io's, in the one reader that is for it."""


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def is_private(name: str) -> bool:
    """Not what we write on their objects ourselves."""
    return re.fullmatch(r"_[A-Za-z]\w*", name) is not None and not name.startswith("_deeprec_ext_")


def texts(tree: ast.AST) -> Iterator[str]:
    """Strings of the code that are no docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def attributes(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(object, name) of what is private by its name, `getattr` and the like included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            yield ast.unparse(node.value), node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr", "hasattr"):
            of, name = node.args[:2]
            if isinstance(name, ast.Constant) and is_private(name.value):
                yield ast.unparse(of), name.value


def defined(tree: ast.AST) -> set[str]:
    """Names of functions and classes, of variables, and of attributes that are assigned."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    names = {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Store):
            names.add(node.attr if isinstance(node, ast.Attribute) else node.id)
    return names


@pytest.mark.parametrize(
    "path", [path for path in sorted(PACKAGE.rglob("*.py")) if ROOM not in path.parents and "_pb2" not in path.name],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)  # fmt: skip
def test_nothing_else_has_a_private_path_or_attribute(path: Path) -> None:
    tree = parsed(path)
    assert not [name for name in (*modules(tree), *texts(tree)) if PATHS.match(name)]
    if path.relative_to(PACKAGE).parts[0] in TRAINING:
        of_others = {f"{one}.{name}" for one, name in attributes(tree) if one not in ("self", "cls", "super()")}
        assert not of_others - NOT_THEIRS


def test_no_class_of_ours_overrides_or_uses_a_private_part_of_its_base() -> None:
    looked_at = set()
    for module in pkgutil.walk_packages([str(PACKAGE)], "deeprec_ext."):
        if module.name.split(".")[1] not in TRAINING:
            continue
        for kind in vars(importlib.import_module(module.name)).values():
            if not isinstance(kind, type) or kind.__module__ != module.name:
                continue
            theirs = [base for base in kind.__mro__ if base.__module__.startswith(("tensorflow", "keras"))]
            if theirs:
                looked_at.add(kind.__name__)
                tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
                inherited = {name for base in theirs for name in vars(base) if is_private(name)}
                assert not inherited & defined(tree), f"{kind.__name__} overrides"
                ours = [
                    base
                    for base in kind.__mro__
                    if base.__module__.startswith("deeprec_ext.") and "tf_private" not in base.__module__
                ]
                known = set().union(*(defined(ast.parse(textwrap.dedent(inspect.getsource(one)))) for one in ours))
                used = {name for one, name in attributes(tree) if one in ("self", "super()")}
                assert used <= known, f"{kind.__name__} uses what only TensorFlow can have defined"
    assert {"ElasticSession", "LocalSession", "ElasticTrainingHook"} <= looked_at, "or nothing was looked at"


def touched(path: Path) -> set[str]:
    """Private names in a file of the room: modules, attributes, methods that are overridden or exchanged."""
    tree = parsed(path)
    heirs = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.bases]
    own = set().union(*(defined(node) for node in tree.body if isinstance(node, ast.ClassDef) and node not in heirs))
    found = {name.rpartition(".")[2] for name in modules(tree) if PATHS.match(name)}
    found |= {name for one, name in attributes(tree) if one != "self" or name not in own}
    methods = [node.name for heir in heirs for node in heir.body if isinstance(node, ast.FunctionDef)]
    return found | {name for name in (*methods, *texts(tree)) if is_private(name)}


def test_the_table_of_the_critiques_has_every_private_name() -> None:
    text = (PACKAGE.parent / "docs" / "critiques.md").read_text()
    section = text.split("## Private parts of TensorFlow", 1)[1].split("\n## ", 1)[0]
    rows = [row.split("|") for row in section.splitlines() if row.startswith("| `")]
    listed = {re.findall(r"`(\w+)\.py`", row[1])[0]: set(re.findall(r"`(\w+)`", row[2])) for row in rows}
    expected = {
        path.stem: touched(path) for path in ROOM.glob("*.py") if path.stem != "__init__" and "_pb2" not in path.stem
    }
    assert {name for name, names in expected.items() if names} <= set(listed) <= set(expected)
    for name, names in listed.items():
        assert names == expected[name], name
