"""Runs when Python starts in a process of an elastic job: this directory stands at the end of PYTHONPATH.

A `sitecustomize` of the system that comes later on the path still runs; whatever goes wrong here is printed, and the
process goes on as stock TensorFlow.
"""

import importlib.machinery
import importlib.util
import os
import sys
import traceback


def _next_sitecustomize() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    others = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


try:
    _next_sitecustomize()
except Exception:
    traceback.print_exc()

if os.environ.get("DEEPREC_EXT_AIMASTER") and os.environ.get("DEEPREC_EXT_ROLE"):
    try:
        from deeprec_ext import autoload

        autoload.install()
    except Exception:
        traceback.print_exc()
        print("deeprec-ext: autoload failed; this process is stock TensorFlow", file=sys.stderr)
