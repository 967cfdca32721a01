"""`docs/claims.md` holds: tests and benchmarks that it names exist, commands parse, figures stand in `docs/benchmarks.md`."""

from __future__ import annotations

import ast
import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.docs.reading import ROOT
from tests.docs.test_programs import PROGRAMS, would_do

PAGE = ROOT / "docs" / "claims.md"
HEADER = ["promise, and where", "backed by", "latest", "repeat"]
CODE = re.compile(r"`([^`]+)`")
NUMBER = re.compile(r"\d+(?:[ .:]\d+)*")


@dataclass(frozen=True)
class Claim:
    """One row."""

    promise: str
    backing: str
    latest: str
    repeat: str

    def __str__(self) -> str:
        return self.promise

    @property
    def tests(self) -> list[str]:
        return [word for word in CODE.findall(self.backing) if word.startswith("test_")]

    @property
    def commands(self) -> list[list[str]]:
        return [shlex.split(text) for text in CODE.findall(self.repeat)]

    @property
    def files(self) -> list[Path]:
        """What the row's `pytest` commands run."""
        named = [ROOT / word for words in self.commands if words[0] == "pytest" for word in words[1:]]
        return [file for path in named for file in (sorted(path.rglob("test_*.py")) if path.is_dir() else [path])]


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


CLAIMS = [
    Claim(*row) for row in rows(PAGE.read_text().partition("## Taken back")[0]) if row != HEADER and len(row) == 4
]


@cache
def functions(path: Path) -> frozenset[str]:
    """The tests that a file defines; Hypothesis makes a class of a state machine, called `Test…` or with `TestCase`."""
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def marked(path: Path, name: str) -> str:
    """What stands before and above a test: its decorators, and the marks of its file."""
    tree = ast.parse(path.read_text())
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    whole = [
        ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)
    ]
    return "\n".join(whole + [ast.unparse(one) for node in found for one in node.decorator_list])


def test_every_row_is_a_claim():
    found = rows(PAGE.read_text().partition("## Taken back")[0])
    assert all(len(row) == 4 for row in found), [row for row in found if len(row) != 4]
    assert len(CLAIMS) > 90
    assert len({claim.promise for claim in CLAIMS}) == len(CLAIMS)


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_a_claim_has_evidence_and_a_command_that_repeats_it(claim: Claim):
    assert claim.latest and claim.commands
    assert claim.tests or "benchmark" in claim.backing or "`make " in claim.backing + claim.repeat
    if "benchmark" in claim.backing:
        assert any(words[0] == "python" for words in claim.commands), "which benchmark?"


@pytest.mark.parametrize("claim", [claim for claim in CLAIMS if claim.tests], ids=str)
def test_every_test_is_in_a_file_that_the_command_runs_and_every_file_is_needed(claim: Claim):
    assert all(path.is_file() for path in claim.files), claim.files
    for name in claim.tests:
        assert any(name in functions(path) for path in claim.files), f"no file of the row has {name}"
    for path in claim.files if len(claim.files) < 6 else []:
        assert functions(path) & set(claim.tests), f"{path.name} has no test of this row"


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_what_is_marked_long_or_cluster_is_so(claim: Claim):
    """Who reads that a test is run by `make test` finds it so."""
    for text in re.findall(r"`test_\w+`(?: \([^)]*\))?", claim.backing):
        name, _, remark = text.strip("`").partition("`")
        places = [path for path in claim.files if name in functions(path)]
        long = any("pytest.mark.long" in marked(path, name) for path in places)
        cluster = any(path.parent.name == "cluster" and path.parent.parent.name == "tests" for path in places)
        if long and "param(" not in "".join(marked(path, name) for path in places):
            assert "**long**" in remark, name
        assert ("**cluster**" in remark) == cluster, name
        assert long or "**long**" not in remark, name


@pytest.mark.parametrize("words", sorted({tuple(words) for claim in CLAIMS for words in claim.commands}), ids=" ".join)
def test_every_command_is_one_that_runs(words: tuple[str, ...]):
    if words[0] == "pytest":
        assert all((ROOT / word).exists() for word in words[1:])
    elif words[0] == "make":
        assert would_do(*words[1:]).strip()
    else:
        assert words[:2] == ("python", "-m")
        found = words[1 : words.index(">")] if ">" in words else words[1:]
        assert found in PROGRAMS or (*found, "--help") in PROGRAMS, "test_programs.py lets every program read its flags"


@pytest.mark.parametrize("claim", [claim for claim in CLAIMS if "benchmark" in claim.backing], ids=str)
def test_every_figure_of_a_benchmark_stands_in_the_benchmarks(claim: Claim):
    known = set(NUMBER.findall((ROOT / "docs" / "benchmarks.md").read_text()))
    parts = {part for number in known for part in number.split()} | known
    missing = [number for number in NUMBER.findall(claim.latest) if number not in parts]
    assert not missing, f"{missing} of {claim.latest!r}"


def test_a_figure_that_nobody_measured_would_be_noticed():
    claim = Claim("x", "benchmark", "p50 0.2421 s", "`python -m benchmarks.control`")
    with pytest.raises(AssertionError, match=r"0\.2421"):
        test_every_figure_of_a_benchmark_stands_in_the_benchmarks(claim)
