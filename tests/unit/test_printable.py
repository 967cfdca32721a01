"""What others say reaches terminals and logs as characters to be seen, one line for one."""

from __future__ import annotations

import io
import logging
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeprec_ext.printable import LineFormatter, SafeStream, behind, printable, printable_lines

ESCAPES = (
    "\x1b]0;title\x07",
    "\x1b[2J\x1b[H",
    "\x1bc",
    "\x1b]52;c;aGk=\x07",
    "\x9b31m",
    "\x90q\x9c",
    "\x0e",
    "a\rb",
    "\x7f",
)


TURNS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def harmless(text: str) -> bool:
    """No control character, no half of a pair, no end of a line, nothing that turns the direction of writing."""
    return not any(
        unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(one) in TURNS for one in text
    )


@pytest.mark.parametrize("text", ESCAPES)
def test_an_escape_sequence_is_seen_and_not_obeyed(text: str) -> None:
    assert harmless(printable(text)) and harmless(printable_lines(text)) and printable(text)


def test_it_shows_what_was_there() -> None:
    assert printable("\x1b]0;x\x07") == "␛]0;x␇"
    assert printable("failed\n12:00:01 succeeded") == "failed␤12:00:01 succeeded"
    assert printable_lines("a\n\tb\r") == "a\n\tb␍"
    assert printable("ab\u202ecd\u2066") == "ab�cd�"


def test_what_people_write_stays_as_it_is() -> None:
    text = "Größe 3×4 → 12, 学习率 0.1, می‌خواهم, 👩‍🔬"
    assert printable(text) == text == printable_lines(text)


def test_colours_and_the_backspaces_of_progress_bars_go_without_a_trace() -> None:
    assert printable("\x1b[1;31mERROR\x1b[0m no") == "ERROR no"
    assert printable("1/10" + "\x08" * 40 + "2/10") == "1/102/10"


@given(st.text(alphabet=st.characters(codec=None, categories=None), max_size=60))
def test_no_text_gets_through(text: str) -> None:
    assert harmless(printable(text)) and harmless(printable_lines(text).replace("\n", "").replace("\t", ""))
    assert "\n" not in printable(text) and "\x1b" not in printable_lines(text)
    printable(text).encode()


def test_a_record_of_a_log_is_one_line_and_its_traceback_is_safe() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter("I %(message)s"))
    log = logging.Logger("any")
    log.addHandler(handler)
    log.info("worker-0 said %s", "x\n2026-01-01 I all is well\x1b[2J")
    try:
        raise ValueError("bad\x1b]0;x\x07\nword")
    except ValueError:
        log.exception("failed")
    lines = stream.getvalue().splitlines()
    assert lines[0] == "I worker-0 said x␤2026-01-01 I all is well␛[2J" and lines[1] == "I failed"
    assert lines[2] == "Traceback (most recent call last):" and lines[-2:] == ["ValueError: bad␛]0;x␇", "word"]


def test_a_stream_makes_safe_what_is_printed_and_hands_on_the_rest() -> None:
    stream = io.StringIO()
    safe = SafeStream(stream)
    print("a\x1b[2Jb", file=safe)
    assert stream.getvalue() == "a␛[2Jb\n" and safe.isatty() is False
    assert behind(safe) is stream and behind(stream) is stream


def test_a_terminal_that_has_no_such_characters_gets_question_marks() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    print("Größe \x1b[2J → 4", file=SafeStream(stream), flush=True)
    assert stream.buffer.getvalue() == "Größe ?[2J ? 4\n".encode("latin-1")  # type: ignore[attr-defined]
