"""What a failed run tells of the PS that it lost."""

from __future__ import annotations

import re

import tensorflow as tf

_TARGET = re.compile(r"remote target /job:ps/replica:0/task:(\d+)")


def unreachable(error: Exception) -> list[int]:
    """Task numbers of the PS to which a connection of the failed run broke: gRPC says so where the connection ended.

    An error that a PS passed on from another one names both; that it was passed on is no trouble of the former's, and it is
    not taken for one: only errors of the transport count.
    """
    if not isinstance(error, tf.errors.UnavailableError):
        return []
    return sorted({int(task) for task in _TARGET.findall(str(error))})
