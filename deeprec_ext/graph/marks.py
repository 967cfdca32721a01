"""What we write into graphs that they do not tell by themselves: the mark of an elastic dataset's first op, the names of the
records' ids, where a batch and its records come from, which variables an optimizer keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

RECORD = "deeprec_record"
"""The feature that carries the records' ids, with `with_ids=True`."""

RECORDS = "deeprec_ext_records"
"""Graph collection of the tensors of that feature, as the iterators give them."""

READS = "deeprec_ext_reads"
"""Graph collection of what is known of an input that is not in the graph: `op:TFRecordDataset`, `format:tfrecord`,
`text:/data/part-*`."""

FED = "_deeprec_ext_records"
"""Attribute of a placeholder by which each step is given a part of its batch: the records of the batch."""

ROWS = "deeprec_ext_rows"
"""What an op of Python is called that gives the rows of a variable from its first input to its second, which lie in a file of
this process."""

ROWS_BY_PART = ROWS + "_by_part"
"""The same, of which a part of the variable is read at once, not less."""

BATCH_ROWS = "_deeprec_ext_batch_rows"
"""Attribute of an op that gives the rows of a batch, where it gives a whole table in the user's graph."""

PACKING = "_deeprec_ext_packing"
"""Attribute of an op that puts a message together or takes it apart: it works for many slots."""

RIDES = "_deeprec_ext_rides"
"""Attribute of an op whose value is known before the step and needed by its updates alone: it may travel with a gradient."""

STATE = "deeprec_ext_state"
"""Graph collection of the names of variables that an optimizer keeps, where names alone do not tell."""

DIVIDED = "deeprec_ext_divided"
"""What the first op of a dataset is called whose records are divided among the processes before TensorFlow has them."""

_PREFIXES = {"deeprec_ext_data": False, "deeprec_ext_ids": True}


@dataclass(frozen=True)
class Mark:
    """An elastic dataset as the graph knows it."""

    dataset: str
    batch_size: int
    with_ids: bool

    def identifier(self) -> str:
        """What the first op is called in its metadata; TensorFlow wants an identifier."""
        prefix = next(prefix for prefix, with_ids in _PREFIXES.items() if with_ids == self.with_ids)
        return f"{prefix}__{self.batch_size}__{self.dataset.encode().hex()}"


def read_mark(node: Any) -> Mark | None:
    """Of a NodeDef; None: it does not begin an elastic dataset."""
    if node.op != "TensorDataset" or b"deeprec_ext_" not in (metadata := text_of(node, "metadata")):
        return None
    from tensorflow.core.framework import dataset_metadata_pb2

    return parse(dataset_metadata_pb2.Metadata.FromString(metadata).name)


def parse(name: Any) -> Mark | None:
    """Of what the first op of a dataset is called."""
    prefix, _, rest = (name.decode() if isinstance(name, bytes) else name).partition("__")
    size, _, dataset = rest.partition("__")
    return Mark(bytes.fromhex(dataset).decode(), int(size), _PREFIXES[prefix]) if prefix in _PREFIXES else None


def text_of(node: Any, attribute: str) -> bytes:
    """A string attribute; looking it up in the node would add it."""
    return node.attr[attribute].s if attribute in node.attr else b""
