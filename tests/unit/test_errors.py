"""Reasons are one sentence, whatever TensorFlow says."""

from __future__ import annotations

from deeprec_ext.errors import LINE_MAX, DeepRecError, one_line


class UnavailableError(Exception):
    pass


def test_of_a_message_of_tensorflow_only_what_it_says_is_left():
    message = """Connection reset by peer
Additional GRPC error information from remote target /job:ps/replica:0/task:0 while calling /tensorflow.WorkerService/GetStatus:
:{"created":"@1795346547.98","description":"Error received from peer ipv4:127.0.0.1:40965","grpc_status":14}"""
    assert one_line(UnavailableError(message)) == "UnavailableError: Connection reset by peer"
    nested = f"Graph execution error:\n\n=====================\nUNAVAILABLE: From /job:ps/replica:0/task:0:\n{message}"
    assert one_line(UnavailableError(nested)) == (
        "UnavailableError: UNAVAILABLE: From /job:ps/replica:0/task:0 Connection reset by peer"
    )


def test_our_own_are_told_whole():
    assert (
        one_line(DeepRecError("slot 6 is not on ps-1: ask again")) == "DeepRecError: slot 6 is not on ps-1: ask again"
    )


def test_a_line_without_end_is_cut():
    assert len(one_line(ValueError("x" * 10_000))) == LINE_MAX
