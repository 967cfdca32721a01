"""What a rule answers: a change, a final "nothing is changed", a remark, or nothing at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Union

from deeprec_ext.aimaster.policy.evidence import Evidence
from deeprec_ext.aimaster.policy.observed import Size


@dataclass(frozen=True)
class Proposal:
    """A change, with its reason."""

    action: str  # of decision.ACTIONS, not `keep`
    size: Size
    reason: str
    replace: str = ""
    slot_weights: tuple[float, ...] = ()


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
Rule = Callable[[Evidence], Answer]
