"""Links inside the repository lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.reading import ROOT, name, pages, prose

_LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(path: Path) -> set[str]:
    """As the usual renderers make them: lower case, spaces become dashes, other signs go."""
    headings = re.findall(r"^#+\s+(.*)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages(), ids=name)
def test_every_link_of_a_page_resolves(page: Path):
    for link in _LINK.findall(prose(page)):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{link}: no such file"
        assert path == ROOT or ROOT in path.parents, f"{link}: outside the repository"
        assert not anchor or anchor in anchors(path), f"{link}: no such heading"


def test_every_page_can_be_reached_from_the_readme():
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.is_file():
            continue
        reached.add(page)
        waiting += [
            (page.parent / link.partition("#")[0]).resolve() for link in _LINK.findall(prose(page)) if "://" not in link
        ]
    assert {name(page) for page in pages()} - {name(page) for page in reached} == set()
