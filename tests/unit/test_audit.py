"""`make check-security`: what pip-audit says is judged, and silence is not taken for safety."""

from __future__ import annotations

from typing import Any

import pytest

from tests.security import audit

OURS = (("protobuf>=4.25,<6", "rich"), ("protobuf<5", "not a requirement !!"))


def report(*vulnerabilities: dict[str, Any]) -> dict[str, Any]:
    return {"dependencies": [
        {"name": "rich", "version": "13.0", "vulns": []},
        {"name": "protobuf", "version": "4.25.1", "vulns": list(vulnerabilities)},
        {"name": "deeprec-ext", "skip_reason": "is not on PyPI"},
    ]}  # fmt: skip


def test_what_an_upgrade_within_all_limits_mends_is_a_failure() -> None:
    answer = audit.verdict(report({"id": "CVE-1", "fix_versions": ["5.1", "4.25.8"]}), OURS)
    assert answer is not None and answer[0] == 1
    assert answer[1][0] == "protobuf 4.25.1: CVE-1: upgrade to 4.25.8"


@pytest.mark.parametrize("versions", [["5.1"], [], ["6.0", "4.24"]])
def test_what_is_mended_outside_of_the_limits_only_is_listed(versions: list[str]) -> None:
    answer = audit.verdict(report({"id": "CVE-2", "fix_versions": versions}), OURS)
    assert answer is not None and answer[0] == 0
    assert "CVE-2: mended by no version that our limits allow" in answer[1][0]


def test_nothing_found_says_of_how_many() -> None:
    assert audit.verdict(report(), OURS) == (0, ["pip-audit: 2 packages looked up, 0 vulnerabilities known"])


def test_where_nothing_was_looked_up_it_is_skipped_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    skipped = {"dependencies": [{"name": "rich", "skip_reason": "not found"}]}
    answers: dict[str, Any] = {"pypi": skipped, "osv": "no route to host"}
    monkeypatch.setattr(audit, "ask", lambda service: answers[service])
    assert audit.main([]) == 0
    said = capsys.readouterr().out
    assert "skipped, because no vulnerability database can be reached" in said
    assert "pypi: it knows none of the packages; osv: no route to host" in said
