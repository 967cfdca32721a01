"""How a process of a job without PS begins and ends."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from deeprec_ext.elastic.member import joined


class Weights:
    value = np.zeros(3)

    def take(self) -> list[Any]:
        return [self.value]

    def put(self, arrays: Any) -> None:
        [self.value] = arrays


@pytest.mark.parametrize(
    ("exit_code", "leaving", "stays"), [(0, False, False), (1, False, True), (None, False, True), (0, True, True)]
)
def test_what_a_chief_began_with_is_there_until_its_script_has_come_to_its_end(
    exit_code: int | None, leaving: bool, stays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who dies first begins with it again; of a run that is over nothing is left for the next in its directory."""
    monkeypatch.setenv("DEEPREC_EXT_WORKDIR", str(tmp_path))
    (tmp_path / "model").mkdir()
    np.savez(tmp_path / "model" / "join.npz", np.ones(3))
    kept, state = joined._kept_of_own_loops(), Weights()
    assert kept.back(state) and state.value.tolist() == [1, 1, 1]
    monkeypatch.setattr(joined, "Guard", lambda *words: None)
    monkeypatch.setattr(joined, "SCRIPT", SimpleNamespace(exit_code=exit_code, error=""))
    finished: list[Any] = []
    member: Any = SimpleNamespace(
        leaving=SimpleNamespace(is_set=lambda: leaving), finish=lambda *how: finished.append(how)
    )
    joined._at_last(member, kept)
    assert (tmp_path / "model" / "join.npz").exists() == stays and finished == [(exit_code, "")]
    joined._at_last(member, kept)  # of a run that had nothing there
    joined._at_last(member, None)


def uncaught(work: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[BaseException]]:
    """(why the process is given up, what is shown as ever)."""
    given_up: list[str] = []
    shown: list[BaseException] = []
    monkeypatch.setattr(joined, "give_up", lambda reason: [given_up.append(reason), sys.exit(2)])
    try:
        work()
    except Exception as error:
        with contextlib.suppress(SystemExit):
            joined._uncaught(lambda kind, error, trace: shown.append(error), type(error), error, error.__traceback__)
    return given_up, shown


def test_a_script_that_wants_tf_config_is_told_that_there_is_none_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    [reason], shown = uncaught(lambda: os.environ["TF_CONFIG"], monkeypatch)
    assert len(shown) == 1, "the traceback is seen too"
    assert reason.startswith("test_joined.py, line ") and "a job without PS has none" in reason
    assert "tf.distribute" in reason and "leave out --strategy" in reason


@pytest.mark.parametrize(
    "work", [lambda: os.environ["TF_CONFIG_OF_MINE"], lambda: int("TF_CONFIG"), lambda: dict[str, str]()["TF_CONFIG"]]
)
def test_other_exceptions_are_shown_as_ever(work: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given_up, shown = uncaught(work, monkeypatch)
    assert not given_up and len(shown) == 1


def test_what_is_taken_out_of_the_environment_is_the_scripts_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    [reason], _ = uncaught(lambda: os.environ.pop("TF_CONFIG"), monkeypatch)
    assert reason.startswith("test_joined.py, line ")


class Ended(BaseException):
    pass


@pytest.mark.parametrize("forked", [False, True])
def test_a_forked_child_that_is_given_up_leaves_its_parents_member_alone(
    forked: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[Any] = []

    class Member:
        def refused(self, reason: str) -> None:
            said.append(reason)

        def finish(self, code: int) -> None:
            said.append(code)

    def ends(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(joined, "Member", Member)
    monkeypatch.setattr(joined, "_member", Member())
    monkeypatch.setattr(os, "_exit", ends)
    if forked:
        monkeypatch.setattr(os, "getpid", lambda: joined._process + 1)
    with pytest.raises(Ended, match="2"):
        joined.give_up("no way")
    assert said == ([] if forked else ["no way", 2]) and "deeprec-ext: no way" in capsys.readouterr().err


def test_a_notice_from_before_a_process_has_joined_is_shown_once_and_told_when_it_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[Any] = []
    member = SimpleNamespace(
        start=lambda: None, notice=lambda *words: told.append(words), finish=lambda *words: None,
        leaving=SimpleNamespace(is_set=lambda: False),
    )  # fmt: skip
    monkeypatch.setattr(joined, "_member", None)
    monkeypatch.setattr(joined, "_untold", {})
    monkeypatch.setattr(joined, "Member", lambda *words: member)
    monkeypatch.setattr(joined, "SCRIPT", SimpleNamespace(running=lambda: None, at_last=lambda work: None))
    monkeypatch.setattr(joined, "setup_logging", lambda: None)
    monkeypatch.setattr(joined, "env", SimpleNamespace(
        is_elastic_process=lambda: True, role=lambda: "worker", sums=lambda: True, claim_ownership=lambda: None
    ))  # fmt: skip
    for _ in range(2):
        joined.notice("horovod", "it is not here", "leave it out")
    assert capsys.readouterr().err == "deeprec-ext: it is not here: leave it out\n" and not told
    assert joined.join(Weights()) is member and told == [("horovod", "it is not here", "leave it out")]
    joined.notice("other", "else", "nothing")
    assert told[1:] == [("other", "else", "nothing")]
