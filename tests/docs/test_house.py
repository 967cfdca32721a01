"""The house: rooms small enough to know, names that say which room they are of, no circles, short functions, TensorFlow's
private parts behind one door. `make size` prints the figures."""

from __future__ import annotations

import re
from functools import cache
from statistics import median

from benchmarks import house

ROOM_FILES = 18
LARGER = {
    "deeprec_ext/cli": "a file per sub-command",
    "deeprec_ext/graph": "a file per pass",
    "deeprec_ext/aimaster/policy": "NOT YET",
}
CIRCLES = 4  # NOT YET 0
PRIVATE = "deeprec_ext/tf_private"


@cache
def imports() -> dict[str, set[str]]:
    return house.imports()


def test_no_room_has_more_files_than_one_can_know():
    large = {name: len(paths) for name, paths in house.rooms().items() if len(paths) > ROOM_FILES}
    assert set(large) <= set(LARGER), f"{large}: rooms of more than {ROOM_FILES} files"


def test_no_file_imports_itself_through_others():
    """Imports for types alone count: who reads one file of a circle has to read all."""
    found = house.circles(imports())
    assert len(found) <= CIRCLES, found


def test_a_circle_would_be_found():
    assert house.circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [["b", "c"]]
    assert {"deeprec_ext.errors"} <= imports()["deeprec_ext.rundir"]


def test_functions_are_short():
    assert median(length for path in house.files() for length in house.functions(path)) < 10


def test_private_tensorflow_is_behind_one_door():
    written = re.compile(r"(from|import) tensorflow\.python\b")
    using = {house.room(path) for path in house.files() if written.search(path.read_text())}
    assert using == {PRIVATE}
