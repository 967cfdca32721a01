"""What a model is like, in numbers from which follows what a job needs: from the variable catalogue and from traces. Pure."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import statistics
from collections import Counter
from collections.abc import Sequence

from deeprec_ext.aimaster.placement.slots import slot_bytes
from deeprec_ext.autoscaler.observe.observed import Model
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.units import format_bytes

FLOPS_PER_WEIGHT = 6.0
"""Of one example: a multiplication and an addition forward, and twice as much backward."""


def model_of(
    catalogue: pb.Catalogue, *, slots: int = 0, batch_size: float = 0.0, traces: Sequence[pb.Trace] = ()
) -> Model:
    """Args:
    slots: S; 0: as many as the catalogue names.
    batch_size: examples per step of one trainer; 0: not known.
    traces: of single steps; none: look-ups are not known.
    """
    variables = catalogue.variables
    slots = slots or 1 + max((variable.slot for variable in variables), default=0)
    tables = [variable for variable in variables if variable.update == pb.Variable.ROWS]
    dense = [variable for variable in variables if variable.update != pb.Variable.ROWS]
    own = trained(variables)
    rows, weights = sum(max(0, v.shape[0]) for v in trained(tables) if v.shape), sum(v.bytes for v in own)
    lookups = [float(sum(slot.lookup_rows for slot in trace.slots)) for trace in traces]
    return Model(
        table_bytes=sum(variable.bytes for variable in tables), dense_bytes=sum(variable.bytes for variable in dense),
        fields=len(_whole(trained(tables))), batch_size=batch_size,
        lookups_per_step=statistics.median(lookups) if lookups else 0.0,
        flops_per_example=FLOPS_PER_WEIGHT * sum(math.prod(v.shape) for v in trained(dense) if len(v.shape) > 1),
        largest_slot_bytes=max(slot_bytes(variables, slots), default=0), variables=len(_whole(own)),
        row_bytes=sum(variable.bytes for variable in tables) / rows if rows else 0.0,
        optimizer_slots=sum(variable.bytes for variable in variables) / weights - 1 if weights else 0.0,
    )  # fmt: skip


def declared_model(declaration: pb.Declaration, slots: int) -> Model:
    """From what the chief has declared, before anything has run. What its graph does not tell is 0."""
    model = model_of(declaration.catalogue, slots=slots, batch_size=float(declaration.batch_size))
    return with_declared(model, declaration)


def with_declared(model: Model, declaration: pb.Declaration) -> Model:
    """What the graph tells counts, also of a job that has run: a job that begins is compared with it by nothing else."""
    lookups, flops = declaration.lookups_per_example * model.batch_size, declaration.flops_per_example
    return dataclasses.replace(
        model, lookups_per_step=lookups or model.lookups_per_step, flops_per_example=flops or model.flops_per_example
    )


def described(declaration: pb.Declaration) -> str:
    """In a few words."""
    size = sum(variable.bytes for variable in declaration.catalogue.variables)
    batch = f", {declaration.batch_size:,} examples a step" if declaration.batch_size else ""
    unknown = sum(not variable.bytes for variable in declaration.catalogue.variables)
    beside = f" and {unknown} of unknown size" if unknown else ""
    return f"variables of {format_bytes(size)}{beside}{batch}"


def fingerprint_of(catalogue: pb.Catalogue) -> str:
    """The same for two jobs of which every variable has the same name, type and size, wherever it lies and however it is cut;
    empty where there is none."""
    sizes: Counter[tuple[str, int]] = Counter()
    for variable in catalogue.variables:
        sizes[_name(variable), variable.dtype] += variable.bytes
    text = "\n".join(f"{name} {dtype} {size}" for (name, dtype), size in sorted(sizes.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16] if sizes else ""


def trained(variables: Sequence[pb.Variable]) -> list[pb.Variable]:
    """Without what optimizers keep: the graph says so, or it is called like its variable, and more: `w` has `w/Adagrad`."""
    names = {_name(variable) for variable in variables if not variable.state}
    return [one for one in variables if not one.state and _name(one).rpartition("/")[0] not in names]


def _name(variable: pb.Variable) -> str:
    return variable.saved_name or variable.name


def _whole(variables: Sequence[pb.Variable]) -> set[str]:
    """Parts of a partitioned table are one table."""
    return {_name(variable) for variable in variables}
