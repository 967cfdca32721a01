"""A process that a role's script has started with `torch.multiprocessing`, and Python anew: it is none of the job's workers."""

from __future__ import annotations

import importlib
from typing import Any, NoReturn

NO_WORKER = (
    "init_process_group in a process that a role has started: the job's workers are its processes. Call it in the script's own "
    "process, and leave out torch.multiprocessing.Process: deeprec-ext run --workers N starts them"
)


def torch_imported(torch: Any) -> None:
    """A process group of its own would train by itself, beside the job."""

    def init_process_group(*args: Any, **words: Any) -> NoReturn:
        raise RuntimeError(NO_WORKER)

    for place in ("torch.distributed", "torch.distributed.distributed_c10d"):
        importlib.import_module(place).init_process_group = init_process_group  # type: ignore[attr-defined]
