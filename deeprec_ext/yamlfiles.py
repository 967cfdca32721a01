"""YAML that people write (events, manifests), read within bounds: what is built of a file is no larger than the bounds say.

YAML can say much in few words: anchors of anchors (nine lines that make 10⁹ values), a list that contains itself, numbers of a
million digits, a hundred thousand brackets. So a text is looked at as a stream of events first, of which none is kept, and only
then built. Aliases count as what they stand for, since whoever walks over the values, or writes them down, meets all of it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from deeprec_ext.bounds import DIGITS
from deeprec_ext.errors import UsageError
from deeprec_ext.printable import printable

VALUE_COSTS = 16
"""What a value counts for beside its characters, in `Limits.written`: an empty one takes memory, too."""


SAID = 200
"""Characters of a message of PyYAML, which may quote a value."""


@dataclass(frozen=True)
class Limits:
    """The most that a file may have; `use`: what is said of a file that has more, for example what it is for."""

    file: int
    """Bytes."""

    depth: int
    """Of objects and lists in each other, aliases included."""

    value: int
    """Characters of one value."""

    written: int
    """Characters of all values, `VALUE_COSTS` for each of them included, with what aliases stand for written out."""

    plain: bool = False
    """Neither anchors and aliases nor tags."""

    use: str = ""


MANIFESTS = Limits(file=2 << 20, depth=64, value=1 << 20, written=8 << 20, use="no job needs as much")
"""For objects of Kubernetes: its API server takes 3 MiB of JSON and the store behind it 1.5, and a ConfigMap of 1 MiB is one
value. Aliases are in use to say a template once."""


_Made: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Loader(_Made):  # type: ignore[misc] # in C where there is one
    """A safe loader whose errors all say where: PyYAML lets through what Python raises for `2001-99-99` or `!!int ""`."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        if node.tag.endswith((":int", ":float")) and len(node.value) > DIGITS:
            problem = f"a number of {len(node.value):,} characters; it may have {DIGITS} at the most"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        try:
            return super().construct_object(node, deep)
        except (ValueError, ArithmeticError, LookupError, AttributeError, TypeError) as error:
            raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from None

    def flatten_mapping(self, node: Any) -> None:
        """Before `<<` is written out, which may well give a key again: looked at once. PyYAML takes the last of two."""
        if not getattr(node, "looked_at", False):
            node.looked_at = True
            keys: set[tuple[str, str]] = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and not key.tag.endswith(":merge"):
                    if (key.tag, key.value) in keys:
                        problem = f"{key.value[:DIGITS]} is given twice"
                        raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                    keys.add((key.tag, key.value))
        super().flatten_mapping(node)


def read(path: Path | None, source: str, limits: Limits, wanted: str) -> str:
    """The text of a file. Args: path: None: stdin; source: what messages call it; wanted: what they ask for instead.

    Raises UsageError with one line.
    """
    try:
        if path is None:
            text = sys.stdin.read(limits.file + 1)
            size = len(text.encode())
        else:
            with path.open("rb") as file:
                data = file.read(limits.file + 1)
            size, text = len(data), "" if len(data) > limits.file else data.decode()
    except OSError as error:
        raise UsageError(f"{source}: cannot be read ({error.strerror}); {wanted}") from None
    except UnicodeError:
        raise UsageError(f"{source}: is no text in UTF-8; {wanted}") from None
    if size > limits.file:
        raise UsageError(f"{source}: is larger than {limits.file >> 10} KiB; {limits.use}")
    return text


def values(text: str, source: str, limits: Limits) -> list[Any]:
    """All documents in it. Raises UsageError with one line that names the place."""
    check(text, source, limits)
    try:
        return list(yaml.load_all(text, Loader))  # nosec B506 # a safe loader
    except yaml.YAMLError as error:
        raise no_yaml(error, source) from None


def no_yaml(error: Exception, source: str) -> UsageError:
    """One line for what PyYAML says in five."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
    return UsageError(f"{source}{_line(mark)}: no valid YAML: {printable(str(problem)[:SAID])}")


def check(text: str, source: str, limits: Limits) -> None:
    """Raises UsageError for a text that is no YAML, or makes more than the limits."""
    sight = _Sight(source, limits)
    try:
        for event in yaml.parse(text, Loader=Loader):
            sight.see(event)
    except yaml.YAMLError as error:
        if "nesting depth" in str(error):  # PyYAML has a most of its own since 6.0.4, and looks first
            where = f"{source}{_line(getattr(error, 'problem_mark', None))}"
            raise UsageError(f"{where}: nested too deep; the most is {limits.depth}: {limits.use}") from None
        raise no_yaml(error, source) from None


def _line(mark: Any) -> str:
    return f", line {mark.line + 1}" if mark else ""


@dataclass
class _Collection:
    """A list or object, with all that it contains; while it is not `ended` an alias to it would be a part of itself."""

    anchor: str | None
    written: int = VALUE_COSTS
    depth: int = 1
    ended: bool = False


class _Sight:
    """What has been seen of a text."""

    def __init__(self, source: str, limits: Limits) -> None:
        self._source, self._limits = source, limits
        self._open: list[_Collection] = []
        self._anchors: dict[str, _Collection] = {}
        self._written = 0  # of all documents

    def see(self, event: Any) -> None:
        """Raises UsageError."""
        where = f"{self._source}{_line(event.start_mark)}"
        self._check_plain(event, where)
        if isinstance(event, yaml.DocumentStartEvent):
            self._anchors.clear()
        elif isinstance(event, yaml.ScalarEvent):
            self._check_value(event.value, where)
            value = _Collection(event.anchor, VALUE_COSTS + len(event.value), depth=0, ended=True)
            self._add(value, where)
        elif isinstance(event, yaml.AliasEvent) and event.anchor in self._anchors:  # else it is told when it is built
            meant = self._anchors[event.anchor]
            if not meant.ended:
                raise UsageError(f"{where}: *{printable(event.anchor)} is a part of itself; it would have no end")
            self._add(_Collection(None, meant.written, meant.depth, ended=True), where)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open.append(_Collection(event.anchor))
            if event.anchor is not None:
                self._anchors[event.anchor] = self._open[-1]
            self._check_depth(0, where)
        elif isinstance(event, yaml.CollectionEndEvent):
            ended = self._open.pop()
            ended.ended = True
            self._written -= ended.written - VALUE_COSTS  # was counted part by part
            self._add(ended, where)

    def _add(self, made: _Collection, where: str) -> None:
        if made.anchor is not None:
            self._anchors[made.anchor] = made
        self._check_depth(made.depth, where)
        self._written += made.written
        if self._written > self._limits.written:
            raise UsageError(
                f"{where}: with its aliases written out this makes more than {self._limits.written >> 20} MiB; "
                f"{self._limits.use}"
            )
        if self._open:
            self._open[-1].written += made.written
            self._open[-1].depth = max(self._open[-1].depth, made.depth + 1)

    def _check_depth(self, more: int, where: str) -> None:
        if len(self._open) + more > self._limits.depth:
            raise UsageError(f"{where}: nested too deep; the most is {self._limits.depth}: {self._limits.use}")

    def _check_value(self, value: str, where: str) -> None:
        if len(value) > self._limits.value:
            raise UsageError(
                f"{where}: a value of {len(value):,} characters; the most is {self._limits.value:,}: {self._limits.use}"
            )

    def _check_plain(self, event: Any, where: str) -> None:
        if not self._limits.plain:
            return
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise UsageError(f"{where}: anchors and aliases (&, *) are of no use here; write it out")
        if getattr(event, "tag", None) is not None:
            raise UsageError(f"{where}: tags (!) are of no use here; write the value alone")
