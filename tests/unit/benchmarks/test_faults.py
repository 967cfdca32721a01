"""Drawing faults, and the layer that makes writes fail."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.fault_layer.control import KINDS, Faults, ShimError, compile_shim
from benchmarks.faults import STORE_KINDS, Fault, Result, draw, summary

WRITER = """
import errno, os, sqlite3, sys
path = sys.argv[1]
def tried(write):
    try:
        write()
        return 0
    except OSError as error:
        return error.errno
    except sqlite3.OperationalError as error:
        return str(error)
def store():
    db = sqlite3.connect(os.path.join(path, "a.db"))
    db.execute("CREATE TABLE IF NOT EXISTS t (x)")
    db.execute("INSERT INTO t VALUES (1)")
    db.commit()
def file():
    with open(os.path.join(path, "file"), "ab", buffering=0) as one:
        one.write(b"x")
print(repr([tried(file), tried(store)]))
"""


def test_the_same_numbers_draw_the_same_fault_and_all_kinds_come() -> None:
    faults = [draw(1, number) for number in range(200)]
    assert faults == [draw(1, number) for number in range(200)] != [draw(2, number) for number in range(200)]
    assert {fault.kind for fault in faults} == {*KINDS, *STORE_KINDS}
    assert {fault.role for fault in faults} == {"launcher", "aimaster", "ps"}
    assert {fault.moment for fault in faults} == {"start", "training", "end"}


def test_the_layer_fails_the_writes_of_one_role_below_one_directory(tmp_path: Path) -> None:
    try:
        shim = compile_shim(tmp_path)
    except ShimError as error:
        pytest.skip(str(error))
    below, beside = tmp_path / "below", tmp_path / "beside"
    below.mkdir()
    beside.mkdir()
    faults = Faults(tmp_path, below, shim)

    def write(path: Path, role: str) -> list[object]:
        words = [sys.executable, "-c", WRITER, str(path), role]
        told = subprocess.run(words, env={**os.environ, **faults.variables}, capture_output=True, text=True, check=True)
        found: list[object] = eval(told.stdout)
        return found

    faults.begin("full", "aimaster", 0)
    assert write(below, "deeprec_ext.aimaster")[0] == errno.ENOSPC and faults.failed >= 1
    assert write(below, "deeprec_ext.aimaster")[1] != 0
    assert write(below, "deeprec_ext.elastic.serve") == write(beside, "deeprec_ext.aimaster") == [0, 0]
    faults.begin("read-only", "ps", 0)
    assert write(below, "deeprec_ext.elastic.serve")[0] == errno.EROFS
    faults.begin("io-error", "ps", 1)
    assert write(below, "deeprec_ext.elastic.serve")[0] == 0, "one write succeeds"
    faults.end()
    assert write(below, "deeprec_ext.elastic.serve") == [0, 0]


def test_a_run_that_stands_still_or_loses_records_is_told() -> None:
    fault = Fault("full", "ps", "training", 3, 2.0, "")
    well, still, lost = (
        Result(fault, 3), Result(fault, 0, stands_still="no end"), Result(fault, 1, lost=4, repeated=2),
    )  # fmt: skip
    found = summary([well, still, lost])
    assert (found["runs"], found["stand_still"], found["lost"], found["faults_that_hit"]) == (3, 1, 1, 2)
    assert [one["lost"] for one in found["bad"]] == [0, 4]


CLOCK = """
import sys, threading, time
from datetime import datetime
monotonic, wall = time.monotonic(), time.time()
threading.Event().wait(0.05)
print(repr([wall, datetime.now().timestamp(), time.time_ns() / 1e9, time.monotonic() - monotonic]))
"""


@pytest.mark.parametrize("day", [86_400, -86_400])
def test_the_layer_sets_the_wall_clock_and_no_wait_is_longer(tmp_path: Path, day: int) -> None:
    try:
        faults = Faults(tmp_path, tmp_path, compile_shim(tmp_path))
    except ShimError as error:
        pytest.skip(str(error))
    faults.begin("full", "ps", 0)
    faults.set_clock(day)
    faults.end()
    environment = {**os.environ, **faults.variables}
    told = subprocess.run(
        [sys.executable, "-c", CLOCK], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    *walls, waited = eval(told.stdout)
    assert all(abs(wall - time.time() - day) < 600 for wall in walls) and 0.04 < waited < 60
