"""The order of shards in an epoch, and the seed of the order inside a shard: the same for every ledger, for ever.

Pure functions of seed, epoch and shard, so that a run that is restarted, and stock training, give the same order.
The order is computed element by element (a Feistel network over a power of two, walking the cycle until it falls inside the
range: Black and Rogaway, "Ciphers with arbitrary finite domains", 2002): a million shards cost neither memory nor a pause.
"""

from __future__ import annotations

import hashlib

_MASK = (1 << 64) - 1
_ROUNDS = 6


class ShardOrder:
    """The order of `count` shards in one epoch: `shard(rank)` for rank 0, 1, … count - 1 gives each shard once."""

    def __init__(self, seed: int, epoch: int, count: int) -> None:
        self._count = count
        bits = max(2, (count - 1).bit_length())
        self._low_bits = bits // 2
        self._low_mask = (1 << self._low_bits) - 1
        self._high_mask = (1 << (bits - self._low_bits)) - 1
        digest = hashlib.blake2b(f"deeprec_ext/{seed}/{epoch}".encode(), digest_size=8 * _ROUNDS).digest()
        self._keys = [int.from_bytes(digest[i : i + 8], "little") for i in range(0, len(digest), 8)]

    def shard(self, rank: int) -> int:
        if not 0 <= rank < self._count:
            raise IndexError(f"rank {rank} of {self._count} shards")
        value = rank
        while True:
            value = self._permute(value)
            if value < self._count:
                return value

    def _permute(self, value: int) -> int:
        low, high = value & self._low_mask, value >> self._low_bits
        for number, key in enumerate(self._keys):  # each half changes by the other only, so it can be undone
            if number % 2:
                low ^= _mix(high ^ key) & self._low_mask
            else:
                high ^= _mix(low ^ key) & self._high_mask
        return (high << self._low_bits) | low


def _mix(value: int) -> int:
    """64 bits from 64 bits: the finaliser of splitmix64."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def shard_order(seed: int, epoch: int, shards: int) -> list[int]:
    """The numbers 0 … shards - 1, shuffled; whole: some 5 seconds for a million (`ShardOrder` gives them one by one)."""
    order = ShardOrder(seed, epoch, shards)
    return [order.shard(rank) for rank in range(shards)]


def shard_seed(seed: int, epoch: int, shard: int) -> int:
    """An unsigned 64-bit number, never 0 (0 means: as the records stand)."""
    digest = hashlib.blake2b(f"{seed}/{epoch}/{shard}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1
