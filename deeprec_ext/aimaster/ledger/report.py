"""The ledger in numbers: for `summary.json`, from the store alone, and for the status of a running job."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from deeprec_ext.aimaster.ledger.dataset import Dataset
from deeprec_ext.aimaster.ledger.tables import Tables
from deeprec_ext.aimaster.ledger.visits import Numbers
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.units import saturated

FOLDED_KEY = "ledger_folded"
STEPS = "steps"
"""Purpose of a dataset whose records are steps, which are in no sum of records."""
_TOTALS = ("records", "trained", "skipped", "lost", "repeated", "repeated_at_least", "stale", "left", "set_aside")


_EPOCH = re.compile(r"(.*), epoch (\d{1,9})", re.DOTALL)
_COUNTED = ("records", "trained", "repeated", "repeated_at_least", "stale", "skipped", "set_aside")


def numbers_of(dataset: Dataset) -> dict[str, Any]:
    """Records, each epoch anew.

    `records` is what the job set out to train (without end: the epochs that have begun; files that were never counted are
    missing), `trained` what of it was, each visit once. The rest was damaged (`skipped`), or given up with its shard
    (`set_aside`), or is `lost` if somebody was told that the data had come to its end, or was `left` because the job ended
    before. `repeated` and `repeated_at_least` are bounds of the records that were trained more than once.
    """
    visits, declaration = dataset.visits, dataset.declaration
    begun = max([visits.complete, *(number + 1 for number in visits.epochs)])
    records = (declaration.epochs or begun) * dataset.table.records
    aside = visits.set_aside
    rest = max(0, records - visits.trained - aside)
    return {
        "purpose": STEPS if declaration.steps else declaration.purpose or "train",
        "records": saturated(records),
        "trained": saturated(dataset.trained),
        "skipped": saturated(dataset.counters.skipped),
        "lost": saturated(rest) if dataset.told_end else 0,
        "repeated": saturated(dataset.repeated),
        "repeated_at_least": saturated(dataset.repeated_at_least),
        "stale": saturated(dataset.counters.stale),
        "left": 0 if dataset.told_end else saturated(rest),
        "set_aside": saturated(aside),
        "epochs": visits.complete,
        "rewinds": dataset.counters.rewinds,
    }


def summarize(store: Store) -> dict[str, Any] | None:
    """`data` of summary.json: the sums over what is trained on, and each dataset. None: there was no dataset."""
    datasets: dict[str, dict[str, Any]] = dict(store.get(FOLDED_KEY, {}))
    for dataset in Tables(store).load(Numbers(), 1).values():
        fold(datasets, dataset)
    if not datasets:
        return None
    trained_on = [values for values in datasets.values() if values["purpose"] == "train"]
    totals = {key: saturated(sum(values.get(key, 0) for values in trained_on)) for key in _TOTALS}
    return {**totals, "datasets": datasets}


def shown_name(dataset: Dataset) -> str:
    """Passes over an evaluation dataset are called `evaluate@chief-0-1a2b3c-7`, and shown together."""
    return dataset.name if dataset.trains else dataset.name.partition("@")[0]


def fold(totals: dict[str, dict[str, Any]], dataset: Dataset) -> None:
    """Adds the numbers of one dataset; of several passes over one, `passes` says how many."""
    name, values = shown_name(dataset), numbers_of(dataset)
    before = totals.get(name)
    if not dataset.trains:
        values["passes"] = 1
    if before is not None:
        values = {
            key: value if key == "purpose" else saturated(value + before.get(key, 0)) for key, value in values.items()
        }
    totals[name] = values


def status(datasets: Mapping[str, Dataset]) -> list[pb.DataStatus]:
    """Of several passes over one dataset, the last; epochs that are datasets of their own, and over, are one."""
    found = []
    for dataset in {shown_name(dataset): dataset for dataset in datasets.values()}.values():
        visits, declaration = dataset.visits, dataset.declaration
        known = dataset.table.records * declaration.epochs if dataset.table.complete else 0
        found.append(pb.DataStatus(
            name=shown_name(dataset), purpose=declaration.purpose or "train", records=saturated(known),
            trained=saturated(dataset.trained), leased=saturated(visits.leased), repeated=saturated(dataset.repeated),
            stale=saturated(dataset.counters.stale), epoch=max(0, visits.current), epochs=declaration.epochs,
            set_aside=saturated(visits.set_aside), skipped=saturated(dataset.counters.skipped),
            repeated_at_least=saturated(dataset.repeated_at_least), steps=declaration.steps,
        ))  # fmt: skip
    return _together(found)


def _together(told: Sequence[pb.DataStatus]) -> list[pb.DataStatus]:
    """What is called `sampler 0, epoch 3`, and trained, is shown as `sampler 0, epochs 0 to 3`: it has nothing more to say."""
    over: dict[str, list[pb.DataStatus]] = {}
    for one in told:
        if (name := _EPOCH.fullmatch(one.name)) and one.trained >= one.records > 0 and not one.leased:
            over.setdefault(name[1], []).append(one)
    found, shown = [], {one.name: several for several in over.values() if len(several) > 1 for one in several}
    for one in told:
        several = shown.get(one.name, [one])
        if one is not several[0]:
            continue
        if len(several) > 1:
            numbers = sorted(int(_EPOCH.fullmatch(each.name)[2]) for each in several)  # type: ignore[index]
            sums = {name: saturated(sum(getattr(each, name) for each in several)) for name in _COUNTED}
            one = pb.DataStatus(
                name=f"{one.name.rpartition(', ')[0]}, epochs {numbers[0]} to {numbers[-1]}", purpose=one.purpose,
                epoch=len(several) - 1, epochs=len(several), steps=one.steps, **sums,
            )  # fmt: skip
        found.append(one)
    return found
