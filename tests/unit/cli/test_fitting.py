from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from deeprec_ext.cli.fitting import Column, Fitted, bar, fitting, parts, room


def text_of(renderable, width: int = 80) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(renderable)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


COLUMNS = (Column("role", 6, right=False), Column("pid", 5, rank=2), Column("step", 5, rank=1))


@pytest.mark.parametrize(
    "width, title", [(40, "role     pid  step"), (18, "role     pid  step"), (17, "role    step"), (11, "role")]
)
def test_the_least_important_columns_go_first(width, title):
    assert text_of(Fitted(COLUMNS, [["ps-0", "1", "2"]]), width)[0] == title


def test_what_must_stay_is_cut_where_even_that_is_too_wide():
    assert text_of(Fitted(COLUMNS, [["worker-1000", "1", "2"]]), 8) == ["role", "worker-…"]


def test_columns_that_went_are_named_where_that_is_asked_for():
    told = " ".join(text_of(Fitted(COLUMNS, [["ps-0", "1", "2"]], told=True), 11))
    assert told.endswith("no room for pid, step: widen the terminal")
    assert "no room" not in " ".join(text_of(Fitted(COLUMNS, [["ps-0", "1", "2"]], told=True)))


def test_long_lists_end_with_a_count():
    rows = [[f"ps-{number}", "", ""] for number in range(1200)]
    lines = text_of(Fitted(COLUMNS, rows, 3, "roles"))
    assert lines[1:] == ["ps-0", "ps-1", "ps-2", "… and 1,197 more roles"]


def test_a_single_row_is_shown_in_the_place_of_its_count():
    rows = [["ps-0", "", ""], ["ps-1", "", ""], ["ps-2", "", ""]]
    assert text_of(Fitted(COLUMNS, rows, 2))[-1] == "ps-2"


def test_each_group_keeps_its_first_rows():
    rows = [[name, "", ""] for name in ("ps-0", "ps-1", "ps-2", "w-0", "w-1", "w-2")]
    lines = text_of(Fitted(COLUMNS, rows, 4, groups=(3, 3)))
    assert lines[1:] == ["ps-0", "ps-1", "w-0", "w-1", "… and 2 more rows"]


@given(st.integers(0, 50), st.lists(st.integers(0, 30), min_size=1, max_size=5))
def test_parts_are_given_out_whole_and_nobody_gets_more_than_it_has(count, groups):
    given_out = parts(count, groups)
    assert sum(given_out) == min(count, sum(groups))
    assert all(part <= size for part, size in zip(given_out, groups))
    rest = [part for part, size in zip(given_out, groups) if part < size]
    assert not rest or max(rest) - min(rest) <= 1, "who wants more got the same as the others who do"


@given(st.integers(2, 100), st.integers(0, 2000), st.integers(0, 600))
def test_roles_and_slots_fit_into_the_lines(lines, roles, slots):
    few_roles, few_slots = room(lines, roles, slots)
    assert few_roles <= roles and few_slots <= slots
    assert few_roles + few_slots == min(lines, roles + slots)
    assert few_slots > 0 or slots == 0
    assert few_roles > 0 or roles == 0


def test_columns_that_fit_all_stay():
    assert fitting(COLUMNS, [6, 5, 5], 18) == [0, 1, 2]


@pytest.mark.parametrize(
    "share, text", [(0, "    "), (0.5, "██  "), (0.53125, "██▏ "), (1, "████"), (7, "████"), (-1, "    ")]
)
def test_a_bar_has_eighths(share, text):
    assert bar(share, 4) == text
