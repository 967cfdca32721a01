"""docs/house.svg: the rooms as floors, each of which imports only what is below it.

Drawn from the contracts of pyproject.toml that `make lint` holds, so the picture is true as long as lint is green.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.house import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # import-linter brings it

PICTURE = ROOT / "docs" / "house.svg"
WIDTH, FLOOR, GAP, MARGIN, TITLE = 330, 24, 4, 10, 26
ROOMS = {"training": "#dcebfa", "master": "#fbe8d3", "TFJobs": "#e3f1df", "leaves": "#eeeeee"}

Floors = list[list[str]]


def contracts() -> list[dict[str, Any]]:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return list(found)


def short(module: str) -> str:
    return module.replace("deeprec_ext.", "").replace("tfjob.", "").replace(".", "/")


def is_there(module: str) -> bool:
    path = ROOT / module.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def floors(contract: dict[str, Any]) -> Floors:
    """The names of each layer, highest first; without starting points, and what a contract only allows for."""
    (house,) = contract.get("containers", [""])
    found = [[name for name in re.split(r"[|:\s()]+", layer) if name] for layer in contract["layers"]]
    there = [[name for name in row if "__" not in name and is_there(f"{house}.{name}".strip("."))] for row in found]
    return [[short(name) for name in row] for row in there if row]


def stacks() -> dict[str, Floors]:
    """Each side's floors; a folder that has an order of its own stands for its rooms."""
    layers = [contract for contract in contracts() if contract["type"] == "layers"]
    inner = {short(contract["containers"][0]): floors(contract) for contract in layers if "containers" in contract}
    sides = {contract["name"].split()[0]: floors(contract) for contract in layers if "containers" not in contract}

    def opened(rows: Floors) -> Floors:
        found: Floors = []
        for row in rows:
            house = next((name for name in row if name in inner), None)
            found += [[f"{house}/{room}" for room in floor] for floor in inner[house]] if house else [row]
        return found

    leaves = [
        contract for contract in contracts() if contract["name"].startswith(("The common leaves", "The backup format"))
    ]
    names = [short(name) for contract in leaves for name in contract["source_modules"]]
    return {
        "training": opened(sides["Training"]),
        "master": opened(sides["Master"]),
        "TFJobs": inner["tfjob"],
        "leaves": [names[at : at + 8] for at in range(0, len(names), 8)],
    }


def box(x: float, y: float, width: float, height: float, fill: str, text: str) -> Iterable[str]:
    yield f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height}" rx="3" fill="{fill}" stroke="#777"/>'
    yield f'<text x="{x + width / 2:.0f}" y="{y + height / 2 + 4:.0f}" text-anchor="middle">{escape(text)}</text>'


def stack(side: str, title: str, rows: Floors, x: int, y: int, width: int) -> Iterable[str]:
    yield f'<text x="{x}" y="{y + 16}" font-weight="bold">{escape(title)}</text>'
    for number, row in enumerate(rows):
        part = (width - GAP * (len(row) - 1)) / len(row)
        for at, name in enumerate(row):
            yield from box(x + at * (part + GAP), y + TITLE + number * (FLOOR + GAP), part, FLOOR, ROOMS[side], name)


def height(rows: Floors) -> int:
    return TITLE + len(rows) * (FLOOR + GAP)


def draw() -> str:
    found = stacks()
    left, middle, right = (MARGIN + number * (WIDTH + 3 * MARGIN) for number in range(3))
    upper = max(height(found[side]) for side in ("training", "master", "TFJobs"))
    whole = 3 * WIDTH + 6 * MARGIN
    titles = {
        "training": ("training side: in TensorFlow processes", left),
        "master": ("master side: never imports TensorFlow", middle),
        "TFJobs": ("tfjob: TFJobs, operator", right),
    }
    parts: list[str] = []
    for side, (title, x) in titles.items():  # they stand on one ground
        parts += stack(side, title, found[side], x, MARGIN + upper - height(found[side]), WIDTH)
    ground = MARGIN * 2 + upper
    parts += stack(
        "leaves", "leaves: used by all; the two sides meet only in proto", found["leaves"], left, ground, whole
    )
    end = ground + height(found["leaves"]) + MARGIN
    size = f'width="{whole + 2 * MARGIN}" height="{end}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect {size} fill="white"/>', *parts, "</svg>", ""])
