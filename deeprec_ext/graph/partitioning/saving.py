"""Savers of variables that are cut: a checkpoint has the whole, as slices under its one name, and nobody has to hold all of it.

A sharded saver has a shard for each slot that it finds something on, and merges them (`MergeV2Checkpoints`: no values are
read, the files of the shards are renamed and get an index). Each slot's parts go into its own shard, one more where the saver
had none there. So every PS writes what it has.

Any other saver writes in one place, usually on the chief, and the file may be on that disk alone. It goes on writing
there, in several shards of bounded size, one after the other, each of which asks the PS for its parts when the one before is
written; then it merges them. So that place holds one shard's parts at a time.

Until it is merged a shard lies in `<prefix>_temp`, as those of TensorFlow's sharded savers do; a checkpoint that was not
finished has no index, and nobody takes it for one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.graph import attributes
from deeprec_ext.graph.index import GraphIndex, on_ps, op_name, task_of
from deeprec_ext.graph.partitioning.layout import sub_slice
from deeprec_ext.graph.partitioning.parts import controls_of, data_of, handed_on, strings, texts_of
from deeprec_ext.graph.partitioning.values import Values

SHARD_BYTES = 256 << 20
"""About what a shard of a saver that is not sharded has of parts; a single part may be larger."""


@dataclass(frozen=True)
class _Entry:
    """One tensor of a checkpoint, or a slice of one."""

    name: bytes
    slice: bytes
    tensor: str
    dtype: int
    device: str = ""
    """Of a part; empty: what is not cut stays in the shard where the saver has it."""
    bytes: int = 0


def save_parts(index: GraphIndex, values: Values) -> None:
    """Every SaveV2 that gets a whole gets parts instead; not where names are computed, which gets it put together."""
    found: dict[str, list[_Entry]] = {}
    for node in [one for one in index.nodes.values() if one.op == "SaveV2"]:
        entries = _entries(index, node, values)
        if entries is not None:
            found[node.name] = entries
    sharded: set[str] = set()
    for merge in [one for one in index.nodes.values() if one.op == "MergeV2Checkpoints"]:
        shards = [name for name in _shards(index, merge) if name in found]
        sharded.update(shards)
        if any(entry.device for name in shards for entry in found[name]):
            _save_where_they_are(index, merge, {name: found[name] for name in shards})
    for name, entries in found.items():
        if name not in sharded and any(entry.device for entry in entries):
            _save_one_after_the_other(index, index.nodes[name], entries)


def save_beside(index: GraphIndex, devices: Mapping[str, str]) -> None:
    """In sharded savers, what ops give that lie elsewhere now is saved in the shard of that slot.

    Args:
      devices: name of an op that gives one value -> its device.
    """
    for merge in [one for one in index.nodes.values() if one.op == "MergeV2Checkpoints"]:
        shards = {}
        for name in _shards(index, merge):
            entries = _listed(index, index.nodes[name])
            if entries is not None:
                shards[name] = [_beside(index, entry, devices) for entry in entries]
        if any(entry.device for entries in shards.values() for entry in entries):
            _save_where_they_are(index, merge, shards)


def _beside(index: GraphIndex, entry: _Entry, devices: Mapping[str, str]) -> _Entry:
    device = devices.get(op_name(handed_on(index, entry.tensor)), "")
    node = index.nodes[op_name(entry.tensor)]
    if device and on_ps(node.device):
        node.device = device
    return dataclasses.replace(entry, device=device)


def _listed(index: GraphIndex, node: NodeDef) -> list[_Entry] | None:
    """What it saves, as it is; None: its names are not known."""
    _, names_at, slices_at, *tensors = data_of(index, node.name)
    names, slices = texts_of(index, names_at), texts_of(index, slices_at)
    if names is None or slices is None:
        return None
    return [_Entry(*one) for one in zip(names, slices, tensors, node.attr["dtypes"].list.type)]


def _entries(index: GraphIndex, node: NodeDef, values: Values) -> list[_Entry] | None:
    """What it saves, with parts for wholes; None: its names are not known."""
    listed = _listed(index, node)
    if listed is None:
        return None
    entries = []
    for whole in listed:
        found = values.of(whole.tensor)
        if found is None:
            entries.append(whole)
            continue
        variable, pieces = found
        for number, (piece, device) in enumerate(zip(pieces, variable.devices)):
            own = sub_slice(whole.slice.decode(), variable.layout, number).encode()
            size = math.prod(variable.layout.shape(number)) * tf.as_dtype(whole.dtype).size
            entries.append(_Entry(whole.name, own, piece, whole.dtype, device, size))
    return entries


# ------------------------------------------------------------------------------------------------ sharded savers


def _shards(index: GraphIndex, merge: NodeDef) -> list[str]:
    """The SaveV2 that write what is merged."""
    packed = index.nodes[op_name(data_of(index, merge.name)[0])]
    if packed.op != "Pack":
        return []
    found: list[str] = []
    for tensor in data_of(index, packed.name):
        source = op_name(handed_on(index, tensor))
        found += [
            one.name for one, number in index.consumers(source) if one.op == "SaveV2" and number == 0
        ]  # fmt: skip
    return found


def _save_where_they_are(index: GraphIndex, merge: NodeDef, shards: Mapping[str, Sequence[_Entry]]) -> None:
    """Parts go to the shard of their slot, but for those of a shard that is on no PS. A shard that has nothing left is none."""
    on_slot = {task_of(index.nodes[name].device): name for name in shards if on_ps(index.nodes[name].device)}
    kept: dict[str, list[_Entry]] = {name: [] for name in shards}
    added: dict[str, list[_Entry]] = {}
    for name, entries in shards.items():
        device = index.nodes[name].device
        here, stays = task_of(device), not on_ps(device)
        for entry in entries:
            slot = task_of(entry.device)
            if stays or not entry.device or slot == here:
                kept[name].append(entry)
            elif slot in on_slot:
                kept[on_slot[slot]].append(entry)
            else:
                added.setdefault(entry.device, []).append(entry)
    first = next(iter(shards))
    prefix, controls = data_of(index, first)[0], controls_of(index, first)
    packed = index.nodes[op_name(data_of(index, merge.name)[0])]
    gone = {handed_on(index, data_of(index, name)[0]) for name, entries in kept.items() if not entries}
    prefixes = [one for one in data_of(index, packed.name) if handed_on(index, one) not in gone]
    for name, entries in kept.items():
        node, before = index.nodes[name], controls_of(index, name)
        if entries:
            _save(index, node, node.device, data_of(index, name)[0], entries, before)
        else:
            index.replace(node, "NoOp", node.device, before)
    for device, entries in added.items():
        name = f"{merge.name}__save_{task_of(device)}"
        own = _suffixed(index, name, device, prefix, f"-slot-{task_of(device):05d}")
        node = index.add(name, "SaveV2", device)
        _save(index, node, device, own, entries, controls)
        prefixes.append(own)
        index.add_control(merge, node.name)
    _pack(index, packed, packed.device, [*prefixes, *controls_of(index, packed.name)], len(prefixes))


# ------------------------------------------------------------------------------------------------ other savers


def _save_one_after_the_other(index: GraphIndex, node: NodeDef, entries: Sequence[_Entry]) -> None:
    """What saved becomes the merge of its shards, under its name; of one shard alone there is nothing to merge."""
    device, prefix, controls = node.device, data_of(index, node.name)[0], controls_of(index, node.name)
    shards = _divided(entries)
    if len(shards) == 1:
        _save(index, node, device, prefix, entries, controls)
        return
    prefixes: list[str] = []
    made: list[str] = []
    for number, shard in enumerate(shards):
        name = f"{node.name}__shard_{number}"
        own = _suffixed(index, name, device, prefix, f"_temp/part-{number:05d}-of-{len(shards):05d}")
        asked = [_asked_after(index, made[-1], entry) for entry in shard] if made else shard
        one = index.add(name, "SaveV2", device)
        _save(index, one, device, own, asked, controls)
        prefixes.append(own)
        made.append(one.name)
    packed = index.add(f"{node.name}__prefixes", "Pack", device)
    _pack(index, packed, device, prefixes, len(prefixes))
    index.replace(
        node, "MergeV2Checkpoints", device, [packed.name, prefix, *(f"^{one}" for one in made)],
        delete_old_dirs=attributes.flag(True), allow_missing_files=attributes.flag(False),
    )  # fmt: skip


def _divided(entries: Sequence[_Entry]) -> list[list[_Entry]]:
    """Into shards; what is not cut is in the first one."""
    shards, size = [[entry for entry in entries if not entry.device]], 0
    for entry in entries:
        if not entry.device:
            continue
        if size and size + entry.bytes > SHARD_BYTES:
            shards.append([])
            size = 0
        shards[-1].append(entry)
        size += entry.bytes
    return shards


def _asked_after(index: GraphIndex, before: str, entry: _Entry) -> _Entry:
    """The same part, which its PS sends when this op has run; what it sends was read when the others were."""
    name = f"{before}__then_{op_name(entry.tensor)}"
    sent = index.add(name, "Identity", entry.device, [entry.tensor, f"^{before}"], T=attributes.kind(entry.dtype))
    return dataclasses.replace(entry, tensor=sent.name)


# ------------------------------------------------------------------------------------------------ ops


def _save(
    index: GraphIndex, node: NodeDef, device: str, prefix: str, entries: Sequence[_Entry], controls: Sequence[str]
) -> None:
    names = strings(index, f"{node.name}__names", device, [entry.name for entry in entries])
    slices = strings(index, f"{node.name}__slices", device, [entry.slice for entry in entries])
    inputs = [prefix, names, slices, *(entry.tensor for entry in entries), *controls]
    index.replace(node, "SaveV2", device, inputs, dtypes=attributes.kinds([entry.dtype for entry in entries]))


def _suffixed(index: GraphIndex, name: str, device: str, prefix: str, suffix: str) -> str:
    ending = strings(index, f"{name}__suffix", device, suffix.encode())
    return index.add(
        f"{name}__prefix", "StringJoin", device, [prefix, ending], N=attributes.integer(2), separator=attributes.text("")
    ).name  # fmt: skip


def _pack(index: GraphIndex, node: NodeDef, device: str, inputs: Sequence[str], count: int) -> None:
    kind, many = attributes.kind(tf.string), attributes.integer(count)
    index.replace(node, "Pack", device, inputs, T=kind, N=many, axis=attributes.integer(0))
