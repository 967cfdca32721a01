"""Scripts that import Horovod by its own name, in a job without PS."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import deeprec_ext.horovod.tensorflow.keras as ours
from deeprec_ext import autoload


def taken_out() -> dict[str, Any]:
    """What is called so already: pytest calls this directory so."""
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "horovod"}


@pytest.fixture
def in_a_job() -> Iterator[None]:
    finder, kept = autoload.OurHorovod(), taken_out()
    sys.meta_path.insert(0, finder)
    yield
    sys.meta_path.remove(finder)
    taken_out()
    sys.modules.update(kept)


def test_horovod_by_its_own_name_is_ours(in_a_job: None) -> None:
    assert importlib.import_module("horovod.tensorflow.keras") is ours
    assert importlib.import_module("horovod") is sys.modules["deeprec_ext.horovod"]
    assert ours.__spec__ is not None and ours.__spec__.name == ours.__name__ == "deeprec_ext.horovod.tensorflow.keras"


def test_what_of_it_is_not_followed_is_refused_by_name(in_a_job: None) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"horovod\.torch is not followed.*DistributedDataParallel"):
        importlib.import_module("horovod.torch")


def test_a_job_without_ps_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoload, "_installed", False)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name, value in {"AIMASTER": "127.0.0.1:1", "ROLE": "chief", "SLOTS": "0", "JOB": "j", "INDEX": "0"}.items():
        monkeypatch.setenv(f"DEEPREC_EXT_{name}", value)
    joined = importlib.import_module("deeprec_ext.elastic.member.joined")
    monkeypatch.setattr(joined, "install", lambda: None)
    monkeypatch.setattr(autoload, "_draw_alike", lambda: None)
    assert autoload.install() and any(isinstance(one, autoload.OurHorovod) for one in sys.meta_path)
