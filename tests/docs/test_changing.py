"""`docs/changing.md` names files that exist, and all those that name the example of a kind."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.docs.reading import ROOT, inline

PAGE = ROOT / "docs" / "changing.md"
CODE = re.compile(r"`([^`]+)`")
CHANGES = (
    "reader", "finding", "rule", "command", "backend", "annotation", "option", "state", "pass", "sub-command", "store",
    "release", "strategy",
)  # fmt: skip


@dataclass(frozen=True)
class Change:
    title: str
    text: str

    def __str__(self) -> str:
        return self.title

    @property
    def examples(self) -> list[str]:
        return [word for line in self.text.splitlines() if line.startswith("Examples: ") for word in CODE.findall(line)]

    @property
    def files(self) -> list[Path]:
        """Those of the table, first column; a folder stands for all in it."""
        rows = [line.split("|")[1] for line in self.text.splitlines() if line.startswith("| `")]
        return [ROOT / path for row in rows for path in CODE.findall(row)]

    def names(self, path: Path) -> bool:
        return any(path == file or file in path.parents for file in self.files)


FOUND = [Change(*part.split("\n", 1)) for part in PAGE.read_text().split("\n## ")[1:]]
WITH_EXAMPLE = [change for change in FOUND if change.examples]


@cache
def product() -> dict[Path, str]:
    found = (path for package in ("deeprec_ext", "tfjob") for path in (ROOT / package).rglob("*.*"))
    return {
        path: path.read_text()
        for path in found
        if path.suffix in (".py", ".js", ".html", ".proto") and "_pb2" not in path.name
    }


def test_the_thirteen_are_there():
    titles = [change.title for change in FOUND]
    assert [word for word in CHANGES if not any(word in title for title in titles)] == []
    assert len(WITH_EXAMPLE) == len(CHANGES) - 1


def test_every_file_and_folder_of_the_page_exists():
    paths = [word for word in inline(PAGE) if "/" in word and " " not in word]
    assert len(paths) > 50
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("change", WITH_EXAMPLE, ids=str)
def test_what_names_the_example_is_named_by_the_page(change: Change):
    for example in change.examples:
        places = [path for path, text in product().items() if example in text]
        assert places, f"{example}: nobody names it any more"
        assert [str(path) for path in places if not change.names(path)] == [], example


def test_a_place_that_the_page_does_not_name_would_be_noticed():
    (reader,) = (change for change in FOUND if "reader" in change.title)
    assert not reader.names(ROOT / "deeprec_ext" / "data" / "feeder.py")
    assert reader.names(ROOT / "deeprec_ext" / "data" / "readers" / "parquet.py")
