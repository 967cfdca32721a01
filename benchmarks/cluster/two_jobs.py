"""Two jobs that together want more than there is: as gangs, one after the other, and elastic, at once.

    sudo python -m benchmarks.cluster.two_jobs                  # ten minutes; real pods on a node in this machine
    sudo python -m benchmarks.cluster.two_jobs --kind ps        # wide & deep on PS
    sudo python -m benchmarks.cluster.two_jobs --kind resnet    # ResNet-20 by Keras's `fit`, without PS

Both want four processes that train (and one PS, of that kind), and there are slots for six. As gangs (`supervise: strict`) the
second waits until the first has ended; elastic, it begins with what is left, and each takes what the other has left at its end.
Each record takes a known time, so that two cores do for six slots; all else is real. Of the kind `paced` nothing is computed
(`paced.py`); of the others each process trains its model and waits until its records' time is over (`paced_wide_deep.py`,
`paced_resnet.py`).
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from benchmarks.cluster.pods import KINDS, run_as_program, world

WANTED = 4
NAMES = ("first", "second")
SIZED = {"paced": (6, 20_000), "ps": (8, 24_000), "resnet": (6, 5_000)}
"""Kind → slots; records of each job, which take 20 ms each, those of resnet 100 ms."""


async def one_way(way: str, kind: str, slots: int, records: int) -> dict[str, Any]:
    annotations = {"supervise": "strict"} if way == "gang" else {}
    async with world(slots, "--arbiter") as here:
        first, second = (
            here.job(name, WANTED - 1, records, kind=kind, annotations=annotations) for name in NAMES
        )  # fmt: skip
        began = await here.submit(first)
        alone = await here.until("the first trains", lambda: here.trains("first")) - began
        asked = await here.submit(second)
        waited = await here.until("the second trains", lambda: here.trains("second")) - asked
        ends = {}
        for name in NAMES:
            ends[name] = await here.until(f"{name} has succeeded", lambda name=name: here.ended(name))
        last = max(ends.values())
        both = min(ends.values()) if way == "elastic" else last
        return {
            "way": way, "kind": kind, "slots": slots, "first step of a job alone, s": round(alone, 1),
            "second until its first step, s": round(waited, 1), "makespan, s": round(last - began, 1),
            "use from the second's submission to the first end": round(here.seen.used_share(asked, both), 4),
            "use in all": round(here.seen.used_share(began, last), 4),
        }  # fmt: skip


async def measure(arguments: argparse.Namespace) -> Any:
    slots, records = arguments.slots or SIZED[arguments.kind][0], arguments.records or SIZED[arguments.kind][1]
    found = [await one_way(way, arguments.kind, slots, records) for way in arguments.ways]
    spans = {one["way"]: one["makespan, s"] for one in found}
    ratio = round(spans["gang"] / spans["elastic"], 3) if len(spans) > 1 else None
    # Both have the same work, and each slot trains as fast as any other: no order of work is shorter than all slots at work,
    # but for those of the PS, which train nothing.
    training = slots - len(NAMES) * KINDS[arguments.kind].ps
    return {"runs": found, "makespan gang ÷ elastic": ratio, "bound": round(training / WANTED, 3)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=tuple(KINDS), default="paced", help="what trains")
    parser.add_argument("--slots", type=int, help="default 6; of ps, whose PS have a slot each, 8")
    parser.add_argument(
        "--records",
        type=int,
        help="of each job, of one process each: default 20000 of 20 ms; ps 24000; resnet 5000 of 100 ms",
    )
    parser.add_argument("--ways", nargs="+", choices=("gang", "elastic"), default=["gang", "elastic"])
    return run_as_program(parser, measure)


if __name__ == "__main__":
    sys.exit(main())
