"""YAML within bounds: what would make more of itself than anybody can mean is one line that names the place."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest

from deeprec_ext import yamlfiles
from deeprec_ext.errors import UsageError
from deeprec_ext.yamlfiles import MANIFESTS, VALUE_COSTS, Limits, values

SMALL = Limits(file=1 << 20, depth=4, value=50, written=1_000, use="no test needs as much")


def bomb(first: str, levels: int, each: int = 9) -> str:
    """Each line is nine times the one before."""
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{level + 1}: &a{level + 1} [{', '.join([f'*a{level}'] * each)}]" for level in range(levels)]
    return "\n".join(lines)


def merges(levels: int) -> str:
    """The same with merge keys, which PyYAML writes out while it builds."""
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{level + 1}: &a{level + 1} {{<<: [{', '.join([f'*a{level}'] * 9)}]}}" for level in range(levels)]
    return "\n".join(lines)


def refused(text: str, limits: Limits = MANIFESTS) -> str:
    with pytest.raises(UsageError) as error:
        values(text, "job.yaml", limits)
    said = str(error.value)
    assert said.startswith("job.yaml") and "\n" not in said and "\x1b" not in said and len(said) < 400
    return said


@pytest.mark.parametrize(("text", "part"), [
    (bomb("[x, x, x, x, x, x, x, x, x]", 20), "job.yaml, line 6: with its aliases written out this makes more than 8 MiB"),
    (bomb(f'"{"x" * 500_000}"', 2), "line 3: with its aliases written out"),
    (merges(20), "with its aliases written out"),
    ("a: 1\nb: &a [*a]", "line 2: *a is a part of itself"),
    ("&a {x: {y: [*a]}}", "line 1: *a is a part of itself"),
    ("&a {<<: *a}", "*a is a part of itself"),
    ("a: *b", "job.yaml, line 1: no valid YAML: found undefined alias"),
    ("---\na: &x 1\n---\nb: *x", "line 4: no valid YAML: found undefined alias"),
    ("[" * 200_000, "line 1: nested too deep"),
    ("a: 1\nb: " + "- " * 5_000 + "x", "line 2: no valid YAML"),
    ("- " * 5_000 + "x", "line 1: nested too deep"),
    ("{a: " * 1_000 + "1" + "}" * 1_000, "line 1: nested too deep"),
    ("spec:\n  replicas: 4\n  replicas: 5", "job.yaml, line 3: no valid YAML: replicas is given twice"),
    ("a: &a {k: 1, k: 2}\nb: {<<: *a}", "line 1: no valid YAML: k is given twice"),
    ("a: 1\nb: " + "9" * 5_000, "line 2: no valid YAML: a number of 5,000 characters"),
    ("a: 0x" + "f" * 5_000, "a number of 5,002 characters"),
    ("a: 1" + ":59" * 5_000, "a number of 15,001 characters"),
    ("a: " + "1" * 5_000 + ".5", "a number of 5,002 characters"),
    ("a: !!int " + "9" * 5_000, "a number of 5,000 characters"),
    ('a: !!int ""', "line 1: no valid YAML"),
    ("a: !!float x", "line 1: no valid YAML"),
    ("a: !!bool maybe", "line 1: no valid YAML"),
    ("a: !!timestamp today", "line 1: no valid YAML"),
    ("a: 1\nb: 2001-99-99", "line 2: no valid YAML"),
    ("a: !!python/object/apply:os.system [ls]", "line 1: no valid YAML: could not determine a constructor"),
    ("a: !" + "x" * 5_000 + " 1", "no valid YAML"),
    ("{[1]: 2}", "line 1: no valid YAML: found unhashable key"),
    ("a: \x1b[2J", "no valid YAML"),
    ("a: \x00", "no valid YAML"),
])  # fmt: skip
def test_what_is_meant_to_harm_is_one_line_with_its_place(text: str, part: str) -> None:
    assert part in refused(text)


def test_aliases_that_stand_for_little_are_what_they_stand_for() -> None:
    text = "template: &t {image: a, env: &e [{name: X}]}\nps: *t\nworker: {<<: *t, env: *e, cpu: 1}"
    [found] = values(text, "job.yaml", MANIFESTS)
    assert found["ps"] == {"image": "a", "env": [{"name": "X"}]}
    assert found["worker"] == {"image": "a", "env": [{"name": "X"}], "cpu": 1}


def test_what_is_merged_may_be_given_again() -> None:
    text = "deep: {ps: &p {<<: &t {image: a, cpu: 1}, cpu: 2}}\nworker: {<<: *p, cpu: 3}\nchief: {<<: *t, <<: *p}"
    [found] = values(text, "job.yaml", MANIFESTS)
    assert found["deep"]["ps"] == {"image": "a", "cpu": 2}
    assert found["worker"] == {"image": "a", "cpu": 3}
    assert found["chief"]["image"] == "a"


def test_json_and_several_documents_and_an_empty_one() -> None:
    assert values(json.dumps({"a": [1, "2", None]}), "-", MANIFESTS) == [{"a": [1, "2", None]}]
    assert values("a: 1\n---\n---\nb: !!str 2\n", "-", MANIFESTS) == [{"a": 1}, None, {"b": "2"}]
    assert values("", "-", MANIFESTS) == []


@pytest.mark.parametrize(("most", "more", "part"), [
    ("[[[[1]]]]", "[[[[[1]]]]]", "nested too deep; the most is 4"),
    ("a: &a [[1]]\nb: [*a]", "a: &a [[1]]\nb: [[*a]]", "line 2: nested too deep"),
    ("x" * 50, "x" * 51, "a value of 51 characters; the most is 50: no test needs as much"),
    ("[" + ",".join(["1234"] * 49) + "]", "[" + ",".join(["1234"] * 50) + "]", "no test needs as much"),
    ("a: &a [1234, 1234]\nb: [" + "*a, " * 15 + "]", "a: &a [1234, 1234]\nb: [" + "*a, " * 16 + "]", "line 2"),
])  # fmt: skip
def test_limits_are_exact(most: str, more: str, part: str) -> None:
    values(most, "job.yaml", SMALL)
    assert part in refused(more, SMALL)


def written(made: Any) -> int:
    """The same measure, of what was built: every alias is met as often as it stands there."""
    if isinstance(made, dict):
        return VALUE_COSTS + sum(written(key) + written(value) for key, value in made.items())
    if isinstance(made, list):
        return VALUE_COSTS + sum(map(written, made))
    return VALUE_COSTS + len(str(made))


def test_what_is_counted_is_what_is_built() -> None:
    text = bomb("[x, {y: z}]", 3, each=2) + "\nlast: &l\n  - *a2\n  - {p: *a1}"
    size = written(values(text, "job.yaml", MANIFESTS)[0])
    values(text, "job.yaml", dataclasses.replace(MANIFESTS, written=size))
    refused(text, dataclasses.replace(MANIFESTS, written=size - 1))


def test_no_more_is_read_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: Path | None) -> str:
        return yamlfiles.read(path, "job.yaml", SMALL, "give a file")

    (tmp_path / "whole").write_text("x" * SMALL.file)
    assert len(read(tmp_path / "whole")) == SMALL.file
    with pytest.raises(UsageError, match=r"^job.yaml: is larger than 1024 KiB; no test needs as much$"):
        read(Path("/dev/zero"))
    with pytest.raises(UsageError, match=r"^job.yaml: cannot be read \(Is a directory\); give a file$"):
        read(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="is no text in UTF-8"):
        read(tmp_path / "binary")
    monkeypatch.setattr("sys.stdin", io.StringIO("ä" * (SMALL.file // 2)))
    assert len(read(None)) == SMALL.file // 2
    monkeypatch.setattr("sys.stdin", io.StringIO("ä" * (SMALL.file // 2 + 1)))
    with pytest.raises(UsageError, match="is larger than"):
        read(None)
    monkeypatch.setattr("sys.stdin", io.StringIO("\udcff"))
    with pytest.raises(UsageError, match="is no text in UTF-8"):
        read(None)
