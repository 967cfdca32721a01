"""What the rows of benchmarks/long_run.py say: slopes per hour with their noise, speed at the beginning and at the end."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def theil_sen(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(slope, noise): the median over all pairs, and the median distance of a point from that line."""
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for n, a in enumerate(points) for b in points[n + 1 :] if b[0] > a[0]]
    if not slopes:
        return 0.0, 0.0
    slope = statistics.median(slopes)
    height = statistics.median(y - slope * x for x, y in points)
    return slope, statistics.median(abs(y - slope * x - height) for x, y in points)


def cores(rows: Sequence[Row], name: str) -> list[float]:
    """Of that process, from each sample to the next."""
    return [
        (after["processes"][name]["cpu"] - before["processes"][name]["cpu"]) / (after["time"] - before["time"])
        for before, after in zip(rows, rows[1:])
    ]


def censuses(rows: Sequence[Row], settle: float, lived: Sequence[str]) -> Row:
    """Per trainer that lived all along: what the C library had given out (MB), and sessions alive, at first and last."""
    start = next((row for row in rows if row["kind"] == "start"), None)
    late = [row["time"] for row in rows if row["kind"] == "sample" and row["minute"] >= settle]
    found: Row = {}
    for path in sorted(Path(start["base"], "steps").glob("*.census")) if start and late else ():
        seen = [one for one in map(json.loads, path.read_text().splitlines()) if late[0] <= one["time"] <= late[-1]]
        if path.stem not in lived or not seen:
            continue
        slope, noise = theil_sen([(one["time"] / 3600, one["malloc_used"] / 1e6) for one in seen])
        found[path.stem] = {
            "given_out_mb": [seen[0]["malloc_used"] / 1e6, seen[-1]["malloc_used"] / 1e6], "mb_per_hour": slope,
            "noise": noise, "free_mb": [seen[0]["malloc_free"] / 1e6, seen[-1]["malloc_free"] / 1e6],
            **{kind: [min(one[kind] for one in seen), max(one[kind] for one in seen), seen[-1][kind]]
               for kind in ("BaseSession", "Graph", "Channel", "objects")},
        }  # fmt: skip
    return found


def analyse(rows: Sequence[Row], settle: float) -> Row:
    """Everything the table says. Slopes are per hour."""
    samples = [row for row in rows if row["kind"] == "sample"]
    changes = [row for row in rows if row["kind"] == "change"]
    late = [row for row in samples if row["minute"] >= settle] or samples
    usual = Counter((row["ps"], row["workers"]) for row in late).most_common(1)[0][0]
    alike = [row for row in late if (row["ps"], row["workers"]) == usual]
    ends = late[0]["processes"].keys() & late[-1]["processes"].keys()
    lived = sorted(name for name in ends if sum(name in row["processes"] for row in late) > 0.8 * len(late))
    memory = {}
    for name in lived:
        one: Row = {}
        for what in ("own", "rss", "threads", "fds"):
            there = [row for row in late if name in row["processes"]]  # an AIMaster that did not answer told of nobody
            points = [(row["minute"] / 60, row["processes"][name][what]) for row in there]
            scale = 1e6 if what in ("own", "rss") else 1.0
            slope, noise = theil_sen(points)
            same, _ = theil_sen([(row["minute"] / 60, row["processes"][name][what]) for row in alike if row in there])
            half = [y for x, y in points if x >= points[len(points) // 2][0]]
            one[what] = {
                "first": points[0][1] / scale, "last": points[-1][1] / scale, "most": max(y for _, y in points) / scale,
                "per_hour": slope / scale, "noise": noise / scale, "per_hour_at_one_size": same / scale,
                "per_hour_second_half": theil_sen(points[-len(half) :])[0] / scale,
            }  # fmt: skip
        used = cores(there, name) or [0.0]
        part = max(1, len(used) // 4)
        one["cores"] = [statistics.median(used[:part]), statistics.median(used[-part:])]
        memory[name.split(" pid")[0]] = one
    sizes = {}
    for kind in sorted({kind for row in late for kind in row["files"]}):
        points = [(row["minute"] / 60, row["files"].get(kind, [0, 0])[1] / 1e6) for row in late]
        sizes[kind] = {
            "mb": points[-1][1], "most": max(y for _, y in points), "mb_per_hour": theil_sen(points)[0],
            "files": late[-1]["files"].get(kind, [0, 0])[0],
        }  # fmt: skip
    quarter = max(1, len(alike) // 4)
    speed = {}
    for what in ("examples_per_second", "run_seconds", "run_p90_seconds"):
        values = [row[what] for row in alike if row[what] is not None]
        speed[what] = [statistics.median(values[:quarter]), statistics.median(values[-quarter:])] if values else None
    told = [row for row in rows if row["kind"] == "pause"]
    pauses: dict[str, list[float]] = {}
    for row in told:
        pauses.setdefault(row["change"], []).append(max(row["pauses"]))
    of_ps = [max(row["pauses"]) for row in told if "worker" not in row["change"]]
    halves = [of_ps[: len(of_ps) // 2], of_ps[len(of_ps) // 2 :]]
    return {
        "minutes": samples[-1]["minute"], "settle": settle, "samples": len(late), "changes": len(changes),
        "outcomes": dict(Counter(row["outcome"] for row in changes)),
        "usual_size": {"ps": usual[0], "workers": usual[1], "samples": len(alike)},
        "processes": memory, "censuses": censuses(rows, settle, list(memory)), "files_mb": sizes,
        "speed_first_last_quarter": speed,
        "pause": {kind: {"changes": len(v), "median": statistics.median(v), "max": max(v)} for kind, v in pauses.items()},
        "pause_ps_changes_first_second_half": [statistics.median(half) if half else None for half in halves],
        "short_lived": len({name for row in samples for name in row["processes"]} - set(lived)),
    }  # fmt: skip


def table(result: Row) -> str:
    lines = [f"{result['minutes']:.0f} minutes, {result['changes']} changes: {result['outcomes']}; slopes after "
             f"minute {result['settle']:g}"]  # fmt: skip
    lines.append(f"{'process':12}{'own MB':>9}{'most':>8}{'MB/h':>8}{'2nd half':>9}{'1 size':>8}{'noise':>7}{'threads':>14}"
                 f"{'fds':>12}{'core, 1st and 4th quarter':>27}")  # fmt: skip
    for name, one in result["processes"].items():
        own, threads, fds = one["own"], one["threads"], one["fds"]
        lines.append(
            f"{name:12}{own['last']:9.1f}{own['most']:8.1f}{own['per_hour']:8.2f}{own['per_hour_second_half']:9.2f}"
            f"{own['per_hour_at_one_size']:8.2f}{own['noise']:7.2f}"
            f"{threads['last']:7.0f} {threads['per_hour']:+6.1f}{fds['last']:6.0f} {fds['per_hour']:+5.1f}"
            f"{one['cores'][0]:15.3f}{one['cores'][1]:12.3f}"
        )
    lines += [f"{name:12} given out by malloc {one['given_out_mb'][0]:.1f} -> {one['given_out_mb'][1]:.1f} MB, "
              f"{one['mb_per_hour']:+.2f} MB/h (noise {one['noise']:.2f}), kept free {one['free_mb'][1]:.1f} MB; sessions "
              f"{one['BaseSession']}, channels {one['Channel']}, objects {one['objects']} (least, most, last)"
              for name, one in result["censuses"].items()]  # fmt: skip
    lines += [f"{kind:20}{one['mb']:9.2f} MB (most {one['most']:.2f}) in {one['files']} files, {one['mb_per_hour']:+.2f} MB/h"
              for kind, one in result["files_mb"].items()]  # fmt: skip
    lines += [f"{what:22} first quarter {pair[0]:.5g}, last {pair[1]:.5g}"
              for what, pair in result["speed_first_last_quarter"].items() if pair]  # fmt: skip
    lines += [f"pause of {kind:15} {one['changes']:3} changes, median {one['median']:.3f} s, worst {one['max']:.3f} s"
              for kind, one in sorted(result["pause"].items())]  # fmt: skip
    first, second = result["pause_ps_changes_first_second_half"]
    if first and second:
        lines.append(f"pause of changes of PS: first half {first:.3f} s, second {second:.3f} s")
    return "\n".join(lines)
