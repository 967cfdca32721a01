"""A model's module: found by `--model-def`, and looked through for what a command needs of it.

| name in the module | what it is | needed for |
|---|---|---|
| the model function (`custom_model`, or as `--model-def` names it) | () -> keras.Model, or a class of one | all |
| `feed` (or `dataset_fn`) | (dataset of single records, mode[, metadata]) -> dataset of (features, labels) | all |
| `loss` | (labels, predictions) -> number, or one for each record | train |
| `optimizer` | () -> Keras optimizer | train |
| `eval_metrics_fn` | () -> {name: metric or function}, or {output: {name: …}} | evaluate |
| `callbacks` | () -> list of Keras callbacks | nothing |
| `PredictionOutputsProcessor` | a class with `process(predictions, worker_id)` | nothing |

A model that is compiled already needs neither `loss` nor `optimizer`.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from deeprec_ext.errors import UsageError
from deeprec_ext.modeldef import aliases

MODEL_FUNCTIONS = ("custom_model", "CustomModel", "model_fn", "make_model", "forward", "model")
"""Looked for in this order where `--model-def` names a module alone."""

FEEDS = ("feed", "dataset_fn")


@dataclass(frozen=True)
class Names:
    """What a module calls its parts, where it does not call them as the module docstring does; empty: as there."""

    feed: str = ""
    loss: str = ""
    optimizer: str = ""
    eval_metrics_fn: str = ""
    callbacks: str = ""
    prediction_outputs_processor: str = ""


@dataclass(frozen=True)
class Definition:
    """What a module has; None: it has none."""

    module: str
    model: Callable[[], Any]
    feed: Callable[..., Any] | None = None
    loss: Callable[[Any, Any], Any] | None = None
    optimizer: Callable[[], Any] | None = None
    eval_metrics_fn: Callable[[], Any] | None = None
    callbacks: Callable[[], Any] | None = None
    processor: Callable[[], Any] | None = None
    problems: tuple[str, ...] = field(default=())
    """What is there and cannot be used."""

    def missing(self, command: str) -> list[str]:
        """What is wrong with it for `train`, `evaluate` or `predict`: one line each, with what to do."""
        found = list(self.problems)
        if self.feed is None and not any("feed" in line for line in found):
            found.append(
                f"{self.module} has no feed: write `def feed(dataset, mode, metadata)`, which makes features and labels "
                "of records, or name the function with --feed"
            )
        if command == "evaluate" and self.eval_metrics_fn is None and self.loss is None:
            found.append(
                f"{self.module} has nothing to evaluate by: write `def eval_metrics_fn()`, which gives metrics by name"
            )
        return found

    def missing_of_model(self, model: Any, command: str) -> list[str]:
        """The same of the model that its function has made: what it is not compiled with has to be in the module."""
        if command != "train" or getattr(model, "optimizer", None) is not None:
            return []
        return [
            f"{self.module} has no {name}: write `def {name}({arguments})`, {what}, or name the function with --{name}"
            for name, arguments, what in (
                ("loss", "labels, predictions", "which gives the loss of a batch"),
                ("optimizer", "", "which makes an optimizer of Keras"),
            )
            if getattr(self, name) is None
        ]


def load(model_def: str, names: Names | None = None, zoo: str = "") -> Definition:
    """
    Args:
      model_def: `package.module.function`, or `package.module`.
      names: of its parts.
      zoo: the directory in which the package lies; empty: the working directory. Its parent is looked through as well, since
        modules of a model zoo name it in their imports.

    Raises UsageError when there is no such module or function, or when importing it raises.
    """
    if not model_def or not all(part.isidentifier() for part in model_def.split(".")):
        raise UsageError(
            f"--model-def {model_def!r}: write it as package.module.function, as in mnist.cnn.custom_model"
        )
    directory = os.path.abspath(zoo or os.getcwd())
    if not os.path.isdir(directory):
        raise UsageError(f"--model-zoo {zoo}: no such directory")
    for path in (os.path.dirname(directory), directory):
        if path in sys.path:
            sys.path.remove(path)
        sys.path.insert(0, path)
    aliases.install()
    module, function = _module(model_def, directory)
    if function:
        if not hasattr(module, function):
            raise UsageError(
                f"{module.__name__} has no {function!r}: --model-def names the function that makes the model"
            )
    else:
        function = next((name for name in MODEL_FUNCTIONS if callable(getattr(module, name, None))), "")
        if not function:
            raise UsageError(
                f"{module.__name__} has no function that makes a model ({', '.join(MODEL_FUNCTIONS[:2])}, …): "
                f"name it, as in --model-def {model_def}.my_model"
            )
    return _definition(module, function, names or Names())


def _module(model_def: str, directory: str) -> tuple[ModuleType, str]:
    """The module, and the function if one is named."""
    whole, _, last = model_def.rpartition(".")
    for name, function in ((model_def, ""), (whole, last)):
        if not name:
            continue
        try:
            return importlib.import_module(name), function
        except ModuleNotFoundError as error:
            lacking = error.name or ""
            if name != lacking and not name.startswith(
                f"{lacking}."
            ):  # it is there, and something that it wants is not
                raise UsageError(
                    f"--model-def {model_def} needs {lacking!r}, which is not there: install it, or change that import"
                ) from error
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(f"--model-def {model_def}: importing it raised {type(error).__name__}: {error}") from error
    raise UsageError(
        f"--model-def {model_def}: there is no module {whole or model_def!r} in {directory}; --model-zoo names the directory "
        "in which its package lies"
    )


def _definition(module: ModuleType, function: str, names: Names) -> Definition:
    problems: list[str] = []

    def part(wanted: str, defaults: Sequence[str], flag: str) -> Callable[..., Any] | None:
        for name in [wanted] if wanted else defaults:
            found = getattr(module, name, None)
            if callable(found):
                return found  # type: ignore[no-any-return]
            if found is not None:
                problems.append(f"{module.__name__}: {name} is no function, but {type(found).__name__}")
                return None
        if wanted:
            problems.append(f"{module.__name__} has no {wanted!r}, which --{flag} names")
        return None

    model = getattr(module, function)
    if not callable(model):
        raise UsageError(f"{module.__name__}.{function} is no function, but {type(model).__name__}")
    return Definition(
        module.__name__, model, part(names.feed, FEEDS, "feed"), part(names.loss, ["loss"], "loss"),
        part(names.optimizer, ["optimizer"], "optimizer"),
        part(names.eval_metrics_fn, ["eval_metrics_fn"], "eval-metrics-fn"),
        part(names.callbacks, ["callbacks"], "callbacks"),
        part(names.prediction_outputs_processor, ["PredictionOutputsProcessor"], "prediction-outputs-processor"),
        tuple(problems),
    )  # fmt: skip


def bound(feed: Callable[..., Any], mode: str, metadata: Any) -> Callable[[Any], Any]:
    """`feed` as a function of the dataset, given as many arguments as it takes: older modules know no metadata."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = list(inspect.signature(feed).parameters.values())
    several = any(one.kind == inspect.Parameter.VAR_POSITIONAL for one in parameters)
    given = (mode, metadata)[: 2 if several else max(0, sum(one.kind in positional for one in parameters) - 1)]
    return lambda dataset: feed(dataset, *given)
