"""The house: rooms small enough to know, names that say which room they are of, no circles, short functions, TensorFlow's
private parts behind one door. `make size` prints the figures."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from statistics import median

from benchmarks import house, house_drawing
from tests.docs.reading import ROOT, name, pages

ROOM_FILES = 18
LARGER = {
    "deeprec_ext/cli": "a file per sub-command",
    "deeprec_ext/graph": "a file per pass, or thing that is read off a graph",
}
PRIVATE = "deeprec_ext/tf_private"
ONE_SIDE = ("elastic", "graph", "data", "hooks", "horovod", "keras", "tf_private")
"""Rooms of the training side, which are read together."""
SAME_NAME = {
    "errors.py": "a package's own errors, where others look for them",
    "bounds.py": "of what a user writes, and of what the protocol takes",
    "backend.py": "the contract of pod backends, and the one that needs a room of its own",
    "iterators.py": "the pass, and what the session does with its result",
    "overwriting.py": "the pass, and what the session does with its result",
    "records.py": "tf_private is named after who asks", "training.py": "tf_private is named after who asks",
    "variables.py": "tf_private is named after who asks",
}  # fmt: skip
PAGE_LINES = 90


@cache
def imports() -> dict[str, set[str]]:
    return house.imports()


def test_no_room_has_more_files_than_one_can_know():
    large = {name: len(paths) for name, paths in house.rooms().items() if len(paths) > ROOM_FILES}
    assert set(large) <= set(LARGER), f"{large}: rooms of more than {ROOM_FILES} files"


def test_no_file_imports_itself_through_others():
    """Imports for types alone count: who reads one file of a circle has to read all."""
    assert house.circles(imports()) == []


def test_a_circle_would_be_found():
    assert house.circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [["b", "c"]]
    assert {"deeprec_ext.errors"} <= imports()["deeprec_ext.rundir"]


def test_functions_are_short():
    assert median(length for path in house.files() for length in house.functions(path)) < 10


def test_private_tensorflow_is_behind_one_door():
    written = re.compile(r"(from|import) tensorflow\.python\b")
    assert {house.room(path) for path in house.files() if written.search(path.read_text())} == {PRIVATE}


def side(name: str) -> str:
    """The rooms among which a file is looked for by its name."""
    first, _, rest = name.partition("/")
    room = rest.partition("/")[0]
    return first if not room else "training" if room in ONE_SIDE else f"{first}/{room}"


def test_every_room_of_the_master_side_has_its_place_in_the_order():
    """What `exhaustive` holds for the rooms of one package: these are of two."""
    (order,) = (one for one in house_drawing.contracts() if one["name"].startswith("Master side"))
    placed = {name for layer in order["layers"] for name in re.findall(r"[\w.]+", layer)}
    found = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts[:3])
        for package in ("aimaster", "autoscaler")
        for path in (ROOT / "deeprec_ext" / package).rglob("*.py")
    }
    rooms = found - {"deeprec_ext.aimaster.__init__", "deeprec_ext.autoscaler.__init__"}
    assert rooms <= placed, "a room without a place in the order of pyproject.toml"


def test_a_file_is_not_taken_for_another_of_its_name():
    """Sub-commands are called as users know them, also the halves that ask a cluster."""
    found = defaultdict(list)
    for path in house.files():
        if not path.name.startswith("__") and "cli" not in path.parts:
            found[side(house.room(path)), path.name].append(house.room(path))
    same = {name: places for (_, name), places in found.items() if len(places) > 1}
    assert {name: places for name, places in same.items() if name not in SAME_NAME} == {}


def test_the_picture_shows_the_house_as_it_is():
    assert house_drawing.PICTURE.read_text() == house_drawing.draw(), "`make house` draws it anew"
    assert {"aimaster/scaling", "elastic/agent", "tf_private"} <= set(
        re.findall(r">([^<>]+)</text>", house_drawing.draw())
    )


def test_the_house_is_on_one_page():
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert len(page.splitlines()) <= PAGE_LINES
    known = {name.split("/", 1)[1] for name in house.rooms() if "/" in name}
    shown = {
        name.rstrip("/").removeprefix("deeprec_ext/").removeprefix("tfjob/")
        for name in re.findall(r"`([\w/]+/)`", page)
    }
    tops = {name for name in known if name.count("/") == 0}
    assert tops - shown - {one.split("/")[0] for one in shown} == set(), "rooms that the page does not name"


def test_the_page_names_every_file_that_is_in_no_room():
    page = (ROOT / "docs" / "architecture.md").read_text()
    alone = {path.name for path in (ROOT / "deeprec_ext").glob("*.py")} - {"__init__.py"}
    assert alone - set(re.findall(r"`(\w+\.py)`", page)) == set()


def test_no_text_cites_a_design_that_is_not_here():
    cited = re.compile(r"\bDESIGN\b|\bsection \d+ of the design\b")
    texts = [*pages(), *house.files(), *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    assert [name(path) for path in texts if path != Path(__file__) and cited.search(path.read_text())] == []
