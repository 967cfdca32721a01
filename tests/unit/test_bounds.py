"""No number of the command line, of a setting or of a quantity is larger than anybody can mean."""

from __future__ import annotations

import argparse
import dataclasses

import pytest

from deeprec_ext.bounds import MOST, real, whole, within
from deeprec_ext.cli.main import COMMANDS, build_parser
from deeprec_ext.errors import UsageError
from deeprec_ext.options import Settings, values_given
from deeprec_ext.units import parse_bytes, parse_cores, parse_duration

HUGE = ("99999999999999999999", "9" * 400, "9" * 5000)


@pytest.mark.parametrize("kind", list(MOST))
def test_the_most_is_allowed_and_one_more_is_not(kind: str) -> None:
    assert whole(kind)(str(MOST[kind])) == MOST[kind]
    for text in (str(MOST[kind] + 1), str(-MOST[kind] - 1), *HUGE, "1e3", "nan", "inf", "", "0x10"):
        with pytest.raises(argparse.ArgumentTypeError):
            whole(kind)(text)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e400", "1e7", "many", *HUGE])
def test_a_number_with_a_fraction_is_finite(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        real("cores")(text)
    assert real("cores")("0.5") == 0.5 and not within(float("nan"), "cores")


@pytest.mark.parametrize(
    ("read", "text"),
    [(read, number + unit) for read, unit in ((parse_bytes, "GiB"), (parse_cores, ""), (parse_duration, "h"))
     for number in (*HUGE, "nan", "inf", "1e9")],
)  # fmt: skip
def test_a_quantity_is_finite_and_no_larger_than_anybody_can_mean(read, text: str) -> None:
    with pytest.raises(ValueError, match=r"too much|is no ") as error:
        read(text)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("name", [one.name for one in dataclasses.fields(Settings)])
def test_every_setting_that_is_a_number_has_a_most(name: str) -> None:
    usual = getattr(Settings(), name)
    if isinstance(usual, (bool, str)):
        return
    for text in ("nan", "inf", "-inf", "-1", "1e300", *HUGE):
        with pytest.raises(UsageError, match=f"--setting {name}=") as error:
            values_given([(name, text)])
        assert len(str(error.value)) < 300
    assert values_given([(name, str(usual))]) == {name: usual}


def test_no_option_of_any_command_takes_a_number_without_a_most() -> None:
    """`type=int` and `type=float` have none."""
    left: list[str] = []

    def look(parser: argparse.ArgumentParser) -> None:
        for action in parser._actions:
            if action.type in (int, float):
                left.append(f"{parser.prog} {action.option_strings}")
            for one in (action.choices or {}).values() if isinstance(action, argparse._SubParsersAction) else ():
                look(one)

    look(build_parser("deeprec-ext", COMMANDS))
    assert left == []
