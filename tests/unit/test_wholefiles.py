from __future__ import annotations

import stat
from pathlib import Path

import pytest

from deeprec_ext import wholefiles


def test_a_file_is_exchanged_whole_with_its_mode_and_nothing_is_left_beside_it(tmp_path: Path):
    path = tmp_path / "summary.json"
    path.write_text("the old one")
    wholefiles.write_json(path, {"state": "done"})
    assert path.read_text() == '{\n  "state": "done"\n}\n'
    wholefiles.write(path, "secret", 0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["summary.json"]


def test_text_that_is_no_utf8_is_written_all_the_same(tmp_path: Path):
    wholefiles.write(tmp_path / "report", "a\udcffb")
    assert (tmp_path / "report").read_bytes() == b"a?b"


def test_of_several_files_none_is_exchanged_where_one_cannot_be_written(tmp_path: Path):
    path, absent = tmp_path / "key.pem", tmp_path / "no-such-folder" / "certificate.pem"
    path.write_bytes(b"old")
    with pytest.raises(FileNotFoundError):
        wholefiles.write_together((path, b"new", 0o600), (absent, b"new", 0o644))
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["key.pem"]
