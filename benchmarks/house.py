"""The house in figures: lines and files of each room, lengths of functions, circles between files.

    python -m benchmarks.house          # `make size`
    python -m benchmarks.house --draw   # `make house`: docs/house.svg, as house_drawing.py says

A room is a folder of `deeprec_ext` or `tfjob`. Lines are those that are neither empty nor only a comment; code that protoc
generates does not count. tests/docs/test_house.py holds the figures to their limits.
"""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("deeprec_ext", "tfjob")


def files(root: Path = ROOT) -> list[Path]:
    """Python of the product that somebody has written."""
    found = (path for package in PACKAGES for path in (root / package).rglob("*.py"))
    return sorted(path for path in found if "_pb2" not in path.name)


def room(path: Path) -> str:
    return str(path.parent.relative_to(ROOT))


def rooms() -> dict[str, list[Path]]:
    found = defaultdict(list)
    for path in files():
        found[room(path)].append(path)
    return dict(found)


def lines(path: Path) -> int:
    return sum(1 for line in path.read_text().splitlines() if line.strip() and not line.strip().startswith("#"))


def functions(path: Path) -> list[int]:
    """How many lines each function has, from `def` to its last."""
    found = (
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    return [node.end_lineno - node.lineno + 1 for node in found]


def imports() -> dict[str, set[str]]:
    """Which modules each module imports, anywhere in it: in functions, and for types alone, too."""
    import grimp

    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=False, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def circles(of: dict[str, set[str]]) -> list[list[str]]:
    """Modules that import each other, directly or through others."""
    reached: dict[str, set[str]] = {}
    for module in of:
        todo, seen = [module], set()
        while todo:
            for other in of.get(todo.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        reached[module] = seen
    found = {
        tuple(sorted({module} | {other for other in reached[module] if module in reached.get(other, ())}))
        for module in of
        if module in reached[module]
    }
    return sorted(map(list, found))


def table() -> None:
    lengths = {path: functions(path) for path in files()}
    every = [length for found in lengths.values() for length in found]
    print("| room | files | lines | median function | longest |\n|---|---|---|---|---|")
    for name, paths in sorted(rooms().items()):
        here = [length for path in paths for length in lengths[path]] or [0]
        print(f"| `{name}` | {len(paths)} | {sum(map(lines, paths))} | {median(here):g} | {max(here)} |")
    print(f"| all | {len(lengths)} | {sum(map(lines, lengths))} | {median(every):g} | {max(every)} |")
    found = circles(imports())
    print(f"\n{len(found)} circles between files", *(f"\n- {', '.join(circle)}" for circle in found))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.house", description="The house in figures.")
    parser.add_argument("--draw", action="store_true", help="draw docs/house.svg instead")
    if parser.parse_args().draw:
        from benchmarks.house_drawing import PICTURE, draw

        PICTURE.write_text(draw())
    else:
        table()


if __name__ == "__main__":
    main()
