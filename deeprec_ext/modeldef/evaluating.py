"""`deeprec-ext evaluate`: the metrics of a trained model on all records, in one process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from deeprec_ext.errors import UsageError
from deeprec_ext.modeldef import model as models
from deeprec_ext.modeldef import records
from deeprec_ext.modeldef.definition import Definition
from deeprec_ext.modeldef.training import evaluated, sample
from deeprec_ext.modeldef.words import Mode


@dataclass(frozen=True)
class Evaluation:
    data: str
    weights: str = ""
    reader: str = "auto"
    skip_lines: int = 0
    batch_size: int = 256


def evaluate(definition: Definition, asked: Evaluation) -> Mapping[str, float]:
    """Name -> value, `records` among them. Raises UsageError."""
    if not asked.weights:
        raise UsageError("evaluate: --weights names what is evaluated: what `deeprec-ext train --output` has written")
    source = records.source(asked.data, asked.reader, asked.skip_lines)
    model = models.make(definition, "evaluate")
    definition = models.suited(definition, model)
    models.build(model, next(iter(sample(definition, source, Mode.EVALUATION, 2))))
    models.load_weights(model, asked.weights)
    found = model.evaluate(evaluated(definition, source, asked.batch_size, "evaluate"), return_dict=True, verbose=0)
    return {name: float(value) for name, value in found.items() if np.ndim(value) == 0}
