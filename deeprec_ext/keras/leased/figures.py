"""Metrics of an epoch: what one process has seen of them, and what they are for all processes together.

A metric of Keras is made of sums: of losses and how many there were, of hits per threshold. So the metric of all records is
that of the sums of all processes, exactly, each weighing as much as it has seen. What a step returns besides (numbers of a
`train_step` of the model's own, of its last batch) is averaged, by the records that each process has trained.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

STATE_MAX = 100_000
"""Numbers of which metrics may be made: with more (a confusion matrix of thousands of classes) averages have to do."""


def seen(model: Any, records: int, logs: Mapping[str, Any]) -> bytes:
    """Of one process.

    Args:
      records: that it has trained in the epoch.
      logs: as its last step gave them.
    """
    state = [_value(one) for one in _variables(model)] if records else []
    if sum(one.size for one in state) > STATE_MAX:
        state = []
    return json.dumps({
        "records": records,
        "logs": numbers(logs),
        "shapes": [one.shape for one in state],
        "state": [one.ravel().tolist() for one in state],
    }).encode()  # fmt: skip


def of_job(model: Any, parts: Sequence[bytes]) -> dict[str, float]:
    """Of all that have trained something; nothing, if nobody has. The model's metrics are those of the job afterwards."""
    told = [one for one in map(json.loads, parts) if one["records"]]
    if not told:
        return {}
    logs: dict[str, float] = {}
    for name in dict.fromkeys(name for one in told for name in one["logs"]):
        having = [one for one in told if name in one["logs"]]
        weight = sum(one["records"] for one in having)
        logs[name] = sum(one["logs"][name] * (one["records"] / weight) for one in having)
    exact = _summed(model, told)
    if len(told) > 1:  # of one process its figures stay bit for bit
        logs.update({name: value for name, value in exact.items() if name in logs})
    return logs


def _summed(model: Any, told: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """By the metrics themselves, which have these sums then; nothing where theirs have another form than the model's here."""
    variables = _variables(model)
    shapes = [list(one.shape) for one in variables]
    if not variables or any(one["shapes"] != shapes for one in told):
        return {}
    for place, variable in enumerate(variables):
        total = np.sum([np.asarray(one["state"][place], np.float64) for one in told], 0)
        variable.assign(total.reshape(shapes[place]))
    return numbers(model.get_metrics_result())


def numbers(logs: Mapping[str, Any]) -> dict[str, float]:
    """What of it is one number, also of metrics that give several by name."""
    found: dict[str, float] = {}
    for name, value in logs.items():
        if isinstance(value, Mapping):
            found.update(numbers(value))
            continue
        array = np.asarray(value)
        if array.ndim == 0 and np.issubdtype(array.dtype, np.number):
            found[name] = float(array)
    return found


def _variables(model: Any) -> list[Any]:
    """Of its metrics, in their order, each once."""
    found = [variable for metric in model.metrics for variable in metric.variables]
    return list({id(variable): variable for variable in found}.values())


def _value(variable: Any) -> np.ndarray:
    return np.asarray(variable.numpy())
