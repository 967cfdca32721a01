"""The documentation has no command that the code does not have."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from deeprec_ext.cli.main import COMMANDS, build_parser
from deeprec_ext.launch.events import parse_events
from tests.docs.reading import ROOT, CommandLine, blocks, command_lines, name, pages
from tfjob.model.annotations import parse as parse_annotations
from tfjob.model.spec import TFJob

LINES = command_lines()
OURS = [line for line in LINES if line.words[0] == "deeprec-ext"]
MAKE = [line for line in LINES if line.words[0] == "make"]
KNOWN = {"deeprec-ext", "make", "python", "python3.11", "pip", ".", "git", "kubectl", "helm", "docker"}


def complaint_about(words: tuple[str, ...]) -> str:
    """What the command line's parser says of these words; empty when it takes them. Nothing is run."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            build_parser().parse_args(words)
        except SystemExit as end:
            return errors.getvalue() or ("" if not end.code else f"exit code {end.code}")
    return ""


def test_there_are_commands_to_check():
    assert len(OURS) > 10 and len(MAKE) > 2


@pytest.mark.parametrize("line", LINES, ids=str)
def test_every_command_is_known(line: CommandLine):
    assert line.words[0] in KNOWN


@pytest.mark.parametrize("line", OURS, ids=str)
def test_every_deeprec_ext_line_parses(line: CommandLine):
    assert not complaint_about(line.words[1:])


def test_a_flag_that_does_not_exist_would_be_noticed():
    assert "--no-such-flag" in complaint_about(("status", "runs/x", "--no-such-flag"))


@pytest.mark.parametrize("command", [command for command in COMMANDS if command != "aimaster"])
def test_every_command_has_help(command: str):
    assert not complaint_about((command, "--help"))


def test_every_flag_of_run_in_the_user_guide_exists():
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        build_parser().parse_args(["run", "--help"])
    known = set(re.findall(r"--[a-z][a-z-]+", output.getvalue()))
    guide = (ROOT / "docs" / "user-guide.md").read_text()
    table = "".join(line for line in guide.splitlines(keepends=True) if line.startswith("| `--"))
    named = set(re.findall(r"`(--[a-z][a-z-]+)", table))
    assert named and named <= known


@pytest.mark.parametrize("line", MAKE, ids=str)
def test_every_make_target_exists(line: CommandLine):
    makefile = (ROOT / "Makefile").read_text()
    for target in [word for word in line.words[1:] if "=" not in word]:
        assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE)


def _python_files_of(line: CommandLine) -> tuple[Path, list[str]] | None:
    """The script or module of `… python FILE …`, and the words after it."""
    words = list(line.words)
    while words and words[0] != "python":
        words.pop(0)
    if words[1:2] == ["-m"]:
        return ROOT / (words[2].replace(".", "/") + ".py"), words[3:]
    return (ROOT / words[1], words[2:]) if len(words) > 1 and words[1].endswith(".py") else None


@pytest.mark.parametrize("line", LINES, ids=str)
def test_every_script_exists_and_has_the_flags(line: CommandLine):
    found = _python_files_of(line)
    if found is None or found[0] == ROOT / "train.py":
        return  # `train.py` alone stands for the reader's own script
    path, words = found
    assert path.is_file()
    source = path.read_text()
    for flag in [word for word in words if word.startswith("--")]:
        assert f'"{flag}"' in source, f"{path.name} has no {flag}"


def test_every_yaml_block_is_a_list_of_events_or_an_elastic_tfjob():
    found = [(page, block) for page in pages() for block in blocks(page, "yaml")]
    assert found
    for page, block in found:
        if "kind: TFJob" in block:
            elastic, warnings = parse_annotations(TFJob.parse(yaml.safe_load(block)))
            assert elastic is not None and not warnings, name(page)
        else:
            assert parse_events(block, name(page))


def test_every_file_that_others_commands_name_is_there():
    for line in LINES:
        if line.words[0] in ("kubectl", "helm", "docker"):
            for word in line.words:
                assert not word.startswith("tfjob/") or (ROOT / word).exists(), line


def test_the_events_of_the_examples_are_valid():
    files = sorted(path for path in (ROOT / "examples").rglob("*.yaml") if "apiVersion:" not in path.read_text())
    assert files
    for path in files:
        assert parse_events(path.read_text(), name(path))


def test_make_without_a_target_lists_the_targets():
    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert listed.returncode == 0, listed.stderr
    assert "make demo" in listed.stdout and "make test" in listed.stdout


def test_the_modules_of_the_benchmark_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for module in re.findall(r"-m (benchmarks[\w.]+)", makefile):
        assert importlib.util.find_spec(module), module


def test_the_installed_command_starts():
    result = subprocess.run(
        [sys.executable, "-m", "deeprec_ext.cli.main", "--version"], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0 and result.stdout.startswith("deeprec-ext")
