"""The token of the web page: nobody else reads it, and it stays the same as long as the job."""

from __future__ import annotations

from pathlib import Path

from deeprec_ext.security.tokens import NAME, make_token, read_token, with_token


def test_it_is_made_once_and_read_by_its_owner_only(tmp_path: Path) -> None:
    token = make_token(tmp_path)
    assert len(token) >= 32
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    assert read_token(tmp_path) == token == make_token(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_each_job_has_its_own(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert make_token(tmp_path / "a") != make_token(tmp_path / "b")


def test_where_there_is_none_nobody_may_scale(tmp_path: Path) -> None:
    assert read_token(tmp_path) == ""
    (tmp_path / NAME).write_bytes(b"\xff\xfe")
    assert read_token(tmp_path) == ""


def test_an_empty_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("\n")
    assert make_token(tmp_path) == read_token(tmp_path) != ""


def test_the_address_has_it_once() -> None:
    assert with_token("http://127.0.0.1:8080/", "a b") == "http://127.0.0.1:8080/?token=a%20b"
    assert with_token("", "a") == "" and with_token("http://x/", "") == "http://x/"
