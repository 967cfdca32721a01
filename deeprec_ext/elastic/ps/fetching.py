"""A PS that replaces a lost one pulls the backups of its variables from whoever holds them, a trainer or another PS.

Nobody trains meanwhile, and the holder's copies do not change (`Freeze`), so nothing has to be marked or looked at twice:
small variables are copied whole, large ones in chunks of rows. An error leaves variables half-written; whoever asked asks
again or restores something older. Before that it calls a fetch off that has outlived its limit, else old values would go on
being written over newer ones: no run begins after that.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

from deeprec_ext.elastic.ps.calling_off import still_wanted
from deeprec_ext.elastic.ps.collector import make_bitmaps
from deeprec_ext.elastic.ps.copies import at_least, backup_of
from deeprec_ext.elastic.ps.held_slots import RUN_LIMIT_SECONDS
from deeprec_ext.elastic.ps.migration import copy_in_chunks
from deeprec_ext.elastic.ps.variables import Facts, Located, present, ps_device
from deeprec_ext.elastic.runtime.ops import Ops, Program
from deeprec_ext.elastic.runtime.parcels import together
from deeprec_ext.elastic.runtime.view import elastic_config
from deeprec_ext.errors import DeepRecError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger("deeprec_ext")

PACK_BYTES = 64 << 20
"""Small variables are copied together, about so much in one run: bounds the memory of both sides."""


def fetch(
    target: str, own_task: int, command: pb.Fetch, chunk_bytes: int, called_off: Callable[[], bool] = lambda: False
) -> int:
    """Returns the bytes copied. Raises DeepRecError when a copy is missing, tf.errors.OpError when a holder has gone.

    Args:
      called_off: asked before each run; once it says so nothing is written any more, and CalledOffError raised.
    """
    started, sent = time.monotonic(), 0
    addresses = {member.task: member.address for member in command.ps}
    for source in sorted({move.source_task for move in command.moves}):
        variables = [move.variable for move in command.moves if move.source_task == source]
        config = elastic_config({own_task: target.removeprefix("grpc://"), source: addresses[source]})
        config.operation_timeout_in_ms = int(1000 * RUN_LIMIT_SECONDS)
        program = Program(target, config)
        try:
            sent += _Fetch(program, own_task, source, variables, called_off).run(command, chunk_bytes)
        except BaseException:
            # Where the holder is gone this may never end, and a CallOff waits for us.
            threading.Thread(target=program.close, name="deeprec-close", daemon=True).start()
            raise
        program.close()
    still_wanted(called_off)
    make_bitmaps(target, own_task, [move.variable for move in command.moves])
    log.info(
        "fetched the backups of %d variables, %d bytes, in %.3f s",
        len(command.moves), sent, time.monotonic() - started,
    )  # fmt: skip
    return sent


class _Fetch:
    """From one holder, in one session."""

    def __init__(
        self, program: Program, own_task: int, source: int, variables: Sequence[pb.Variable],
        called_off: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._program, self._own, self._source, self._called_off = program, own_task, source, called_off
        self._variables = [Facts.from_proto(variable) for variable in variables]
        self._runs = 0

    def run(self, command: pb.Fetch, chunk_bytes: int) -> int:
        self._check()
        large = [facts for facts in self._variables if facts.shape and facts.bytes > chunk_bytes]
        for some in packs([facts for facts in self._variables if facts not in large], PACK_BYTES):
            self._copy_whole(some, command)
        if large:
            self._copy_rows(large, chunk_bytes)
        return sum(facts.bytes for facts in self._variables)

    def _ops(self) -> Ops:
        self._runs += 1
        return Ops(f"fetch{self._runs}_")

    def _backup(self, ops: Ops, facts: Facts) -> Located:
        return Located(ops, backup_of(facts), self._source)

    def _check(self) -> None:
        """What nobody had initialised has no copy, and is left out."""
        found = present(self._program, [(backup_of(facts), self._source) for facts in self._variables])
        if not any(found):
            names = [facts.name for facts in self._variables]
            raise DeepRecError(f"the holder has no copy of {', '.join(names[:3])} ({len(names)} variables)")
        self._variables = [facts for facts, good in zip(self._variables, found) if good]

    def _copy_whole(self, some: Sequence[Facts], command: pb.Fetch) -> None:
        ops = self._ops()
        step = ops.constant(command.step, tf.int64, ps_device(self._source))
        sent = []
        for facts in some:
            backup = self._backup(ops, facts)
            value = backup.read()
            if facts.name == command.global_step:
                value = at_least(ops, value, step, facts, backup.device)
            sent.append(backup.sent(value))
        arrived = together(ops, sent, ps_device(self._source), ps_device(self._own))
        copies = [Located(ops, facts, self._own).assign(value) for facts, value in zip(some, arrived)]
        self._program.load(ops)
        copy = self._program.compile(targets=copies)
        still_wanted(self._called_off)
        copy()

    def _copy_rows(self, tables: Sequence[Facts], chunk_bytes: int) -> None:
        ops = self._ops()
        pairs = [(self._backup(ops, facts), Located(ops, facts, self._own)) for facts in tables]
        make = [target.zeros() for _, target in pairs]
        chunks = max(1, math.ceil(sum(facts.bytes for facts in tables) / chunk_bytes))
        chunk, copies = copy_in_chunks(ops, pairs, chunks, ps_device(self._own))
        self._program.load(ops)
        still_wanted(self._called_off)
        self._program.compile(targets=make)()
        copy = self._program.compile(targets=copies, feeds=[chunk])
        for number in range(chunks):
            still_wanted(self._called_off)
            copy(number)


def packs(variables: Iterable[Facts], most_bytes: int) -> list[list[Facts]]:
    """In order, about so many bytes together; none is cut."""
    found: list[list[Facts]] = []
    size = most_bytes + 1
    for facts in variables:
        if size + facts.bytes > most_bytes:
            found.append([])
            size = 0
        found[-1].append(facts)
        size += facts.bytes
    return found
