"""`deeprec-ext operator`: what does not go together is said before anything is asked of a cluster."""

from __future__ import annotations

import re

import pytest

from deeprec_ext.cli.main import main


@pytest.mark.parametrize("words, said", [
    (["--webhook-url", "https://10.0.0.1:9443/tfjobs"], "--webhook-url .* beside-kubeflow only"),
    (["--mode", "beside-kubeflow", "--webhook-url", "10.0.0.1:9443"], "wants https://"),
    (["--mode", "beside-kubeflow", "--gang-scheduler", "volcano"], "--gang-scheduler volcano: give it to Kubeflow"),
    (["--history", "http://x:1"], "write https://HOST:PORT"),
    (["--arbiter-rules", "weight"], "--arbiter-rules: is of use with --arbiter only"),
    (["--spot-label", "pool=spot"], "--spot-label: is of use with --arbiter only"),
    (["--arbiter", "--spot-label", "spot"], "--spot-label spot: write LABEL=VALUE"),
    (["--aimaster-overlay", "/nowhere.yaml"], "--aimaster-overlay /nowhere.yaml"),
])  # fmt: skip
def test_what_does_not_go_together_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operator", *words]) == 2
    assert re.search(said, capsys.readouterr().err)
