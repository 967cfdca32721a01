"""What a job, its script or its files say reaches a terminal as text, whatever command shows it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from rich.text import Text

from deeprec_ext.cli.console import Console
from deeprec_ext.cli.display import Plain
from deeprec_ext.cli.main import main
from deeprec_ext.cli.table import render
from deeprec_ext.launch.job import Scene
from deeprec_ext.proto import deeprec_ext_pb2 as pb2

EVIL = "\x1b]0;pwned\x07\x1b[2J\n12:00:00 forged\x9b31m"
FORBIDDEN = ("\x1b]", "\x1b[2J", "\x07", "\x9b")


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    """A run directory whose every text is hostile."""
    directory = tmp_path / "run"
    (directory / "logs").mkdir(parents=True)
    (directory / "logs" / "chief-0.log").write_text(f"first\n{EVIL}\rsecond\n", newline="")
    (directory / "job.json").write_text(json.dumps({"job": EVIL, "aimaster": "127.0.0.1:1", "command": [EVIL]}))
    summary = {
        "status": "failed", "reason": EVIL, "steps": 3, "metrics": {EVIL: 1.0}, "notices": [{"text": EVIL, "remedy": EVIL}],
        "failures": [{"role": EVIL, "id": EVIL, "cause": EVIL}],
        "scaling": [{"kind": EVIL, "role": EVIL, "outcome": EVIL, "reason": EVIL}],
    }  # fmt: skip
    (directory / "summary.json").write_text(json.dumps(summary))
    return directory


@pytest.mark.parametrize(
    "words", [["status"], ["status", "--json"], ["logs"], ["logs", "--follow"], ["report", "--markdown"]]
)
def test_a_command_prints_no_escape_sequence(words: list[str], ended: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([words[0], str(ended), *words[1:]])
    said = "".join(capsys.readouterr())
    assert said and not any(one in said for one in FORBIDDEN)
    if words[0] == "status":  # the others show texts of several lines
        assert not any(line.startswith("12:00:00 forged") for line in said.splitlines())


def test_an_error_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(tmp_path / EVIL)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and not any(one in said for one in FORBIDDEN)


def test_afterwards_the_streams_are_those_from_before(ended: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    main(["status", str(ended)])
    assert (sys.stdout, sys.stderr) == before


def hostile() -> pb2.StatusReply:
    reply = pb2.StatusReply(job=EVIL, state=EVIL, epoch=1, slots=1, slot_map=[0], dashboard=EVIL)
    reply.roles.add(name=EVIL, role=pb2.PS, state=EVIL)
    reply.roles.add(name="ps-0", role=pb2.PS, state="running")
    reply.notices.add(notice=pb2.Notice(code=EVIL, text=EVIL, remedy=EVIL), roles=[EVIL])
    reply.scalings.add(id=1, kind=EVIL, role=EVIL, state=EVIL, detail=EVIL)
    reply.scalings.add(id=2, kind=EVIL, role=EVIL, outcome=EVIL, reason=EVIL)
    reply.data.add(name=EVIL, trained=1)
    reply.backup.peer, reply.backup.error, reply.backup.holder = True, EVIL, EVIL
    return reply


def test_the_table_keeps_its_own_colours_and_nothing_else() -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=120, force_terminal=True, color_system="standard")
    console.print(render(Scene(EVIL, Path("/runs/x"), 1.0, hostile()), [EVIL], slots=True))
    said = stream.getvalue()
    assert "\x1b[1m" in said, "what is bold is bold"
    assert "␛]0;pwned␇" in said and not any(one in said for one in FORBIDDEN)


def test_plain_lines_are_lines() -> None:
    stream = io.StringIO()
    display = Plain(stream)
    display.update(Scene(EVIL, Path("/runs/x"), 1.0, hostile()))
    display.event({"type": EVIL, "role": EVIL, "text": EVIL})
    display.say(EVIL)
    assert stream.getvalue().count("\n") == 3 and not any(one in stream.getvalue() for one in FORBIDDEN)


def test_brackets_are_brackets() -> None:
    stream = io.StringIO()
    Console(file=stream, width=80).print("[red]x[/red] [[Mul]] :smile:", Text("[/]"))
    assert stream.getvalue() == "[red]x[/red] [[Mul]] :smile: [/]\n"
