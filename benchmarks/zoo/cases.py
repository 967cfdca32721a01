"""Which models and sizes are measured: drawn once by a seeded generator, so that a list of names means the same everywhere."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

FAMILIES = ("wide_deep", "deepfm", "xdeepfm", "dcn_v2", "din", "mlp")
OPTIMIZERS = {"sgd": 0, "momentum": 1, "adagrad": 1, "adam": 2, "ftrl": 2}
"""Name -> slots of a weight."""

EACH = 11
"""Of every family."""

REPEATED = 2
"""Of every family that run once more: how far apart two runs of the same job are."""

STATE_BYTES_MAX = 1_600_000_000
"""Tables and their slots. A single PS has them once, a trainer its copy: both fit beside others on a machine of 24 GB."""

DENSE_BYTES_MAX = 120_000_000
"""The same for Adam, which updates a table whole: more takes seconds a step."""

ROWS = (10_000, 50_000, 200_000, 1_000_000, 5_000_000, 20_000_000)
"""Of all tables together."""

SIZES = ((1, 0), (1, 1), (2, 1), (1, 2), (2, 2), (3, 1))
"""(PS, workers beside the chief)"""


@dataclass(frozen=True)
class Case:
    """One run. `rows`: of all tables together; `hidden`: units of dense layers, outermost first."""

    name: str
    family: str
    optimizer: str
    fields: int
    rows: int
    dim: int
    hidden: tuple[int, ...]
    batch: int
    ps: int
    workers: int

    @property
    def state_bytes(self) -> int:
        """Of tables, with the weight of one number a row that wide models have, and their slots."""
        return self.rows * (self.dim + 1) * 4 * (1 + OPTIMIZERS[self.optimizer]) if self.family != "mlp" else 0

    @property
    def flags(self) -> list[str]:
        """For `train.py`."""
        return [
            "--family", self.family, "--optimizer", self.optimizer, "--fields", str(self.fields), "--rows", str(self.rows),
            "--dim", str(self.dim), "--hidden", ",".join(map(str, self.hidden)), "--batch", str(self.batch),
        ]  # fmt: skip


def cases() -> list[Case]:
    """All of them; families in turn, so that a part of the list has all."""
    drawn = [list(family_cases(family, random.Random(f"29 {family}"))) for family in FAMILIES]
    return [one for row in zip(*drawn) for one in row]


def family_cases(family: str, chance: random.Random) -> Iterator[Case]:
    made: list[Case] = []
    sizes = chance.sample(SIZES * 2, 2 * len(SIZES))
    while len(made) < EACH:
        number = len(made)
        ps, workers = sizes[number]
        case = Case(
            f"{family}-{number}", family, chance.choice(tuple(OPTIMIZERS)), chance.choice((4, 8, 16, 26, 40)),
            ROWS[number % len(ROWS)], chance.choice((4, 8, 16, 32)),
            chance.choice(((64,), (128, 64), (256, 128), (512, 256), (512, 256, 128), (1024, 512))),
            chance.choice((64, 128, 256, 512, 1024, 2048)), ps, workers,
        )  # fmt: skip
        if case.state_bytes <= (DENSE_BYTES_MAX if case.optimizer == "adam" else STATE_BYTES_MAX):
            made.append(case)
            yield case
    for case in made[:REPEATED]:
        yield Case(**{**vars(case), "name": f"{case.name}-again"})
