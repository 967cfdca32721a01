"""`tf.compat.v1.train.Server`, which is exchanged; a PS imports this without TensorFlow's Python API (`bare`)."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tensorflow.python.training import server_lib

from deeprec_ext.tf_private.wrapping import exchange

_original = server_lib.Server


def original_server_class() -> Any:
    """TensorFlow's own, whatever stands in its place."""
    return _original


def exchange_server(tensorflow: ModuleType, new: type) -> None:
    """Also in `server_lib`, where TensorFlow's own code takes it from."""
    exchange(tensorflow, server_lib, "Server", new)


def server_def(*arguments: Any) -> Any:
    """The ServerDef of a Server's arguments, and the errors of wrong ones: `_make_server_def`, which its constructor calls."""
    return server_lib._make_server_def(*arguments)
