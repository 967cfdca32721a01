"""Synchronous training whose workers come, go and die: sums over all of them, of any framework's numbers.

Free of TensorFlow. `ring`: one generation's members sum; `meeting`: where they find each other; `agreeing`: what follows from
what they say there; `summing`: sums that survive the end of a generation; `states`, `handing`: what a newcomer needs.
Scripts call `join` (`elastic/member/`):

    member = deeprec_ext.allreduce.join(deeprec_ext.allreduce.Variables([*model.variables, *optimizer.variables]))
    while member.step < 1000:
        summed = member.sum(gradients(batch), weight=len(batch))
        optimizer.apply_gradients(zip(summed.arrays, model.trainable_variables))
"""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    """`join` and `train`, of the process, and `Variables`; imported on first use."""
    if name == "join":
        return importlib.import_module("deeprec_ext.elastic.member.joined").join
    if name == "train":
        return importlib.import_module("deeprec_ext.data.in_step").train
    if name == "Variables":
        return importlib.import_module("deeprec_ext.allreduce.states").Variables
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
