"""The program of a PS: `python -m deeprec_ext.elastic.serve`."""

from __future__ import annotations

import argparse
import os
import signal
import sys

from deeprec_ext import env
from deeprec_ext.elastic.runtime import trimming
from deeprec_ext.errors import DeepRecError
from deeprec_ext.tf_private import bare


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m deeprec_ext.elastic.serve", description="A PS of an elastic job.")
    parser.add_argument("--load", action="append", default=[], metavar="LIB", help="library of custom ops to load")
    options = parser.parse_args(arguments)
    if env.aimaster_address() is None:
        print("deeprec-ext: a PS is started by `deeprec-ext run` or the operator, not by hand", file=sys.stderr)
        return 2
    trimming.bound_arenas()
    bare.install()  # before anything imports TensorFlow, as the modules below do
    import tensorflow as tf

    from deeprec_ext.elastic.ps.parameter_server import ParameterServer
    from deeprec_ext.printable import setup_logging

    setup_logging()
    for library in options.load:
        try:
            tf.load_op_library(library)
        except tf.errors.NotFoundError as error:
            print(f"deeprec-ext: --load {library}: {error.message}", file=sys.stderr)
            return 2
    server = ParameterServer()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    try:
        server.agent.start()
    except DeepRecError as error:
        print(f"deeprec-ext: {error}", file=sys.stderr)
        return 1
    server.serve()
    sys.stdout.flush()
    os._exit(0)  # the TensorFlow server cannot be stopped
