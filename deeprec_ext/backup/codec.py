"""Compression of blocks: zstandard where it is installed, else zlib; the name stands in each file's header."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

from deeprec_ext.errors import DeepRecError

WORTH = 0.9
"""A block that does not become smaller than this share is stored as it is: trained values are mostly noise, and reading
them back should cost nothing."""


@dataclass(frozen=True)
class Codec:
    name: str
    compress: Callable[[bytes], bytes]
    expand: Callable[[bytes, int], bytes]
    """(stored, size) -> at most `size` + 1 bytes, so that a false size cannot fill the memory. Raises ValueError."""


def _expand_zlib(stored: bytes, size: int) -> bytes:
    try:
        return zlib.decompressobj().decompress(stored, size + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error


ZLIB = Codec("zlib", lambda data: zlib.compress(data, 1), _expand_zlib)


def _zstandard() -> Codec | None:
    try:
        import zstandard
    except ImportError:
        return None

    def expand(stored: bytes, size: int) -> bytes:
        try:
            with zstandard.ZstdDecompressor().stream_reader(stored) as stream:
                return bytes(stream.read(size + 1))
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from error

    # A compressor must not be used by two threads at once, and making one costs little beside a block.
    return Codec("zstd", lambda data: bytes(zstandard.ZstdCompressor(level=1).compress(data)), expand)


def best() -> Codec:
    return _zstandard() or ZLIB


def named(name: str) -> Codec:
    """Raises DeepRecError when it is not installed here, or unknown."""
    if name == ZLIB.name:
        return ZLIB
    if name == "zstd":
        found = _zstandard()
        if found is None:
            raise DeepRecError("this backup was compressed with zstandard: pip install zstandard")
        return found
    raise DeepRecError(f"this backup was compressed with {name!r}, which this deeprec-ext does not know")
