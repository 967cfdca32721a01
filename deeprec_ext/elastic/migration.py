"""Migration: the PS that gets a slot pulls its variables from the PS that has it, while training goes on.

ARM makes the target variables and the bitmaps of dirty rows and compiles every copy. FIRST copies tables in chunks of rows.
Each round of DIRTY takes the marked rows: read the bitmap, clear *the bits that were read*, then read the rows. A row
that is updated before its bit is cleared is read after the update; one that is updated later sets its bit again (a mark
follows its update). So no update is lost between rounds, and when training stands still one more round (FINAL) and the
dense variables complete the copy.

Nothing but TensorFlow's own transport is on the wire: reads on the source's device, writes on the target's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2

from deeprec_ext.elastic.variables import Facts, Located, bitmap_of, ps_device
from deeprec_ext.elastic.view import elastic_config
from deeprec_ext.proto import deeprec_ext_pb2 as pb

v1 = tf.compat.v1
raw = tf.raw_ops
log = logging.getLogger("deeprec_ext")

DIRTY_ROUND_BYTES = 256 << 20
"""Most that one round of dirty rows takes, over all tables: bounds the memory of both sides."""

FINAL_ROUNDS_MAX = 1000
"""Rounds of FINAL_COPY; training stands still, so the dirty rows only become fewer."""


@dataclass(frozen=True)
class _Moved:
    """One variable on its way."""

    facts: Facts
    source_task: int
    by_rows: bool


class Mover:
    """The copies of one scaling into one PS, compiled in advance.

    Args:
      target: `grpc://host:port` of the PS's own server.
      own_task: its task number.
      ps: task → address of the old and the new PS.
      moves: what to pull, from where.
      chunk_bytes: most that one message of the first copy carries.
    """

    def __init__(
        self, target: str, own_task: int, ps: dict[int, str], moves: Sequence[pb.Move], chunk_bytes: int
    ) -> None:
        self._own = own_task
        self._chunk_bytes = chunk_bytes
        self._moved = [
            _Moved(Facts.from_proto(m.variable), m.source_task, m.variable.update == pb.Variable.ROWS) for m in moves
        ]
        self._graph = tf.Graph()
        config = elastic_config(ps)
        # These graphs are as they should be run; Grappler would only fold and fuse what is compiled once.
        config.graph_options.rewrite_options.CopyFrom(rewriter_config_pb2.RewriterConfig(disable_meta_optimizer=True))
        self._session = v1.Session(target, graph=self._graph, config=config)
        self._first: list[tuple[Any, list[int]]] = []  # (callable, starts); each start is one message
        self._dirty: Any = None
        self._count: Any = None
        self._dense: Any = None
        self._sums: Any = None
        self._row_bytes: list[int] = []
        self.dense_bytes = 0
        self.skipped: list[str] = []
        self._table_bytes = 0

    def arm(self, verify: bool) -> int:
        """Makes variables and bitmaps, builds the copies; returns how many variables will come.

        Variables that are not initialised on their source are left out, and named in `skipped`.
        """
        if not self._moved:
            return 0
        with self._graph.as_default():
            sources = [Located(moved.facts, moved.source_task) for moved in self._moved]
            ready = self._session.run([source.initialized() for source in sources])
        pairs = [(m, source) for m, source, there in zip(self._moved, sources, ready) if there]
        self.skipped = [m.facts.name for m, there in zip(self._moved, ready) if not there]
        with self._graph.as_default():
            placed = [(m, source, Located(m.facts, self._own)) for m, source in pairs]
            tables = [one for one in placed if one[0].by_rows]
            dense = [one for one in placed if not one[0].by_rows]
            bitmaps = {
                (m.facts.bitmap, m.source_task): Located(bitmap_of(m.facts), m.source_task) for m, _, _ in tables
            }
            make = [target.zeros() for _, _, target in tables] + [bitmap.zeros() for bitmap in bitmaps.values()]
            if make:
                self._session.run(make)
            self._build_first(tables)
            self._build_dirty(tables, bitmaps)
            if dense:
                self._dense = self._compile(targets=[target.assign(source.read()) for _, source, target in dense])
                self.dense_bytes = sum(m.facts.bytes for m, _, _ in dense)
            if verify and placed:
                self._sums = self._compile(fetches=[x.checksum() for _, source, target in placed for x in (source, target)])
        return len(placed)

    def _compile(self, targets: Sequence[Any] = (), fetches: Sequence[Any] = (), feeds: Sequence[Any] = ()) -> Any:
        names = [getattr(target, "op", target).name for target in targets]
        return self._session._make_callable_from_options(
            config_pb2.CallableOptions(feed=[f.name for f in feeds], fetch=[f.name for f in fetches], target=names)
        )

    def _build_first(self, tables: list[tuple[_Moved, Located, Located]]) -> None:
        """Small tables travel together, large ones in chunks of rows."""
        small = [one for one in tables if one[0].facts.bytes <= self._chunk_bytes]
        large = [one for one in tables if one[0].facts.bytes > self._chunk_bytes]
        batch: list[Any] = []
        filled = 0
        for moved, source, target in small:
            if batch and filled + moved.facts.bytes > self._chunk_bytes:
                self._first.append((self._compile(targets=batch), []))
                batch, filled = [], 0
            batch.append(target.assign(source.read()))
            filled += moved.facts.bytes
        if batch:
            self._first.append((self._compile(targets=batch), []))
        for moved, source, target in large:
            count = max(1, self._chunk_bytes // max(1, moved.facts.row_bytes))
            with v1.device(ps_device(self._own)):
                start = v1.placeholder(tf.int64, [])
            with v1.device(source.device):
                rows = tf.range(start, tf.minimum(start + count, moved.facts.rows))
            copy = target.scatter(rows, source.gather(rows))
            self._first.append((self._compile(targets=[copy], feeds=[start]), list(range(0, moved.facts.rows, count))))
        self._table_bytes = sum(moved.facts.bytes for moved, _, _ in tables)

    def _build_dirty(
        self, tables: list[tuple[_Moved, Located, Located]], bitmaps: dict[tuple[str, int], Located]
    ) -> None:
        """One run takes the dirty rows of every table at once."""
        copies, counts, sents = [], [], []
        for key, bitmap in bitmaps.items():
            group = [one for one in tables if (one[0].facts.bitmap, one[0].source_task) == key]
            row_bytes = sum(moved.facts.row_bytes for moved, _, _ in group)
            most = max(1, DIRTY_ROUND_BYTES // max(1, len(bitmaps) * row_bytes))
            with v1.device(bitmap.device):
                marked = tf.reshape(raw.Where(condition=bitmap.read()), [-1])
                counts.append(tf.size(marked, tf.int64))
                rows = marked[:most]
                sents.append(tf.size(rows, tf.int64))
                clear = bitmap.scatter(rows, tf.zeros_like(rows, tf.bool))
            with tf.control_dependencies([clear]):
                copies += [target.scatter(rows, source.gather(tf.identity(rows))) for _, source, target in group]
            self._row_bytes.append(row_bytes)
        if bitmaps:
            with v1.device(ps_device(self._own)):
                counted, sent = tf.stack(counts), tf.stack(sents)
            self._dirty = self._compile(targets=copies, fetches=[counted, sent])
            self._count = self._compile(fetches=[counted])

    # -- the copies

    def first(self) -> int:
        """The first copy of the tables; returns bytes. Training goes on."""
        for run, starts in self._first:
            if not starts:
                run()
            for start in starts:
                run(start)
        return self._table_bytes

    def dirty(self) -> tuple[int, int]:
        """One round: (bytes sent, bytes that are dirty after it)."""
        if self._dirty is None:
            return 0, 0
        _, sent = self._dirty()
        (remaining,) = self._count()
        return self._weigh(sent), self._weigh(remaining)

    def _weigh(self, rows: Sequence[int]) -> int:
        return sum(int(count) * size for count, size in zip(rows, self._row_bytes))

    def final(self) -> tuple[int, int]:
        """While training stands still: (dense bytes, bytes of the dirty rows)."""
        if self._dense is not None:
            self._dense()
        resent = 0
        for _ in range(FINAL_ROUNDS_MAX):
            if self._dirty is None:
                break
            marked, sent = self._dirty()
            resent += self._weigh(sent)
            if all(int(m) == int(s) for m, s in zip(marked, sent)):
                break
        else:
            raise RuntimeError("rows keep becoming dirty in the final copy: a trainer does not stand still")
        return self.dense_bytes, resent

    def verify(self) -> int:
        """Compares the checksums of both sides of every variable; returns how many. RuntimeError names a difference."""
        if self._sums is None:
            return 0
        sums = self._sums()
        names = [moved.facts.name for moved in self._moved if moved.facts.name not in set(self.skipped)]
        for name, here, there in zip(names, sums[::2], sums[1::2]):
            if here != there:
                raise RuntimeError(f"{name} differs after the final copy: checksum {here} at the source, {there} here")
        return len(names)

    def close(self) -> None:
        self._session.close()


def destroy(target: str, own_task: int, address: str, variables: Sequence[pb.Variable]) -> None:
    """Destroys variables and their bitmaps on this PS. Idempotent."""
    started = time.monotonic()
    with tf.Graph().as_default() as graph:
        doomed: list[Any] = []
        bitmaps: set[str] = set()
        for variable in variables:
            facts = Facts.from_proto(variable)
            doomed.append(Located(facts, own_task).destroy())
            if facts.bitmap and facts.bitmap not in bitmaps:
                bitmaps.add(facts.bitmap)
                doomed.append(Located(bitmap_of(facts), own_task).destroy())
    if doomed:
        config = elastic_config({own_task: address})
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        with v1.Session(target, graph=graph, config=config) as session:
            session.run(doomed)
    log.info("destroyed %d variables in %.3f s", len(variables), time.monotonic() - started)
