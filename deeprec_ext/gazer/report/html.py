"""A document as one HTML file that needs nothing else: no script, no network, and a policy in it that forbids both."""

from __future__ import annotations

from pathlib import Path

from deeprec_ext.gazer.report import document as doc
from deeprec_ext.gazer.report import svg
from deeprec_ext.gazer.report.escape import Html, element, escape, join, with_code
from deeprec_ext.gazer.report.findings.finding import Finding
from deeprec_ext.gazer.report.words import offset

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What a browser may load or run for this page. Everything is escaped; should something ever slip through, it is dead."""

STYLE = Path(__file__).with_name("style.css")

STATES = ("succeeded", "failed", "stopped", "running", "crashed")

WRITTEN = "Written by deeprec-ext report. This file needs nothing else: no script, no network."

WORDS_MIN = 28
"""A column with longer texts than this is given room before it is broken into lines."""


def render(document: doc.Document, footer: str = WRITTEN) -> str:
    """The whole file."""
    head = join([
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", document.title),
        element("style", Html(STYLE.read_text(encoding="utf-8"))),
    ])  # fmt: skip
    links = [element("a", section.title, href=f"#{section.anchor}") for section in document.sections]
    figures = [element("div", element("dt", name), element("dd", value)) for name, value in document.figures]
    kind = document.state if document.state in STATES else "other"
    body = [
        element("header", element("h1", document.title), element("span", document.state, class_=f"state {kind}"),
                element("p", with_code(document.headline), class_="headline"), element("dl", *figures, class_="figures"),
                element("nav", *links) if len(links) > 1 else ""),
        element("main", *(_section(section) for section in document.sections)),
        element("footer", footer),
    ]  # fmt: skip
    page = element(
        "html", element("head", head), "\n", element("body", *body, class_="wide" if document.wide else ""), lang="en"
    )
    return f"<!DOCTYPE html>\n{page}\n"


def _section(section: doc.Section) -> Html:
    return element("section", element("h2", section.title), *map(_block, section.blocks), id=section.anchor)


def _block(block: doc.Block) -> Html:
    if isinstance(block, doc.Text):
        return element("p", with_code(block.text))
    if isinstance(block, doc.Facts):
        pairs = [part for name, value in block.rows for part in (element("dt", name), element("dd", with_code(value)))]
        return element("dl", *pairs, class_="facts")
    if isinstance(block, doc.Table):
        return _table(block)
    if isinstance(block, doc.Chart):
        return svg.chart(block)
    if isinstance(block, doc.Strips):
        return svg.strips(block)
    if isinstance(block, doc.Stack):
        return svg.stack(block)
    if isinstance(block, doc.Legend):
        return _legend(block)
    if isinstance(block, doc.Cards):
        return join(map(_card, block.findings))
    if isinstance(block, doc.Bullets):
        return element("ul", *(element("li", with_code(item)) for item in block.items))
    if isinstance(block, doc.Links):
        return element("nav", *map(_cell, block.items))
    assert isinstance(block, doc.Quote)
    return element("details", element("summary", block.title), element("pre", "\n".join(block.lines)), open="open")


def _table(table: doc.Table) -> Html:
    kinds = ["number" if number in table.numbers else "" for number in range(len(table.columns))]
    for row in table.rows:
        for number, cell in enumerate(row):
            if isinstance(cell, str) and len(cell) > WORDS_MIN and not kinds[number]:
                kinds[number] = "words"
    head = element("tr", *(element("th", name, class_=kind, scope="col") for name, kind in zip(table.columns, kinds)))
    rows = [
        element("tr", *(element("td", _cell(cell), class_=kind) for cell, kind in zip(row, kinds)))
        for row in table.rows
    ]
    caption = [element("caption", table.title)] if table.title else []
    whole = element("table", *caption, element("thead", head), element("tbody", *rows))
    note = element("p", with_code(table.note), class_="note") if table.note else Html("")
    return join([element("div", whole, class_="scroll"), note])


def _cell(cell: doc.Cell) -> Html:
    if isinstance(cell, doc.Bar):
        return svg.bar(cell)
    if isinstance(cell, doc.Spark):
        return svg.spark(cell)
    if isinstance(cell, doc.Link):
        return element("a", cell.text, href=cell.href)
    return escape(cell)


def _legend(legend: doc.Legend) -> Html:
    items = [
        element("li", element("span", one.label, class_=f"label {one.kind}"), f"{offset(one.start - legend.began)} {one.text}")
        for one in legend.marks
    ]  # fmt: skip
    return element("ul", *items, class_="legend")


def _card(finding: Finding) -> Html:
    evidence = [element("li", with_code(text)) for text in finding.evidence]
    return element(
        "article", element("small", finding.level), element("h3", with_code(finding.text)),
        element("ul", *evidence) if evidence else Html(""), element("p", with_code(finding.advice)),
        class_=f"card level-{finding.level}",
    )  # fmt: skip
