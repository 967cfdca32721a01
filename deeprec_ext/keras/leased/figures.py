"""Metrics of an epoch: what one process has seen of them, and what they are for all processes together.

A metric of Keras is made of sums: of losses and how many there were, of hits per threshold. So the metric of all records is
that of the sums of all processes, exactly, each weighing as much as it has seen. What a step returns besides (numbers of a
`train_step` of the model's own, of its last batch) is averaged, by the records that each process has trained.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

log = logging.getLogger("deeprec_ext")

STATE_MAX = 100_000
"""Numbers of which metrics may be made: with more (a confusion matrix of thousands of classes) averages have to do."""

SEVERAL_MAX = 1000
"""Numbers that one metric gives, one of each class perhaps; what gives more is left out."""

TOLD_MAX = 2500
"""Numbers of all metrics together, of which an epoch is told: twenty characters each, and a message has 65 536."""

PLAIN_BYTES_MAX, SEEN_BYTES_MAX = 1 << 16, 4 << 20
"""What one process has seen is packed when it is longer (the chief gets that of all in one message), and this long at most."""


_PACKED = zlib.compress(b"")[:1]


def seen(model: Any, records: int, logs: Mapping[str, Any]) -> bytes:
    """Of one process.

    Args:
      records: that it has trained in the epoch.
      logs: as its last step gave them.
    """
    state = [_value(one) for one in _variables(model)] if records else []
    if sum(one.size for one in state) > STATE_MAX:
        state = []
    told = json.dumps({
        "records": records,
        "logs": numbers(logs),
        "shapes": [one.shape for one in state],
        "state": [one.ravel().tolist() for one in state],
    }).encode()  # fmt: skip
    return told if len(told) < PLAIN_BYTES_MAX else zlib.compress(told, 1)


def of_job(model: Any, parts: Sequence[bytes]) -> dict[str, Any]:
    """Of all that have trained something; nothing, if nobody has. The model's metrics are those of the job afterwards."""
    told = [one for part in parts if (one := _read(part)) is not None and one["records"]]
    if not told:
        return {}
    logs: dict[str, Any] = {}
    for name in dict.fromkeys(name for one in told for name in one["logs"]):
        having = [one for one in told if name in one["logs"]]
        weight = sum(one["records"] for one in having)
        shares = [np.asarray(one["logs"][name], np.float64) * (one["records"] / weight) for one in having]
        logs[name] = np.sum(shares, 0).tolist() if len({one.shape for one in shares}) == 1 else having[0]["logs"][name]
    exact = _summed(model, told)
    if len(told) > 1:  # of one process its figures stay bit for bit
        logs.update({name: value for name, value in exact.items() if name in logs})
    return logs


def _read(part: bytes) -> Mapping[str, Any] | None:
    """None, and a line: it is none that `seen` has made."""
    try:
        one = json.loads(zlib.decompressobj().decompress(part, SEEN_BYTES_MAX) if part[:1] == _PACKED else part)
        whole = isinstance(one["records"], int) and one["records"] >= 0 and isinstance(one["logs"], dict)
        for value in one["logs"].values():
            np.asarray(value, np.float64)
        sizes = [int(np.prod(shape)) for shape in one["shapes"]]
        if whole and [np.asarray(state, np.float64).size for state in one["state"]] == sizes:
            return dict(one)
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError):
        pass
    log.warning("what a process says that it has seen of an epoch cannot be read, and is left out: %.80r", part)
    return None


def _summed(model: Any, told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By the metrics themselves, which have these sums then; nothing where theirs have another form than the model's here."""
    variables = _variables(model)
    shapes = [list(one.shape) for one in variables]
    if not variables or any(one["shapes"] != shapes for one in told):
        return {}
    for place, variable in enumerate(variables):
        total = np.sum([np.asarray(one["state"][place], np.float64) for one in told], 0)
        variable.assign(total.reshape(shapes[place]).astype(_value(variable).dtype))  # counts are whole numbers
    return numbers(model.get_metrics_result())


def numbers(logs: Mapping[str, Any]) -> dict[str, Any]:
    """What of it is a number, or several (lists), also of metrics that give several by name."""
    found: dict[str, Any] = {}
    for name, value in logs.items():
        if isinstance(value, Mapping):
            found.update(numbers(value))
            continue
        array = np.asarray(value)
        if array.size <= SEVERAL_MAX and np.issubdtype(array.dtype, np.number):
            found[name] = array.astype(np.float64).tolist()
    return found


def bounded(told: dict[str, Any]) -> dict[str, Any]:
    """Without those of its metrics that give the most numbers, with a line, until it can be told to all."""
    sizes = {name: len(one) if isinstance(one, list) else 1 for name, one in told.items()}
    while sum(sizes.values()) > TOLD_MAX:
        largest = max(sizes, key=lambda name: sizes[name])
        log.warning(
            "%s gives %d numbers, which are too many beside those of other metrics", largest, sizes.pop(largest)
        )
    return {name: told[name] for name in told if name in sizes}


def values(told: Mapping[str, Any]) -> dict[str, Any]:
    """Of numbers that were told: as metrics give them."""
    return {name: np.asarray(one) if isinstance(one, list) else one for name, one in told.items()}


def _variables(model: Any) -> list[Any]:
    """Of its metrics, in their order, each once."""
    found = [variable for metric in model.metrics for variable in metric.variables]
    return list({id(variable): variable for variable in found}.values())


def _value(variable: Any) -> np.ndarray:
    return np.asarray(variable.numpy())
