"""What goes between AIMaster and arbiter, and what becomes of what should not."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from deeprec_ext.arbiter.observed import Allowance, Bid, Count, Worth
from deeprec_ext.arbiter.wire import TEXT_MAX, bid_text, read_allowance
from deeprec_ext.autoscaler.loop.exchange import Files
from deeprec_ext.decoding import built
from deeprec_ext.options import Settings
from deeprec_ext.wholefiles import write

GOOD = {"runs": True, "ps": 1, "workers": 2, "since": 1000.0, "why": "a serving pod waits"}
BID = Bid(1000.5, Count(1, 3), Count(1, 4), (Worth(1, 3, 1000.0),), training=True)


def test_an_allowance_is_read_with_its_job_or_without() -> None:
    assert read_allowance(json.dumps(GOOD), "me") == Allowance("me", True, 1, 2, 1000.0, "a serving pod waits")
    assert read_allowance(json.dumps({"job": "ns/me", **GOOD}), "x").job == "x", "where it is written tells whose it is"
    assert read_allowance(json.dumps({**GOOD, "of a later release": 1}), "me").workers == 2


@pytest.mark.parametrize("text", [
    "", "{", "null", "[]", "3", '"x"', json.dumps({**GOOD, "workers": -1}), json.dumps({**GOOD, "workers": 10**9}),
    json.dumps({**GOOD, "ps": True}), json.dumps({**GOOD, "ps": 1.5}), json.dumps({**GOOD, "since": float("nan")}),
    json.dumps({**GOOD, "why": 3}), json.dumps({name: one for name, one in GOOD.items() if name != "ps"}),
    "[" * 100_000, json.dumps({**GOOD, "why": "x" * TEXT_MAX}),
])  # fmt: skip
def test_what_is_no_allowance_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(it |its time|-?\d+ (PS|workers) cannot be)"):
        read_allowance(text, "me")


def test_a_reason_is_made_safe_and_short() -> None:
    found = read_allowance(json.dumps({**GOOD, "why": "\x1b[31mred" + "x" * 2000}), "me")
    assert "\x1b" not in found.why and len(found.why) <= 500


def play(tmp_path: Path, test: Callable[[Files, list[str | None], Path], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        files, heard = Files(tmp_path / "bid", tmp_path / "allowance", poll_seconds=0.01), list[Any]()

        async def listen() -> None:
            async for text in files.allowances():
                heard.append(text)

        listening = asyncio.get_running_loop().create_task(listen())
        try:
            await asyncio.wait_for(test(files, heard, tmp_path / "allowance"), 10)
            assert not listening.done()
        finally:
            listening.cancel()

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_each_version_of_the_file_is_heard_once_and_its_removal_too(tmp_path: Path) -> None:
    async def test(files: Files, heard: list[str | None], path: Path) -> None:
        assert files.first() is None
        for number in range(3):
            write(path, str(number))
            await until(lambda number=number: len(heard) == number + 1)  # type: ignore[misc]
        await asyncio.sleep(0.05)
        path.unlink()
        await until(lambda: len(heard) == 4)
        assert heard == ["0", "1", "2", None] and files.first() is None

    play(tmp_path, test)


def test_hostile_and_half_written_files_harm_nobody(tmp_path: Path) -> None:
    async def test(files: Files, heard: list[str | None], path: Path) -> None:
        os.mkfifo(path)  # a read would wait for ever
        await asyncio.sleep(0.05)
        path.unlink()
        path.mkdir()
        await asyncio.sleep(0.05)
        path.rmdir()
        await until(lambda: heard[-1:] in ([], [None]))
        path.write_bytes(b"\xff\xfe half")
        await until(lambda: bool(heard) and heard[-1] is not None)
        path.write_bytes(b"x" * (1 << 20))
        await until(lambda: len(heard[-1] or "") > TEXT_MAX)
        assert len(heard[-1] or "") == TEXT_MAX + 1, "no more of it is read than shows that it is too large"
        write(path, json.dumps(GOOD))
        await until(lambda: heard[-1] == json.dumps(GOOD))

    play(tmp_path, test)


def test_a_bid_is_a_whole_file(tmp_path: Path) -> None:
    asyncio.run(Files(tmp_path / "bid", None).publish(BID))
    assert built(Bid, json.loads((tmp_path / "bid").read_text())) == BID
    assert os.listdir(tmp_path) == ["bid"]
    with pytest.raises(OSError, match="nowhere"):
        asyncio.run(Files(tmp_path / "nowhere" / "bid", None).publish(BID))


def test_a_bid_of_absurd_numbers_still_has_a_bound() -> None:
    absurd = dataclasses.replace(BID, worth=tuple(Worth(10**60 + n, 10**60, 1e300) for n in range(64)))
    assert len(bid_text(absurd)) <= TEXT_MAX


def test_a_job_is_in_a_pool_by_its_settings() -> None:
    assert Files.of(Settings()) is None
    assert isinstance(Files.of(Settings(allowance_file="/a")), Files)
