"""PyTorch's DDP scripts in a job of `deeprec-ext run --strategy allreduce`: its workers come, go and die while they train.

An unmodified script is led here when it imports torch (`doorway`): `process_groups` stands for `torch.distributed`,
`wrapped` for `DistributedDataParallel`, `sampling` for `DistributedSampler`; `replica` is what they share, `snapshot` what a
newcomer is given, `beginning` what a script calls before its first step, `pace` what it decides by counts of its own. A script
may also name them:

    from deeprec_ext.torch import DistributedDataParallel, DistributedSampler, init_process_group, membership
"""

from __future__ import annotations

import importlib
from typing import Any

_PLACES = {
    "init_process_group": "process_groups",
    "destroy_process_group": "process_groups",
    "membership": "process_groups",
    "DistributedDataParallel": "wrapped",
    "DistributedSampler": "sampling",
}


def __getattr__(name: str) -> Any:
    """Imported on first use."""
    if name in _PLACES:
        return getattr(importlib.import_module(f"deeprec_ext.torch.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
