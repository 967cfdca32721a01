"""Two jobs that together want more than there is: as gangs, one after the other, and elastic, at once.

    sudo python -m benchmarks.cluster.two_jobs            # ten minutes; real pods on a node in this machine

Both want four processes, and there are six slots. As gangs (`supervise: strict`) the second waits until the first has ended;
elastic, it begins with what is left, and each takes what the other has left at its end. Each record takes a known time to
compute (`paced.py`), so that two cores do for six; all else is real.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from benchmarks.cluster.pods import run_as_program, world

WANTED = 4
NAMES = ("first", "second")


async def one_way(way: str, slots: int, records: int) -> dict[str, Any]:
    annotations = {"supervise": "strict"} if way == "gang" else {}
    async with world(slots, "--arbiter") as here:
        first, second = (here.job(name, WANTED - 1, records, annotations=annotations) for name in NAMES)
        began = await here.submit(first)
        alone = await here.until("the first trains", lambda: here.first_step("first")) - began
        asked = await here.submit(second)
        waited = await here.until("the second trains", lambda: here.first_step("second")) - asked
        ends = {}
        for name in NAMES:
            ends[name] = await here.until(f"{name} has succeeded", lambda name=name: here.ended(name))
        last = max(ends.values())
        both = min(ends.values()) if way == "elastic" else last
        return {
            "way": way, "slots": slots, "first step of a job alone, s": round(alone, 1),
            "second until its first step, s": round(waited, 1), "makespan, s": round(last - began, 1),
            "use from the second's submission to the first end": round(here.seen.used_share(asked, both), 4),
            "use in all": round(here.seen.used_share(began, last), 4),
        }  # fmt: skip


async def measure(arguments: argparse.Namespace) -> Any:
    found = [await one_way(way, arguments.slots, arguments.records) for way in arguments.ways]
    spans = {one["way"]: one["makespan, s"] for one in found}
    ratio = round(spans["gang"] / spans["elastic"], 3) if len(spans) > 1 else None
    # Both have the same work, and each slot trains as fast as any other: no order of work is shorter than all slots at work.
    return {"runs": found, "makespan gang ÷ elastic": ratio, "bound": round(2 * arguments.slots / (2 * WANTED), 3)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=6)
    parser.add_argument("--records", type=int, default=20_000, help="of each job: 20 ms of one process each")
    parser.add_argument("--ways", nargs="+", choices=("gang", "elastic"), default=["gang", "elastic"])
    return run_as_program(parser, measure)


if __name__ == "__main__":
    sys.exit(main())
