"""Groups of a job on a directory that looks like the kernel's (version 1); real ones are in tests/behaviour/test_limits.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from deeprec_ext.errors import UsageError
from deeprec_ext.gazer.cgroup import Group
from deeprec_ext.launch.resources import Requests, Resources
from deeprec_ext.launch.roles import containers
from deeprec_ext.launch.roles.containers import Containers, open_containers, remove_leftovers
from deeprec_ext.launch.roles.guard import remove_groups

GIB = 1 << 30


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Group]:
    """Our own groups; nothing outside of `tmp_path` is looked at."""
    monkeypatch.setattr(containers, "_mount_of", lambda path: tmp_path)
    groups = {"cpu": Group(tmp_path / "cpu", 1), "memory": Group(tmp_path / "memory", 1)}
    for group in groups.values():
        group.make()
    return groups


def opened(own: dict[str, Group]) -> Containers:
    return open_containers(Requests(Resources(0.5, GIB), Resources(1.0)), own)


def files(made: Containers, name: str) -> dict[str, str]:
    return {file.name: file.read_text() for path in made.paths for file in (path / name).iterdir()}


def test_a_job_that_requests_nothing_makes_no_groups(own):
    made = open_containers(Requests(), own)
    assert made.paths == []
    assert made.enter("ps-0") == ()
    assert not any(path for group in own.values() for path in group.path.iterdir())


def test_a_role_enters_a_group_with_its_limits(own):
    made = opened(own)
    entrances = made.enter("ps-0")
    assert {path.parent.name for path in entrances} == {"ps-0"}
    assert {path.name for path in entrances} == {"cgroup.procs"}
    assert len(entrances) == 2
    written = files(made, "ps-0")
    assert written["cpu.cfs_quota_us"] == "50000"
    assert written["memory.limit_in_bytes"] == str(GIB)
    assert made.resources("ps-0") == Resources(0.5, GIB)


def test_what_is_not_requested_is_measured_and_not_limited(own):
    made = opened(own)
    made.enter("worker-3")
    assert files(made, "worker-3") == {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "100000"}
    assert len(made.enter("aimaster")) == 2
    assert files(made, "aimaster") == {}


def test_a_pod_may_be_created_with_resources_of_its_own_and_keeps_them(own):
    made = opened(own)
    made.enter("ps-1", Resources(memory_bytes=2 * GIB))
    made.enter("ps-1")  # it starts again
    assert made.resources("ps-1") == Resources(0.5, 2 * GIB)
    assert made.resources("ps-2") == Resources(0.5, GIB)
    assert files(made, "ps-1")["memory.limit_in_bytes"] == str(2 * GIB)


def test_a_resize_of_one_pod_leaves_the_others(own):
    made = opened(own)
    for name in ("ps-0", "ps-1"):
        made.enter(name)
    assert made.resize("ps-1", Resources(cpu=2.0)) == ["ps-1"]
    assert files(made, "ps-0")["cpu.cfs_quota_us"] == "50000"
    assert files(made, "ps-1")["cpu.cfs_quota_us"] == "200000"
    assert made.resources("ps-1") == Resources(2.0, GIB)


def test_a_resize_of_a_role_is_for_all_its_pods_and_those_to_come(own):
    made = opened(own)
    for name in ("ps-0", "chief-0", "worker-0"):
        made.enter(name)
    assert made.resize("worker", Resources(cpu=0.25)) == ["chief-0", "worker-0"]
    made.enter("worker-1")
    assert files(made, "chief-0")["cpu.cfs_quota_us"] == files(made, "worker-1")["cpu.cfs_quota_us"] == "25000"
    assert files(made, "ps-0")["cpu.cfs_quota_us"] == "50000"


def test_memory_that_is_in_use_is_not_taken_away(own):
    made = opened(own)
    for name, used in (("ps-0", 100 << 20), ("ps-1", 900 << 20)):
        made.enter(name)
        memory = next(path for path in made.paths if path.parent.name == "memory")
        (memory / name / "memory.usage_in_bytes").write_text(str(used))
    with pytest.raises(UsageError, match=r"ps-1 cannot be limited to 537 MB: it uses 944 MB"):
        made.resize("ps", Resources(memory_bytes=512 << 20))
    assert files(made, "ps-0")["memory.limit_in_bytes"] == str(GIB)
    assert made.resources("ps-2") == Resources(0.5, GIB)


@pytest.mark.parametrize("name", ["ps-7", "aimaster-0", "", "../ps-0"])
def test_a_pod_that_is_not_there_cannot_be_resized(own, name):
    made = opened(own)
    made.enter("ps-0")
    with pytest.raises(UsageError, match="no such pod"):
        made.resize(name, Resources(cpu=1.0))


def test_a_job_without_limits_cannot_be_resized(own):
    with pytest.raises(UsageError, match="started without"):
        open_containers(Requests(), own).resize("ps", Resources(cpu=1.0))


def test_a_kill_for_want_of_memory_is_noticed_once_and_of_the_right_role(own):
    made = opened(own)
    for name in ("ps-0", "ps-1"):
        made.enter(name)
    memory = next(path for path in made.paths if path.parent.name == "memory")
    (memory / "ps-1" / "memory.oom_control").write_text("oom_kill 1\n")
    assert not made.ran_out_of_memory("ps-0")
    assert made.ran_out_of_memory("ps-1")
    assert not made.ran_out_of_memory("ps-1")  # the next death has another reason


def test_without_groups_of_their_own_a_kill_in_the_common_group_counts_once(own):
    kills = own["memory"].path / "memory.oom_control"
    kills.write_text("oom_kill 5\n")  # before our time
    made = open_containers(Requests(), own)
    assert not made.ran_out_of_memory("ps-0")
    kills.write_text("oom_kill 6\n")
    assert made.ran_out_of_memory("worker-0")
    assert not made.ran_out_of_memory("ps-0")


def test_limits_that_cannot_be_set_are_refused_with_what_to_do(own, tmp_path):
    with pytest.raises(UsageError, match=r"--ps-cpu.*no cgroup controller cpu.*systemd-run"):
        open_containers(Requests(Resources(cpu=1.0), Resources()), {"memory": own["memory"]})
    gone = {"cpu": Group(tmp_path / "gone", 1), "memory": own["memory"]}
    with pytest.raises(UsageError, match=r"No such file.*Run as root"):
        open_containers(Requests(Resources(cpu=1.0, memory_bytes=GIB), Resources()), gone)
    assert not list(own["memory"].path.iterdir())


def test_a_controller_that_nobody_requests_may_be_missing(own, tmp_path):
    made = open_containers(
        Requests(Resources(), Resources(memory_bytes=GIB)), {**own, "cpu": Group(tmp_path / "gone", 1)}
    )
    made.enter("worker-0")
    assert files(made, "worker-0")["memory.limit_in_bytes"] == str(GIB)


def test_what_a_killed_launcher_has_left_is_removed_and_nothing_else(own, tmp_path):
    made = opened(own)
    left = tmp_path / "cpu" / "deep" / "deeprec-ext-999999999-5"
    (left / "ps-0").mkdir(parents=True)
    others = tmp_path / "cpu" / "deeprec-ext-like"
    others.mkdir()
    remove_leftovers(tmp_path)
    assert not left.exists()
    assert others.exists()
    assert all(path.exists() for path in made.paths)  # of a launcher that lives: we


def test_only_directories_of_ours_are_ever_removed(tmp_path):
    (tmp_path / "system.slice").mkdir()
    remove_groups([tmp_path / "system.slice"], seconds=0)
    assert (tmp_path / "system.slice").exists()
