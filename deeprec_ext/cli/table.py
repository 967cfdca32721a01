"""The picture of a job at one moment, as `rich` objects: pure, so that tests render it to text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deeprec_ext.aimaster.reporting.completion import STEPS, progress
from deeprec_ext.cli.fitting import room
from deeprec_ext.cli.roles import STATE_STYLE, role_table
from deeprec_ext.cli.safety import backup_line
from deeprec_ext.cli.slots import slot_table
from deeprec_ext.launch.job import Scene
from deeprec_ext.launch.script import Progress
from deeprec_ext.printable import printable
from deeprec_ext.proto import deeprec_ext_pb2 as pb2
from deeprec_ext.units import counted, format_bytes, format_scaling, format_seconds

SUSPECTS_SHOWN, RING_SHOWN = 5, 8
DATA_SHOWN = 4
"""Datasets with a line of their own: a script of many `fit` has several for each."""
EVENTS_IN_NEED = 3
"""Events that stay where roles and slots have no room."""


def render(
    scene: Scene, events: Sequence[str] = (), *, sort: str = "name", slots: bool = False, lines: int | None = None,
    rows: int | None = None,
) -> RenderableType:  # fmt: skip
    """Header, progress, roles, slots, scripted events, last events.

    Args:
      sort: of roles and slots: `name`, `load` or `memory`.
      slots: whether slots are shown.
      lines: of the terminal: long lists are cut so that all of it fits.
      rows: of roles and of slots, at most. Neither: all are shown.
    """
    above: list[RenderableType] = [*header(scene), Progressing(scene)]
    if scene.status is not None and scene.status.learning_rate:
        above.append(_line(f"learning rate {scene.status.learning_rate}"))
    if scene.status is not None and scene.status.allowance:
        above.append(Text(printable(scene.status.allowance), overflow="fold"))
    above += [Text(line, style=style, overflow="fold") for line, style in ring_lines(scene.status)]
    above += [_line(line) for line in data_lines(scene.status.data if scene.status else ())]
    above += [Text(printable(line), style="yellow", overflow="fold") for line in notice_lines(scene.status)]
    above += [Text(printable(line), style="red", overflow="fold") for line in suspect_lines(scene.status)]
    if (backups := backup_line(scene.status)) is not None:
        above.append(backups)
    below: list[RenderableType] = [script_line(scene.script)] if scene.script else []
    role_rows = role_table(scene, sort)
    slot_rows = slot_table(scene.status, sort) if slots and scene.status is not None else None
    role_rows.most = rows
    if slot_rows is not None:
        slot_rows.most = rows
    if lines is not None:
        wanted = len(role_rows.rows), len(slot_rows.rows) if slot_rows is not None else 0
        left = lines - len(above) - len(below) - (2 if slot_rows is None else 5)  # titles and counts
        if sum(wanted) + len(events) > left:
            events = events[-EVENTS_IN_NEED:]
        role_rows.most, few = room(max(2, left - len(events)), *wanted)
        if slot_rows is not None:
            slot_rows.most = few
    below += [_line(event, "dim") for event in events]
    parts: list[RenderableType] = [*above, role_rows]
    if slot_rows is not None:
        parts += ["", slot_rows]
    return Group(*parts, *below)


def _line(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def state_of(scene: Scene) -> str:
    return scene.ending or (scene.status.state if scene.status is not None else "starting")


def header(scene: Scene) -> list[Text]:
    """The job; where its page is; the scaling under way, or the last one."""
    text = _line("")
    text.append(printable(scene.job), style="bold")
    state = state_of(scene)
    text.append("  ")
    text.append(printable(state), style=STATE_STYLE.get(state, "cyan"))
    if scene.status is not None:
        slots = f"{len(set(scene.status.slot_map))} PS, {scene.status.slots} slots" if scene.status.slots else "in step"
        text.append(f"  view {scene.status.epoch}  {slots}")
    text.append(f"  {format_seconds(scene.seconds)}", style="dim")
    found = [text]
    if scene.dashboard:
        found.append(Text(f"dashboard {scene.dashboard}", style="blue", overflow="fold"))
    running = running_scaling(scene.status)
    ended = [one for one in scene.status.scalings if one.outcome] if scene.status is not None else []
    if running is not None:
        found.append(_line(describe_scaling(running), "bold cyan"))
    elif ended:
        found.append(_line(f"last: {describe_scaling(ended[-1])}", "dim"))
    return found


def running_scaling(status: pb2.StatusReply | None) -> pb2.ScalingStatus | None:
    """The one at work; else the first that is queued."""
    waiting = [one for one in status.scalings if not one.outcome] if status is not None else []
    return next((one for one in waiting if one.state.lower() not in ("", "queued")), waiting[0] if waiting else None)


def describe_scaling(one: pb2.ScalingStatus) -> str:
    """`scale-up ps 2 → 4: PREPARE first copy 120 MB`."""
    counts, workers = (one.from_count, one.to_count), (one.workers_from, one.workers_to)
    text = format_scaling(one.kind, one.role, counts, workers)
    if not one.outcome:
        return printable(f"{text}: {one.state or 'queued'} {one.detail}".rstrip())
    text += f": {one.outcome}"
    if one.pause_seconds:
        text += f", pause {format_seconds(max(one.pause_seconds))}"
    if one.bytes_moved:
        text += f", {format_bytes(one.bytes_moved)} moved"
    if one.requested_by:
        return printable(f"{text}, for the {one.requested_by}: {one.reason}")
    return printable(f"{text} ({one.reason})" if one.reason and one.outcome != "committed" else text)


class Progressing:
    """Bar, step, speed and time left; only the step where the end is unknown. The bar takes what the words leave."""

    def __init__(self, scene: Scene) -> None:
        self._status = scene.status

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        status = self._status
        if status is None:
            yield _line("waiting for the AIMaster", "dim")
            return
        known = progress(status)
        last = f" / {status.last_step:,}" if known is not None and known.by == STEPS else ""
        words = _line(f"step {status.step:,}{last}  {status.steps_per_second:.1f} steps/s  "
                      f"{status.examples_per_second:,.0f} examples/s")  # fmt: skip
        if known is not None and known.left_seconds is not None:
            words.append(f"  {format_seconds(max(1.0, known.left_seconds))} left", style="dim")
        width = min(30, options.max_width - words.cell_len - 2)
        if known is None or width < 5:
            yield words
            return
        grid = Table.grid(padding=(0, 2))
        grid.add_row(ProgressBar(total=1.0, completed=known.share, width=width), words)
        yield grid


def ring_lines(status: pb2.StatusReply | None) -> list[tuple[str, str]]:
    """Of a job without PS, with their styles: `ring  chief-0 → worker-0 → worker-1`, whom it waits for, who comes, leaves, was
    lost."""
    if status is None or not status.HasField("ring"):
        return []
    ring = status.ring
    names = list(ring.members)
    if len(names) > RING_SHOWN:
        names[RING_SHOWN - 1 : -1] = [f"{len(names) - RING_SHOWN} more"]
    nobody = "nobody sums any more" if status.step else "nobody has computed a first step yet"
    found = [("ring  " + (" → ".join(names) or nobody), "")]
    for what, style, roles in (
        ("waits for", "yellow", ring.waits), ("comes", "cyan", ring.coming), ("leaves", "cyan", ring.leaving),
        ("lost", "red", [one for one in ring.lost if one.name not in ring.members]),
    ):  # fmt: skip
        found += [(f"  {what} {one.name}: {one.why}", style) for one in roles[:SUSPECTS_SHOWN]]
        if len(roles) > SUSPECTS_SHOWN:
            found.append((f"  {what} {len(roles) - SUSPECTS_SHOWN} more", style))
    return [(printable(line), style) for line, style in found]


def suspect_lines(status: pb2.StatusReply | None) -> list[str]:
    """`suspect worker-1: heartbeat.step is -1, must be 0 to …`."""
    roles = [role for role in status.roles if role.suspect] if status is not None else []
    more = [f"and {len(roles) - SUSPECTS_SHOWN} more suspects"] if len(roles) > SUSPECTS_SHOWN else []
    return [f"suspect {role.name}: {role.suspect}" for role in roles[:SUSPECTS_SHOWN]] + more


def notice_lines(status: pb2.StatusReply | None) -> list[str]:
    """`notice (chief-0): no variable of the graph is on a PS …: create the model under …`."""
    said = [(one.notice, list(one.roles)) for one in status.notices] if status is not None else []
    return [notice_line(one.text, one.remedy, roles) for one, roles in said]


def notice_line(text: str, remedy: str, roles: Sequence[str]) -> str:
    """One of them."""
    more = f" and {len(roles) - 3} more" if len(roles) > 3 else ""
    return printable(f"notice ({', '.join(roles[:3])}{more}): {text}" + (f": {remedy}" if remedy else ""))


def data_shown(data: Sequence[pb2.DataStatus]) -> list[pb2.DataStatus]:
    """All of few; of many, the last ones of those that are not trained to their end."""
    if len(data) <= DATA_SHOWN:
        return list(data)
    under_way = [one for one in data if not _is_trained(one)]
    return (under_way or list(data))[-DATA_SHOWN:]


def _is_trained(data: pb2.DataStatus) -> bool:
    return data.trained >= data.records > 0


def data_lines(data: Sequence[pb2.DataStatus]) -> list[str]:
    """A line for each that is shown, and how many others there are."""
    shown = data_shown(data)
    lines = [data_line(one) for one in shown]
    if more := len(data) - len(shown):
        trained = sum(map(_is_trained, data)) - sum(map(_is_trained, shown))
        lines.append(f"data: {more} more, {'all' if trained == more else f'{trained} of them'} trained")
    return lines


def data_line(data: pb2.DataStatus) -> str:
    """`data train: 32,000 of 65,122 records trained (49 %), epoch 1 of 2, 4,096 leased, 3 to 12 repeated`."""
    trained = f"data {data.name}: {data.trained:,} records trained"
    if data.records:
        share = 100 * data.trained // data.records
        trained = f"data {data.name}: {data.trained:,} of {data.records:,} records trained ({share} %)"
    epoch = f"epoch {data.epoch + 1}" + (f" of {data.epochs}" if data.epochs else "")
    repeated = bounds_text(data.repeated_at_least, data.repeated)
    counts = {"leased": f"{data.leased:,}", "repeated": repeated, "stale": f"{data.stale:,}",
              "skipped": f"{data.skipped:,}", "set aside": f"{data.set_aside:,}"}  # fmt: skip
    return printable(
        ", ".join([trained, epoch, *(f"{count} {what}" for what, count in counts.items() if count != "0")])
    )


def bounds_text(least: int, most: int) -> str:
    """`12`; where the bounds differ `3 to 12` or, as nothing is sure, `up to 12`."""
    if least >= most:
        return f"{most:,}"
    return f"{least:,} to {most:,}" if least else f"up to {most:,}"


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
        last = f"/{status.last_step:,}" if status.last_step else ""
        parts += [f"step {status.step:,}{last}", f"{status.steps_per_second:.1f} steps/s", f"view {status.epoch}"]
        parts.append(f"{len(set(status.slot_map))} PS" if status.slots else "in step")
        trainers = sum(role.state == "running" and role.role in (pb2.CHIEF, pb2.WORKER) for role in status.roles)
        parts.append(counted(trainers, "trainer"))
        parts += [f"notice {one.notice.code}" for one in status.notices if not one.notice.mended]
        parts += [
            f"data {one.name} {one.trained:,}" + (f"/{one.records:,}" if one.records else "")
            for one in data_shown(status.data)
        ]
        running = running_scaling(status)
        if running is not None:
            parts.append(describe_scaling(running))
    return printable(", ".join(parts))
