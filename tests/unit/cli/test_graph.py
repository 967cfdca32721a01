from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from deeprec_ext.aimaster.core.records import PsInfo
from deeprec_ext.aimaster.membership.view import AgreedCluster
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.cli import graph, main, placement
from deeprec_ext.cli.placement import Placement
from deeprec_ext.gazer.series import Series
from deeprec_ext.proto import deeprec_ext_pb2 as pb2
from deeprec_ext.rundir import RunDirectory

CATALOGUE = pb2.Catalogue(
    variables=[
        pb2.Variable(name="emb", slot=0, shape=[1000, 8], bytes=32_000, update=pb2.Variable.ROWS),
        pb2.Variable(name="emb/Adagrad", slot=0, shape=[1000, 8], bytes=32_000, update=pb2.Variable.ROWS),
        pb2.Variable(name="bias", slot=1, shape=[8], bytes=32, update=pb2.Variable.DENSE, reference=True),
        pb2.Variable(name="global_step", slot=1, bytes=8),
    ],
    warnings=["Adam updates 'emb' densely"],
)
PASSES = [{"name": "placement", "changed": 1641, "detail": "19 devices", "seconds": 0.0123}]
PLACED = Placement(CATALOGUE, PASSES, {0: "ps-0", 1: "ps-10", 2: "ps-2"}, {0: 0.3, 1: 0.1})


def text_of(placed: Placement, rows: int | None = None, slot: int | None = None, width: int = 120) -> list[str]:
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None, highlight=False)
    for part in graph.render(placed, rows, slot):
        console.print(part)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def test_passes_placement_and_variables_are_shown():
    lines = text_of(PLACED)
    assert "placement    1,641   12.3 19 devices" in lines
    assert any(line.split() == ["ps-0", "2", "64", "kB", "100", "%", "████████████", "75", "%", "0"] for line in lines)
    assert any(line.split() == ["ps-10", "2", "40", "B", "0", "%", "████", "25", "%", "1"] for line in lines)
    assert any(line.split() == ["ps-2", "0", "0", "B", "0", "%", "0", "%", "2"] for line in lines)
    assert [line.split()[0] for line in lines if line.startswith("ps-")] == ["ps-0", "ps-2", "ps-10"]
    assert "slot 0 on ps-0: 2 variables, 64 kB, 75 % of the load" in lines
    assert "    32 kB rows    1000 × 8       emb" in [line.replace("(reference)", "").rstrip() for line in lines]
    assert any(line.split() == ["32", "B", "dense", "(reference)", "8", "bias"] for line in lines)
    assert any(line.split() == ["8", "B", "never", "scalar", "global_step"] for line in lines)
    assert "warning: Adam updates 'emb' densely" in lines


def test_long_lists_of_variables_are_cut_with_a_count_or_left_out():
    many = pb2.Catalogue(variables=[pb2.Variable(name=f"v{number}", slot=0, bytes=number) for number in range(100)])
    lines = text_of(Placement(many, [], {0: "ps-0"}), rows=3)
    assert [line.split()[-1] for line in lines if line.endswith(("v99", "v98", "v97", "v96"))] == ["v99", "v98", "v97"]
    assert "… and 97 more variables of it" in lines
    lines = text_of(Placement(many, [], {0: "ps-0"}), rows=0)
    assert not any("v99" in line for line in lines)
    assert lines[-1] == "--slot S shows the variables of one"


def test_one_slot_is_shown_whole():
    lines = text_of(PLACED, rows=1, slot=0)
    assert lines[0].startswith("slot 0 on ps-0")
    assert [line.split()[-1] for line in lines[2:4]] == ["emb", "emb/Adagrad"]
    assert not any("placement" in line for line in lines)


def test_a_load_that_nobody_measured_is_not_shown():
    lines = text_of(Placement(CATALOGUE, PASSES, {0: "ps-0", 1: "ps-1"}))
    assert not any("load" in line and "slot" in line and "%" in line for line in lines)
    assert graph.describe(Placement(CATALOGUE, PASSES, {0: "ps-0"}))["placement"][0]["load"] is None


def test_before_the_first_session_there_is_one_line():
    assert text_of(Placement(pb2.Catalogue(), [])) == ["no variables yet: the chief has not opened its session"]


def test_it_fits_into_a_narrow_terminal():
    assert max(map(len, text_of(PLACED, width=40))) <= 40


@pytest.fixture
def ended(tmp_path: Path) -> RunDirectory:
    """The directory of a run that has ended."""
    directory = RunDirectory(tmp_path)
    directory.describe({"job": "demo", "aimaster": "127.0.0.1:1"})
    store = Store(directory.store)
    ps = (PsInfo(0, "ps-0", "", "a"), PsInfo(3, "ps-1", "", "b"))
    store.put(cluster=AgreedCluster(epoch=5, ps=ps, slot_map=(0, 3)).to_json())
    store.put_blob("catalogue", CATALOGUE.SerializeToString())
    store.put_blob("passes", json.dumps(PASSES).encode())
    series = Series(store)
    for second in range(4):
        series.add(1e9 + 2 * second, {"slot-0": {"lookup_share": 0.2, "update_share": 0.1}})
    store.close()
    return directory


def test_of_an_ended_job_its_store_tells(ended: RunDirectory, capsys: pytest.CaptureFixture[str]):
    assert main.main(["graph", str(ended.path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    first, second = found["placement"]
    assert (first["slot"], first["ps"], first["bytes"], first["variables"]) == (
        0,
        "ps-0",
        64_000,
        ["emb", "emb/Adagrad"],
    )
    assert first["load"] == pytest.approx(0.3)
    assert (second["ps"], second["load"]) == ("ps-1", None)
    assert found["passes"] == PASSES
    assert len(found["catalogue"]["variables"]) == 4


def test_a_slot_that_is_not_there_is_bad_usage(ended: RunDirectory, capsys: pytest.CaptureFixture[str]):
    assert main.main(["graph", str(ended.path), "--slot", "2"]) == 2
    assert "the job has slots 0 to 1" in capsys.readouterr().err


def test_a_damaged_store_is_one_line(ended: RunDirectory, capsys: pytest.CaptureFixture[str]):
    ended.store.write_bytes(b"this is no database" * 100)
    assert main.main(["graph", str(ended.path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', "[1, 2]"])
def test_passes_are_what_is_there(text):
    assert placement.passes_of(text) == []
