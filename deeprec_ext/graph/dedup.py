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

from deeprec_ext.graph.batch import batch_size
from deeprec_ext.graph.context import Context
from deeprec_ext.graph.dedup_gather import Uniques, add_uniques, base_of, find_lookups, look_up_unique
from deeprec_ext.graph.dedup_gradient import find_merge, insert, move, take
from deeprec_ext.graph.rewriting import Rewriting
from deeprec_ext.graph.writes import VariableNode, find_writes, variable_bytes, variables_on_ps

LEAST_ROW_BYTES = 32
LEAST_BYTES = 32 * 1024


def pays(row_bytes: int, ids: int) -> bool:
    """Whether fewer bytes are worth a `Unique` and a gather more, from what is known before the run."""
    return row_bytes >= LEAST_ROW_BYTES and (ids == 0 or row_bytes * ids >= LEAST_BYTES)


class Deduplicate:
    """Pass 5, the last one."""

    name = "dedup"

    def applies(self, context: Context) -> bool:
        return context.dedup != "off" and context.slot_map is not None

    def apply(self, rewriting: Rewriting) -> tuple[int, str]:
        index = rewriting.index
        found = variables_on_ps(index)
        chosen = found if rewriting.context.dedup == "on" else _worth(found, batch_size(index))
        known: dict[tuple[str, str], Uniques] = {}
        lookups = find_lookups(index, chosen)
        for lookup in lookups:
            key = base_of(index, lookup.ids), lookup.worker
            if key not in known:
                known[key] = add_uniques(index, lookup.ids, lookup.node.attr["Tindices"], lookup.worker)
            look_up_unique(index, lookup, known[key])
        moved = inserted = 0
        for write in find_writes(index, chosen):
            merge = find_merge(index, write)
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
        detail = f"{len(lookups)} lookups, {moved} merges moved to the worker, {inserted} inserted"
        return len(lookups) + moved + inserted, f"{detail}; {len(chosen)} of {len(found)} variables considered"


def _worth(variables: dict[str, VariableNode], ids: int) -> dict[str, VariableNode]:
    return {
        name: v for name, v in variables.items() if v.dimensions and pays(variable_bytes(v) // max(1, v.rows), ids)
    }
