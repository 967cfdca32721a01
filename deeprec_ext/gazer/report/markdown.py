"""A document as Markdown, for a pull request, a ticket or a terminal. Curves become a line of blocks: ▁▃▅▇."""

from __future__ import annotations

import re
from collections.abc import Sequence

from deeprec_ext.gazer.report import document as doc
from deeprec_ext.gazer.report.escape import clean
from deeprec_ext.gazer.report.words import offset

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 40
_SPECIAL = re.compile(r"([\\*\[\]<>|#~`]|(?<!\w)_|_(?!\w)|&(?=\w+;|#))")


def render(document: doc.Document) -> str:
    """The whole text."""
    parts = [f"# {plain(document.title)} ({plain(document.state)})", words(document.headline)]
    parts.append(" · ".join(f"{plain(name)} **{plain(value)}**" for name, value in document.figures))
    for section in document.sections:
        parts.append(f"## {plain(section.title)}")
        parts += [text for block in section.blocks if (text := _block(block))]
    return "\n\n".join(part for part in parts if part) + "\n"


def plain(text: str) -> str:
    """On one line, and nothing in it means anything to Markdown or HTML."""
    return _escape(_one_line(text))


def words(text: str) -> str:
    """The same, but for `code` between single backticks."""
    text = _one_line(text)
    parts = text.split("`")
    if len(parts) % 2 == 0 or "" in parts[1:-1]:
        return _escape(text)
    return "".join(f"`{part}`" if number % 2 else _escape(part) for number, part in enumerate(parts))


def _one_line(text: str) -> str:
    return " ".join(clean(text).split())


def _escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def _block(block: doc.Block) -> str:
    if isinstance(block, doc.Text):
        return words(block.text)
    if isinstance(block, doc.Facts):
        return "\n".join(f"- {plain(name)}: {words(value)}" for name, value in block.rows)
    if isinstance(block, doc.Table):
        return _table(block)
    if isinstance(block, doc.Chart):
        return "\n".join(_curve(curve.name, curve.points, block) for curve in block.curves)
    if isinstance(block, doc.Strips):
        rows = [f"- {plain(strip.name)} `{line(strip.curve, block.start, block.end, block.top)}` {plain(strip.text)}"
                for strip in block.strips]  # fmt: skip
        return "\n".join([f"{plain(block.title)}, full height {plain(block.shown(block.top))}", "", *rows])
    if isinstance(block, doc.Stack):
        return "\n".join([f"{plain(block.title)}, of {plain(block.shown(block.top))}", "", *_layers(block)])
    if isinstance(block, doc.Legend):
        return "\n".join(
            f"- {mark.label} at {offset(mark.start - block.began)}: {plain(mark.text)}" for mark in block.marks
        )
    if isinstance(block, doc.Cards):
        return "\n".join(_finding(one.level, one.text, one.evidence, one.advice) for one in block.findings)
    if isinstance(block, doc.Bullets):
        return "\n".join(f"- {words(item)}" for item in block.items)
    if isinstance(block, doc.Links):
        return " · ".join(plain(one.text) for one in block.items)
    assert isinstance(block, doc.Quote)
    text = "\n".join(clean(one) for one in block.lines)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{plain(block.title)}\n\n{fence}text\n{text}\n{fence}"


def _finding(level: str, text: str, evidence: Sequence[str], advice: str) -> str:
    return "\n".join(
        [f"- **{level}**: {words(text)}", *(f"  - {words(one)}" for one in evidence), f"  - → {words(advice)}"]
    )


def _table(table: doc.Table) -> str:
    curves = {number for row in table.rows for number, cell in enumerate(row) if isinstance(cell, doc.Spark)}
    shown = [number for number in range(len(table.columns)) if number not in curves]
    head = "| " + " | ".join(plain(table.columns[number]) for number in shown) + " |"
    rule = "|" + "|".join("--:" if number in table.numbers else "---" for number in shown) + "|"
    rows = ["| " + " | ".join(_cell(row[number]) for number in shown) + " |" for row in table.rows]
    title = [f"**{plain(table.title)}**", ""] if table.title else []
    return "\n".join([*title, head, rule, *rows, *(["", words(table.note)] if table.note else [])])


def _cell(cell: doc.Cell) -> str:
    if isinstance(cell, str):
        return plain(cell)
    return plain(cell.text) if isinstance(cell, (doc.Bar, doc.Link)) else ""


def _layers(stack: doc.Stack) -> list[str]:
    start = stack.times[0] if stack.times else stack.end
    curves = [(layer.name, [list(zip(stack.times, layer.values))]) for layer in stack.layers]
    return [f"- {plain(name)} `{line(points, start, stack.end, stack.top)}`" for name, points in curves]


def _curve(name: str, points: doc.Points, chart: doc.Chart) -> str:
    top = max((value for piece in points for _, value in piece), default=0.0)
    return f"- {plain(name)} `{line(points, chart.start, chart.end, top)}` up to {plain(chart.shown(top))}"


def line(points: doc.Points, start: float, end: float, top: float) -> str:
    """`▁▃▅ ▇`: means of equal parts of the time, a blank where nothing was measured."""
    parts: list[list[float]] = [[] for _ in range(WIDTH)]
    for piece in points:
        for time, value in piece:
            parts[min(WIDTH - 1, max(0, int((time - start) / max(1e-9, end - start) * WIDTH)))].append(value)
    return "".join(_level(sum(part) / len(part) / top if top else 0.0) if part else " " for part in parts)


def _level(share: float) -> str:
    return BLOCKS[min(len(BLOCKS) - 1, max(0, int(share * len(BLOCKS))))]
