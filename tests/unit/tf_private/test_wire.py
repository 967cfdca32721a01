"""Messages of ours against those of protocol buffers themselves."""

from __future__ import annotations

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext.elastic.session.probe import array  # noqa: E402
from deeprec_ext.proto import deeprec_ext_pb2 as pb  # noqa: E402
from deeprec_ext.tf_private.wire import fields, first_bytes, first_number, pack, split_strings  # noqa: E402


def test_what_we_pack_others_read():
    message = pb.Ack.FromString(pack((1, 300), (2, 1), (3, b"because"), (3, b"of this")))
    assert (message.command_id, message.ok, message.error) == (300, True, "of this")


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**32, 2**63 - 1])
def test_what_others_pack_we_read(number):
    message = pb.GazerReport(interval_seconds=1.5, trouble="x" * 1000)
    message.process.rss_bytes = number
    packed = message.SerializeToString()
    assert [field for field, _ in fields(packed)] == [1, 2, 6]
    assert first_bytes(packed, 6) == b"x" * 1000
    assert first_number(first_bytes(packed, 2), 2) == number


@pytest.mark.parametrize("broken", [b"\x0a", b"\x0a\x05ab", b"\xff" * 20, b"\x09\x01", b"\x0b"])
def test_what_is_no_message_is_an_error_that_can_be_retried(broken):
    with pytest.raises(tf.errors.AbortedError):
        list(fields(broken))


def test_strings_as_servers_send_them():
    texts = [b"", b"a", b"b" * 300, "ä".encode()]
    content = b"".join(pack((1, len(text)))[1:] for text in texts) + b"".join(texts)
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
