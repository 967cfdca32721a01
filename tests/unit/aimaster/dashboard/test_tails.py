"""The end of a log: bounded, by whole lines, and followed by its offset."""

from __future__ import annotations

from pathlib import Path

import pytest

from deeprec_ext.aimaster.dashboard.tails import TAIL_MAX, read_tail


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "ps-0.log"
    path.write_text("".join(f"line {number}\n" for number in range(10)))
    return path


def test_the_end_begins_with_a_whole_line(log: Path) -> None:
    tail = read_tail(log, 16)
    assert tail.text == "line 8\nline 9\n"
    assert (tail.start, tail.end, tail.size) == (56, 70, 70)


def test_a_short_log_is_shown_from_its_beginning(log: Path) -> None:
    assert read_tail(log, 1000).text.startswith("line 0\n")


def test_what_is_added_is_read_from_where_the_last_answer_ended(log: Path) -> None:
    end = read_tail(log, 16).end
    assert read_tail(log, 1000, end).text == ""
    with log.open("a") as file:
        file.write("more\nand half a li")
    tail = read_tail(log, 1000, end)
    assert (tail.text, tail.start) == ("more\nand half a li", end)


def test_an_answer_is_bounded_and_says_that_there_is_more(log: Path) -> None:
    log.write_bytes(b"x" * (3 * TAIL_MAX))
    assert len(read_tail(log, 10 * TAIL_MAX).text) == TAIL_MAX
    tail = read_tail(log, 10 * TAIL_MAX, 5)
    assert (tail.end, tail.size) == (5 + TAIL_MAX, 3 * TAIL_MAX)


def test_a_log_that_has_become_shorter_is_read_anew(log: Path) -> None:
    tail = read_tail(log, 16, 7000)
    assert (tail.text, tail.start) == ("line 8\nline 9\n", 56)


def test_bytes_that_are_no_text_do_no_harm(log: Path) -> None:
    log.write_bytes(b"good\n\xff\xfe\x00\n")
    assert read_tail(log, 100).text == "good\n��\x00\n"


def test_a_link_is_not_followed(log: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    log.unlink()
    log.symlink_to(tmp_path / "secret")
    with pytest.raises(OSError):
        read_tail(log, 100)


def test_what_is_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        read_tail(tmp_path, 100)
    with pytest.raises(OSError):
        read_tail(tmp_path / "nothing", 100)
