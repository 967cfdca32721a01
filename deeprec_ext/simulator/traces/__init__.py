"""Traces that are shipped: `steady.yaml` and `spot.yaml`; README.md tells what they are made of, generate.py makes them."""

from __future__ import annotations

from pathlib import Path


def shipped(name: str) -> Path:
    """Where a shipped trace would lie."""
    return Path(__file__).parent / f"{Path(name).name}.yaml"
