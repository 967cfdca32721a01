"""Variables that become backups, and backups that become variables, on one PS. Nothing is copied.

A backup of variable `v` is the variable `v@backup`. Either becomes the other by taking over its buffer. (A read of a table
copies, unless `DisableCopyOnRead` is called first: sparse access switches a variable to copy-on-read.) The ops run in
sessions that know no PS but this one, so they depend on nothing that may be dead.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from deeprec_ext.elastic.ps.collector import all_bitmaps
from deeprec_ext.elastic.ps.variables import Facts, Located, bitmap_of, local_program, present
from deeprec_ext.elastic.runtime.ops import INT64, Ops
from deeprec_ext.graph.attributes import kind, shape
from deeprec_ext.proto import deeprec_ext_pb2 as pb

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
        ops, done = Ops("keep"), []
        for one, good in zip(facts, here):
            if good:
                variable = Located(ops, one, own)
                copied = Located(ops, backup_of(one), own).assign(variable.take_value())
                done.append(variable.destroy(after=(copied,)))
        program.run(ops, done)
        return frozenset(one.name for one, *good in zip(facts, here, kept) if not any(good))


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
