"""The Grafana dashboard asks only for what the AIMaster exports: every expression, metric and label of it."""

from __future__ import annotations

import asyncio
import importlib.resources
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deeprec_ext.aimaster.reporting.exporting import collect
from deeprec_ext.gazer.prometheus import EXPORTED, exposition
from tests.unit.aimaster.collected import (
    HandClock,
    declare_data,
    make_events,
    make_job,
    make_scalings,
    report_everything,
)

TEXT = importlib.resources.files("deeprec_ext.gazer").joinpath("grafana.json").read_text(encoding="utf-8")
DASHBOARD = json.loads(TEXT)
AGGREGATIONS = {"topk", "sum", "max", "min", "avg"}
FUNCTIONS = AGGREGATIONS | {"rate", "increase", "deriv", "histogram_quantile", "round", "clamp_min", "time"}
KEYWORDS = {"by", "on", "group_left", "and", "or", "unless"}
OVER_TIME = {"rate", "increase", "deriv"}
ADDED = {"instance"}
"""By Prometheus itself, to all that it reads. Nothing may rely on its label `job`, which is named in its configuration."""

TOKEN = re.compile(
    r'(?P<string>"[^"]*")|(?P<range>\[[^\]]*\])|(?P<name>\$?[A-Za-z_][A-Za-z0-9_]*)|(?P<number>\d+(\.\d+)?)|(?P<op>=~|!=|==|!~|>=|<=|[-+*/(){},=<>])|(?P<space>\s+)'
)  # fmt: skip


def targets() -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, target) of everything that has an expression."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target
    for annotation in DASHBOARD["annotations"]["list"]:
        yield annotation["name"], annotation


TARGETS = list(targets())
NAMES = [f"{number}-{where}" for number, (where, _) in enumerate(TARGETS)]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Name of each sample that the exporter really exposes -> its labels."""
    clock = HandClock()
    job = make_job(Path(tmp_path_factory.mktemp("job")), clock)

    async def make() -> bytes:
        declare_data(job)
        report_everything(job)
        make_events(job)
        job.members.last_step = 1000
        clock.now += 2
        await job.metrics.flush()
        return exposition(await collect(job, make_scalings(job)))

    page = asyncio.run(make()).decode()
    job.close()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    for one in EXPORTED:  # backups: this job has none
        if one.name.startswith("deeprec_backup_"):
            found.setdefault(one.name, set(one.labels))
    return found


def tokens(expression: str) -> list[tuple[str, str]]:
    """(kind, text); fails on what is no PromQL."""
    found, at = [], 0
    while at < len(expression):
        match = TOKEN.match(expression, at)
        assert match, f"{expression[at:]!r} in {expression!r}"
        if match.lastgroup and match.lastgroup != "space":
            found.append((match.lastgroup, match[0]))
        at = match.end()
    return found


def listed(words: list[tuple[str, str]], at: int) -> tuple[list[str], int]:
    """The names in the parentheses that begin at `at`, and where they end."""
    assert words[at] == ("op", "("), words[at:]
    end = next(number for number in range(at, len(words)) if words[number][1] == ")")
    return [text for kind, text in words[at:end] if kind == "name"], end


def parse(expression: str) -> tuple[list[tuple[str, set[str]]], set[str]]:
    """Metrics with the labels they are matched by; and all labels that are named in by, on and group_left."""
    words, at, open_ = tokens(expression), 0, []
    metrics: list[tuple[str, set[str]]] = []
    grouped: set[str] = set()
    while at < len(words):
        kind, text = words[at]
        follows = words[at + 1][1] if at + 1 < len(words) else ""
        if text in ("by", "on", "group_left"):
            names, at = listed(words, at + 1)
            grouped.update(names)
        elif kind == "name" and text.startswith("deeprec_"):
            assert follows == "{", f"{text} is not narrowed to the chosen instance"
            end = next(number for number in range(at, len(words)) if words[number][1] == "}")
            labels = {words[number][1] for number in range(at, end) if words[number + 1][1] in ("=", "=~", "!=", "!~")}
            metrics.append((text, labels))
            ranged = end + 1 < len(words) and words[end + 1][0] == "range"
            inside = next((name for name in reversed(open_) if name), "")
            assert ranged == (inside in OVER_TIME), f"{text} in {inside}: {expression}"
            at = end + ranged
        elif kind == "name" and text in FUNCTIONS:
            assert follows in ("(", "by"), expression
        elif text == "(":
            before = words[at - 1][1] if at else ""
            open_.append(before if before in FUNCTIONS else "sum" if before == ")" else "")
        elif text == ")":
            assert open_, f"parentheses of {expression}"
            open_.pop()
        else:
            assert kind in ("number", "op") or text in KEYWORDS, f"{text!r} in {expression!r}"
        at += 1
    assert not open_, f"parentheses of {expression}"
    return metrics, grouped


@pytest.mark.parametrize(("where", "target"), TARGETS, ids=NAMES)
def test_every_expression_asks_for_what_is_exported(
    where: str, target: dict[str, Any], exported: dict[str, set[str]]
) -> None:
    metrics, grouped = parse(target["expr"])
    known: set[str] = set(ADDED)
    assert metrics or target["expr"] == "time()"
    for name, labels in metrics:
        assert name in exported, f"{where}: {name}"
        assert labels <= exported[name] | ADDED, f"{where}: {name} {labels}"
        assert "instance" in labels, f"{where}: {name} of every job there is"
        known |= exported[name]
    assert grouped <= known, f"{where}: {grouped - known}"
    legends = " ".join(target.get(key, "") for key in ("legendFormat", "titleFormat", "textFormat"))
    left = grouped if re.match(r"(round\()?(sum|max|min|avg) by", target["expr"]) else known
    assert set(re.findall(r"\{\{(\w+)\}\}", legends)) <= left, f"{where}: {legends}"


@pytest.mark.parametrize(("where", "target"), TARGETS, ids=NAMES)
def test_counters_are_shown_as_rates_and_histograms_as_quantiles(where: str, target: dict[str, Any]) -> None:
    expression = target["expr"]
    for match in re.finditer(r"(\w+)\((deeprec_\w+)|(?<!\()\b(deeprec_\w+)", expression):
        function, name = match[1] or "", match[2] or match[3]
        is_counter = name.endswith(("_total", "_bucket", "_sum", "_count"))
        assert is_counter == (function in ("rate", "increase")), f"{where}: {name} in {function or 'nothing'}"
    if "histogram_quantile" in expression:
        assert re.search(r"by \([^)]*\ble\b", expression) and "_bucket" in expression


def test_the_choices_come_from_metrics_that_exist(exported: dict[str, set[str]]) -> None:
    names = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(
                r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["query"]["query"]
            ).groups()  # type: ignore[union-attr]
            assert label in exported[metric] | ADDED
    used = set(re.findall(r"\$\{?(\w+)", TEXT)) - {"__rate_interval", "__range"}
    assert used == names


def test_every_exported_metric_is_shown_somewhere() -> None:
    asked = {
        re.sub(r"_bucket$", "", name) for _, target in TARGETS for name in re.findall(r"deeprec_\w+", target["expr"])
    }
    assert {one.name for one in EXPORTED} - asked == {"deeprec_job_info"}  # where the job is chosen


def test_panels_have_a_title_an_explanation_a_place_and_a_unit() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["title"]
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and place["x"] + place["w"] <= 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["description"].endswith(".") and panel["fieldConfig"]["defaults"]["unit"]
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_nothing_of_this_dashboard_belongs_to_one_installation() -> None:
    assert DASHBOARD["id"] is None and "http" not in TEXT.replace("--http", "")
    sources = {json.dumps(target["datasource"]) for _, target in TARGETS}
    assert sources == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}
