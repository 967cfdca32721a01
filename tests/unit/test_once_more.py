"""Which failures of CI get a second try."""

from __future__ import annotations

import json

import pytest

from tests import once_more
from tests.once_more import worth_a_second_try

PROCESS = "tests/behaviour/test_store_lost.py::test_a"


@pytest.mark.parametrize(
    ("failed", "worth"),
    [
        ([], False),
        ([PROCESS], True),
        ([PROCESS, "tests/slurm/test_slurm.py::test_b"], True),
        ([PROCESS, "tests/slurm/test_slurm.py::test_b", "tests/chaos/test_short.py::test_c"], True),
        ([f"{PROCESS}_{number}" for number in range(once_more.MOST + 1)], False),
        ([PROCESS, "tests/unit/test_units.py::test_d"], False),
        (["tests/behaviour/test_store_lost.py"], False),  # it could not be imported
    ],
)
def test_few_tests_of_real_processes_do(failed, worth):
    assert worth_a_second_try(failed) is worth


@pytest.mark.parametrize(("passes", "code"), [(True, 0), (False, 1)])
def test_the_second_try_decides_and_what_passes_is_named(tmp_path, monkeypatch, capfd, passes, code):
    place = tmp_path / "tests" / "behaviour" / "test_it.py"
    place.parent.mkdir(parents=True)
    place.write_text(f"def test_it():\n    assert {passes}\n")
    record = tmp_path / ".pytest_cache" / "v" / "cache" / "lastfailed"
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"tests/behaviour/test_it.py::test_it": True}))
    monkeypatch.setattr(once_more, "ROOT", tmp_path)
    assert once_more.main() == code
    assert ("FLAKY" in capfd.readouterr().out) is passes
    assert record.exists() is not passes, "the next command has failures of its own"
