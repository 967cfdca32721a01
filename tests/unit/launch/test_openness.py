"""A run directory that others can change is told, with the place and what to do; one that nobody else can change is not."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from deeprec_ext.cli import checks
from deeprec_ext.launch import openness
from deeprec_ext.launch.openness import opening


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Below directories that are all the owner's, but for the one in which pytest makes them (sticky, or the owner's)."""
    path = tmp_path / "above" / "runs" / "mine"
    path.mkdir(parents=True)
    for place in (path, path.parent, path.parent.parent, tmp_path):
        place.chmod(0o755)
    assert opening(path) is None
    return path


@pytest.mark.parametrize(("above", "mode", "who", "harm"), [
    (0, 0o777, "every user", "can change what the job has written"),
    (0, 0o1777, "every user", "can change what the job has written"),  # others cannot move what is there, but add to it
    (0, 0o702, "every user", "can change what the job has written"),
    (1, 0o777, "every user", "can put another directory in place of"),
    (2, 0o757, "every user", "can put another directory in place of"),
])  # fmt: skip
def test_a_directory_that_others_can_write_to_is_told(run: Path, above: int, mode: int, who: str, harm: str) -> None:
    place = (run, *run.parents)[above]
    place.chmod(mode)
    found = opening(run)
    assert found is not None
    assert found.line.startswith(f"{place} (mode {mode:04o}) can be written by {who}, who {harm}")
    assert found.remedy == f"chmod go-w {place}"
    assert "\n" not in found.line


def test_a_sticky_directory_above_is_as_good_as_closed(run: Path) -> None:
    run.parent.chmod(0o1777)
    assert opening(run) is None


def test_the_nearest_is_told_and_what_is_not_there_yet_is_not_looked_at(run: Path) -> None:
    run.parent.chmod(0o777)
    run.parent.parent.chmod(0o777)
    for path in (run, run / "not" / "there"):
        found = opening(path)
        assert found is not None and found.line.startswith(f"{run.parent} (mode 0777)")


def test_a_link_leads_to_the_directory_that_counts(run: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run)
    run.chmod(0o777)
    found = opening(tmp_path / "link")
    assert found is not None and found.line.startswith(f"{run} (mode 0777)")


def test_a_group_counts_unless_it_is_the_users_own(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run.chmod(0o775)
    real, group = os.stat(run).st_uid, 4242
    monkeypatch.setattr(openness, "ROOT", -1)  # root's group is nobody else's, and tests may run as root
    names = SimpleNamespace(pw_gid=run.stat().st_gid, pw_name="ann")
    monkeypatch.setattr(pwd, "getpwuid", lambda user: names)
    members: list[str] = []
    monkeypatch.setattr(grp, "getgrgid", lambda gid: SimpleNamespace(gr_gid=gid, gr_name=names.pw_name, gr_mem=members))
    monkeypatch.setattr(os, "geteuid", lambda: real)
    assert openness._writers(run, run.stat()) == "", "a umask of 002 and a group for each user are usual"
    members.append("bob")
    assert openness._writers(run, run.stat()) == "the group ann"
    members.clear()
    names.pw_gid = group
    assert openness._writers(run, run.stat()) == "the group ann"


def test_somebody_elses_directory_is_told_with_its_owner(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openness, "ROOT", -1)
    monkeypatch.setattr(os, "geteuid", lambda: run.stat().st_uid + 1)
    found = opening(run)
    assert found is not None and "can be written by its owner " in found.line
    assert found.remedy == "choose a directory below one of yours"


def test_an_acl_is_told(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run.chmod(0o770)
    monkeypatch.setattr(os, "listxattr", lambda path: [openness._ACL])
    found = opening(run)
    assert found is not None and "can be written by those that its ACL names, who can change" in found.line


def test_doctor_warns_where_runs_would_be(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run)
    assert checks.check_directory().verdict == "ok"
    (run / "runs").mkdir()
    (run / "runs").chmod(0o777)
    found = checks.check_directory()
    assert found.verdict == "warn" and found.found.startswith(
        f"{run / 'runs'} (mode 0777) can be written by every user"
    )
    assert found.remedy == f"chmod go-w {run / 'runs'}"
