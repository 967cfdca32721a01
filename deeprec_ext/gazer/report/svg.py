"""Charts as inline SVG. Shapes stretch with the page (`preserveAspectRatio="none"`, strokes keep their width); words do not:
they are HTML, placed by percent, so that a chart can be read on a telephone as well as on a desk.

No script, no `id`, nothing from elsewhere; colours are classes, so that light, dark and print differ in the style sheet alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from deeprec_ext.gazer.report.document import Bar, Chart, Mark, Points, Spark, Stack, Strip, Strips
from deeprec_ext.gazer.report.escape import Html, element, join
from deeprec_ext.gazer.report.words import offset

WIDTH, HEIGHT = 1000, 100
LABEL_SHARE = 6.0
"""Percent of the width that a label of a mark takes on a telephone: closer ones go into another row."""
LABEL_ROWS = 3
TIME_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
TICKS = 6


def chart(one: Chart) -> Html:
    """A figure with axes, marks and a legend where there is more than one curve."""
    top = nice_top(max((value for curve in one.curves for piece in curve.points for _, value in piece), default=0.0))
    ticks = [top * part / 4 for part in range(5)] if not one.low else [0.0, top / 2, top]
    if one.stepped:
        ticks = [float(value) for value in range(int(top) + 1)] if top <= 4 else [0.0, top / 2, top]
    grid = [element("line", class_="grid", x1=0, x2=WIDTH, y1=_y(tick, top), y2=_y(tick, top)) for tick in ticks]
    kinds = ["curve {}", "curve over {}"]  # a curve over another one has gaps, so that both are seen
    paths = [
        _path(curve.points, one, top, kinds[number > 0].format(curve.kind)) for number, curve in enumerate(one.curves)
    ]
    shape = _svg(join([*grid, *_bands(one.marks, one.start, one.end), *paths]), one.title)
    names = [element("span", _key(curve.kind), curve.name, class_="name") for curve in one.curves]
    caption = element("figcaption", element("b", one.title), *(names if len(names) > 1 else []))
    left = element(
        "div",
        *(element("span", one.shown(tick), style=f"bottom:{100 * tick / top:.1f}%") for tick in ticks),
        class_="y",
    )
    area = element("div", left, shape, class_="area low" if one.low else "area")
    return element(
        "figure", caption, _labels(one.marks, one.start, one.end), area, times(one.start, one.end), class_="chart"
    )


def strips(one: Strips) -> Html:
    """Small multiples: one row per strip, all with the same scale."""
    height = element("span", f"full height: {one.shown(one.top)}", class_="name")
    caption = element("figcaption", element("b", one.title), height)
    rows = [_strip(strip, one) for strip in one.strips]
    note = [element("p", one.note, class_="note")] if one.note else []
    return element(
        "figure", caption, _labels(one.marks, one.start, one.end), *rows, times(one.start, one.end), *note,
        class_="chart strips",
    )  # fmt: skip


def _strip(strip: Strip, one: Strips) -> Html:
    shape = _svg(
        join([*_bands(one.marks, one.start, one.end), _path(strip.behind, one, one.top, "curve grey thin"),
              _path(strip.curve, one, one.top, f"curve {one.kind}")]), strip.name,
    )  # fmt: skip
    words = element("div", element("b", strip.name), element("span", strip.text), class_="words")
    return element("div", words, element("div", shape, class_="area"), class_="strip")


def stack(one: Stack) -> Html:
    """A figure with areas, one upon the other, and a legend."""
    start, top = one.times[0] if one.times else one.end, one.top or 1.0
    ticks = [0.0, top / 4, top / 2, 3 * top / 4, top]
    grid = [element("line", class_="grid", x1=0, x2=WIDTH, y1=_y(tick, top), y2=_y(tick, top)) for tick in ticks]
    edges = [round((time - start) / max(1e-9, one.end - start) * WIDTH, 1) for time in (*one.times, one.end)]
    below, areas, names = [0.0] * len(one.times), [], []
    for layer in one.layers:
        above = [low + value for low, value in zip(below, layer.values)]
        forth = _steps(edges, [_y(value, top) for value in above])
        back = reversed(_steps(edges, [_y(value, top) for value in below]))
        areas.append(
            element("path", class_=f"fill {layer.kind}", d="M" + "L".join([*forth, *back]) + "Z" if forth else "")
        )
        names.append(element("span", _key(layer.kind), layer.name, class_="name"))
        below = above
    left = element(
        "div",
        *(element("span", one.shown(tick), style=f"bottom:{100 * tick / top:.1f}%") for tick in ticks),
        class_="y",
    )
    area = element("div", left, _svg(join([*grid, *areas]), one.title), class_="area")
    note = [element("p", one.note, class_="note")] if one.note else []
    return element(
        "figure",
        element("figcaption", element("b", one.title), *names),
        area,
        times(start, one.end),
        *note,
        class_="chart",
    )


def _steps(edges: Sequence[float], heights: Sequence[float]) -> list[str]:
    """Corners of a line that is level from edge to edge."""
    pairs = zip(edges, edges[1:], heights)
    return [corner for left, right, height in pairs for corner in (f"{left:g} {height:g}", f"{right:g} {height:g}")]


def bar(one: Bar) -> Html:
    """A bar with its value behind it."""
    width = 100 * min(1.0, max(0.0, one.share))
    shape = element("svg", element("rect", class_=f"fill {one.kind}", width=f"{width:.1f}", height=10), viewBox="0 0 100 10",
                    preserveAspectRatio="none", class_="bar", aria_hidden="true")  # fmt: skip
    return element("span", shape, element("span", one.text), class_="bar-cell")


def spark(one: Spark) -> Html:
    """A small curve; what was not measured is a gap."""
    pieces: list[list[str]] = []
    before = None
    for number, value in enumerate(one.values):
        if value is not None:
            if before is None:
                pieces.append([])
            pieces[-1].append(f"{number / max(1, len(one.values) - 1) * 100:.1f} {_y(value, one.top or 1.0) / 5:.1f}")
        before = value
    path = " ".join(f"M{piece[0]}h0.1" if len(piece) == 1 else "M" + "L".join(piece) for piece in pieces)
    return element("svg", element("path", class_=f"curve {one.kind}", d=path), viewBox="0 0 100 20",
                   preserveAspectRatio="none", class_="spark", aria_hidden="true")  # fmt: skip


def times(start: float, end: float) -> Html:
    """The time axis, since the start."""
    length = max(1e-9, end - start)
    step = next((step for step in TIME_STEPS if length / step <= TICKS), math.ceil(length / TICKS / 86400) * 86400)
    ticks = [number * step for number in range(int(length / step) + 1)]
    spans = [
        element("span", offset(tick), style=f"left:{100 * tick / length:.2f}%")
        for tick in ticks
        if tick < 0.97 * length
    ]
    return element("div", *spans, class_="x")


def nice_top(value: float) -> float:
    """The end of a scale from 0: 1, 2, 4, 5, 8 or 10 times a power of ten."""
    if value <= 0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 4, 5, 8, 10) if value <= factor * power * (1 + 1e-9))


def _svg(inside: Html, title: str) -> Html:
    return element(
        "svg", element("title", title), inside, viewBox=f"0 0 {WIDTH} {HEIGHT}", preserveAspectRatio="none", role="img"
    )


def _y(value: float, top: float) -> float:
    return round(HEIGHT * (1 - value / top), 2)


def _path(pieces: Points, one: Chart | Strips, top: float, kind: str) -> Html:
    length = max(1e-9, one.end - one.start)
    parts = []
    for piece in pieces:
        found = [f"{(time - one.start) / length * WIDTH:.1f} {_y(value, top):g}" for time, value in piece]
        parts.append(f"M{found[0]}h0.5" if len(found) == 1 else "M" + "L".join(found))
    return element("path", class_=kind, d="".join(parts))


def _bands(marks: Sequence[Mark], start: float, end: float) -> list[Html]:
    """What happened, as a band from its beginning to its end, at least a line."""
    length = max(1e-9, end - start)
    found = []
    for mark in marks:
        left = (mark.start - start) / length * WIDTH
        width = max(0.0, min(mark.end, end) - mark.start) / length * WIDTH
        found.append(
            element("rect", class_=f"band {mark.kind}", x=f"{left:.1f}", y=0, width=f"{width:.1f}", height=HEIGHT)
        )
        found.append(element("line", class_=f"mark {mark.kind}", x1=f"{left:.1f}", x2=f"{left:.1f}", y1=0, y2=HEIGHT))
    return found


def _labels(marks: Sequence[Mark], start: float, end: float) -> Html:
    """The labels of marks above a chart, in as many rows as they need."""
    if not marks:
        return Html("")
    length = max(1e-9, end - start)
    ends = [-100.0] * LABEL_ROWS
    spans = []
    for mark in marks:
        left = min(100.0, max(0.0, 100 * (mark.start - start) / length))
        free = [row for row in range(LABEL_ROWS) if left - ends[row] >= LABEL_SHARE]
        row = free[0] if free else min(range(LABEL_ROWS), key=ends.__getitem__)
        ends[row] = left
        kind = f"label {mark.kind} row{row}"
        place = f"left:{left:.2f}%" if left < 98 else f"right:{100 - left:.2f}%"  # not beyond the page
        spans.append(element("span", mark.label, class_=kind, style=place, title=mark.text))
    used = sum(end >= 0 for end in ends)
    return element("div", *spans, class_=f"labels rows{used}")


def _key(kind: str) -> Html:
    return element("i", class_=f"key {kind}")
