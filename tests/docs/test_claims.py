"""`docs/claims.md` holds: tests and benchmarks that it names exist, commands parse, figures stand in the
places of `docs/benchmarks.md` (or `critiques.md`) that their rows name."""

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
PLACE = re.compile(r"“([^”]+)”")
NUMBER = re.compile(r"\d+(?:[.:]\d+)*")


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


@cache
def long_tests(path: Path) -> frozenset[str]:
    """Those that `make test` leaves out altogether: marked long themselves, or with their file."""
    tree = ast.parse(path.read_text())
    marks = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign)]
    whole = any(text.startswith("pytestmark") and "pytest.mark.long" in text for text in marks)
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return frozenset(
        node.name for node in found if whole or "pytest.mark.long" in map(ast.unparse, node.decorator_list)
    )


def is_of_cluster(path: Path) -> bool:
    return path.parent == ROOT / "tests" / "cluster"


def test_every_row_is_a_claim():
    found = rows(PAGE.read_text().partition("## Taken back")[0])
    assert all(len(row) == 4 for row in found), [row for row in found if len(row) != 4]
    assert len(CLAIMS) > 90
    assert len({claim.promise for claim in CLAIMS}) == len(CLAIMS)


def test_every_claim_has_evidence_and_a_command_that_repeats_it():
    for claim in CLAIMS:
        assert claim.latest and claim.commands, claim
        assert claim.tests or "benchmark" in claim.backing or "make lint" in claim.repeat, claim
        if "benchmark" in claim.backing:
            assert any(words[0] == "python" for words in claim.commands), f"{claim}: which benchmark?"


def test_every_test_is_in_a_file_that_the_command_runs_and_every_file_is_needed():
    for claim in CLAIMS:
        assert all(path.is_file() for path in claim.files), claim
        for name in claim.tests:
            assert any(name in functions(path) for path in claim.files), f"{claim}: no file of the row has {name}"
        for path in claim.files if all("." in word for words in claim.commands for word in words[1:]) else []:
            if claim.tests and all(words[0] == "pytest" for words in claim.commands):
                assert functions(path) & set(claim.tests), f"{claim}: {path.name} has no test of this row"


def test_what_is_marked_long_or_cluster_is_so():
    """Who reads that a test is run by `make test` finds it so."""
    for claim in CLAIMS:
        for name, remark in re.findall(r"`(test_\w+)`((?: \([^)]*\))?)", claim.backing):
            places = [path for path in claim.files if name in functions(path)]
            if any(name in long_tests(path) for path in places):
                assert "**long**" in remark, f"{claim}: {name}"
            assert ("**cluster**" in remark) == any(map(is_of_cluster, places)), f"{claim}: {name}"


def test_every_command_is_one_that_runs():
    for words in sorted({tuple(words) for claim in CLAIMS for words in claim.commands}):
        if words[0] == "pytest":
            assert all((ROOT / word).exists() for word in words[1:]), words
        elif words[0] == "make":
            assert would_do(*words[1:]).strip()
        else:
            assert words[:2] == ("python", "-m"), words
            found = words[1 : words.index(">")] if ">" in words else words[1:]
            assert found in PROGRAMS or (*found, "--help") in PROGRAMS, "test_programs.py has its flags read"


@cache
def places() -> tuple[str, ...]:
    """What a figure can come from: each row (its cells with ` / ` between them), paragraph, item and heading."""
    found: list[str] = []
    for page in ("benchmarks.md", "critiques.md"):
        for block in re.split(r"\n\n|\n(?=- )", (ROOT / "docs" / page).read_text()):
            lines = block.splitlines()
            found += [
                " / ".join(map(str.strip, line.strip("|").split("|"))).strip(" /") for line in lines if line[:1] == "|"
            ]
            found += [line for line in lines if line[:1] == "#"]
            found.append(" ".join(line.strip() for line in lines if line[:1] not in "|#").removeprefix("- "))
    return tuple(one for one in found if one)


def sources(claim: Claim) -> list[str]:
    """The places that the row names by how they begin; each name has to be that of one."""
    found = []
    for name in PLACE.findall(claim.backing):
        named = [place for place in places() if place.startswith(name)]
        assert len(named) == 1, f"{claim}: {len(named)} places begin with “{name}”"
        found += named
    return found


def unknown_figures(claim: Claim) -> list[str]:
    """Numbers of its latest figure that do not stand where the row says that it comes from."""
    known = {number for place in sources(claim) for number in NUMBER.findall(place)}
    return [number for number in NUMBER.findall(claim.latest) if number not in known]


def test_every_figure_of_a_benchmark_stands_in_the_place_that_its_row_names():
    benchmarks = [claim for claim in CLAIMS if "benchmark" in claim.backing]
    assert len(benchmarks) > 35
    unsaid = [str(claim) for claim in benchmarks if not PLACE.search(claim.backing)]
    assert not unsaid, unsaid
    wrong = {str(claim): unknown for claim in benchmarks if (unknown := unknown_figures(claim))}
    assert not wrong, wrong


def test_a_figure_of_another_row_would_be_noticed():
    """0.525 s is another row's, and stands on the page."""
    backing = "benchmark: “kill -9 of a PS → first good step of every trainer”"
    command = "`python -m benchmarks.failover --part kill`"
    assert unknown_figures(Claim("x", backing, "p50 0.525 s", command)) == ["0.525"]
    assert not unknown_figures(Claim("x", backing, "p50 0.172 s", command))
    with pytest.raises(AssertionError, match="0 places begin"):
        sources(Claim("x", "benchmark: “nobody has measured this”", "1", command))
