"""From where `run --resume` would begin, and where it has begun: the chief says what it saves and restores, the store keeps it.

A resumed run begins at the last checkpoint, never by itself at a disk backup; a newer one is told all the same. A job in a
cluster, whose script stays the same, begins at whichever is newer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from deeprec_ext.units import format_seconds

CHECKPOINT, DISK, RESUMED = "checkpoint", "disk_cut", "resumed"
"""Keys of the store: the last checkpoint and the last sealed cut (`step`; `time`, Unix seconds, None: made before this job);
what the first model of this run was restored from."""

KEPT, KEPT_FILES = "kept", "model/*.npz"
"""Of a job without PS: when its chief has kept the model (`time`; None: not yet), and as what in the run directory."""

_LINE_MAX = 200


class Keys(Protocol):
    def get(self, key: str, default: Any = None) -> Any: ...
    def put(self, **values: Any) -> None: ...


def live(store: Keys, step: int, *, fresh: bool) -> None:
    """The chief has restored this step, or found nothing to restore."""
    known = _moment(store.get(CHECKPOINT))
    if fresh or (step == 0 and not known):
        store.put(**{CHECKPOINT: None})
    elif known.get("step") != step:
        store.put(**{CHECKPOINT: {"step": step, "time": None}})


def began(store: Keys) -> None:
    """A run is resumed; nothing is restored yet."""
    store.put(**{RESUMED: {"reached": int(store.get("present_step", store.get("step", 0)))}})


def nothing_restored(store: Keys) -> bool:
    """Of a run that is resumed: its first model is still to come."""
    again = store.get(RESUMED)
    return isinstance(again, dict) and isinstance(again.get("reached"), int)


def cut_is_newest(store: Keys) -> bool:
    """Whether a sealed cut has all that the last checkpoint has."""
    cut, saved = _moment(store.get(DISK)), _moment(store.get(CHECKPOINT))
    return bool(cut) and cut["step"] >= saved.get("step", 0)


def restored(store: Keys, step: int, source: str) -> int:
    """Noted of the first model of a run that was resumed; the steps by which it went back, 0 of any other."""
    if nothing_restored(store):
        lost = max(0, store.get(RESUMED)["reached"] - step)
        store.put(**{RESUMED: {"step": step, "source": source, "steps_lost": lost}})
        return lost
    return 0


def told(store: Keys, directory: Path | None) -> dict[str, Any]:
    """For summary.json: `resume`, and `resumed` of a run that was. Args: directory: of the run, where it is known."""
    found: dict[str, Any] = {"resume": {key: _moment(store.get(key)) or None for key in (CHECKPOINT, DISK)}}
    if store.get("slots") == 0:
        times = [file.stat().st_mtime for file in directory.glob(KEPT_FILES)] if directory is not None else []
        found["resume"][KEPT] = {"time": max(times)} if times else None
    again = store.get(RESUMED)
    if isinstance(again, dict) and isinstance(again.get("step"), int):
        found["resumed"] = again
    return found


def _moment(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) and isinstance(value.get("step"), int) else {}


def begins(resume: Mapping[str, Any], now: float) -> str:
    """`--resume begins at step 150, of the checkpoint of 2:03 ago`. Args: resume: as in summary.json; now: Unix seconds."""
    saved, cut = _moment(resume.get(CHECKPOINT)), _moment(resume.get(DISK))
    if KEPT in resume and not saved.get("step") and not cut:
        kept = resume[KEPT]
        if not isinstance(kept, dict):
            return "--resume begins with the model that the script makes or restores: the chief has kept none yet"
        return f"--resume begins with {_ago('the copy of the model', kept, now)} that the chief has kept"
    if saved.get("step"):
        line = f"--resume begins at step {saved['step']:,}, of {_ago('the checkpoint', saved, now)}"
    else:
        line = "--resume begins at step 0: nothing that was trained is in a checkpoint"
        line += "" if cut else " (with `--backup peer,disk=DIR` it would be in a backup)"
    if cut and cut["step"] > saved.get("step", 0):
        line += f"; {_ago('the disk backup', cut, now)} has step {cut['step']:,} (`deeprec-ext backup restore` first)"
    return line


def _ago(what: str, moment: Mapping[str, Any], now: float) -> str:
    time = moment.get("time")
    return f"{what} of {format_seconds(max(0.0, now - time))} ago" if isinstance(time, (int, float)) else what


def has_begun(resumed: Mapping[str, Any]) -> str:
    """`resumed at step 150 from the checkpoint, 250 steps lost`."""
    source = str(resumed.get("source"))[:_LINE_MAX]
    where = f" from the {source}" if source != "nothing" else ", without a checkpoint"
    return f"resumed at step {resumed.get('step') or 0:,}{where}, {resumed.get('steps_lost') or 0:,} steps lost"
