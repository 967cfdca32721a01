"""The distribution: what it needs, what it carries, which imports stay away from which side."""

from __future__ import annotations

import ast
import gc
import importlib
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

MASTER_SIDE = (
    "deeprec_ext.cli.main",
    "deeprec_ext.launch",
    "deeprec_ext.aimaster",
    "deeprec_ext.gazer",
    "deeprec_ext.security",
)


def test_importing_the_master_side_imports_no_tensorflow():
    heavy = ["tensorflow", "numpy", "sklearn", "scipy"]
    program = f"import sys, {', '.join(MASTER_SIDE)}; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[]"


def test_the_command_is_installed():
    entry = [point for point in importlib.metadata.entry_points(group="console_scripts") if point.name == "deeprec-ext"]
    assert [point.value for point in entry] == ["deeprec_ext.cli.main:main"]


def test_kubectl_finds_its_plugin(root: Path):
    """Named so, it is `kubectl deeprec`."""
    scripts = dict(
        re.findall(r'^([\w-]+) = "(deeprec_ext\.[\w.]+:\w+)"', (root / "pyproject.toml").read_text(), re.MULTILINE)
    )
    module, _, function = scripts["kubectl-deeprec"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_tensorflow_is_only_in_the_extras():
    requirements = importlib.metadata.requires("deeprec-ext") or []
    base = [requirement for requirement in requirements if "extra ==" not in requirement]
    assert base
    assert not [requirement for requirement in base if re.match("tensorflow|keras|scikit|scipy", requirement)]


def test_every_dependency_is_explained(root: Path):
    explained = (root / "docs" / "dependencies.md").read_text()
    for requirement in importlib.metadata.requires("deeprec-ext") or []:
        name = re.match(r"[\w-]+", requirement)[0]
        assert f"`{name}`" in explained or name == "deeprec-ext", (
            f"docs/dependencies.md does not say why {name} is needed"
        )


def test_a_wheel_carries_the_protocol_the_autoload_file_and_the_page(root: Path, tmp_path: Path):
    packages = root / "deeprec_ext"
    wanted = {"deeprec_ext/proto/deeprec_ext.proto", "deeprec_ext/py.typed", "deeprec_ext/_autoload/sitecustomize.py",
              "deeprec_ext/gazer/report/style.css"}  # fmt: skip
    wanted |= {str(path.relative_to(root)) for path in (packages / "aimaster/dashboard/static").iterdir()}
    program = (
        "from setuptools import setup; import sys;"
        f"sys.argv = ['setup.py', '-q', 'egg_info', '-e', {str(tmp_path)!r}, 'build', '-b', {str(tmp_path / 'build')!r}];"
        "setup()"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=120)
    if "No module named 'setuptools'" in result.stderr:
        pytest.skip("this environment has no setuptools")
    assert result.returncode == 0, result.stderr
    built = {
        str(path.relative_to(tmp_path / "build" / "lib"))
        for path in (tmp_path / "build" / "lib").rglob("*")
        if path.is_file()
    }
    assert wanted <= built
    sources = {str(path.relative_to(root)) for path in packages.rglob("*.py")}
    sources |= {str(path.relative_to(root)) for path in (root / "tfjob").rglob("*.py")}
    assert sources <= built


@pytest.fixture
def undisturbed() -> Iterator[None]:
    """Python 3.11 refuses to make a syntax tree (`SystemError`) where the garbage collector ends a coroutine of an earlier test
    meanwhile."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("undisturbed")
def test_nothing_reads_what_is_only_in_a_checkout(root: Path):
    """Manifests and Dockerfiles are installed from a checkout; a wheel leaves them out, so nothing may look for them."""
    for path in [*(root / "tfjob").rglob("*.py"), *(root / "deeprec_ext").rglob("*.py")]:
        if path.parent != root / "tfjob" / "manifests":
            strings = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
            found = [text for text in strings if text in ("manifests", "images") or str(text).endswith("Dockerfile")]
            assert not found, path


@pytest.mark.parametrize("room", ("", "model", "pods", "api", "reconciling", "operator"))
def test_the_package_of_tfjobs_lists_its_modules(root: Path, room: str):
    folder = root / "tfjob" / room
    listed = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    rooms = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert {name for name in modules | rooms if f"`{name}`" not in listed} == set()


def test_the_generated_code_is_up_to_date(root: Path, tmp_path: Path):
    pytest.importorskip("grpc_tools")
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    services = [f"--grpc_python_out={tmp_path}", "deeprec_ext/proto/deeprec_ext.proto"]
    for more in (services, ["deeprec_ext/tf_private/tf_services.proto"]):
        subprocess.run([*command, *more], cwd=root, check=True, timeout=60)
    made = sorted(path for path in tmp_path.rglob("*_pb2*"))
    assert len(made) == 5
    for generated in made:
        assert generated.read_text() == (root / generated.relative_to(tmp_path)).read_text(), "run `make proto`"


def test_the_generated_code_is_of_the_last_protoc_whose_code_protobuf_4_loads(root: Path):
    """Code of later ones asks the runtime for its version, and refuses an older runtime."""
    made = sorted((root / "deeprec_ext").rglob("*_pb2*.py"))
    assert len(made) == 3
    for generated in made:
        text = generated.read_text()
        assert "ValidateProtobufRuntimeVersion" not in text and "GRPC_GENERATED_VERSION" not in text, generated
        assert "_grpc" in generated.name or "# Protobuf Python Version: 4.25." in text, generated


def test_no_file_names_this_machine_or_a_registry(root: Path):
    hosts = (
        "pypi" + ".org",
        "files.python" + "hosted",
        "registry." + "npmjs",
        "deb." + "debian.org",
        "/root" + "/",
        "/tmp/" + "venv",
    )
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, timeout=60)
    if listed.returncode:
        pytest.skip("no git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        path = root / name
        if path.suffix in (".png", ".svg", ".ico") or not path.is_file():
            continue
        text = path.read_text(errors="replace")
        assert not [host for host in hosts if host in text], name
