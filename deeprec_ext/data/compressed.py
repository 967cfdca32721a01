"""Compressed files, refused by their name: a shard is read from the middle of a file, which a compressed one does not allow."""

from __future__ import annotations

import zlib

from deeprec_ext.data.errors import DataError

HEAD_BYTES = 4096

_MAGIC: tuple[tuple[bytes, str, str], ...] = (
    (b"\x1f\x8b\x08", "gzip", "gunzip"),
    (b"\x28\xb5\x2f\xfd", "Zstandard", "unzstd"),
    (b"\xfd7zXZ\x00", "xz", "unxz"),
    (b"\x04\x22\x4d\x18", "LZ4", "unlz4"),
    (b"\xff\x06\x00\x00sNaPpY", "Snappy", "snzip -d"),
    (b"PK\x03\x04", "zip", "unzip"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip", "7z x"),
    (b"\x1f\x9d", "compress", "uncompress"),
    (b"LZIP", "lzip", "lzip -d"),
)
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")  # what follows `BZh9`: a block, or the end of an empty file


def compression(head: bytes) -> tuple[str, str] | None:
    """(name, command that unpacks it) of a file that begins so; None: of no compression that is known here."""
    for magic, name, command in _MAGIC:
        if head.startswith(magic):
            return name, command
    if head[:3] == b"BZh" and head[4:10] in _BZIP2_BLOCKS:
        return "bzip2", "bunzip2"
    if len(head) >= 2 and head[0] == 0x78 and int.from_bytes(head[:2], "big") % 31 == 0:  # text may begin so, too
        unpacker = zlib.decompressobj()
        try:
            if unpacker.decompress(head, HEAD_BYTES) or unpacker.eof:
                return "zlib", "zlib-flate -uncompress"
        except zlib.error:
            return None
    return None


def refuse(path: str, head: bytes) -> None:
    """Raises DataError when a file that begins so is compressed."""
    found = compression(head)
    if found is not None:
        name, command = found
        raise DataError(
            f"{path} is compressed ({name}): shards are read from the middle of a file, which that does not allow. "
            f"Unpack it ({command}), or pass a reader= of your own (a function path -> records)"
        )
