"""How safe a job is at the moment, in one line: its peer and disk backups."""

from __future__ import annotations

from rich.text import Text

from deeprec_ext.printable import printable
from deeprec_ext.proto import deeprec_ext_pb2 as pb2
from deeprec_ext.units import format_seconds


def backup_line(status: pb2.StatusReply | None) -> Text | None:
    """`backups  peer: all slots, 3.2 s old  disk: cut 5, 12 s old`; None when there are none."""
    if status is None or not (status.backup.peer or status.backup.disk_path):
        return None
    backup = status.backup
    text = Text("backups", no_wrap=True, overflow="ellipsis")
    if backup.peer:
        missing, where = len(backup.unprotected_slots), f" on {printable(backup.holder)}" if backup.holder else ""
        if missing:
            text.append(f"  peer: {missing} of {status.slots} slots without", style="yellow")
        else:
            text.append(f"  peer: all slots{where}, {format_seconds(backup.oldest_seconds)} old")
    if backup.disk_path and backup.disk_cut:
        text.append(f"  disk: cut {backup.disk_cut}, {format_seconds(backup.disk_seconds)} old")
    elif backup.disk_path:
        text.append("  disk: no cut yet", style="yellow")
    if backup.error:
        text.append(f"  {printable(backup.error)[:80]}", style="red")
    return text
