"""A database for each test: a file of SQLite, and, where it is installed, one of a real PostgreSQL."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.history import postgresql

_numbers = itertools.count()


@pytest.fixture(scope="session")
def _server() -> Iterator[str]:
    if why := postgresql.why_not():
        pytest.skip(why)
    with postgresql.server() as directory:
        yield directory


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/history.db"
    return postgresql.create(request.getfixturevalue("_server"), f"history{next(_numbers)}")
