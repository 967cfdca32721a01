"""How many rows of each slot training writes, counted where dirty rows are collected anyway."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict

from deeprec_ext.proto import deeprec_ext_pb2 as pb


class Touched:
    """Distinct rows per collection. All readers of the marks see the same rows, each at its own times: one is reported."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reader = "peer"
        self._rows: defaultdict[str, Counter[int]] = defaultdict(Counter)

    def follow(self, view: pb.View) -> None:
        """Peer backups collect most often; a job without them has the disk backup, if any."""
        with self._lock:
            self._reader = "peer" if view.backup_map else "disk"

    def add(self, reader: str, slot: int, rows: int) -> None:
        """A reader (`collector.READERS`) has taken so many rows of a table on this slot."""
        with self._lock:
            self._rows[reader][slot] += rows

    def report(self, report: pb.GazerReport) -> None:
        """A part of the sampler's reports."""
        with self._lock:
            rows = self._rows[self._reader]
            self._rows.clear()
        report.touched.extend(pb.SlotRows(slot=slot, rows_touched=count) for slot, count in sorted(rows.items()))
