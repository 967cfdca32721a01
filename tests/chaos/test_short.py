"""One seed of the chaos, short; `make chaos` runs them for half an hour."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.run import check, run
from tests.chaos.schedule import plan

pytestmark = pytest.mark.slow

EPOCHS, EVENTS, SECONDS = 12, 4, 280.0
KINDS = ("kill ps", "kill worker", "kill chief", "kill aimaster", "scale ps")
AUC = (0.905, 0.925)
"""Undisturbed and disturbed runs of 16 to 24 epochs of the generated records: 0.916 to 0.917."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [3])
def test_kills_of_every_role_cost_no_record_and_no_auc(tmp_path: Path, seed: int):
    pytest.importorskip("tensorflow")
    chosen = plan(seed, EVENTS, KINDS)
    left = run(chosen, tmp_path / "run", EPOCHS, SECONDS)
    broken = check(chosen, left, EPOCHS, AUC)
    assert not broken, "\n".join([chosen.describe(), *broken, (tmp_path / "run.out").read_text()[-3000:]])
