from __future__ import annotations

from pathlib import Path

import pytest

from deeprec_ext.errors import UsageError
from deeprec_ext.launch import events
from deeprec_ext.launch.events import ScriptedEvent, load_events, parse_events


def test_the_events_of_the_design_are_understood_in_file_order():
    text = """
- {at_step: 200, scale: {ps: 4}}
- {at_step: 400, scale: {workers: 1}}
- {at_step: 450, scale: {workers: 3, ps: 2}}
- {at_step: 500, rebalance: true}
- {at_step: 550, replace: ps-1}
- {at_step: 600, kill: ps-1}
- {at_step: 700, kill: aimaster}
- {at_seconds: 30, hang: worker-1}
"""
    assert parse_events(text) == (
        ScriptedEvent("scale", ps=4, at_step=200),
        ScriptedEvent("scale", workers=1, at_step=400),
        ScriptedEvent("scale", ps=2, workers=3, at_step=450),
        ScriptedEvent("rebalance", at_step=500),
        ScriptedEvent("replace", "ps-1", at_step=550),
        ScriptedEvent("kill", "ps-1", at_step=600),
        ScriptedEvent("kill", "aimaster", at_step=700),
        ScriptedEvent("hang", "worker-1", at_seconds=30.0),
    )


def test_an_unknown_key_is_named_with_its_line_and_the_allowed_ones():
    with pytest.raises(UsageError) as error:
        parse_events("- {at_step: 1, rebalance: true}\n- {at_stp: 200, scale: {ps: 4}}\n", "demo.yaml")
    message = str(error.value)
    assert message.startswith("demo.yaml, line 2 (event 2): unknown key `at_stp`")
    assert "at_step, at_seconds, scale, rebalance, replace, kill, hang" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{at_step: 1}", "must be a list"),
        ("- at_step", "must be a mapping"),
        ("- {at_step: 1}", "exactly one of scale"),
        ("- {rebalance: true}", "exactly one of at_step"),
        ("- {at_step: 1, at_seconds: 1, rebalance: true}", "`at_step` and `at_seconds` given"),
        ("- {at_step: 1, kill: ps-0, hang: ps-1}", "`kill` and `hang` given"),
        ("- {at_step: 1, at_step: 2, rebalance: true}", "`at_step` is given twice"),
        ("- {at_step: 1.5, rebalance: true}", "must be a whole number"),
        ("- {at_step: -1, rebalance: true}", "0 or more"),
        ("- {at_step: true, rebalance: true}", "must be a whole number"),
        ("- {at_seconds: soon, rebalance: true}", "must be a number"),
        ("- {at_step: 1, rebalance: false}", "must be true"),
        ("- {at_step: 1, scale: 4}", "must be {ps: N}, {workers: N} or {ps: N, workers: N}"),
        ("- {at_step: 1, scale: {}}", "must be {ps: N}, {workers: N} or {ps: N, workers: N}"),
        ("- {at_step: 1, scale: {ps: 2, workers: -2}}", "`workers` must be a whole number, 0 or more"),
        ("- {at_step: 1, scale: {servers: 2}}", "unknown key `servers` in `scale`; allowed are ps, workers"),
        ("- {at_step: 1, scale: {ps: 0}}", "1 or more"),
        ("- {at_step: 1, scale: {workers: -1}}", "0 or more"),
        ("- {at_step: 1, kill: ps1}", "must name a role"),
        ("- {at_step: 1, kill: [ps-1]}", "must name a role"),
        ("- {at_step: 1, replace: chief-0}", "works for a PS or a worker"),
        ("- {at_step: 1, scale: {ps: 4}", "no valid YAML"),
        ("- !!python/object:os.system {}", "tags (!) are of no use"),
        ("- {at_step: !!python/name:os.system , rebalance: true}", "tags (!) are of no use"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(text, part):
    with pytest.raises(UsageError) as error:
        parse_events(text)
    assert part in str(error.value)
    assert "\n" not in str(error.value)


def test_an_empty_file_is_no_event():
    assert parse_events("") == ()


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        load_events(tmp_path / "missing.yaml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="no text in UTF-8"):
        load_events(tmp_path / "binary")


def test_an_event_is_due_at_its_step_or_its_time():
    by_step, by_time = ScriptedEvent("rebalance", at_step=10), ScriptedEvent("rebalance", at_seconds=2.5)
    assert not by_step.due(9, 100.0)
    assert by_step.due(10, 0.0)
    assert not by_time.due(100, 2.4)
    assert by_time.due(0, 2.5)
    assert str(by_time) == "rebalance at 2.5 s"


BOMB = "- &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"- &{chr(98 + level)} [{','.join(['*' + chr(97 + level)] * 9)}]\n" for level in range(20)
)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (BOMB, "line 1: anchors and aliases"),
        ("- &a [*a]", "anchors and aliases"),
        ("- {at_step: 1, kill: *x}", "anchors and aliases"),
        ("[" * 200_000, "nested too deep"),
        ("- " * 5_000 + "x", "nested too deep"),
        (
            "- {at_step: 1, rebalance: true}\n- {at_step: " + "9" * 5_000 + ", rebalance: true}",
            "line 2: a value of 5,000",
        ),
        ("- {at_step: 0x" + "f" * 90 + ", rebalance: true}", "at the most"),
        ("- {at_step: 1" + ":59" * 30 + ", rebalance: true}", "at the most"),
        ("- {at_seconds: .inf, rebalance: true}", "at the most"),
        ("- {at_seconds: .nan, rebalance: true}", "at the most"),
        ("- {at_step: 1, scale: {ps: 99999999999}}", "at the most"),
        ("- {at_step: 1, scale: {workers: 99999999999}}", "at the most"),
        ("- {at_step: 2001-99-99, rebalance: true}", "line 1: no valid YAML"),
        ("- {at_step: 0b_, rebalance: true}", "line 1: no valid YAML"),
        ("- {\x00: 1}", "no valid YAML"),
        ("- {\x1b[2J: 1}", "no valid YAML"),
        ('- {at_step: "\\e[2J", rebalance: true}', "whole number"),
        ("- {{a: b}: 1}", "unknown key"),
    ],
)
def test_what_is_meant_to_harm_is_one_line_too(text, part):
    with pytest.raises(UsageError) as error:
        parse_events(text)
    assert part in str(error.value) and "\x1b" not in str(error.value) and len(str(error.value)) < 500


def test_no_more_is_read_than_anybody_can_mean(tmp_path):
    with pytest.raises(UsageError, match="larger than 256 KiB"):
        load_events(Path("/dev/zero"))
    whole = "- {at_step: 1, rebalance: true}\n" * (events.BYTES_MAX // 32)
    (tmp_path / "many.yaml").write_text(whole)
    assert len(load_events(tmp_path / "many.yaml")) == events.BYTES_MAX // 32


def test_an_event_that_scales_both_names_both():
    event = ScriptedEvent("scale", ps=2, workers=0, at_step=450)
    assert event.sizes == {"ps": 2, "workers": 0}
    assert str(event) == "scale ps to 2 and workers to 0 at step 450"
