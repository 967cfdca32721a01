"""What a newcomer is given: models, optimizers and schedules as arrays, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not here: make torch")

from deeprec_ext.errors import ProtocolError  # noqa: E402
from deeprec_ext.torch.snapshot import Snapshot  # noqa: E402

OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, momentum=0.5),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.01),
}


class Process:
    """A model with optimizer and schedule."""

    def __init__(self, seed: int, kind: str = "adam", width: int = 5, dtype: object = torch.float32) -> None:
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(4, width), torch.nn.BatchNorm1d(width), torch.nn.Linear(width, 1)
        ).to(dtype)
        self.optimizer = OPTIMIZERS[kind](self.model.parameters())
        self.snapshot = Snapshot()
        self.snapshot.holds(self.model)
        self.snapshot.watch(self.optimizer)
        self.schedules = [
            torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.1, total_steps=100, cycle_momentum=kind != "adagrad"),
            torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [3, 20]),
            torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer, patience=2),
        ]
        self.dtype = dtype
        for one in self.schedules:
            self.snapshot.watch(one)

    def steps(self, seed: int, count: int = 5) -> None:
        chance = torch.Generator().manual_seed(seed)
        for _ in range(count):
            self.optimizer.zero_grad()
            loss = self.model(torch.randn(8, 4, generator=chance).to(self.dtype)).float().square().mean()
            loss.backward()
            self.optimizer.step()
            self.schedules[0].step()
            self.schedules[1].step()
            self.schedules[2].step(float(loss.detach()))

    def bits(self) -> list[bytes]:
        arrays = self.snapshot.take()
        return [one.tobytes() for one in arrays]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_who_was_given_a_state_goes_on_as_who_gave_it(kind: str) -> None:
    one, other = Process(1, kind), Process(2, kind)
    one.steps(3)
    one.snapshot.place = (0, 7)
    other.snapshot.put([np.array(array) for array in one.snapshot.take()])
    assert other.snapshot.came == (0, 7)
    other.snapshot.place = (0, 7)
    assert other.bits() == one.bits()
    for process in (one, other):
        process.steps(4)
    assert other.bits() == one.bits()
    assert other.optimizer.param_groups[0]["lr"] == one.optimizer.param_groups[0]["lr"]


def test_the_state_before_the_first_step_takes_that_of_a_later_one_away() -> None:
    one, other = Process(1), Process(2)
    other.steps(3)
    other.snapshot.put([np.array(array) for array in one.snapshot.take()])
    assert other.bits()[1:] == one.bits()[1:] and not other.optimizer.state_dict()["state"]


def test_numbers_that_numpy_does_not_have_come_as_they_are() -> None:
    one, other = Process(1, dtype=torch.bfloat16), Process(2, dtype=torch.bfloat16)
    one.steps(3)
    other.snapshot.put([np.array(array) for array in one.snapshot.take()])
    assert other.bits() == one.bits()


@pytest.mark.parametrize("other", [{"width": 6}, {"kind": "sgd"}, {"dtype": torch.float64}])
def test_what_is_not_alike_is_refused(other: dict[str, object]) -> None:
    one, another = Process(1), Process(1, **other)  # type: ignore[arg-type]
    one.steps(1)
    with pytest.raises(ProtocolError, match=r"alike|same"):
        another.snapshot.put(one.snapshot.take())


@pytest.mark.parametrize("words", [b"", b"[]", b'{"models": [{"tensor": [9, "float32", [1]]}]}', b'{"place": [0]}'])
def test_a_state_that_cannot_be_read_is_an_error_of_the_protocol(words: bytes) -> None:
    with pytest.raises(ProtocolError):
        Process(1).snapshot.put([np.frombuffer(words, np.uint8)])


def test_what_is_gone_is_left_out() -> None:
    process = Process(1)
    before = len(process.snapshot.take())
    again = torch.optim.SGD(process.model.parameters(), lr=1.0)
    process.snapshot.watch(again)
    process.snapshot.watch(again)
    del again
    assert len(process.snapshot.take()) == before
