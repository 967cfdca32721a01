"""Scripts that import Horovod by its own name, in a job without PS."""

from __future__ import annotations

import contextlib
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import deeprec_ext.horovod
import deeprec_ext.horovod.tensorflow.keras as ours
from deeprec_ext import autoload


def taken_out() -> dict[str, Any]:
    """What is called so already: pytest calls this directory so."""
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "horovod"}


@pytest.fixture
def in_a_job(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    finder, kept = autoload.OurHorovod(), taken_out()
    monkeypatch.setattr(sys, "path", [one for one in sys.path if not (Path(one) / "horovod").exists()])
    sys.meta_path.insert(0, finder)
    yield
    sys.meta_path.remove(finder)
    taken_out()
    sys.modules.update(kept)


def test_horovod_by_its_own_name_is_ours(in_a_job: None) -> None:
    assert importlib.import_module("horovod.tensorflow.keras") is ours
    top = importlib.import_module("horovod")
    assert top.init is deeprec_ext.horovod.init and top.tensorflow is sys.modules["deeprec_ext.horovod.tensorflow"]
    assert top.__version__ and not hasattr(top, "no_such_call")
    assert ours.__spec__ is not None and ours.__spec__.name == ours.__name__ == "deeprec_ext.horovod.tensorflow.keras"


def test_what_of_it_is_not_followed_is_refused_by_name(in_a_job: None) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"horovod\.torch is not followed.*DistributedDataParallel"):
        importlib.import_module("horovod.torch")


def test_a_script_that_goes_on_without_it_is_noticed_once(
    in_a_job: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`try: import horovod.torch`, `except ImportError: hvd = None`: each worker would train alone, and nobody would know."""
    joined = importlib.import_module("deeprec_ext.elastic.member.joined")
    monkeypatch.setattr(joined, "_untold", {})
    for _ in range(2):
        with contextlib.suppress(ImportError):
            importlib.import_module("horovod.torch")
    assert "horovod" in joined._untold and capsys.readouterr().err.count("each of its workers trains alone") == 1


def package(place: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)


@pytest.mark.parametrize(
    "files",
    [
        {"horovod.py": "OWN = 1"},
        {"horovod/__init__.py": "OWN = 1", "horovod/torch.py": "", "horovod/keras.py": "OWN = 1"},
    ],
    ids=["module", "package"],
)
def test_a_horovod_of_the_scripts_own_stays(
    files: dict[str, str], in_a_job: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, files)
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.import_module("horovod").OWN == 1
    if len(files) > 1:
        importlib.import_module("horovod.torch")
        assert importlib.import_module("horovod.keras").OWN == 1


@pytest.mark.parametrize(
    "files",
    [{"horovod/__init__.py": "raise OSError", "horovod/common/basics.py": ""}, {"horovod/notes.txt": ""}],
    ids=["Horovod's own", "a folder"],
)
def test_what_is_horovods_own_or_no_package_is_ours(
    files: dict[str, str], in_a_job: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, files)
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.import_module("horovod.tensorflow.keras") is ours


def test_who_looks_for_horovod_of_pytorch_imports_no_tensorflow() -> None:
    looks = """
import importlib.util, sys
from deeprec_ext import autoload
sys.meta_path.insert(0, autoload.OurHorovod())
try:
    importlib.util.find_spec("horovod.torch")
except ModuleNotFoundError as error:
    print(error.name)
try:
    from horovod import torch
except ImportError as error:
    print(error.name)
assert importlib.util.find_spec("horovod") and "tensorflow" not in sys.modules and "deeprec_ext.horovod" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", looks], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["horovod.torch", "horovod"]), done.stderr


def test_a_job_without_ps_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoload, "_installed", False)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name, value in {"AIMASTER": "127.0.0.1:1", "ROLE": "chief", "SLOTS": "0", "JOB": "j", "INDEX": "0"}.items():
        monkeypatch.setenv(f"DEEPREC_EXT_{name}", value)
    joined = importlib.import_module("deeprec_ext.elastic.member.joined")
    monkeypatch.setattr(joined, "install", lambda: None)
    monkeypatch.setattr(autoload, "_draw_alike", lambda: None)
    assert autoload.install() and any(isinstance(one, autoload.OurHorovod) for one in sys.meta_path)
