"""What a rule answers, and the decision that comes of it: what to change, why, and what is expected of it."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass, field
from typing import Union

from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.decoding import built

ACTIONS = ("start", "scale", "explore", "rebalance", "replace", "resize", "keep")
COUNTED = ("scale", "explore")
"""Those that change counts. `explore`: by a step whose gain is not known well enough to be promised."""

_SIZE = re.compile(r"(?:\d+ PS, )?\d+ workers?")
_FIGURE = re.compile(r"\S*\d\S*( m?s\b)?")
"""In a reason, with its unit."""


@dataclass(frozen=True)
class Prediction:
    """What the throughput model says, with its error."""

    examples_per_second: float = 0.0  # at the new size
    before: float = 0.0  # at the present size, by the same model
    mape_holdout: float | None = None  # None: too few windows to hold any out
    windows: int = 0
    coefficients: tuple[float, ...] = ()
    pause_seconds: float = 0.0
    change_seconds: float = 0.0
    confidence: float = 0.0  # 0 to 1
    price_seconds: float = 0.0  # of `explore`: training it may cost, the way back included


@dataclass(frozen=True)
class Decision:
    """One plan with its reason. `keep` changes nothing and says why."""

    number: int
    time: float
    action: str
    size: Size  # wanted
    reason: str  # one sentence with its evidence
    replace: str = ""  # name of a role, for `replace` and `resize` of one pod
    slot_weights: tuple[float, ...] = ()  # for `rebalance`: load per slot that the map is to be balanced by
    prediction: Prediction = field(default_factory=Prediction)
    inputs: str = ""  # digest of the observation: what `plan --replay` compares

    @property
    def kind(self) -> str:
        """Its reason without figures, which are others each time, but with the sizes that it speaks of: the candidates."""
        sizes = _SIZE.findall(self.reason)
        return _FIGURE.sub("", _SIZE.sub("", self.reason)) + ", ".join(sizes)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Decision:
        return built(cls, json.loads(text), "decision")


# --------------------------------------------------------------------------------------------------- answers of rules


@dataclass(frozen=True)
class Proposal:
    """A change, with its reason."""

    action: str  # of decision.ACTIONS, not `keep`
    size: Size
    reason: str
    replace: str = ""
    slot_weights: tuple[float, ...] = ()
    price_seconds: float = 0.0  # of `explore`


@dataclass(frozen=True)
class Keep:
    """Nothing is changed, and no later rule is asked."""

    reason: str


@dataclass(frozen=True)
class Remark:
    """This rule changes nothing, for a reason worth telling; later rules are asked. `grave`: told with any decision."""

    text: str
    grave: bool = False


Answer = Union[Proposal, Keep, Remark, None]
