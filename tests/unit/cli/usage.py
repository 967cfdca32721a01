"""Bad usage is the same for every command: one line on stderr that says what to do, nothing on stdout, exit code 2."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from deeprec_ext.cli.main import main


def check_refused(words: Sequence[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(words)
    except SystemExit as error:
        code = error.code  # argparse
    captured = capsys.readouterr()
    assert code == 2
    assert part in captured.err
    assert captured.err.count("\n") == 1, captured.err
    assert captured.out == ""
