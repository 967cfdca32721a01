"""What `benchmarks/failover.py` shows of what it has measured, against what is promised (docs/claims.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deeprec_ext.options import Settings


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The measures of the issue: what, target, aim, measured, met (None: nothing to compare with)."""
    found: list[dict[str, Any]] = []

    def add(what: str, target: str, aim: str, measured: str, met: bool | None) -> None:
        found.append({"measure": what, "target": target, "aim": aim, "measured": measured, "met": met})

    has = lambda part: part in result and "error" not in result[part]  # noqa: E731
    limit = Settings().ps_heartbeat_limit_seconds + 0.8
    if has("kill"):
        kill = result["kill"]
        add(
            "kill -9 of a PS → first good step of every worker",
            "p50 ≤ 0.8 s",
            "≤ 0.3 s",
            _shown(kill),
            kill["p50"] <= 0.8,
        )
    if has("kill") and has("stock"):
        ratio = result["stock"]["p50"] / result["kill"]["p50"]
        add("the same ÷ stock", "8× shorter", "20×", f"{ratio:.1f}× (stock: {_shown(result['stock'])})", ratio >= 8)
    if has("graph"):
        add("the same, 18 000 ops", "p50 ≤ 4 s", "≤ 0.5 s", _shown(result["graph"]), result["graph"]["p50"] <= 4)
    if has("hang"):
        hang = result["hang"]
        add("SIGSTOP of a PS → first good step", f"≤ {limit:g} s", "", _shown(hang), hang["p50"] <= limit)
    for how, kills in result["change"].items() if has("change") else ():
        add(f"kill -9 of the fullest PS 3 s after a change, {how}", "", "", _shown(kills), None)
    if has("input"):
        add("kill -9 of a PS, elastic dataset read for a minute", "", "", _shown(result["input"]), None)
    if has("updates"):
        lost = result["updates"]
        add("oldest update lost on lost slots", f"≤ {lost['interval_seconds']:g} s", "",
            f"{lost['oldest_seconds']:.2f} s ({lost['lost_on_lost_slots']} updates of a trainer)",
            lost["oldest_seconds"] <= lost["interval_seconds"])  # fmt: skip
        add("updates lost on other slots", "0", "", f"{lost['lost_on_other_slots']} (twice: {lost['applied_twice']})",
            lost["lost_on_other_slots"] == 0)  # fmt: skip
    if has("aimaster"):
        master = result["aimaster"]
        add("kill -9 of the AIMaster: control back", "≤ 3 s", "",
            f"p50 {master['back_p50']:.2f} s, worst {master['back_max']:.2f} s", master["back_max"] <= 3)  # fmt: skip
        add(
            "  steps delayed: runs that waited at the gate",
            "0",
            "",
            str(master["gate_waits"]),
            master["gate_waits"] == 0,
        )
        add("  longest gap between steps (undisturbed)", "", "",
            f"{master['longest_gap']:.3f} s ({master['undisturbed_gap_max']:.3f} s)", None)  # fmt: skip
    return found


def _shown(kills: dict[str, Any]) -> str:
    return f"p50 {kills['p50']:.3f} s, p90 {kills['p90']:.3f} s, worst {kills['max']:.3f} s of {kills['kills']}"


def table(found: Sequence[dict[str, Any]]) -> str:
    lines = []
    for row in found:
        met = {True: "met", False: "MISSED", None: ""}[row["met"]]
        wanted = f"{row['target']} (aim {row['aim']})" if row.get("aim") else row["target"]
        lines.append(f"{row['measure']:50} {wanted:28} {row['measured']:64} {met}".rstrip())
    return "\n".join(lines)
