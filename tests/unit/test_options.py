"""The table of options: a row is there everywhere, and what an AIMaster is told is checked and bounded."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, fields
from typing import Any

import pytest

from deeprec_ext import env, options
from deeprec_ext.aimaster import main as aimaster_main
from deeprec_ext.bounds import MOST
from deeprec_ext.cli import run
from deeprec_ext.errors import UsageError
from deeprec_ext.launch.plan import aimaster_command
from deeprec_ext.options import BOTH, JobSpec, all_rows, option, read_specification, rows, specification
from tests.docs.test_options import settings_page
from tests.unit.tfjob.world import ELASTIC, manifest
from tfjob.model import annotations
from tfjob.model.spec import InvalidError, TFJob
from tfjob.pods import aimaster

PREFIX = "aimaster.deeprec.io/"


@dataclass(frozen=True)
class More(options.Settings):
    """With three that nothing else knows of."""

    patience_seconds: float = option(5.0, "How long somebody waits.", **BOTH)
    mood: str = option("calm", "How.", words=("calm", "merry"), **BOTH)
    tries_max: int = option(3, "How often.", **BOTH)


@pytest.fixture
def _more(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the table's file said it. Who imports the class by its name has no part in adding a row."""
    for module in (options, annotations, run):
        monkeypatch.setattr(module, "Settings", More)


def elastic(**said: str) -> tuple[TFJob, annotations.Elastic]:
    given = {PREFIX + key: value for key, value in said.items()}
    job = TFJob.parse(manifest(annotations={**ELASTIC, **given}))
    found, warnings = annotations.parse(job)
    assert found is not None and warnings == ()
    return job, found


# --------------------------------------------------------------------------------------------------- a row is everywhere


@pytest.mark.usefixtures("_more")
def test_an_option_that_is_added_to_the_table_is_a_flag(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    assert "--patience DURATION" in parser.format_help() and "How long somebody waits." in parser.format_help()
    words = [
        "--patience",
        "2m",
        "--mood",
        "merry",
        "--tries-max",
        "0",
        "--workdir",
        str(tmp_path / "run"),
        "--",
        "python",
    ]
    plan = run.make_plan(parser.parse_args([*words, "-c", "pass"]))
    assert dict(plan.settings) == {"patience_seconds": "120", "mood": "merry", "tries_max": "0"}
    told = read_specification(
        aimaster_command(plan, "127.0.0.1:1", "127.0.0.1:2").environment["DEEPREC_EXT_SPECIFICATION"]
    )
    assert told.given == {"patience_seconds", "mood", "tries_max"}
    assert isinstance(told.settings, More) and told.settings.patience_seconds == 120.0
    assert "--mood {calm,merry}" in parser.format_help()
    with pytest.raises(SystemExit):
        parser.parse_args(["--mood", "sad", *words[6:], "-c", "pass"])
    assert "argument --mood: invalid choice: 'sad' (choose from 'calm', 'merry')" in capsys.readouterr().err


@pytest.mark.usefixtures("_more")
def test_an_option_that_is_added_to_the_table_is_an_annotation_and_reaches_the_aimaster() -> None:
    job, found = elastic(patience="2m", mood="merry", **{"tries-max": "7"})
    told = read_specification(aimaster.specification(job, found, aimaster.Options("image")))
    assert isinstance(told.settings, More)
    assert (told.settings.patience_seconds, told.settings.mood, told.settings.tries_max) == (120.0, "merry", 7)
    for key, text, message in (
        ("mood", "sad", "write calm or merry"), ("patience", "2", "is no duration"), ("tries-max", "-1", "whole number"),
    ):  # fmt: skip
        with pytest.raises(InvalidError, match=message):
            elastic(**{key: text})


@pytest.mark.usefixtures("_more")
def test_an_option_that_is_added_to_the_table_is_a_setting_and_in_the_documents() -> None:
    assert options.values_given([("patience_seconds", "1.5")]) == {"patience_seconds": 1.5}
    with pytest.raises(UsageError, match="must be one of calm, merry"):
        options.values_given([("mood", "sad")])
    assert "| `patience_seconds` (flag `--patience`) | seconds | 5 | How long somebody waits. |" in settings_page()


@pytest.mark.parametrize("table", [options.Settings, options.Sizes])
def test_every_field_is_a_row(table: type) -> None:
    assert [row.name for row in rows(table)] == [one.name for one in fields(table)]
    for row in rows(table):
        assert row.help and row.complaint(row.default) == "" and (row.unit in MOST or row.type in (bool, str)), row


def test_flags_and_annotations_have_names_of_their_own() -> None:
    for way in ("flag", "annotation"):
        keys = [row.key for row in all_rows() if getattr(row, way)]
        assert len(keys) == len(set(keys)) > 10


def test_what_a_process_is_told_by_its_environment_is_in_the_table() -> None:
    whole = env.process_environment(
        aimaster="a",
        job="j",
        role="ps",
        index=1,
        slots=8,
        certificates="c",
        workdir="w",
        evaluator=True,
        layout="chief",
    )
    named = {env.PREFIX + row.environment for row in all_rows() if row.environment}
    assert named == {"DEEPREC_EXT_SLOTS", "DEEPREC_EXT_EVALUATOR", "DEEPREC_EXT_LAYOUT"} and named <= set(whole)


# ---------------------------------------------------------------------------------------------------- the specification


def test_what_is_written_is_what_is_read() -> None:
    said = {"name": "team.ctr", "ps": 3, "workers": 0, "slots": 16, "max_ps_cpu": 1.5, "total_memory_bytes": 1 << 34,
            "own_pods": False, "operator": False, "gang_scheduler": "volcano", "evaluator": True}  # fmt: skip
    spec = read_specification(specification([("heartbeat_seconds", "2"), ("strict", "true")], **said))
    assert {name: getattr(spec, name) for name in said} == said
    assert (spec.settings.heartbeat_seconds, spec.settings.strict) == (2.0, True)
    assert spec.given == {"heartbeat_seconds", "strict"} and spec.settings.lease_seconds == 30.0
    assert spec == JobSpec(**said, settings=spec.settings, given=spec.given)


def told(**changed: Any) -> str:
    return json.dumps({**json.loads(specification((), name="j")), **changed})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (told(colour="red"), r"says colour, which is not known here\. deeprec-ext 0\.1\.0 wrote it"),
        (told(settings={"colour": "red"}), "says colour, which is not known here"),
        (told(version=2, by="9.9"), r"of version 2, not 1\. deeprec-ext 9\.9 wrote it, this is .* of one version"),
        (told(version=None), "of version None"),
        ("{}", "of version None"),
        ("", "no JSON"),
        ("[" * 50_000, "no JSON|must be an object"),
        ("[]", "must be an object"),
        (told(settings=[]), "must be an object"),
        (json.dumps({"version": 1, "name": "j", "ps": 1}), "does not say workers, slots"),
        (told(ps=0), "at least one PS"),
        (told(ps=9, slots=8), "9 PS are more than the 8 slots"),
        (told(max_ps=9, slots=8), "9 PS are more than the 8 slots"),
        (told(workers=-1), "workers is '-1': must be a number of 0 or more"),
        (told(workers=10**9), "and 100,000 at the most"),
        (told(workers=1.5), "must be a whole number"),
        (told(workers=True), "must be a whole number"),
        (told(workers="1"), "must be a whole number"),
        (told(evaluator="yes"), "must be true or false"),
        (told(total_cpu=float("nan")), "must be a number of 0 or more"),
        (told(total_cpu=float("inf")), "must be a number of 0 or more"),
        (told(name=None), "must be text"),
        (told(settings={"objective": "best"}), "must be one of fastest, cheapest, deadline"),
        (told(settings={"heartbeat_seconds": "2"}), "heartbeat_seconds is '2': must be a number"),
        (told(start="x" * 100_000), "the most are 100,000"),
    ],
)  # fmt: skip
def test_what_is_no_specification_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as error:
        read_specification(text)
    assert str(error.value).startswith("the specification is wrong: ") and len(str(error.value)) < 400


def test_what_could_not_be_read_is_not_written() -> None:
    with pytest.raises(UsageError, match="10 PS are more than the 8 slots"):
        specification((), name="j", max_ps=10)
    with pytest.raises(UsageError, match="no such setting"):
        specification([("colour", "red")], name="j")
    with pytest.raises(AssertionError):
        specification((), name="j", colour="red")


def test_an_aimaster_that_another_release_has_started_with_flags_says_what_to_do():
    before = ("--job", "j", "--tfjob", "a/b", "--listen", "0.0.0.0:1", "--workdir", "/w", "--ps", "2", "--slots", "8")
    with pytest.raises(UsageError, match=r"--job j --ps 2 --slots 8: no flag of this release.*image the same"):
        aimaster_main.parse(before)


@pytest.mark.parametrize(
    ("flags", "scaling", "why"),
    [((), "linear", "Here leave it out; inverse"), ((), "root", "the same is inverse_root; inverse"),
     (("--strategy", "allreduce"), "inverse", "is of jobs with PS"),
     (("--strategy", "allreduce"), "inverse_root", "linear or root")],
)  # fmt: skip
def test_a_learning_rate_is_refused_that_follows_the_other_way(
    flags: tuple[str, ...], scaling: str, why: str, tmp_path: Any
) -> None:
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    said = [
        "--workdir",
        str(tmp_path / "run"),
        "--setting",
        f"rate_scaling={scaling}",
        *flags,
        "--",
        "python",
        "-c",
        "0",
    ]
    with pytest.raises(UsageError, match=rf"--setting rate_scaling={scaling} .*{why}"):
        run.make_plan(parser.parse_args(said))
    slots = {"slots": 0, "ps": 0} if flags else {"slots": 8, "ps": 1}
    with pytest.raises(UsageError, match=why):
        specification([("rate_scaling", scaling)], name="job", workers=1, **slots)


def test_a_learning_rate_follows_with_and_without_ps() -> None:
    for sums, scalings in ((False, ("none", "inverse", "inverse_root")), (True, ("none", "linear", "root"))):
        assert [options.rate_complaint(one, sums) for one in scalings] == [""] * 3
