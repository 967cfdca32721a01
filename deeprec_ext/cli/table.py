"""The picture of a job at one moment, as `rich` objects: pure, so that tests render it to text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deeprec_ext.cli.safety import backup_line
from deeprec_ext.launch.job import Scene
from deeprec_ext.launch.script import Progress
from deeprec_ext.proto import deeprec_ext_pb2 as pb2
from deeprec_ext.units import format_bytes, format_seconds

_STATE_STYLE = {
    "running": "green", "training": "green", "starting": "yellow", "requested": "yellow", "restarting": "yellow",
    "leaving": "yellow", "scaling": "cyan", "finishing": "cyan", "exited": "dim", "finished": "green", "failed": "bold red",
    "succeeded": "bold green", "stopped": "yellow",
}  # fmt: skip
_COLUMNS = (
    ("pid", 7),
    ("step", 9),
    ("steps/s", 7),
    ("examples/s", 10),
    ("memory", 7),
    ("CPU %", 5),
    ("slots", 8),
    ("restarts", 8),
)
"""Titles and widths; at least so wide that the table does not jump while it fills."""
_ORDER = {"aimaster": 0, "ps": 1, "chief": 2, "worker": 3, "evaluator": 4}


def render(scene: Scene, events: Sequence[str] = ()) -> RenderableType:
    """Header, progress, roles, scripted events, last events."""
    parts: list[RenderableType] = [header(scene), progress(scene)]
    parts += [
        Text(data_line(one), no_wrap=True, overflow="ellipsis") for one in (scene.status.data if scene.status else ())
    ]
    if (backups := backup_line(scene.status)) is not None:
        parts.append(backups)
    parts.append(roles(scene))
    if scene.script:
        parts.append(script_line(scene.script))
    parts += [Text(event, style="dim", no_wrap=True, overflow="ellipsis") for event in events]
    return Group(*parts)


def state_of(scene: Scene) -> str:
    return scene.ending or (scene.status.state if scene.status is not None else "starting")


def header(scene: Scene) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(scene.job, style="bold")
    state = state_of(scene)
    text.append("  ")
    text.append(state, style=_STATE_STYLE.get(state, "cyan"))
    if scene.status is not None:
        text.append(f"  epoch {scene.status.epoch}  {len(set(scene.status.slot_map))} PS, {scene.status.slots} slots")
    text.append(f"  {format_seconds(scene.seconds)}", style="dim")
    if scene.dashboard:
        text.append(f"  {scene.dashboard}", style="blue")
    running = running_scaling(scene.status)
    if running is not None:
        text.append(f"\n{describe_scaling(running)}", style="bold cyan")
    elif scene.status is not None and scene.status.scalings:
        ended = [one for one in scene.status.scalings if one.outcome]
        if ended:
            text.append(f"\nlast: {describe_scaling(ended[-1])}", style="dim")
    return text


def running_scaling(status: pb2.StatusReply | None) -> pb2.ScalingStatus | None:
    """The one at work; else the first that is queued."""
    waiting = [one for one in status.scalings if not one.outcome] if status is not None else []
    return next((one for one in waiting if one.state.lower() not in ("", "queued")), waiting[0] if waiting else None)


def describe_scaling(one: pb2.ScalingStatus) -> str:
    """`scale-up ps 2 → 4: PREPARE first copy 120 MB`."""
    size = f" {one.from_count} → {one.to_count}" if one.from_count != one.to_count else ""
    text = f"{one.kind} {one.role}{size}"
    if not one.outcome:
        return f"{text}: {one.state or 'queued'} {one.detail}".rstrip()
    text += f": {one.outcome}"
    if one.pause_seconds:
        text += f", pause {format_seconds(max(one.pause_seconds))}"
    if one.bytes_moved:
        text += f", {format_bytes(one.bytes_moved)} moved"
    return f"{text} ({one.reason})" if one.reason and one.outcome != "committed" else text


def progress(scene: Scene) -> RenderableType:
    """Bar, step, speed and time left; only the step where the end is unknown."""
    status = scene.status
    if status is None:
        return Text("waiting for the AIMaster", style="dim")
    speed = f"{status.steps_per_second:.1f} steps/s  {status.examples_per_second:,.0f} examples/s"
    if not status.last_step:
        return Text(f"step {status.step:,}  {speed}")
    grid = Table.grid(padding=(0, 2))
    left = eta_seconds(status)
    grid.add_row(
        ProgressBar(total=status.last_step, completed=min(status.step, status.last_step), width=30),
        Text(f"step {status.step:,} / {status.last_step:,}"), Text(speed),
        Text(f"{format_seconds(max(1.0, left))} left" if left is not None else "", style="dim"),
    )  # fmt: skip
    return grid


def eta_seconds(status: pb2.StatusReply) -> float | None:
    """None when nothing can be said."""
    if not status.last_step or status.steps_per_second <= 0:
        return None
    return float(max(0, status.last_step - status.step) / status.steps_per_second)


def data_line(data: pb2.DataStatus) -> str:
    """`data train: 32,000 of 65,122 records trained (49 %), epoch 1 of 2, 4,096 leased, 12 repeated`."""
    trained = f"data {data.name}: {data.trained:,} records trained"
    if data.records:
        share = 100 * data.trained // data.records
        trained = f"data {data.name}: {data.trained:,} of {data.records:,} records trained ({share} %)"
    epoch = f"epoch {data.epoch + 1}" + (f" of {data.epochs}" if data.epochs else "")
    counts = {"leased": data.leased, "repeated": data.repeated, "stale": data.stale, "set aside": data.set_aside}
    return ", ".join([trained, epoch, *(f"{count:,} {what}" for what, count in counts.items() if count)])


def role_order(name: str) -> tuple[int, int]:
    role, _, index = name.partition("-")
    return _ORDER.get(role, 9), int(index) if index.isdigit() else 0


def roles(scene: Scene) -> Table:
    """One line per role. The launcher knows which process runs, the AIMaster what it does."""
    table = Table(box=None, padding=(0, 1), header_style="dim", show_edge=False)
    table.add_column("role", min_width=11)
    table.add_column("state", min_width=10)
    for title, width in _COLUMNS:
        table.add_column(title, justify="right", min_width=width)
    known = {role.name: role for role in scene.status.roles} if scene.status is not None else {}
    pods = {pod.name: pod for pod in scene.pods}
    for name in sorted({*known, *pods}, key=role_order):
        row = _row(name, known.get(name), pods.get(name), hide_deleted=not scene.ending)
        if row is not None:
            table.add_row(*row)
    return table


def _row(
    name: str, role: pb2.RoleStatus | None, pod: pb2.PodStatus | None, hide_deleted: bool
) -> list[RenderableType] | None:
    state = role.state if role is not None else "running" if pod is not None and pod.state == "running" else "exited"
    if pod is not None and pod.restarting:
        state = "restarting"
    elif pod is not None and pod.state == "exited" and state in ("running", "starting"):
        state = "exited"
    if hide_deleted and state == "exited" and pod is not None and pod.deleted:
        return None  # scaled away: the events tell about it
    pid = pod.pid if pod is not None else role.pid if role is not None else 0
    restarts = pod.restarts if pod is not None else role.restarts if role is not None else 0
    cells: list[RenderableType] = [name, Text(state, style=_STATE_STYLE.get(state, "")), str(pid or "")]
    if role is None or state not in ("running", "leaving"):
        return [*cells, "", "", "", "", "", "", str(restarts or "")]
    beat = role.heartbeat
    return [
        *cells, f"{beat.step:,}" if beat.step else "", f"{beat.steps_per_second:.1f}" if beat.steps_per_second else "",
        f"{beat.examples_per_second:,.0f}" if beat.examples_per_second else "",
        format_bytes(beat.rss_bytes) if beat.rss_bytes else "", f"{role.cpu_percent:.0f}" if beat.rss_bytes else "",
        slots_text(role.slots), str(restarts or ""),
    ]  # fmt: skip


def slots_text(slots: Sequence[int]) -> str:
    """`[0, 1, 2, 5]` → `0-2,5`."""
    ranges: list[list[int]] = []
    for slot in sorted(slots):
        if ranges and slot == ranges[-1][1] + 1:
            ranges[-1][1] = slot
        else:
            ranges.append([slot, slot])
    return ",".join(f"{low}-{high}" if high > low else str(low) for low, high in ranges)


def script_line(script: Sequence[Progress]) -> Text:
    """`events 2/5 done; now: kill ps-1 at step 600`."""
    done = sum(bool(item.outcome) for item in script)
    text = Text(f"events {done}/{len(script)} done", no_wrap=True, overflow="ellipsis")
    current = next((item for item in script if not item.outcome), None)
    if current is not None:
        text.append(f"; {'now' if current.fired else 'next'}: {current.event}", style="cyan" if current.fired else "")
    return text


def plain_line(scene: Scene) -> str:
    """The same in one line, for a log."""
    status = scene.status
    parts = [f"[{format_seconds(scene.seconds)}] {state_of(scene)}"]
    if status is not None:
        last = f"/{status.last_step}" if status.last_step else ""
        parts += [f"step {status.step}{last}", f"{status.steps_per_second:.1f} steps/s", f"epoch {status.epoch}"]
        parts.append(f"{len(set(status.slot_map))} PS")
        trainers = sum(role.state == "running" and role.role in (pb2.CHIEF, pb2.WORKER) for role in status.roles)
        parts.append(f"{trainers} trainers")
        parts += [f"data {one.name} {one.trained}" + (f"/{one.records}" if one.records else "") for one in status.data]
        running = running_scaling(status)
        if running is not None:
            parts.append(describe_scaling(running))
    return ", ".join(parts)
