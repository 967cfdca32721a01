"""Messages to and from TensorFlow's own services."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext.elastic.session.probe import array  # noqa: E402
from deeprec_ext.proto import deeprec_ext_pb2 as pb  # noqa: E402
from deeprec_ext.tf_private import tf_services_pb2 as services  # noqa: E402
from deeprec_ext.tf_private.master import MasterSession, split_strings  # noqa: E402


def varint(number):
    return pb.Ack(command_id=number).SerializeToString()[1:] if number else b"\0"


def test_names_of_ours_stand_beside_those_of_tensorflow():
    """Both in one process: a name that is defined twice ends it."""
    assert {message.full_name for message in services.DESCRIPTOR.message_types_by_name.values()} >= {
        f"deeprec_ext.tf_private.{name}" for name in ("CreateSessionRequest", "RunCallableResponse", "LoggingRequest")
    }


@pytest.mark.parametrize("broken", [b"\x0a", b"\x0a\x05ab", b"\xff" * 20, b"\x09\x01", b"\x0b"])
def test_what_is_no_message_is_an_error_that_can_be_retried(broken):
    session = object.__new__(MasterSession)
    session._channel = SimpleNamespace(unary_unary=lambda method: lambda request, timeout: broken)
    with pytest.raises(tf.errors.AbortedError):
        session._call("RunCallable", services.RunCallableRequest(), 1.0)


def test_strings_as_servers_send_them():
    texts = [b"", b"a", b"b" * 300, "ä".encode()]
    content = b"".join(varint(len(text)) for text in texts) + b"".join(texts)
    assert split_strings(content, 4) == texts
    for count in (3, 5):
        with pytest.raises(tf.errors.AbortedError):
            split_strings(content, count)


@pytest.mark.parametrize("value", [
    np.float32(1.5), np.arange(6).reshape(2, 3), np.zeros((0, 3), np.int32), np.array([True, False]), np.float16(0.5),
    np.array([b"one", b""], dtype=object), np.array(1 + 2j), np.array(7, np.uint64),
], ids=str)  # fmt: skip
def test_a_tensor_becomes_what_a_session_returns(value):
    got, expected = array(tf.make_tensor_proto(value).SerializeToString()), np.asarray(value)[()]
    assert type(got) is type(expected)
    np.testing.assert_array_equal(got, expected)
