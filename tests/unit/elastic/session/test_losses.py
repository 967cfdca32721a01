"""Which PS a failed run complains of."""

from __future__ import annotations

import tensorflow as tf

from deeprec_ext.elastic.session.losses import unreachable


def test_the_other_end_of_a_broken_connection_is_named():
    text = (
        "From /job:ps/replica:0/task:2:\nfailed to connect to all addresses\n"
        "Additional GRPC error information from remote target /job:ps/replica:0/task:7 while calling RunGraph"
    )
    assert unreachable(tf.errors.UnavailableError(None, None, text)) == [7]


def test_other_errors_name_nobody():
    text = "from remote target /job:ps/replica:0/task:7: Socket closed"
    assert unreachable(tf.errors.AbortedError(None, None, text)) == []
    assert unreachable(tf.errors.UnavailableError(None, None, "Socket closed")) == []
    assert unreachable(ValueError(text)) == []
