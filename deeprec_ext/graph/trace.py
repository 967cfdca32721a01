"""What one traced step cost: RunMetadata → `pb.Trace`. Pure.

TensorFlow records, for each process, when each op ran and what it gave, and when each tensor came from another process. Times
of different machines do not compare, so only those of one process are set against each other.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from deeprec_ext.graph.index import on_ps, task_of
from deeprec_ext.graph.sites import INPUT, LOOKUP, Site
from deeprec_ext.proto import deeprec_ext_pb2 as pb

OPS_MAX = 40
NAME_MAX = 300

_TYPE = re.compile(r" = (\w+)\(")
_EDGE = re.compile(r" from (\S+) to (\S+)$")
_UNKNOWN = Site("")

Span = tuple[int, int]
"""Begin and end of something, in nanoseconds."""


@dataclass
class _Device:
    """What is summed up of one process."""

    spans: list[Span] = field(default_factory=list)
    time: int = 0
    ops: int = 0


@dataclass
class _Op:
    label: str
    slot: int
    time: int = 0

    @property
    def type(self) -> str:
        found = _TYPE.search(self.label)
        return found[1] if found else ""


@dataclass
class _Edge:
    spans: list[Span] = field(default_factory=list)
    bytes: int = 0
    tensors: int = 0


def union_seconds(spans: Iterable[Span]) -> float:
    """The time in which at least one of them was going on."""
    total = end = 0
    for begin, stop in sorted(spans):
        if stop > end:
            total += stop - max(begin, end)
            end = stop
    return total / 1e9


def role_by_view(own: str, ps: Mapping[int, str]) -> Callable[[str], str]:
    """The name of the role that a device belongs to.

    Args:
      own: name of this trainer; in its cluster there is nobody else but the PS.
      ps: task number → name.
    """

    def role(device: str) -> str:
        if not on_ps(device):
            return own
        task = task_of(device)
        return ps.get(task, f"/job:ps/task:{task}")

    return role


def read_trace(
    metadata: config_pb2.RunMetadata, known: Mapping[str, Site], own: str, role: Callable[[str], str]
) -> pb.Trace:
    """Everything but step, epoch and the usual time of a step.

    Args:
      known: by name of the op in the graph that was run (`sites.sites`).
      own: the role in which the step was traced; its clock measures the step.
      role: device → name of its role.
    """
    return _Reader(known, own, role).read(metadata.step_stats)


class _Reader:
    def __init__(self, known: Mapping[str, Site], own: str, role: Callable[[str], str]) -> None:
        self._known, self._own, self._role = known, own, role
        self._shaping = {name for site in known.values() for name, _ in site.indices}
        self._devices: defaultdict[str, _Device] = defaultdict(_Device)
        self._edges: defaultdict[tuple[str, str], _Edge] = defaultdict(_Edge)
        self._ops: dict[tuple[str, str], _Op] = {}
        self._slots: dict[int, pb.SlotUse] = {}
        self._shapes: dict[tuple[str, int], tuple[int, ...]] = {}
        self._input: list[Span] = []
        self._own_spans: list[Span] = []

    def read(self, stats: Any) -> pb.Trace:
        updates: list[Site] = []
        for device in stats.dev_stats:
            if "/stream" in device.device or "memcpy" in device.device:
                continue  # a second record of what ran on a GPU
            role = self._role(device.device)
            for node in device.node_stats:
                if node.node_name == "RecvTensor":
                    self._transfer(node)
                else:
                    updates += self._op(node, role)
        for site in updates:
            self._updated(site)
        return self._trace()

    def _op(self, node: Any, role: str) -> Iterator[Site]:
        """Counts one op; yields it when its rows have to be counted, once all shapes are known."""
        site = self._known.get(node.node_name, _UNKNOWN)
        span = begin, end = _span(node)
        if role == self._own:
            self._own_spans.append(span)
        if node.node_name in self._shaping:
            for output in node.output:
                shape = output.tensor_description.shape
                self._shapes[node.node_name, output.slot] = tuple(dimension.size for dimension in shape.dim)
        if site.kind == INPUT:
            self._input.append(span)
            return
        device, time = self._devices[role], end - begin
        device.spans.append(span)
        device.time += time
        device.ops += 1
        key = role, site.name or node.node_name
        op = self._ops.get(key)
        if op is None:
            op = self._ops[key] = _Op(node.timeline_label, site.slot)
        op.time += time
        if site.slot >= 0:
            use = self._use(site.slot)
            if site.kind == LOOKUP:
                use.lookup_seconds += time / 1e9
                elements, size = _given(node)
                use.bytes += size if site.bytes is None else site.bytes
                if site.row_elements:
                    use.lookup_rows += elements // site.row_elements
            else:
                use.update_seconds += time / 1e9
                use.bytes += site.bytes or 0
                if site.indices:
                    yield site

    def _use(self, slot: int) -> pb.SlotUse:
        found = self._slots.get(slot)
        if found is None:
            found = self._slots[slot] = pb.SlotUse(slot=slot)
        return found

    def _updated(self, site: Site) -> None:
        """The rows of a write, from the shape of its indices, where the trace has it."""
        for tensor in site.indices:
            if tensor in self._shapes:
                rows, use = math.prod(self._shapes[tensor]), self._use(site.slot)
                use.update_rows += rows
                use.bytes += rows * site.row_bytes
                return

    def _transfer(self, node: Any) -> None:
        found = _EDGE.search(node.timeline_label)
        if found is None:
            return
        source, target = self._role(found[1]), self._role(found[2])
        span = _span(node)
        if self._own == target:
            self._own_spans.append(span)
        edge = self._edges[source, target]
        edge.spans.append(span)
        edge.tensors += 1
        edge.bytes += sum(one.tensor_description.allocation_description.requested_bytes for one in node.output)

    def _trace(self) -> pb.Trace:
        heaviest = sorted(self._ops.items(), key=lambda item: (-item[1].time, item[0]))[:OPS_MAX]
        spans = self._own_spans
        return pb.Trace(
            seconds=(max(end for _, end in spans) - min(begin for begin, _ in spans)) / 1e9 if spans else 0.0,
            devices=[
                pb.DeviceTime(role=role, busy_seconds=union_seconds(one.spans), op_seconds=one.time / 1e9, ops=one.ops)
                for role, one in sorted(self._devices.items())
            ],
            ops=[
                pb.OpTime(name=name[:NAME_MAX], type=op.type, role=role, slot=op.slot, seconds=op.time / 1e9)
                for (role, name), op in heaviest
            ],
            edges=[
                pb.EdgeUse(
                    source=source, target=target, bytes=one.bytes, tensors=one.tensors, seconds=union_seconds(one.spans)
                )
                for (source, target), one in sorted(self._edges.items())
            ],
            slots=[use for _, use in sorted(self._slots.items())],
            input_seconds=union_seconds(self._input),
        )


def _span(node: Any) -> Span:
    """When the op itself ran (without the executor's work around it)."""
    if node.all_start_nanos:
        start = node.all_start_nanos
        return start + node.op_start_rel_nanos, start + node.op_end_rel_nanos
    start = node.all_start_micros
    return 1000 * (start + node.op_start_rel_micros), 1000 * (start + node.op_end_rel_micros)


def _given(node: Any) -> tuple[int, int]:
    """(elements, bytes) of the first output."""
    for output in node.output:
        if output.slot == 0:
            elements = math.prod(dimension.size for dimension in output.tensor_description.shape.dim)
            return elements, elements * tf.as_dtype(output.tensor_description.dtype).size
    return 0, 0
