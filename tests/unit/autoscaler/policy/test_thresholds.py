"""`--set name=value`: what is wrong is said with the remedy."""

from __future__ import annotations

import dataclasses

import pytest

from deeprec_ext.autoscaler.policy.thresholds import LATER, NAMES, Policy, describe, from_values, parse, to_values
from deeprec_ext.errors import UsageError


def test_settings_are_changed_by_name():
    policy = parse(["gain_min=0.1", "windows-min=3", "bytes_per_core=8Gi"])
    assert (policy.gain_min, policy.windows_min, policy.bytes_per_core) == (0.1, 3, 8 << 30)
    assert policy == dataclasses.replace(Policy(), gain_min=0.1, windows_min=3, bytes_per_core=8 << 30)


@pytest.mark.parametrize(
    ("pairs", "part"),
    [
        (["gain_min"], "write name=value"),
        (["gain_mi=1"], "did you mean gain_min?"),
        (["colour=1"], "there is no such policy setting; there are windows_min"),
        (["gain_min=much"], "give a number"),
        (["gain_min="], "give a number"),
        (["windows_min=2.5"], "give a whole number"),
        (["bytes_per_core=4 apples"], "amount of bytes"),
        (["gain_min=-1"], "must be between 0 and 10"),
        (["gain_min=nan"], "must be between"),
        (["spread_max=inf"], "must be between"),
        (["gain_min=0.1", "gain_min=0.2"], "given twice"),
    ],
)
def test_what_is_wrong_is_said_with_the_remedy(pairs, part):
    with pytest.raises(UsageError, match=part.replace("?", r"\?")):
        parse(pairs)


def test_every_setting_has_a_reason_and_a_default_within_its_range():
    for name, value, default, why in describe(Policy()):
        field = NAMES[name]
        assert value == default and len(why) > 10
        assert field.metadata["low"] <= default <= field.metadata["high"]


def test_a_recorded_policy_comes_back_and_another_version_is_refused():
    policy = parse(["payback=3"])
    assert from_values(to_values(policy)) == policy
    earlier = {name: value for name, value in to_values(policy).items() if name not in LATER}
    assert from_values(earlier) == policy
    for wrong in ({**to_values(policy), "colour": 1}, {"payback": 1}, None):
        with pytest.raises(UsageError, match="another version"):
            from_values(wrong)
    with pytest.raises(UsageError, match="damaged"):
        from_values({**to_values(policy), "payback": "many"})
    with pytest.raises(UsageError, match="between"):
        from_values({**to_values(policy), "payback": -1})
