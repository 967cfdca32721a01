"""What a dataset may look like, and when two declarations are the same one."""

from __future__ import annotations

from deeprec_ext.proto import deeprec_ext_pb2 as pb

FILES_MAX = 1_000_000
RECORDS_MAX = 2**50
"""Of a dataset, as of a file: a numbers of records fit into 64 bits with a thousand epochs."""
_COUNTED = ("epochs", "shuffle", "seed", "shard_records", "reader", "set_aside", "purpose", "in_turn")


def check(declared: pb.Dataset) -> str:
    """What is wrong with it, or ""."""
    name = declared.name
    if not name:
        return "a dataset needs a name"
    if not declared.files:
        return f"dataset {name!r} has no files"
    if len(declared.files) > FILES_MAX:
        return f"dataset {name!r} has {len(declared.files)} files; at most {FILES_MAX} are possible: join some"
    if declared.shard_records < 1:
        return f"dataset {name!r}: shard_records is {declared.shard_records}, it must be at least 1"
    if declared.epochs < 0 or any(file.records < 0 for file in declared.files):
        return f"dataset {name!r}: epochs and records must not be negative"
    records = sum(file.records for file in declared.files)
    if records > RECORDS_MAX:
        return f"dataset {name!r} has {records} records; at most {RECORDS_MAX} are possible"
    return ""


def differences(first: pb.Dataset, other: pb.Dataset) -> str:
    """Why `other` is not the dataset that was declared first, or ""."""
    counts = [sum(file.records for file in one.files if not file.path) for one in (first, other)]
    for field in _COUNTED:
        if field == "shard_records" and counts[0] != counts[1]:  # from which it may follow
            return f"dataset {first.name!r} was declared with {counts[0]:,} records and now with {counts[1]:,}"
        if getattr(first, field) != getattr(other, field):
            return (
                f"dataset {first.name!r} was declared with {field}={getattr(first, field)!r} and now with "
                f"{getattr(other, field)!r}: all processes and runs of a job must declare the same"
            )
    if len(first.files) != len(other.files):
        return f"dataset {first.name!r} was declared with {len(first.files)} files and now with {len(other.files)}"
    for one, two in zip(first.files, other.files):
        if one != two:
            return (
                f"dataset {first.name!r}: file {one.path} ({one.bytes} bytes, {one.records} records) is now "
                f"{two.path} ({two.bytes} bytes, {two.records} records): files must not change while a job trains on them"
            )
    return ""
