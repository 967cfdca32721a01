"""The token of the web page: nobody else reads it, and it stays the same as long as the job."""

from __future__ import annotations

import os
from pathlib import Path

from deeprec_ext.security.tokens import NAME, make_token, page_line, read_token, with_token, write_door


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
    assert with_token("http://127.0.0.1:8080/", "a b") == "http://127.0.0.1:8080/#token=a%20b"
    assert with_token("", "a") == "" and with_token("http://x/", "") == "http://x/"


def test_the_door_leads_to_the_page_and_its_owner_alone_can_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        door = write_door(tmp_path / "dashboard.html", "http://127.0.0.1:8080/", 'a"b')
    finally:
        os.umask(before)
    assert door.stat().st_mode & 0o777 == 0o600
    assert door.read_text().count('http://127.0.0.1:8080/#token=a%22b"') == 2, "the redirection, and a link without one"


def test_what_is_shown_of_the_page_never_has_the_token(tmp_path: Path) -> None:
    url, door = "http://127.0.0.1:8080/", tmp_path / "dashboard.html"
    assert page_line("", door, tmp_path) == "" and page_line(url, door, tmp_path) == url
    token = make_token(tmp_path)
    assert (
        page_line(url, door, tmp_path)
        == f"{url} (reads only; to scale from it, add #token= and what is in {tmp_path / NAME})"
    )
    write_door(door, url, token)
    line = page_line(url, door, tmp_path)
    assert line == f"{url} (reads only; to scale from it, open {door.as_uri()})" and token not in line
