"""Things of a script as bytes, and back: numbers, texts, arrays, and lists and dicts of them. Bytes never become code."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from deeprec_ext.errors import ProtocolError, RefusedError

_LENGTH_BYTES = 8


def encoded(thing: Any) -> bytes:
    """Raises RefusedError where there is something else in it."""
    arrays: list[Any] = []
    head = json.dumps(_told(thing, arrays)).encode()
    return b"".join([len(head).to_bytes(_LENGTH_BYTES, "big"), head, *(one.tobytes() for one in arrays)])


def decoded(said: bytes) -> Any:
    """Raises ProtocolError."""
    end = _LENGTH_BYTES + int.from_bytes(said[:_LENGTH_BYTES], "big")
    try:
        return _made(json.loads(said[_LENGTH_BYTES:end]), memoryview(said)[end:])
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise ProtocolError(f"what another process has said cannot be read: {error}") from error


def _told(thing: Any, arrays: list[Any]) -> Any:
    if thing is None or (isinstance(thing, (bool, int, float, str)) and not isinstance(thing, np.generic)):
        return thing
    if hasattr(thing, "numpy"):  # a tensor or a variable
        thing = thing.numpy()
    if isinstance(thing, (np.ndarray, np.generic)):
        if thing.dtype.kind not in "biufcSU":
            raise RefusedError(f"an array of {thing.dtype} cannot be handed to other processes: numbers and texts can")
        at = sum(one.nbytes for one in arrays)
        arrays.append(np.array(thing, order="C"))
        return {"array": [thing.dtype.str, list(thing.shape), at, isinstance(thing, np.generic)]}
    if isinstance(thing, bytes):
        return {"bytes": base64.b64encode(thing).decode()}
    for kind in (list, tuple, set, dict):
        if type(thing) is kind:
            parts: Any = thing.items() if isinstance(thing, dict) else thing
            return {kind.__name__: [_told(list(one) if kind is dict else one, arrays) for one in parts]}
    raise RefusedError(
        f"a {type(thing).__name__} cannot be handed to other processes: numbers, texts, arrays, and lists and dicts of them can"
    )


def _made(told: Any, arrays: memoryview) -> Any:
    if not isinstance(told, dict):
        return told
    ((kind, value),) = told.items()
    if kind == "array":
        name, shape, at, is_scalar = value
        count = int(np.prod(shape, dtype=np.int64))
        found = np.frombuffer(arrays, np.dtype(name), count, at).reshape(shape).copy()
        return found[()] if is_scalar else found
    if kind == "bytes":
        return base64.b64decode(value)
    parts = [_made(one, arrays) for one in value]
    return {"list": list, "tuple": tuple, "set": set, "dict": dict}[kind](parts)
