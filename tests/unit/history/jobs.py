"""Finished jobs as AIMasters write them."""

from __future__ import annotations

import time
from typing import Any

from deeprec_ext.autoscaler.history.history import Finished, Fitted
from deeprec_ext.autoscaler.history.use import Brought, Use
from deeprec_ext.autoscaler.observe.observed import Model, Size, Window
from tests.unit.autoscaler.facts import fact

FINISHED = float(int(time.time())) - 3600
"""An hour ago: what has ended long ago is forgotten."""


def window(ps: int, workers: int, rate: float, start: float = 0.0) -> Window:
    return fact(Window, start, 120.0, Size(ps, workers), rate, 64.0, trainer_cpu_cores=0.9, ps_cpu_cores=0.3)


def job(number: int = 0, **changes: Any) -> Finished:
    """Three workers were three times as fast as none."""
    values: dict[str, Any] = {
        "script": "train", "finished": FINISHED + number, "status": "succeeded", "seconds": 600.0,
        "model": fact(Model, table_bytes=1 << 30, batch_size=64.0),
        "windows": (window(1, 0, 100.0), window(1, 1, 195.0, 130.0), window(2, 3, 390.0, 260.0)),
        "ps_memory_bytes": 1 << 31, "worker_memory_bytes": 1 << 30, "examples": 150_000, "name": f"ctr-{number}",
        "autoscaled": True, "fitted": Fitted((0.1,) * 10, 0.07),
        "use": Use(2400.0, 1800.0, 4800.0, 3000.0, 3e12, 5e12, 2e12),
        "brought": Brought(2, 1, 100.0, 250.0, 900.0, gained=1.5),
    }  # fmt: skip
    return Finished(**{**values, **changes})
