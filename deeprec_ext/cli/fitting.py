"""Tables that fit: the least important columns go where a terminal is narrow, and long lists end with a count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

Row = Sequence[Union[str, Text]]


@dataclass(frozen=True)
class Column:
    """`width`: at least so wide, so that the table does not jump while it fills. `rank`: 0 stays always; the highest goes
    first."""

    title: str
    width: int = 0
    rank: int = 0
    right: bool = True


class Fitted:
    """Renders the rows under as many columns as fit.

    Args:
      most: rows shown; None: all.
      what: they are, for the count of those that are not shown.
      groups: how many rows belong together, in order: where rows are cut, each group keeps its first ones.
      told: columns that did not fit are named below.
    """

    def __init__(
        self, columns: Sequence[Column], rows: Sequence[Row], most: int | None = None, what: str = "rows",
        groups: Sequence[int] = (), told: bool = False,
    ) -> None:  # fmt: skip
        self.columns, self.rows, self.most, self.what = columns, rows, most, what
        self._groups, self._told = groups or (len(rows),), told

    def _shown(self) -> Sequence[Row]:
        if self.most is None or self.most + 1 >= len(self.rows):  # one row takes no more room than its count
            return self.rows
        shown: list[Row] = []
        begin = 0
        for size, part in zip(self._groups, parts(max(0, self.most), self._groups)):
            shown += self.rows[begin : begin + part]
            begin += size
        return shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = self._shown()
        widths = [
            max([column.width, cell_len(column.title), *(_width(row[place]) for row in shown)])
            for place, column in enumerate(self.columns)
        ]
        places = fitting(self.columns, widths, options.max_width)
        table = Table(box=None, padding=(0, 1), collapse_padding=True, pad_edge=False, header_style="dim")
        for place in places:
            column = self.columns[place]
            table.add_column(
                column.title, justify="right" if column.right else "left", min_width=min(widths[place], options.max_width),
                no_wrap=True, overflow="ellipsis",
            )  # fmt: skip
        for row in shown:
            table.add_row(*(row[place] for place in places))
        yield table
        if len(shown) < len(self.rows):
            yield Text(f"… and {len(self.rows) - len(shown):,} more {self.what}", style="dim")
        if self._told and len(places) < len(self.columns):
            left_out = [column.title for place, column in enumerate(self.columns) if place not in places]
            yield Text(
                f"no room for {', '.join(left_out)}: widen the terminal", style="dim", no_wrap=False, overflow="fold"
            )


def fitting(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Places of the columns that fit beside each other, with a space between two."""
    places = list(range(len(columns)))
    while sum(widths[place] + 1 for place in places) - 1 > width:
        droppable = [place for place in places if columns[place].rank > 0]
        if not droppable:
            break
        places.remove(max(droppable, key=lambda place: (columns[place].rank, place)))
    return places


def _width(cell: str | Text) -> int:
    return cell.cell_len if isinstance(cell, Text) else cell_len(cell)


def parts(count: int, groups: Sequence[int]) -> list[int]:
    """`count` shared among groups of these sizes: equally, and what a small group does not need goes to the others."""
    given = [0] * len(groups)
    while count > 0 and (short := [place for place, size in enumerate(groups) if given[place] < size]):
        each = max(1, count // len(short))
        for place in short:
            more = min(each, groups[place] - given[place], count)
            given[place] += more
            count -= more
    return given


def bar(share: float, width: int = 12) -> str:
    """`█████▌      ` for 0.46: eighths of a cell, so that small differences show."""
    eighths = round(8 * width * min(1.0, max(0.0, share)))
    full, rest = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width)


def room(lines: int, roles: int, slots: int) -> tuple[int, int]:
    """How many roles and slots are shown in so many lines: all, or each its part, and nobody less than a quarter."""
    if roles + slots <= lines:
        return roles, slots
    quarter = max(1, lines // 4)
    few_slots = min(slots, max(quarter, lines - roles))
    few_roles = min(roles, max(1, lines - few_slots))
    return few_roles, min(slots, max(1, lines - few_roles))
