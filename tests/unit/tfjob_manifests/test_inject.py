"""`python -m deeprec_ext.inject`: the copy is whole for the training side, and has nothing of the other."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deeprec_ext import inject


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    assert inject.main([str(tmp_path)]) == 0
    return tmp_path / "deeprec_ext"


def imports(file: Path) -> Iterator[str]:
    """The modules of this package that a file imports, at its top or inside functions."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def exists(root: Path, module: str) -> bool:
    path = root.joinpath(*module.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def test_everything_that_the_training_side_imports_is_there(copied: Path, root: Path):
    files = sorted(copied.rglob("*.py"))
    assert {"serve.py", "autoload.py", "sitecustomize.py", "deeprec_ext_pb2.py"} <= {file.name for file in files}
    for file in files:
        ours = {name for name in imports(file) if name.startswith("deeprec_ext.") and exists(root, name)}
        missing = {name for name in ours if not exists(copied.parent, name)}
        assert not missing, f"{file} imports {missing}"


def test_the_copy_needs_nothing_that_tensorflow_has_not_installed(copied: Path):
    """It runs in the user's image. What is optional (a codec, a reader) is imported where it is used."""
    found = set()
    for file in copied.rglob("*.py"):
        for node in (
            ast.parse(file.read_text()).body if file.parent.name != "torch" else ()
        ):  # imported by a script with it
            names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            found |= {name.split(".")[0] for name in names}
    stdlib = set(getattr(sys, "stdlib_module_names", ()))  # since Python 3.10
    if not stdlib:
        pytest.skip("this Python does not list its own modules")
    assert found - stdlib == {"deeprec_ext", "tensorflow", "numpy", "grpc", "google"}


def test_nothing_of_the_master_side_and_no_caches_are_copied(copied: Path):
    assert not [name for name in ("aimaster", "launch", "cli") if (copied / name).exists()]
    assert not list(copied.rglob("__pycache__"))


def test_a_second_try_finishes_what_the_first_has_left(copied: Path):
    (copied / "env.py").write_text("broken")
    (copied / "autoload.py").unlink()
    assert inject.main([str(copied.parent)]) == 0
    assert (copied / "env.py").read_bytes() == (inject.PACKAGE / "env.py").read_bytes()
    assert (copied / "autoload.py").exists()


def test_a_target_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "file").write_text("")
    assert inject.main([str(tmp_path / "file" / "below")]) == 1
    assert f"cannot be copied to {tmp_path / 'file' / 'below'}" in capsys.readouterr().err


@pytest.mark.parametrize("arguments, kept", [([], None), (["--keep-python-path"], ["/image/a", "/image/b"])])
def test_the_python_path_of_the_image_is_kept_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], kept: list[str] | None
):
    monkeypatch.setenv("PYTHONPATH", "/image/a::relative:/image/b")
    assert inject.main([str(tmp_path), *arguments]) == 0
    file = tmp_path / "deeprec_ext" / "_autoload" / "python_path"
    assert (file.read_text().splitlines() if file.exists() else None) == kept


def test_python_in_the_pod_finds_the_users_entries_then_ours(copied: Path, tmp_path: Path):
    """As the training container starts it: the user's own in the pod, the image's from the file, ours last."""
    image, users = tmp_path / "image", tmp_path / "users"
    for directory, text in ((image, "IMAGE = 1"), (users, "")):
        directory.mkdir()
        (directory / "sitecustomize.py").write_text(f"{text}\nimport sys\nsys.found = {directory.name!r}\n")
    (users / "sitecustomize.py").unlink()
    inject.keep_python_path(copied, str(image))
    autoload = str(copied / "_autoload")
    path = os.pathsep.join([str(users), autoload, str(copied.parent)])
    program = "import sys, deeprec_ext; print(sys.found); print(deeprec_ext.__file__); print(*sys.path, sep='\\n')"
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    found, file, *entries = result.stdout.splitlines()
    assert found == "image"  # a sitecustomize of the image's own still runs
    assert file == str(copied / "__init__.py")
    ours = [entry for entry in entries if entry.startswith(str(tmp_path))]
    assert ours == [str(tmp_path / "users"), str(image), autoload, str(tmp_path)]
