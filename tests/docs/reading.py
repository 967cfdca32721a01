"""Reading the documentation: its code blocks, command lines, links and headings."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = {"runs", "build", "dist", "golden"}  # golden: what tests expect, not documentation
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")


def pages() -> list[Path]:
    """All Markdown files of the repository; not those of hidden directories, as .venv is one."""
    found = ((path, path.relative_to(ROOT).parts) for path in ROOT.rglob("*.md"))
    return sorted(
        path for path, parts in found if not SKIPPED & set(parts) and not any(part[0] == "." for part in parts)
    )


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path, language: str) -> list[str]:
    return [text for found, text in _FENCE.findall(path.read_text()) if found == language]


def prose(path: Path) -> str:
    """Without code blocks and comments."""
    return _COMMENT.sub("", _FENCE.sub("", path.read_text()))


def inline(path: Path) -> list[str]:
    """What stands between backticks in the prose."""
    return _CODE.findall(prose(path))


@dataclass(frozen=True)
class CommandLine:
    """One line of a shell block, as words; comments are gone, continued lines are joined."""

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


def command_lines() -> list[CommandLine]:
    found = []
    for path in pages():
        for block in blocks(path, "bash"):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line.removeprefix("$ "), comments=True)
                if words:
                    found.append(CommandLine(name(path), tuple(words)))
    return found
