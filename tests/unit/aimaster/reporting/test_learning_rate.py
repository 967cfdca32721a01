"""What the AIMaster says of learning rates that follow the number of trainers of a job with PS."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

from tests.unit.aimaster.world import SETTINGS, World, world


def told(it: World) -> list[dict[str, Any]]:
    lines = (it.spec.workdir / "events.jsonl").read_text().splitlines()
    return [event for line in lines if (event := json.loads(line))["type"] == "learning_rate"]


async def until(it: World, text: str) -> None:
    for _ in range(1000):
        if (found := (await it.status()).learning_rate) == text:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(found)


def play(tmp_path: Path, scaling: str, scenario: Any, **spec: Any) -> None:
    async def run() -> None:
        settings = dataclasses.replace(SETTINGS, rate_scaling=scaling)
        async with world(tmp_path, settings=settings, **spec) as it:
            await scenario(it)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_status_and_events_say_what_the_rate_is_multiplied_by(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await until(it, "× 0.5 (inverse, 2 trainers)")
        await it.scale(workers=3)
        assert (await it.ended()).outcome == "committed"
        await until(it, "× 0.25 (inverse, 4 trainers)")
        await it.scale(workers=0)
        assert (await it.ended(2)).outcome == "committed"
        await until(it, "")
        await it.until(lambda: [one["factor"] for one in told(it)][-1:] == [1.0])
        factors = [(one["before"], one["factor"]) for one in told(it)]
        assert all(before == other for (_, before), (other, _) in zip(factors, factors[1:])), (
            "each begins at the one before"
        )
        assert {0.5, 0.25, 1.0} <= {factor for _, factor in factors}
        assert {one["rate_scaling"] for one in told(it)} == {"inverse"}

    play(tmp_path, "inverse", scenario)


def test_a_rate_that_stays_the_script_s_is_not_spoken_of(tmp_path: Path) -> None:
    async def scenario(it: World) -> None:
        await it.scale(workers=2)
        assert (await it.ended()).outcome == "committed"
        assert (await it.status()).learning_rate == "" and told(it) == []

    play(tmp_path, "none", scenario)
