from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.cluster.server import Server, running


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The cluster that KUBECONFIG names; the current directory is empty."""
    (tmp_path / "here").mkdir()
    with running(tmp_path) as (found, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        monkeypatch.chdir(tmp_path / "here")
        yield found
