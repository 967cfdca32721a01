"""HTML, Markdown and JSON: well-formed, self-contained, stable, and nothing in them that a job can break out with."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser

import pytest

from deeprec_ext.gazer import report
from deeprec_ext.gazer.report import curves
from deeprec_ext.gazer.report import story as parts
from deeprec_ext.gazer.report.case import Case
from deeprec_ext.gazer.report.document import Text
from deeprec_ext.gazer.report.escape import element, with_code
from deeprec_ext.gazer.report.markdown import plain, words
from deeprec_ext.gazer.report.sections import running
from deeprec_ext.gazer.report.story import CRASHED, RUNNING, Story
from deeprec_ext.gazer.report.svg import nice_top
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.gazer.report.stories import BEGAN, GOLDEN, case, eventful, lines, loaded, steady, story, trace

VOID = {"meta", "line", "rect", "path", "br", "link", "img", "input"}
FOREIGN = {
    "script",
    "img",
    "link",
    "iframe",
    "object",
    "embed",
    "form",
    "base",
    "image",
    "use",
    "foreignobject",
    "animate",
}
HOSTILE = """<script>alert(1)</script>"'><img src=http://evil.example/x onerror=alert(1)>&amp;`x`|[a](http://evil.example)\x00\x1b[31m\u202e\ud800"""


class Page(HTMLParser):
    """Checks nesting, and collects what could reach out of the page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.ids: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in VOID
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data):
        self.text += data


def check(text: str) -> Page:
    """A page that is well-formed and needs nothing else."""
    assert text.startswith("<!DOCTYPE html>")
    page = Page(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert not page.tags & FOREIGN
    for name, value in page.attributes:
        assert not name.startswith("on") and name not in ("src", "srcset", "action", "xlink:href", "background"), (
            name,
            value,
        )
        if name == "href":
            assert re.fullmatch(r"#[a-z-]+", value) and value[1:] in page.ids
        if name == "style":
            assert re.fullmatch(r"(left|right|bottom):-?[\d.]+%", value)
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style and "@import" not in style and "<" not in style[7:]
    assert re.search(r"default-src (&#x27;|')none(&#x27;|')", text)
    return page


def hostile() -> Story:
    """Everything that comes from a job is hostile."""
    bad = HOSTILE
    base = eventful()
    ops = [pb.OpTime(name=_wire(bad), type=_wire(bad), role=_wire(bad), seconds=1.0, slot=0)]
    edges = [pb.EdgeUse(source=_wire(bad), target=_wire(bad), bytes=1, tensors=1, seconds=0.09)]
    values = {**steady(), **loaded({"ps-0": 0.3, "ps-1": 2.0}, {0: 0.1, 1: 1.8, 2: 0.1, 3: 0.1})}
    values[f"worker-{bad}"] = values.pop("worker-1")
    return dataclasses.replace(
        base, job=bad, directory=bad, status=bad, reason=bad, command=(bad, bad), versions={bad: bad}, limits={"ps": bad},
        settings=((bad, bad, bad),), metrics={bad: 1.0, "auc": float("nan")}, starts={bad: (1, 1)},
        data={"datasets": {bad: {"purpose": bad, "records": 1}}}, warnings=(bad,), disk_backup=bad,
        scalings=(parts.Scaling(bad, bad, BEGAN + 50, 1.0, bad, bad, 1, 2),
                  parts.Scaling(bad, "ps", BEGAN + 60, 1.0, "refused", bad)),
        failures=(parts.Failure(bad, bad, BEGAN + 70, 1.0, None, bad),), decisions=(parts.Decision(BEGAN + 80, bad, bad, bad),),
        events=(parts.Event(BEGAN, "warning", bad, {"text": bad}), parts.Event(BEGAN + 9, "disk_backup", bad, {"bytes": bad})),
        logs=(parts.Log(bad, (bad, bad)),), missing=(bad,), placements=(parts.Placement(BEGAN, (bad, "ps-1", "ps-0", "ps-1")),),
        tables={1: (parts.Table(bad, 10, 1, True),)}, lines=lines(values), traces=tuple(trace(20 + 10 * n, ops=ops, edges=edges)
                                                                                  for n in range(9)),
    )  # fmt: skip


def _wire(text: str) -> str:
    """As protobuf carries it: valid UTF-8."""
    return text.encode("utf-8", "replace").decode()


STORIES = {
    "eventful": eventful, "hostile": hostile, "ordinary": story, "empty": lambda: Story("empty"),
    "crashed": lambda: dataclasses.replace(eventful(), state=CRASHED, status=""),
    "running": lambda: dataclasses.replace(eventful(), state=RUNNING, status="", ended=BEGAN + 120),
    "without series": lambda: story({}), "without slot map": lambda: story(placements=(), tables={}),
}  # fmt: skip


@pytest.mark.parametrize("name", STORIES)
def test_the_page_is_well_formed_and_needs_nothing_else(name):
    text = report.to_html(STORIES[name]())
    check(text)
    text.encode("utf-8")


def test_hostile_strings_stay_text():
    page = check(report.to_html(hostile()))
    assert "<script>alert(1)</script>" in page.text
    assert page.text.count("onerror=alert(1)") > 15  # it was put nearly everywhere
    assert not set("\x00\x1b\u202e\ud800") & set(page.text)


def test_hostile_strings_stay_text_in_markdown():
    text = report.to_markdown(hostile())
    assert not set("\x00\x1b\u202e\ud800") & set(text)
    outside = re.sub(r"(?s)(`{3,})text\n.*?\n\1", "", text)
    outside = re.sub(r"(?<![\\`])`[^`\n]*`", "", outside)
    assert not re.search(r"(?<!\\)<[a-z/]", outside)
    assert not re.search(r"(?<!\\)\]\(", outside)


def test_a_log_cannot_leave_its_block():
    text = report.to_markdown(Story("j", logs=(parts.Log("ps-0", ("```", "# not a heading", "````")),)))
    assert "`````text\n```\n# not a heading\n````\n`````" in text


def test_hostile_strings_are_values_in_json():
    found = json.loads(report.to_json(hostile()))
    assert found["job"] == HOSTILE
    assert found["metrics"]["auc"] is None


def test_json_says_how_often_each_role_was_started_again():
    found = json.loads(report.to_json(Story("j", starts={"aimaster": (2, 1), "ps-0": (1, 0)})))
    assert found["starts"] == {"aimaster": {"started": 2, "restarted": 1}, "ps-0": {"started": 1, "restarted": 0}}


@pytest.mark.parametrize(("name", "make"), [("report.md", report.to_markdown), ("report.json", report.to_json)])
def test_markdown_and_json_of_a_fixed_story_are_stable(name, make):
    """`python -m tests.unit.gazer.report.stories` writes the golden files anew."""
    assert make(eventful()) == (GOLDEN / name).read_text()


def test_a_report_says_how_the_run_stands():
    assert "still running: this is how it stood at 1970-01-12 13:48:40 UTC" in report.to_markdown(STORIES["running"]())
    assert "The run crashed" in report.to_markdown(STORIES["crashed"]())
    assert "The job succeeded after 5:00." in report.to_markdown(story())


def test_every_section_is_there():
    page = check(report.to_html(eventful()))
    assert page.ids == ["findings", "what-ran", "throughput", "steps", "balance", "work", "resources", "scalings", "failures",
                        "data", "backups", "warnings", "logs"]  # fmt: skip


def test_a_job_of_a_thousand_roles_has_a_page_of_bounded_size():
    values = {f"worker-{number}": steady()["worker-0"] for number in range(1000)}
    many = story(
        lines=lines(values, every=30.0), scalings=eventful().scalings * 200, failures=eventful().failures * 200
    )
    text = report.to_html(many)
    check(text)
    assert len(text) < 1_500_000
    assert len(json.loads(report.to_json(many))["trainers"]) == 1000


# ------------------------------------------------------------------------------------------------------------ details


def test_elements_escape_what_is_not_html():
    assert element("td", "a < b & c", class_="x", title='"') == '<td class="x" title="&quot;">a &lt; b &amp; c</td>'
    assert element("td", element("b", "x")) == "<td><b>x</b></td>"


def test_code_between_backticks():
    assert with_code("run `a <b>` now") == "run <code>a &lt;b&gt;</code> now"
    assert with_code("one ` alone <b>") == "one ` alone &lt;b&gt;"
    assert words("run `a_b *c*` now, *please*") == "run `a_b *c*` now, \\*please\\*"
    assert words("one ` alone") == "one \\` alone"
    assert plain("a_b `c` <i>\n# x |") == "a_b \\`c\\` \\<i\\> \\# x \\|"


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (0.9, 1), (1, 1), (3, 4), (4.5, 5), (6, 8), (9, 10), (1234, 2e3), (0.03, 0.04)]
)
def test_scales_end_at_a_round_number(value, top):
    assert nice_top(value) == pytest.approx(top)


def test_of_very_many_scalings_the_newest_are_marked_and_it_is_said():
    many = [parts.Scaling("scale-up", "ps", BEGAN + 3 * number, 1.0, "committed") for number in range(70)]
    found = case({"job": {"steps_per_second": 10.0}}, scalings=tuple(many))
    marks = curves.marks(found)
    assert [marks[0].label, marks[-1].label, len(marks)] == ["S11", "S70", 60]
    assert isinstance(told := running.throughput(found).blocks[-1], Text) and "10 earlier ones" in told.text


def test_who_has_asked_for_a_scaling_stands_with_its_reason() -> None:
    taken = parts.Scaling(
        "scale-down", "worker", BEGAN + 60, 1.0, "committed", "a serving pod waits", 3, 1, requested_by="arbiter"
    )
    told = dataclasses.replace(eventful(), scalings=(taken,))
    assert "| arbiter: a serving pod waits |" in report.to_markdown(told)
    assert '"requested_by": "arbiter"' in report.to_json(told)


def test_a_decision_has_the_number_that_it_has_everywhere() -> None:
    some = parts.Decision(BEGAN, "start", "first", number=0), parts.Decision(BEGAN + 60, "scale", "then", number=5)
    told = dataclasses.replace(eventful(), decisions=some)
    text = report.to_markdown(told)
    assert "| D0 |" in text and "| D5 |" in text and "D1" not in text
    assert {"D0", "D5"} <= {mark.label for mark in curves.marks(Case(told))}


def test_the_estimate_stands_before_the_decisions() -> None:
    estimate = ("it begins with 2 PS", "memory of the fullest PS: 1.0 GB; it was 1.1 GB")
    first = parts.Decision(BEGAN, "start", "2 jobs like it")
    told = dataclasses.replace(eventful(), decisions=(first,), estimate=estimate)
    for text in (report.to_markdown(told), report.to_html(told)):
        assert (
            "Estimated before the start: it begins with 2 PS. memory of the fullest PS: 1.0 GB; it was 1.1 GB." in text
        )


def test_the_report_of_a_job_without_ps_has_no_words_of_ps() -> None:
    made = dataclasses.replace(eventful(), limits={"slots": 0, "ps": 0, "workers": 2}, peer_backup=False, disk_backup="",
                               placements=(), tables={}, traces=())  # fmt: skip
    text = report.to_markdown(made)
    assert "in step, without PS: a chief, 2 workers" in text and "Each process had the whole model" in text
    for of_ps in ("Balance of PS", "stale records", "sent again", "peer backups", "Evidence about PS", "slots |"):
        assert of_ps not in text
