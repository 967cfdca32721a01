"""The line about backups."""

from deeprec_ext.cli.safety import backup_line
from deeprec_ext.proto import deeprec_ext_pb2 as pb2


def line(**backup: object) -> str:
    text = backup_line(pb2.StatusReply(slots=8, backup=pb2.BackupStatus(**backup)))
    return text.plain if text is not None else ""


def test_a_job_without_backups_says_nothing_about_them() -> None:
    assert line() == "" and backup_line(None) is None


def test_unprotected_slots_and_errors_are_named() -> None:
    assert "all slots, 3.2 s old" in line(peer=True, oldest_seconds=3.2)
    assert "2 of 8 slots without" in line(peer=True, unprotected_slots=[1, 2])
    assert "cut 5" in line(disk_path="/b", disk_cut=5, disk_seconds=12)
    assert "no cut yet" in line(disk_path="/b") and "disk full" in line(disk_path="/b", error="disk full\nmore")
