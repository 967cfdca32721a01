"""`deeprec-ext operator`: what does not go together is said before anything is asked of a cluster."""

from __future__ import annotations

import re

import pytest

from deeprec_ext.cli.main import main
from tfjob.operator.main import OperatorOptions


@pytest.mark.parametrize("words, said", [
    (["--webhook-url", "https://10.0.0.1:9443/tfjobs"], "--webhook-url .* beside-kubeflow only"),
    (["--mode", "beside-kubeflow", "--webhook-url", "10.0.0.1:9443"], "wants https://"),
    (["--mode", "beside-kubeflow", "--gang-scheduler", "volcano"], "--gang-scheduler volcano: give it to Kubeflow"),
    (["--history", "http://x:1"], "write https://HOST:PORT"),
    (["--arbiter-rules", "weight"], "--arbiter-rules: is of use with --arbiter only"),
    (["--spot-label", "pool=spot"], "--spot-label: is of use with --arbiter only"),
    (["--arbiter", "--spot-label", "spot"], "--spot-label spot: write LABEL=VALUE"),
    (["--namespace", ""], "--namespace '': is no name of a namespace"),
    (["--namespace", "ads,web"], "--namespace 'ads,web': is no name"),
    ([word for number in range(33) for word in ("--namespace", f"n{number}")], "33 namespaces, .* give at most 32"),
    (["--aimaster-overlay", "/nowhere.yaml"], "--aimaster-overlay /nowhere.yaml"),
])  # fmt: skip
def test_what_does_not_go_together_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operator", *words]) == 2
    assert re.search(said, capsys.readouterr().err)


@pytest.mark.parametrize(("words", "namespaces", "home"), [
    ([], (None,), "default"), (["--namespace", "ads"], ("ads",), "ads"),
    (["--namespace", "web", "--namespace", "ads", "--namespace", "web"], ("web", "ads"), "web"),
    (["--namespace", "web", "--lease-namespace", "ops"], ("web",), "ops"),
])  # fmt: skip
def test_it_watches_the_namespaces_that_are_named_and_elects_its_leader_in_the_first_where_it_runs_outside(
    words: list[str], namespaces: tuple[str | None, ...], home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[OperatorOptions] = []
    monkeypatch.setattr("tfjob.operator.main.start", lambda options: started.append(options) or 0)
    assert main(["operator", *words]) == 0
    assert [(one.namespaces, one.home) for one in started] == [(namespaces, home)]
