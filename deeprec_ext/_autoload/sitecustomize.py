"""Runs when Python starts in a process of an elastic job: this directory stands on PYTHONPATH.

Another `sitecustomize` on the path still runs, once: the one that Python has begun with may have called this one, and another
may call back. Whatever goes wrong here is printed, and the process goes on as stock TensorFlow. In a pod, the PYTHONPATH of
the image itself has been kept in a file beside this one (deeprec_ext.inject), because the one in the pod's environment
replaces it.
"""

import importlib.machinery
import importlib.util
import os
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))


def _add_kept_python_path() -> None:
    kept = os.path.join(HERE, "python_path")
    if not os.path.isfile(kept):
        return
    with open(kept, encoding="utf-8") as file:
        entries = [entry for entry in file.read().splitlines() if entry not in sys.path]
    ours = [index for index, entry in enumerate(sys.path) if os.path.abspath(entry or ".") == HERE]
    place = ours[0] if ours else len(sys.path)
    sys.path[place:place] = entries  # the user's come before ours


def _next_sitecustomize() -> None:
    others = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    began_with = getattr(sys.modules.get("sitecustomize"), "__file__", None)
    if spec is not None and spec.loader is not None and spec.origin != began_with:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


AGAIN = hasattr(sys, "_deeprec_ext_customized")
sys._deeprec_ext_customized = True  # type: ignore[attr-defined]
if not AGAIN:
    try:
        _add_kept_python_path()
        _next_sitecustomize()
    except Exception:
        traceback.print_exc()

if not AGAIN and os.environ.get("DEEPREC_EXT_AIMASTER") and os.environ.get("DEEPREC_EXT_ROLE"):
    try:
        from deeprec_ext import autoload

        autoload.install()
    except Exception:
        traceback.print_exc()
        print("deeprec-ext: autoload failed; this process is stock TensorFlow", file=sys.stderr)
