"""The tables of the simulated week."""

from __future__ import annotations

from benchmarks.cluster.week import Setting, against, run, table, told


def test_all_ways_are_told_beside_each_other_with_what_the_arbiter_changes():
    found = {way: [run(Setting(jobs=4), 1, way)] for way in ("gang", "arbiter")}
    lines = table(found).splitlines()
    assert lines[0] == "| | gang | arbiter |" and all(line.count("|") == 4 for line in lines)
    (change,) = against(found, "gang")
    gang, arbiter = (one[0].all.completion_mean for one in found.values())
    assert change == arbiter / gang - 1 and f"{change:+.1%}" in told(found)
    assert "alone" not in told(found) and found["arbiter"][0].decisions > 0
