"""Dedup: only unique rows cross between PS and worker.

Ids of recommendation data are Zipf-like: a batch names the same rows over and over, and stock TensorFlow sends each copy
both ways. *Forward*: `Unique` on the worker, the lookup of unique rows on the PS, a gather on the worker that expands
them; bitwise the same rows. *Backward*: most optimizers merge duplicate gradients themselves (`Unique` and
`UnsortedSegmentSum`), but colocated with the variable, on the PS; those ops move to the worker: the same ops in the same
order, bitwise the same sums. Plain SGD merges nowhere (`ResourceScatterAdd` of every copy); there a merge is inserted,
equal up to the rounding of another order of addition.

Left alone: ids that are unique already (`embedding_lookup_sparse` sees to it), ids made on a PS, lookups whose rows a PS
consumes, and with `auto` what does not pay (see `pays`).
"""

from __future__ import annotations

from deeprec_ext.graph.batch import batch_size, ids_per_step
from deeprec_ext.graph.context import Context
from deeprec_ext.graph.dedup_gather import Lookup, Uniques, add_uniques, base_of, find_lookups, look_up_unique
from deeprec_ext.graph.dedup_gradient import find_merge, insert, move, take
from deeprec_ext.graph.index import GraphIndex
from deeprec_ext.graph.rewriting import Rewriting
from deeprec_ext.graph.writes import VariableNode, find_writes, variable_bytes, variables_on_ps

LEAST_ROW_BYTES = 32
"""Finding the place of an id among the unique ones costs about what sending this much both ways does."""

LEAST_SAVED_BYTES = 32 * 1024
"""Per lookup and direction. From `benchmarks/dedup.py` (loopback, 2 cores, 26 fields; step time with ÷ without): Zipf ids,
512 of 8 or 16 floats 0.99-1.03 (SGD 1.10), 2048 of 8 floats 0.92-0.97, 512 of 64 floats 0.96, 2048 of 64 floats 0.78-0.94;
the price where ids hardly repeat (uniform) is 1.00-1.05. A real network, slower than loopback, moves all in favour."""

TYPICAL_UNIQUE_SHARE = 0.5
"""Of 512 to 2048 ids with Zipf's exponent 1.05 over 20 000 rows, 0.55 to 0.42 are unique."""


def pays(row_bytes: int, rows: int, ids: int) -> bool:
    """Whether fewer bytes are worth a `Unique` and a gather more, from what is known before the run.

    Args:
      row_bytes: bytes of one row of the table.
      rows: rows of the table; more ids than rows must repeat.
      ids: ids of one lookup in one step; 0 if unknown, and then it does not pay.
    """
    saved = row_bytes * (ids - min(rows, ids * TYPICAL_UNIQUE_SHARE))
    return row_bytes >= LEAST_ROW_BYTES and saved >= LEAST_SAVED_BYTES


def _worth(index: GraphIndex, lookups: list[Lookup]) -> list[Lookup]:
    """Lookups that pay, and those of the same ids: their unique ids are found anyhow."""
    records = batch_size(index)
    bases = {lookup.node.name: base_of(index, lookup.ids) for lookup in lookups}
    paying = {
        bases[lookup.node.name]
        for lookup in lookups
        if pays(
            variable_bytes(lookup.variable) // max(1, lookup.variable.rows),
            lookup.variable.rows,
            ids_per_step(index, lookup.ids, records),
        )
    }
    return [lookup for lookup in lookups if bases[lookup.node.name] in paying]


class Deduplicate:
    """Pass 5, the last one."""

    name = "dedup"

    def applies(self, context: Context) -> bool:
        return context.dedup != "off" and context.slot_map is not None

    def apply(self, rewriting: Rewriting) -> tuple[int, str]:
        index = rewriting.index
        variables: dict[str, VariableNode] = variables_on_ps(index)
        here = rewriting.context.worker_device
        found = find_lookups(index, variables, here)
        lookups = found
        if rewriting.context.dedup != "on":
            lookups = _worth(index, found)
            variables = {lookup.variable.node.name: lookup.variable for lookup in lookups}
        known: dict[tuple[str, str], Uniques] = {}
        for lookup in lookups:
            key = base_of(index, lookup.ids), lookup.worker
            if key not in known:
                known[key] = add_uniques(index, lookup.ids, lookup.node.attr["Tindices"], lookup.worker)
            look_up_unique(index, lookup, known[key])
        moved = inserted = 0
        for write in find_writes(index, variables):
            merge = find_merge(index, write, here)
            if merge is None:
                continue
            move(index, merge)
            key = base_of(index, merge.indices), merge.worker
            if merge.unique is not None:
                moved += 1
                if key in known:
                    take(index, merge.unique, known[key])
            else:
                inserted += 1
                if key not in known:
                    known[key] = add_uniques(index, merge.indices, merge.kind, merge.worker)
                insert(index, merge, known[key], rewriting.marks.get(write.node.name, []))
        detail = f"{len(lookups)} of {len(found)} lookups, {moved} merges moved to the worker, {inserted} inserted"
        return len(lookups) + moved + inserted, detail
