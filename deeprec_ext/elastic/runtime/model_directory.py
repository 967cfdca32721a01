"""An Estimator without a model directory gets one that all processes share, where there is a run directory."""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from collections.abc import Callable
from typing import Any, Protocol

from deeprec_ext import env
from deeprec_ext.tf_private import estimators

_OF_ONE_PROCESS = re.compile(r"tmp[a-z0-9_]{8}")
"""What `tempfile.mkdtemp` calls a directory."""


class Noticing(Protocol):
    def say(self, code: str, text: str, remedy: str, *, mended: bool = False) -> None:
        """To the AIMaster."""


def share_model_directory(module: Any, noticing: Noticing) -> None:
    """`tensorflow_estimator.python.estimator.estimator`: stock gives each process a temporary directory of its own, so an
    evaluator finds nothing to evaluate, and a chief that comes back no checkpoint."""
    numbers = itertools.count(1)

    def shared(complete: Callable[..., Any], config: Any, model_dir: Any) -> Any:
        given = model_dir or getattr(config or module.run_config.RunConfig(), "model_dir", None)
        if not given:
            model_dir = _shared_directory(next(numbers), noticing)
        elif _of_this_process(os.fspath(given)):
            noticing.say(
                "model-dir", "an Estimator's model_dir is a temporary directory of one process: no other evaluates or "
                "restores what it saves",
                "pass `model_dir=` a directory that all processes share",
            )  # fmt: skip
        return complete(config, model_dir)

    estimators.wrap_model_directory(module, shared)


def _shared_directory(number: int, noticing: Noticing) -> str | None:
    """Of the script's first, second, … Estimator: the same in all processes, which make them in the same order."""
    if (run := env.workdir()) is None:
        noticing.say(
            "model-dir", "an Estimator has no model_dir: each process gets a temporary directory, and no other evaluates or "
            "restores what it saves",
            "pass `model_dir=` a directory that all pods share",
        )  # fmt: skip
        return None
    name = "model" if number == 1 else f"model-{number}"
    noticing.say(
        "model-dir", f"an Estimator has no model_dir: all processes share {os.path.join(run, name)}",
        "pass `model_dir=` to keep the model elsewhere", mended=True,
    )  # fmt: skip
    return os.path.join(run, name)


def _of_this_process(directory: str) -> bool:
    parent, name = os.path.split(os.path.abspath(directory))
    return parent == os.path.abspath(tempfile.gettempdir()) and _OF_ONE_PROCESS.fullmatch(name) is not None
