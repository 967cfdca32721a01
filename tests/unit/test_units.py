"""Quantities that people write."""

from __future__ import annotations

import pytest

from deeprec_ext.units import counted, format_rate, format_seconds, once, parse_bytes, parse_cores, parse_duration


@pytest.mark.parametrize("text, seconds", [("90s", 90.0), ("30m", 1800.0), (" 1.5h ", 5400.0), ("2d", 172800.0)])
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "-5m", "0s", "1e9s", "inf h", "5 minutes"])
def test_what_is_no_duration_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="for example 90s"):
        parse_duration(text)


@pytest.mark.parametrize("text, count", [("512Mi", 512 << 20), ("1.5GiB", 3 << 29), ("2GB", 2 * 10**9), ("7", 7)])
def test_bytes(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text, cores", [("0.5", 0.5), ("500m", 0.5), ("2", 2.0), (".25", 0.25)])
def test_cores(text, cores):
    assert parse_cores(text) == cores


@pytest.mark.parametrize(
    "parse, text", [(parse_bytes, "Mi"), (parse_bytes, "-1"), (parse_cores, "m"), (parse_cores, "1x")]
)
def test_what_is_no_quantity_is_refused(parse, text):
    with pytest.raises(ValueError, match="for example"):
        parse(text)


@pytest.mark.parametrize(
    "parse, unit", [(parse_bytes, "Mi"), (parse_cores, "m"), (parse_cores, ""), (parse_duration, "h")]
)
@pytest.mark.parametrize("number", ["٣", "３", "1.٣", "²", "1\u00a0", "\u20031"])
def test_digits_and_blanks_of_other_scripts_are_none_here(parse, unit, number):
    assert parse(f" 3 {unit}" if unit == "Mi" else f" 3{unit}") > 0
    with pytest.raises(ValueError, match="for example"):
        parse(number + unit)


@pytest.mark.parametrize(("seconds", "text"), [
    (0.0123, "12 ms"), (8.04, "8.0 s"), (83, "1:23"), (48 * 3600 - 1, "47:59:59"), (200_000, "2 d 7 h"),
])  # fmt: skip
def test_a_duration_is_told_as_precisely_as_it_is_long(seconds, text):
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(("rate", "text"), [(12469.3, "12,469"), (5290.0, "5,290"), (812.44, "812.4"), (0.5, "0.5")])
def test_a_rate_has_its_thousands_apart(rate, text):
    assert format_rate(rate) == text


def test_one_and_several():
    assert [counted(count, "worker") for count in (0, 1, 2, "?")] == ["0 workers", "1 worker", "2 workers", "? workers"]
    assert counted(2, "PS") == "2 PS"


def test_figures_of_a_validation_are_shown_by_their_own_names_alone():
    assert once({"auc": 0.9, "loss": 0.3, "val_auc": 0.9, "val_loss": 0.3}) == {"val_auc": 0.9, "val_loss": 0.3}
    tested = {"auc": 0.8, "loss": 0.3, "val_auc": 0.9}
    assert once(tested) == tested, "another evaluation came after it"
