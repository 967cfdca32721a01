"""Kubeflow's cases (training-operator v1.9.0), each run against our pure functions; what is different stands in the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubeflow import ends, pods, running, values
from tests.kubeflow.different import DIFFERENT
from tests.kubeflow.world import Case

CASES = [*pods.CASES, *running.CASES, *ends.CASES, *values.CASES]
DOCS = Path(__file__).resolve().parents[2] / "docs" / "kubernetes.md"


@pytest.mark.parametrize("case", CASES, ids=[one.go for one in CASES])
def test_a_case_of_kubeflow(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("case", DIFFERENT, ids=[one.go for one in DIFFERENT])
def test_what_is_different_is_as_the_docs_say(case: Case) -> None:
    case.check()


def test_every_case_has_a_name_of_its_own() -> None:
    ids = [one.go for one in (*CASES, *DIFFERENT)]
    assert len(set(ids)) == len(ids)


def test_the_docs_say_how_many_there_are() -> None:
    text = " ".join(DOCS.read_text(encoding="utf-8").split())
    assert f"{len(CASES)} of {len(CASES) + len(DIFFERENT)} cases" in text
