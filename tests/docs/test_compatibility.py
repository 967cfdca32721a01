"""`docs/compatibility.md` holds: it has every script of the course and no other, and refusals in the words of the code."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.compat.unchanged import ALL, SCRIPTS
from tests.docs.reading import ROOT

PAGE = ROOT / "docs" / "compatibility.md"
REFUSE_IN = ("graph", "layout", "elastic", "keras", "hooks", "horovod", "torch", "aimaster")


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found, title
    return found[1]


def first_cells(text: str) -> list[str]:
    rows = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| ")]
    return rows[1:]


@cache
def said() -> str:
    """All that the code can say of a script, a line for each text of its sources."""
    paths = [path for name in REFUSE_IN for path in sorted((ROOT / "deeprec_ext" / name).rglob("*.py"))]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]
    return "\n".join(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def unsaid(quote: str) -> list[str]:
    """Of the pieces between names (…) those that the code does not say."""
    return [piece for piece in quote.split("…") if piece.strip(" ':") and piece.strip() not in said()]


def test_the_page_has_every_script_of_the_course_and_no_other():
    named = [cell.strip("`") for cell in first_cells(section("The course"))]
    assert sorted(named) == sorted(script.name for script in ALL)


def test_what_no_course_takes_is_a_script_that_is_refused():
    others = {path.stem for path in SCRIPTS.glob("*.py")} - {script.name for script in ALL}
    assert others == {"supervisor", "sync_replicas"}


def test_refusals_stand_there_in_their_own_words():
    quotes = re.findall(r'"([^"]+)"', section("What is refused"))
    assert len(quotes) >= len(first_cells(section("What is refused")))
    wrong = [piece for quote in quotes for piece in unsaid(quote)]
    assert not wrong, f"the code says no such thing: {wrong}"


def test_words_that_nobody_says_would_be_noticed():
    assert unsaid("the script places ops on …, but that is fine") == [", but that is fine"]
