"""`--dry-run`: what is missing in a model's module and in the data, tried on the first records. Nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.errors import DeepRecError, UsageError
from deeprec_ext.modeldef import model as models
from deeprec_ext.modeldef import records
from deeprec_ext.modeldef.definition import Names, load
from deeprec_ext.modeldef.training import sample
from deeprec_ext.modeldef.words import Mode

TRIED = 32
"""Records that a try is made with."""

_MODES = {"train": Mode.TRAINING, "evaluate": Mode.EVALUATION, "predict": Mode.PREDICTION}


@dataclass
class Report:
    """What was found, and what is missing: one line each."""

    found: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def attempt(self, what: str, work: Callable[[], Any]) -> Any:
        """What it gives; None, and a line under `missing`, where it raises."""
        try:
            return work()
        except DeepRecError as error:
            self.missing.append(str(error))
        except Exception as error:  # the module is the user's
            lines = [line for line in str(error).splitlines() if line.strip()] or [""]
            said = lines[-1] if "in user code" in lines[0] else lines[0]  # TensorFlow puts the traceback before it
            self.missing.append(f"{what} raised {type(error).__name__}: {said.strip()[:300]}")
        return None


def _first(definition: Any, source: Any, mode: Any) -> Any:
    """A batch; None: feed gives none."""
    return next(iter(sample(definition, source, mode, TRIED)), None)


def check(
    command: str, model_def: str, names: Names, zoo: str, data: str, validation_data: str, reader: str, skip_lines: int,
    weights: str,
) -> Report:  # fmt: skip
    """Args: as of the command line (`__main__`)."""
    report = Report()
    sources = [
        (place, report.attempt(f"--{flag}", partial(records.source, place, reader, skip_lines)))
        for flag, place in (("data", data), ("validation-data", validation_data)) if place
    ]  # fmt: skip
    for place, source in sources:
        if source is not None:
            report.found.append(f"{place}: {len(source.paths)} file(s), read as {source.reader}")
    if not data:
        report.missing.append("--data names no records")
    if command != "train" and not weights:
        report.missing.append("--weights names no trained model")
    definition = report.attempt("--model-def", lambda: load(model_def, names, zoo))
    if definition is None:
        return report
    parts = ("feed", "loss", "optimizer", "eval_metrics_fn", "callbacks", "processor")
    there = [name for name in parts if getattr(definition, name) is not None]
    report.found.append(f"{definition.module}: {', '.join(there)}")
    model = report.attempt("the model function", lambda: models.make(definition, command))
    if model is None or definition.feed is None:
        return report
    definition = models.suited(definition, model)
    for place, source in sources:
        if source is None:
            continue
        mode = _MODES[command] if place == data else Mode.EVALUATION
        batch = report.attempt(f"feed on {place}", partial(_first, definition, source, mode))
        if batch is not None:
            report.attempt(f"a batch of {place}", partial(_try, report, model, batch, mode))
        elif not report.missing:
            report.missing.append(f"feed gives none of the first {TRIED} records of {place} in mode {mode}")
    if weights and model.weights:
        report.attempt("--weights", lambda: models.load_weights(model, weights))
    return report


def _try(report: Report, model: Any, batch: Any, mode: str) -> None:
    models.build(model, batch)
    if mode == Mode.PREDICTION:
        outputs = model.predict_on_batch(models.features_of(batch))
        shapes = tf.nest.map_structure(lambda one: list(np.shape(one)), outputs)
        report.found.append(f"predictions of {TRIED} records at most: {shapes}")
        return
    if not (isinstance(batch, tuple) and len(batch) > 1):
        raise UsageError(f"feed gives no labels in mode {mode}: return (features, labels)")
    step = model.train_on_batch if mode == Mode.TRAINING else model.test_on_batch
    figures = step(*batch, return_dict=True)
    report.found.append(
        f"a batch in mode {mode}: " + ", ".join(f"{name} {float(value):.4g}" for name, value in figures.items())
    )
    bad = [name for name, value in figures.items() if not np.isfinite(float(value))]
    if bad:
        report.missing.append(f"{', '.join(bad)} of the first batch in mode {mode} is no finite number")
