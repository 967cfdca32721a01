"""What the chief of a job without PS keeps of its model."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deeprec_ext.allreduce import kept as keeping
from deeprec_ext.allreduce.kept import Kept
from deeprec_ext.errors import DeepRecError


class Variables:
    def __init__(self, value: float) -> None:
        self.value = np.full(3, value, np.float32)

    def take(self) -> list[Any]:
        return [self.value]

    def put(self, arrays: Any) -> None:
        [self.value] = arrays


def of(directory: Path, fit: int, position: Callable[[], bytes] = lambda: b"here") -> Kept:
    one = Kept(directory, position)
    one.of(f"fit {fit}")
    return one


def nobody() -> bytes:
    raise DeepRecError("UNAVAILABLE")


def test_without_a_position_what_is_kept_stays(tmp_path: Path) -> None:
    of(tmp_path, 1).whole(Variables(1.0), 10)
    of(tmp_path, 1, nobody).whole(Variables(2.0), 20)  # a chief that came back while the AIMaster did not answer
    one, found = of(tmp_path, 1), Variables(0.0)
    assert one.back(found) and one.position == b"here"
    np.testing.assert_array_equal(found.value, np.full(3, 1.0, np.float32))


def test_what_is_kept_says_how_far_it_is_and_a_backup_does_not(tmp_path: Path) -> None:
    one = Kept(tmp_path, lambda: b"here", lambda: 7)
    one.of("fit 1")
    one.whole(Variables(1.0), 10)
    np.savez(tmp_path / "fit 2.npz", np.ones(3, np.float32), ledger=np.frombuffer(b"there", np.uint8))
    again = of(tmp_path, 1)
    assert again.where() == b"here" and again.back(Variables(0.0)) and again.reached == (7, 10)
    backup, found = of(tmp_path, 2), Variables(0.0)
    assert backup.back(found) and (backup.position, backup.reached) == (b"there", (0, 0))
    np.testing.assert_array_equal(found.value, np.ones(3, np.float32))
    assert of(tmp_path, 3).where() == b""
    np.savez(tmp_path / "fit 4.npz", np.ones(3, np.float32), ledger=np.empty(0, np.uint8))  # by a release before
    assert of(tmp_path, 4).where() is None, "nobody knows what it was trained on"


def test_it_is_asked_again_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "EVERY_SECONDS", 0.2)
    monkeypatch.setattr(keeping, "AGAIN_SECONDS", 0.05)
    answers = iter([nobody, lambda: b"here"])
    one, end = of(tmp_path, 1, lambda: next(answers, lambda: b"later")()), time.monotonic() + 20
    while not (tmp_path / "fit 1.npz").exists():
        assert time.monotonic() < end
        one.look(Variables(1.0), 5)
        time.sleep(0.01)
    assert of(tmp_path, 1).back(Variables(0.0))


def test_of_many_fits_the_last_files_stay_and_an_earlier_one_has_the_next_that_is_there(tmp_path: Path) -> None:
    for fit in range(1, keeping.FITS_MAX + 4):
        of(tmp_path, fit).whole(Variables(fit), fit)
        time.sleep(0.005)
    assert len(list(tmp_path.iterdir())) == keeping.FITS_MAX
    found = Variables(0.0)
    assert of(tmp_path, 2).back(found) and found.value[0] == 4.0
    assert of(tmp_path, 6).back(found) and found.value[0] == 6.0
    assert not of(tmp_path, keeping.FITS_MAX + 4).back(found), "nothing is kept of it yet"


def test_a_disk_that_hangs_ends_no_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "JOIN_SECONDS", 0.1)
    one, may = of(tmp_path, 1), threading.Event()
    one._writing = threading.Thread(target=may.wait, daemon=True)
    one._writing.start()
    began = time.monotonic()
    one.whole(Variables(1.0), 1)
    assert time.monotonic() - began < 10 and not list(tmp_path.iterdir())
    may.set()
    one._writing.join()
    one.whole(Variables(1.0), 1)
    assert of(tmp_path, 1).back(Variables(0.0))
