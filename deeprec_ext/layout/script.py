"""What a script says of its cluster, read from its text: nothing of it is run.

Also read are the modules of its own that it imports, since many scripts have their cluster in one of them. A name that a script
or such a module has made itself means nothing: its own `train_and_evaluate` is not Estimator's.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

FILES_MAX = 60
"""Modules of the script's own that are read at most."""

FILE_BYTES_MAX = 2 << 20
"""Larger files are tables of something, not programs."""

NAME_MAX = 200
"""Characters of what tells jobs of one script from others: the end of it."""

JOBS = ("chief", "master", "worker", "ps")
FLAGS = ("ps_hosts", "worker_hosts", "job_name", "task_index")
"""As TensorFlow's guide to distributed training calls them, and with it most scripts."""

_ESTIMATOR = ("train_and_evaluate", "RunConfig")
_KERAS = ("keras", "tf_keras")
_SESSIONS = ("MonitoredTrainingSession", "MonitoredSession", "Session", "Supervisor", "estimator", "horovod")
"""Training by other means than Keras's `fit`, or by one whose records are each process's own."""
_LOOKED_UP = ("get", "pop", "job_tasks", "num_tasks", "append")
_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


@dataclass(frozen=True)
class Facts:
    """jobs: those of `JOBS` that it names; flags: those of `FLAGS` that it takes; sessions: it names one of `_SESSIONS`."""

    tf_config: bool = False
    estimator: bool = False
    jobs: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    keras: bool = False
    sessions: bool = False


def facts_of_command(words: Sequence[str], directory: Path | None = None) -> Facts | None:
    """Of `python train.py …` or `python -m package.module …`; None where no script can be found or read.

    Args:
      directory: where the command is run; None: here.
    """
    path = _script_path(words, directory or Path.cwd())
    if path is None:
        return None
    found, waiting, seen = Facts(), [path], {path}
    places = dict.fromkeys((path.parent, directory or Path.cwd()) if "-m" in words else (path.parent,))

    def files_of(name: str) -> list[Path]:
        """Of a module of the script's own, by its path."""
        files = [file for place in places for file in (place / f"{name}.py", place / name / "__init__.py")]
        return [file for file in files if file.is_file()]

    while waiting:
        try:
            one = waiting.pop(0)
            if one.stat().st_size > FILE_BYTES_MAX:
                continue
            tree = ast.parse(one.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError):
            if one == path:
                return None
            continue
        found = _joined(found, _facts(tree, lambda name: bool(files_of(name))))
        for module in (file for name in _imported(tree) for file in files_of(name)):
            if module not in seen and len(seen) < FILES_MAX:
                seen.add(module)
                waiting.append(module)
    return found


def job_label(words: Sequence[str]) -> str:
    """A short name of what a command runs: the script's, the module's, or the program's."""
    names = [word for word in words if word.endswith(".py")]
    if not names and "-m" in words[:-1]:
        names = [words[list(words).index("-m") + 1].rpartition(".")[2]]
    stem = Path(names[0] if names else words[0]).stem
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in stem) or "job"


def script_name(words: Sequence[str], directory: Path | None = None) -> str:
    """What tells jobs of one script from others in the history: `keras_deepfm/train.py`, the script with the directory that it
    is in, for many are called `train.py`; else the module, or the program.

    Args:
        directory: in which the command runs; None: not known, and the path is taken as it is written.
    """
    names = [word for word in words if word.endswith(".py")]
    if not names and "-m" in words[:-1]:
        name = words[list(words).index("-m") + 1]
    elif not names:
        name = Path(words[0]).name
    else:
        path = os.path.normpath(names[0] if directory is None else directory / names[0])
        name = "/".join(part for part in Path(path).parts[-2:] if part != os.sep)
    return "".join(letter if letter.isprintable() else "-" for letter in name)[-NAME_MAX:] or "job"


def _script_path(words: Sequence[str], directory: Path) -> Path | None:
    rest = iter(words[1:])
    for word in rest:
        if word in _OPTIONS_WITH_VALUE:
            next(rest, None)
        elif word == "-m":
            parts = next(rest, "").split(".")
            module = directory.joinpath(*parts)
            places = (module.with_suffix(".py"), module / "__main__.py") if parts != [""] else ()
            return next((place for place in places if place.is_file()), None)
        elif not word.startswith("-"):
            path = directory / word
            path = path / "__main__.py" if path.is_dir() else path
            return path if path.is_file() else None
        elif word in ("-c", "-"):
            return None
    return None


def _joined(one: Facts, other: Facts) -> Facts:
    return Facts(
        one.tf_config or other.tf_config,
        one.estimator or other.estimator,
        one.jobs | other.jobs,
        one.flags | other.flags,
        one.keras or other.keras,
        one.sessions or other.sessions,
    )


def _imported(tree: ast.AST) -> Iterator[str]:
    """Paths of modules as they would lie beside the script, or where it is run."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name.replace(".", "/") for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = (node.module or "").replace(".", "/")
            if base:
                yield base
            yield from (f"{base}/{name.name}".lstrip("/") for name in node.names if name.name != "*")


def _names(tree: ast.AST) -> set[str]:
    """Words of the paths that it imports, and of the attributes that it looks up."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            found.update(node.name.split("."))
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.update((node.module or "").split("."))
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
    return found


def _made_here(tree: ast.AST, is_own: Callable[[str], bool]) -> set[str]:
    """Names that the module has made, or has from a module of the script's own, and from nowhere else."""
    made, foreign = {"self", "cls"}, {"tensorflow"}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            made.add(node.name)
        elif isinstance(node, ast.arg):
            made.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in _ESTIMATOR:
            made.add(node.id)
        elif isinstance(node, ast.Import):
            for name in node.names:
                own = is_own(name.name.replace(".", "/"))
                (made if own else foreign).add(name.asname or name.name.split(".")[0])
        elif isinstance(node, ast.ImportFrom):
            (made if _from_own(node, is_own) else foreign).update(name.asname or name.name for name in node.names)
    return made - foreign


def _from_own(node: ast.ImportFrom, is_own: Callable[[str], bool]) -> bool:
    base = (node.module or "").replace(".", "/")
    return node.level > 0 or is_own(base) or any(is_own(f"{base}/{name.name}") for name in node.names)


def _is_estimators(node: ast.AST, made: Collection[str], is_own: Callable[[str], bool]) -> bool:
    """Whether something is a name of `_ESTIMATOR`, and TensorFlow's."""
    if isinstance(node, ast.ImportFrom):
        return not _from_own(node, is_own) and any(name.name in _ESTIMATOR for name in node.names)
    if isinstance(node, ast.Name):
        return node.id in _ESTIMATOR and node.id not in made
    if not isinstance(node, ast.Attribute) or node.attr not in _ESTIMATOR:
        return False
    root: ast.AST = node
    while isinstance(root, ast.Attribute):
        root = root.value
    return not (isinstance(root, ast.Name) and root.id in made)


def _facts(tree: ast.AST, is_own: Callable[[str], bool]) -> Facts:
    """`is_own`: whether a module, by its path, is the script's own."""
    made = _made_here(tree, is_own)
    jobs, flags, tf_config, estimator = set(), set(), False, False
    passed: set[int] = set()  # words that are handed to some function: DEFINE_string("master", …) names no job
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            looks_up = isinstance(node.func, ast.Attribute) and node.func.attr in _LOOKED_UP
            if not looks_up:
                passed |= {id(word) for word in node.args}
            if node.args and isinstance(word := node.args[0], ast.Constant) and isinstance(word.value, str):
                flags |= {word.value.lstrip("-")} & set(FLAGS)
        elif isinstance(node, (ast.Attribute, ast.Name, ast.alias)):
            name = (
                node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else node.name
            )
            tf_config |= name == "TFConfigClusterResolver"
    for node in ast.walk(tree):
        estimator |= _is_estimators(node, made, is_own)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            tf_config |= node.value == "TF_CONFIG"
            if node.value.lower() in JOBS and (node.value.lower() != "master" or id(node) not in passed):
                jobs.add(node.value.lower())
    names = _names(tree)
    return Facts(
        bool(tf_config), bool(estimator), frozenset(jobs), frozenset(flags),
        not names.isdisjoint(_KERAS), not names.isdisjoint(_SESSIONS),
    )  # fmt: skip
