"""A report as sections of blocks, before it becomes HTML or Markdown. All texts are plain and untrusted; `…` marks code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Union

from deeprec_ext.gazer.report.findings.finding import Finding

PS, TRAINER, SCALING, FAILURE, DECISION, GREY = "ps", "trainer", "scaling", "failure", "decision", "grey"
"""Kinds of things, each with one colour everywhere."""

LAYERS = ("c0", "c1", "c2", "c3", "c4", "c5")
"""Things of one kind, in turn."""


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Facts:
    """Names and values."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Bar:
    """A value with its length, 0 to 1."""

    text: str
    share: float
    kind: str


@dataclass(frozen=True)
class Spark:
    """A small curve in a cell: values from 0 to `top`, evenly spaced; None where nothing was measured."""

    values: Sequence[float | None]
    top: float
    kind: str


@dataclass(frozen=True)
class Link:
    """To another page of the same server."""

    text: str
    href: str


Cell = Union[str, Bar, Spark, Link]


@dataclass(frozen=True)
class Table:
    """`numbers`: columns that are aligned to the right. A note says what was left out."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numbers: frozenset[int] = frozenset()
    note: str = ""
    title: str = ""


@dataclass(frozen=True)
class Mark:
    """Something that happened, on the time axis."""

    label: str  # S1
    kind: str
    start: float
    end: float
    text: str


Points = Sequence[Sequence[tuple[float, float]]]
"""Unbroken pieces of a curve: (Unix seconds, value)."""


@dataclass(frozen=True)
class Curve:
    name: str
    kind: str
    points: Points


@dataclass(frozen=True)
class Chart:
    """Curves over time. `shown` turns a value into words."""

    title: str
    curves: Sequence[Curve]
    start: float
    end: float
    shown: Callable[[float], str]
    marks: Sequence[Mark] = ()
    stepped: bool = False  # a count: it changes at once
    low: bool = False  # half as high


@dataclass(frozen=True)
class Strip:
    """One row of small multiples: a curve, another one thin behind it, and words beside them."""

    name: str
    curve: Points
    behind: Points
    text: str


@dataclass(frozen=True)
class Strips:
    """Curves of many, one below the other, all with one scale from 0 to `top`."""

    title: str
    strips: Sequence[Strip]
    start: float
    end: float
    top: float
    kind: str
    shown: Callable[[float], str]
    note: str = ""
    marks: Sequence[Mark] = ()


@dataclass(frozen=True)
class Layer:
    """Of a stack: how much at each of its times. `kind`: one of LAYERS, or GREY."""

    name: str
    kind: str
    values: Sequence[float]


@dataclass(frozen=True)
class Stack:
    """What several have of one thing, one upon the other: each value from its time to the next one, the last one to `end`."""

    title: str
    times: Sequence[float]  # Unix seconds, ascending
    layers: Sequence[Layer]
    end: float
    top: float  # what there is for all
    shown: Callable[[float], str]
    note: str = ""


@dataclass(frozen=True)
class Legend:
    """What the labels of marks mean."""

    marks: Sequence[Mark]
    began: float


@dataclass(frozen=True)
class Cards:
    findings: Sequence[Finding]


@dataclass(frozen=True)
class Quote:
    """Lines of a log."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Bullets:
    items: Sequence[str]


@dataclass(frozen=True)
class Links:
    items: Sequence[Link]


Block = Union[Text, Facts, Table, Chart, Strips, Stack, Legend, Cards, Quote, Bullets, Links]


@dataclass(frozen=True)
class Section:
    anchor: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Document:
    title: str
    state: str  # one word, for colour: succeeded, failed, stopped, running, crashed
    headline: str  # one sentence
    figures: Sequence[tuple[str, str]]  # the few numbers everybody wants: name, value
    sections: Sequence[Section]
    wide: bool = False  # has a table of many columns
