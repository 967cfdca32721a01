"""Numbers in half the bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deeprec_ext.allreduce import halves


def come(piece: Any) -> Any:
    said = np.frombuffer(halves.packed(piece), np.uint8)
    assert len(said) == halves.HEAD.size + halves.length(said[: halves.HEAD.size], piece)
    found = np.full_like(piece, 7)
    halves.unpack(said, found)
    return found


@pytest.mark.parametrize("scale", [1e-36, 1e-28, 1e-20, 1e-4, 1.0, 300.0, 1e5, 1e20, 1e38])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_each_number_keeps_11_bits(scale: float, kind: Any) -> None:
    random = np.random.RandomState(int(abs(np.log10(scale))))
    piece = (random.uniform(-1, 1, 5000) * scale).astype(kind)
    found = come(piece)
    assert len(halves.packed(piece)) == 2 + 2 * 5000 or scale > 1e30
    if scale >= 1e-28:  # else its largest numbers are near nothing
        large = np.abs(piece) > np.abs(piece).max() * 2.0**-29
        assert np.all(np.abs(found - piece)[large] <= np.abs(piece)[large] * 2.0**-11)
    assert np.all(np.abs(found - piece) <= np.abs(piece).max() * 2.0**-11 + 2.0**-113)
    assert np.all(np.isfinite(found)) and not np.any(np.signbit(found) != np.signbit(piece))


def test_as_numpy_rounds_to_float16() -> None:
    piece = (np.random.RandomState(1).randn(20000) * 3000).astype(np.float32)
    piece[0] = 2.0**15 - 1  # so nothing is scaled
    close = (np.abs(piece) >= 2.0**-14) & ((piece.view(np.uint32) & 0x1FFF) != 0x1000)  # those in the middle go up here
    np.testing.assert_array_equal(come(piece)[close], piece.astype(np.float16).astype(np.float32)[close])


def test_what_is_rounded_up_does_not_overflow() -> None:
    for most in (65535.9, 65504.0, 1.9999999, 3.4e38):
        piece = np.array([most, -most, 1e-3], np.float32)
        np.testing.assert_allclose(come(piece)[:2], piece[:2], rtol=2.0**-11)


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan, None])
def test_numbers_that_are_none_are_the_same_there(odd: Any) -> None:
    piece = np.array([1 / 3, 0.0, -0.0, 1e-38], np.float32)
    if odd is None:
        piece = np.zeros(5, np.float32)
    else:
        piece[2] = odd
    np.testing.assert_array_equal(come(piece), piece)


def test_pieces_of_no_length() -> None:
    assert come(np.empty(0, np.float32)).size == 0


def test_what_comes_is_the_same_whether_a_thread_knows_small_numbers_or_not() -> None:
    """Threads of TensorFlow have none between 0 and 2**-126: what is unpacked in one must be what another one has."""
    piece = (np.random.RandomState(3).uniform(-1, 1, 2000) * np.logspace(-38, -20, 2000)).astype(np.float32)
    for one in (piece, piece[:500], piece * np.float32(1e15)):
        found = np.abs(come(one))
        assert not np.any((found > 0) & (found < 2.0**-126))
