"""Rules about what went wrong or may be lost, and about evidence; each from both sides."""

from __future__ import annotations

import pytest

from deeprec_ext.gazer.report import to_html
from deeprec_ext.gazer.report.as_json import values
from deeprec_ext.gazer.report.findings import RULES, evidence, find
from deeprec_ext.gazer.report.findings import safety as rules
from deeprec_ext.gazer.report.story import CRASHED, Event, Failure, Log, Scaling
from tests.unit.gazer.report.stories import BEGAN, case, eventful, loaded, steady, story, traces


def texts(found):
    return [finding.text for finding in found]


def test_an_ordinary_run_has_no_finding():
    assert find(case()) == []


def test_rules_have_names_of_their_own_and_findings_are_in_order_of_weight():
    found = find(case(None, failures=eventful().failures, scalings=eventful().scalings, status="failed"))
    levels = [finding.level for finding in found]
    assert levels == sorted(levels, key=("problem", "advice", "note").index)
    assert len({rule.__name__ for rule in RULES}) == len(RULES)


def test_a_rule_that_fires_for_everybody_tells_the_worst_and_names_the_others():
    died = tuple(Failure(f"worker-{number}", "killed", BEGAN + 50, 0.1, 2.0) for number in range(30))
    every = find(case(failures=(*died, Failure("ps-1", "hung", BEGAN + 60, 3.0, None))))
    found = [finding for finding in every if finding.rule == "failure"]
    assert [finding.subject for finding in found] == ["ps-1", "worker-0", "worker-1", "worker-2", "worker-3"]
    assert found[-1].evidence[-1].startswith("26 more findings like this one: worker-4, worker-5, ")
    assert len(found[-1].evidence[-1]) < 300


def test_no_rule_fails_on_an_empty_story():
    assert texts(find(case({}, traces=(), placements=(), tables={}, events=()))) == [
        "Nothing was measured: no finding about speed or resources can be made"
    ]


# ------------------------------------------------------------------------------------------------------------ the end


def test_what_trained_beside_the_ps_is_a_problem_unless_it_was_taken_care_of():
    fields = {"code": "no-variable-on-ps", "text": "nothing is on a PS", "remedy": "use a setter"}
    events = (
        Event(20.0, "notice", "chief-0", fields),
        Event(21.0, "notice", "chief-0", {"text": "mine", "mended": True}),
    )
    assert [(one.level, one.text, one.advice) for one in rules.notices(case(events=events))] == [
        ("problem", "Nothing is on a PS", "use a setter"), ("note", "Mine", "")
    ]  # fmt: skip


def test_who_said_what_cannot_be_is_named_with_when_and_what():
    events = (
        Event(BEGAN + 20, "suspect", "worker-1", {"what": "heartbeat.step is -1", "offences": 1}),
        Event(BEGAN + 21, "suspect", "worker-1", {"what": "heartbeat.step is -7", "offences": 10}),
        Event(BEGAN + 80, "suspect", "worker-1", {"what": "backup.slots has 99", "offences": 1}),
        Event(BEGAN + 90, "suspect", "", {"what": "register.index is -1", "certificate": "trainer"}),
    )
    run = case(events=events)
    assert [(one.role, one.time - BEGAN, one.what, one.offences) for one in run.story.suspects] == [
        ("worker-1", 20.0, "heartbeat.step is -1", 10), ("worker-1", 80.0, "backup.slots has 99", 1),
        ("trainer", 90.0, "register.index is -1", 1),
    ]  # fmt: skip
    found = [one for one in find(run) if one.rule == "suspect"]
    assert [(one.level, one.subject) for one in found] == [("problem", "worker-1"), ("problem", "trainer")]
    assert found[0].evidence == (
        "20.0 s after its start: heartbeat.step is -1 (10 times or more)",
        "1:20 after its start: backup.slots has 99",
    )
    told = values(run.story)["suspects"]
    assert told[0] == {"role": "worker-1", "time": BEGAN + 20, "what": "heartbeat.step is -1", "offences": 10}
    page = to_html(run.story)
    assert "heartbeat.step is -1" in page and "worker-1 said what cannot be" in page


def test_a_failed_job_says_why_and_shows_the_last_line():
    log = Log("chief-0", ("Traceback (most recent call last):", "ValueError: no such file"))
    [finding] = rules.job_failed(case(status="failed", reason="chief-0 exited with code 1", logs=(log,)))
    assert finding.text == "The job failed: chief-0 exited with code 1"
    assert finding.evidence == ("ValueError: no such file",)


def test_a_crashed_run_says_so_and_how_to_go_on():
    [finding] = rules.job_failed(case(state=CRASHED, status=""))
    assert finding.text.startswith("The run did not end")
    assert "--resume" in finding.advice


@pytest.mark.parametrize("status", ["succeeded", "stopped"])
def test_a_job_that_ended_in_order_is_no_finding(status):
    assert not list(rules.job_failed(case(status=status)))


# ----------------------------------------------------------------------------------------------------------- failures


def test_failures_of_one_role_are_one_finding_with_their_cost():
    found = list(rules.failures(case(failures=(
        Failure("ps-1", "killed by signal 9", BEGAN + 50, 0.05, 0.3, "promotion", stale_records=900),
        Failure("worker-0", "exited with code 1", BEGAN + 60, 0.1, 6.0),
        Failure("ps-1", "hung", BEGAN + 90, 3.0, 4.0, "checkpoint", steps_lost=120),
    ))))  # fmt: skip
    assert texts(found) == [
        "ps-1 failed 2 times: killed by signal 9, hung; 120 steps were lost",
        "worker-0 failed once: exited with code 1; no step was lost",
    ]
    assert [finding.level for finding in found] == ["problem", "note"]
    assert found[0].evidence[0].endswith("(promotion); 900 records partly forgotten")


def test_who_was_scaled_away_is_not_missing():
    [finding] = rules.failures(case(failures=(Failure("worker-1", "hung", BEGAN + 50, 3.0, 9.0, "scaled away"),)))
    assert finding.level == "note" and finding.evidence[0].endswith("noticed after 3.0 s, scaled away after 9.0 s")


def test_want_of_memory_has_its_own_remedy():
    [finding] = rules.failures(case(failures=(Failure("ps-0", "oom", BEGAN + 50, 0.1, 1.0),)))
    assert "ran out of memory" in finding.advice


def test_without_failures_there_is_nothing_to_say():
    assert not list(rules.failures(case()))


# ----------------------------------------------------------------------------------------------------------- scalings


def scaled(outcome, reason="", **more):
    return Scaling("scale-up", "ps", BEGAN + 50, 9.0, outcome, reason, 1, 2, **more)


def test_scalings_that_came_to_nothing_are_told_by_reason():
    found = rules.scalings(case(scalings=(
        scaled("rolled_back", "ps-1 did not register"), scaled("committed"), scaled("rolled_back", "ps-1 did not register"),
        scaled("refused", "ps-1 lacks 2 GB"),
    )))  # fmt: skip
    assert texts(found) == [
        "scale-up ps 1 → 2 was rolled back, and 1 more: ps-1 did not register",
        "scale-up ps 1 → 2 was refused: ps-1 lacks 2 GB",
    ]


def test_committed_scalings_are_no_finding():
    quick = case(scalings=(scaled("committed", pause_seconds=(0.2, 0.3)), scaled("")))
    assert not [*rules.scalings(quick), *rules.slow_pauses(quick)]


def test_a_long_pause():
    assert texts(rules.slow_pauses(case(scalings=(scaled("committed", pause_seconds=(0.2, 7.5)),)))) == [
        "scale-up ps 1 → 2 stopped training for 7.5 s"
    ]


def test_a_pause_in_which_a_ps_was_lost_is_told_of_the_failure_alone():
    """What the trainers report is the longest gap, and that began with the death or ended with the recovery."""
    slow = scaled("committed", pause_seconds=(7.5,))
    for died, recovered in ((BEGAN + 30, 25.0), (BEGAN + 55, 3.0), (BEGAN + 60, None)):
        assert not list(
            rules.slow_pauses(case(scalings=(slow,), failures=(Failure("ps-0", "hung", died, 8.0, recovered),)))
        )
    others = (
        Failure("ps-0", "killed", BEGAN + 20, 0.1, 25.0), Failure("ps-0", "killed", BEGAN + 90, 0.1, 25.0),
        Failure("worker-0", "killed", BEGAN + 55, 0.1, 3.0),
    )  # fmt: skip
    assert len(list(rules.slow_pauses(case(scalings=(slow,), failures=others)))) == 1


def test_the_catalogues_warnings_are_findings_with_their_remedy():
    [finding] = rules.dense_updates(case(warnings=("the optimizer writes every row of big (6.4 MB). Use Adagrad",)))
    assert (finding.text, finding.advice) == ("The optimizer writes every row of big (6.4 MB)", "Use Adagrad")
    assert not list(rules.dense_updates(case()))


def test_what_the_catalogue_warns_of_and_a_notice_has_told_is_one_finding():
    notice = Event(20.0, "notice", "chief-0", {"text": "each row is written", "remedy": "Use Adagrad", "mended": True})
    run = case(events=(notice,), warnings=("each row is written. Use Adagrad",))
    assert [one.rule for one in find(run) if one.text == "Each row is written"] == ["dense-updates"]


# ------------------------------------------------------------------------------------------------------------ backups


def test_slots_without_peer_backups():
    late = Event(BEGAN + 200, "peer_backups_complete")
    assert texts(rules.backups(case(events=(late,)))) == ["Slots had no peer backup for the first 3:20 of training"]
    assert texts(rules.backups(case(events=()))) == ["Slots had no peer backup at all in 5:00 of training"]


def test_a_long_run_without_any_backup_is_worth_a_note(monkeypatch):
    assert texts(rules.backups(case(peer_backup=False))) == [
        "There was no backup of the model: a lost PS would have cost a return to the last checkpoint"
    ]
    monkeypatch.setattr(rules, "RISK_SECONDS", 301.0)
    assert not list(rules.backups(case(peer_backup=False)))


def cuts(*times):
    return tuple(Event(BEGAN + time, "disk_backup") for time in times)


def test_disk_backups_that_came_too_seldom():
    dropped = Event(BEGAN + 120, "disk_backup_dropped", "", {"reason": "slots have moved"})
    wanted = {"peer_backup": False, "disk_backup": "b", "disk_backup_seconds": 30.0}
    wanted["events"] = (*cuts(20, 50), dropped, *cuts(280))
    [finding] = rules.backups(case(**wanted))
    assert finding.text == "No disk backup was completed for 3:50; one was due every 30.0 s"
    assert (finding.level, finding.evidence) == ("problem", ("3 completed, 1 dropped", "slots have moved"))
    [finding] = rules.backups(case(**wanted, scalings=(scaled("committed"),)))
    assert finding.level == "note"  # a scaling drops cuts
    assert "a scaling or a failure fell into this time" in finding.evidence[1]


def test_a_disk_that_could_not_be_written_is_told_before_longer_gaps_that_scalings_explain():
    full = Event(BEGAN + 60, "warning", "", {"text": "no disk backup could be written to b: No space left on device"})
    wanted = {"peer_backup": False, "disk_backup": "b", "disk_backup_seconds": 10.0}
    wanted["events"] = (full, *cuts(20, 50, 100, 260))
    [finding] = rules.backups(case(**wanted, scalings=(scaled("committed"),)))
    assert finding.text == "No disk backup was completed for 50.0 s; one was due every 10.0 s"
    assert (finding.level, finding.evidence) == ("problem", ("4 completed, 0 dropped", full.text))
    assert "See the warnings" in finding.advice


def test_backups_as_they_should_be():
    assert not list(rules.backups(case()))
    regular = case(peer_backup=False, disk_backup="b", disk_backup_seconds=60.0, events=cuts(60, 120, 180, 240))
    assert not list(rules.backups(regular))


# --------------------------------------------------------------------------------------------------------------- data


def test_records_that_were_lost_or_set_aside():
    found = rules.data(case(data={"records": 1000, "lost": 10, "set_aside": 20}))
    assert texts(found) == [
        "10 records were never trained", "20 records were set aside because their shards kept failing",
    ]  # fmt: skip


@pytest.mark.parametrize("ledger", [None, {"records": 1000, "lost": 0, "set_aside": 0, "left": 500}])
def test_records_that_are_accounted_for(ledger):
    assert not list(rules.data(case(data=ledger)))


# ----------------------------------------------------------------------------------------------------------- evidence


def test_thin_evidence_is_said():
    assert "Nothing was measured" in texts(evidence.thin(case({})))[0]
    short = case(scalings=(Scaling("scale-up", "ps", BEGAN + 40, 300.0, "committed"),))
    assert texts(evidence.thin(short)) == [
        "Evidence is thin: there were 30.0 s of training without start, scalings and failures"
    ]
    assert texts(evidence.thin(case(traces=traces(2)))) == [
        "Evidence about PS and slots is thin: 2 traced steps in 4:50"
    ]


def test_enough_evidence_is_not_talked_about():
    assert not list(evidence.thin(case()))


def test_thin_evidence_silences_the_rules_about_speed():
    values = {**steady({"worker-1": 2.0}), **loaded({"ps-0": 0.1, "ps-1": 2.5}, {0: 0.1, 1: 2.0, 2: 0.1, 3: 0.3})}
    short = Scaling("scale-up", "ps", BEGAN + 28, 300.0, "committed")
    assert {finding.rule for finding in find(case(values, scalings=(short,)))} == {"thin-evidence"}
    assert {"straggler", "hot-slot"} <= {finding.rule for finding in find(case(values))}


def test_findings_of_a_story_do_not_change_from_one_look_to_the_next():
    assert find(case()) == find(case())
    assert story() == story()
