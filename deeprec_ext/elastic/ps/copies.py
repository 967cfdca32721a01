"""Variables that become backups, and backups that become variables, on one PS. Nothing is copied.

A backup of variable `v` is the variable `v@backup`. Either becomes the other by taking over its buffer. (A read of a table
copies, unless `DisableCopyOnRead` is called first: sparse access switches a variable to copy-on-read.) The ops run in
sessions that know no PS but this one, so they depend on nothing that may be dead.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Sequence

import tensorflow as tf

from deeprec_ext.elastic.ps.collector import all_bitmaps
from deeprec_ext.elastic.ps.variables import Facts, Located, bitmap_of, local_program, present
from deeprec_ext.elastic.runtime.ops import INT64, Ops
from deeprec_ext.graph.attributes import kind, shape
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger("deeprec_ext")

SUFFIX = "@backup"


def backup_of(facts: Facts) -> Facts:
    return dataclasses.replace(facts, name=facts.name + SUFFIX)


def add_promotion(ops: Ops, own: int, variables: Sequence[pb.Variable], global_step: str) -> tuple[str, list[str]]:
    """(What to feed with the step, what to run): the backups become the variables, the global step at least the step."""
    step = ops.add("Placeholder", device=f"/job:ps/task:{own}/device:CPU:0", dtype=INT64, shape=shape([]))
    done = []
    for variable in variables:
        facts = Facts.from_proto(variable)
        backup = Located(ops, backup_of(facts), own)
        value = backup.take_value()
        if facts.name == global_step:
            value = at_least(ops, value, step, facts, backup.device)
        assigned = Located(ops, facts, own).assign(value)
        done.append(backup.destroy(after=(assigned,)))
    return step, done


def at_least(ops: Ops, value: str, step: str, facts: Facts, device: str) -> str:
    """The larger of a scalar integer variable's value and the step."""
    number = kind(facts.dtype)
    cast = step if facts.dtype == tf.int64 else ops.add("Cast", [step], device, SrcT=INT64, DstT=number)
    return ops.add("Maximum", [value, cast], device, T=number)


def become_backups(target: str, own: int, variables: Sequence[pb.Variable]) -> frozenset[str]:
    """The variables of this PS become the backups. Idempotent. Returns the names of those of which there is neither."""
    with contextlib.closing(local_program(target, own)) as program:
        facts = [Facts.from_proto(variable) for variable in variables]
        found = present(program, [(one, own) for one in (*facts, *map(backup_of, facts))])
        here, kept = found[: len(facts)], found[len(facts) :]
        ops = Ops("keep")
        program.run(ops, [_become_backup(ops, one, own) for one, good in zip(facts, here) if good])
        return frozenset(one.name for one, *good in zip(facts, here, kept) if not any(good))


class Parting:
    """What it takes to give variables away, compiled while training goes on: they become backups, or are destroyed, and their
    bitmaps with them. It is of use if these variables, no others, are given away, and are there as they were when it was made.

    Whoever makes it closes it. OpError where TensorFlow cannot compile or run it.

    Args:
      target, own: this PS.
      variables: that are going to leave it, in any order; no reference variables.
      keep: whether they become backups.
    """

    def __init__(self, target: str, own: int, variables: Sequence[pb.Variable], keep: bool) -> None:
        self._facts = [Facts.from_proto(variable) for variable in variables]
        self._own, self._keep, self._program = own, keep, local_program(target, own)
        try:
            self._compile()
        except BaseException:
            self._program.close()
            raise

    def _compile(self) -> None:
        ops, own = Ops("look"), self._own
        there = [Located(ops, one, own).initialized() for one in (*self._facts, *map(backup_of, self._facts))]
        self._program.load(ops)
        self._look = self._program.compile(fetches=there)
        self._found = self._looked()
        ops = Ops("part")
        done = [
            _become_backup(ops, one, own) if self._keep and here else Located(ops, one, own).destroy()
            for one, here in zip(self._facts, self._found)
        ]
        bitmaps = {one.bitmap: bitmap_of(one) for one in self._facts if one.bitmap}
        done += [Located(ops, bits, own).destroy() for one in bitmaps.values() for bits in all_bitmaps(one)]
        self._program.load(ops)
        self._part = self._program.compile(targets=done)

    def _looked(self) -> list[bool]:
        return [bool(one) for one in self._look()]

    def keep(self, variables: Sequence[pb.Variable]) -> frozenset[str] | None:
        """They become backups, as by `become_backups`, and their bitmaps go; None: it was not made for that, and nothing was
        done."""
        if not self._done(variables, keep=True):
            return None
        here, kept = self._found[: len(self._facts)], self._found[len(self._facts) :]
        return frozenset(one.name for one, *good in zip(self._facts, here, kept) if not any(good))

    def destroy(self, variables: Sequence[pb.Variable]) -> bool:
        """They and their bitmaps go; False: it was not made for that, and nothing was done."""
        return self._done(variables, keep=False)

    def _done(self, variables: Sequence[pb.Variable], keep: bool) -> bool:
        wanted = {Facts.from_proto(variable) for variable in variables}
        if keep != self._keep or wanted != set(self._facts) or self._looked() != self._found:
            return False
        started = time.monotonic()
        self._part()
        log.info("destroyed %d variables in %.3f s, as it was compiled", len(self._facts), time.monotonic() - started)
        return True

    def close(self) -> None:
        self._program.close()


def _become_backup(ops: Ops, facts: Facts, own: int) -> str:
    """What to run for that; the variable is gone after it."""
    variable = Located(ops, facts, own)
    copied = Located(ops, backup_of(facts), own).assign(variable.take_value())
    return variable.destroy(after=(copied,))


def destroy_backups(target: str, own: int, variables: Sequence[pb.Variable], with_bitmaps: Sequence[bool]) -> None:
    """Frees them, and the bitmaps that were made beside them. Idempotent."""
    ops, doomed = Ops(), []
    for variable, bitmaps in zip(variables, with_bitmaps):
        facts = Facts.from_proto(variable)
        useless = [backup_of(facts), *(all_bitmaps(bitmap_of(facts)) if facts.bitmap and bitmaps else ())]
        doomed += [Located(ops, one, own).destroy() for one in useless]
    if doomed:
        with contextlib.closing(local_program(target, own)) as program:
            program.run(ops, doomed)
