"""Scripted events (`--events FILE`, YAML): parsed strictly, so that a typing error costs a line and not a run.

    - {at_step: 200, scale: {ps: 4}}         # or {workers: 2}, those beside the chief, or both in one change
    - {at_seconds: 30, rebalance: true}
    - {at_step: 400, replace: ps-1}          # for a new one
    - {at_step: 600, kill: aimaster}         # SIGKILL
    - {at_step: 700, hang: worker-1}         # SIGSTOP

They run in this order, one at a time; each fires at its step or time or, if that is later, when the one before has ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeprec_ext.bounds import MOST, within
from deeprec_ext.errors import UsageError

BYTES_MAX = 256 << 10
DEPTH_MAX = 8  # the list, an event, what it scales: three are of use
VALUE_MAX = 100
"""Characters."""

TRIGGERS = ("at_step", "at_seconds")
ACTIONS = ("scale", "rebalance", "replace", "kill", "hang")
_ROLE_NAME = re.compile(r"aimaster|(?:ps|chief|worker|evaluator)-(?:0|[1-9]\d*)")


@dataclass(frozen=True)
class ScriptedEvent:
    """One entry. Exactly one of `at_step`, `at_seconds` is set; `target` is the name of a role."""

    action: str  # scale, rebalance, replace, kill, hang
    target: str = ""
    ps: int | None = None  # scale: the wanted number, if it is to change
    workers: int | None = None
    at_step: int | None = None
    at_seconds: float | None = None

    def due(self, step: int, seconds: float) -> bool:
        """Whether it may fire: at this step of the job, so many seconds after its start."""
        return step >= self.at_step if self.at_step is not None else seconds >= (self.at_seconds or 0.0)

    def __str__(self) -> str:
        when = f"step {self.at_step}" if self.at_step is not None else f"{self.at_seconds:g} s"
        sizes = [f"{what} to {count}" for what, count in self.sizes.items()]
        return f"{self.action} {' and '.join(sizes) or self.target}".strip() + f" at {when}"

    @property
    def sizes(self) -> dict[str, int]:
        """Of `scale`: the wanted numbers of `ps` and `workers`, where they are to change."""
        wanted = {"ps": self.ps, "workers": self.workers}
        return {what: count for what, count in wanted.items() if count is not None}


def load_events(path: Path) -> tuple[ScriptedEvent, ...]:
    """Raises UsageError with one line that names file, line and key."""
    from deeprec_ext import yamlfiles

    text = yamlfiles.read(path, f"--events {path}", _limits(), "give a YAML file with a list of events")
    return parse_events(text, str(path))


def parse_events(text: str, source: str = "events") -> tuple[ScriptedEvent, ...]:
    """Args: text: the YAML; source: what error messages call it. Raises UsageError."""
    import yaml

    from deeprec_ext import yamlfiles

    yamlfiles.check(text, source, _limits())
    loader = yamlfiles.Loader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return ()
        if not isinstance(root, yaml.SequenceNode):
            raise UsageError(f"{source}: must be a list of events, each like `- {{at_step: 200, scale: {{ps: 4}}}}`")
        events = []
        for number, node in enumerate(root.value, 1):
            where = f"{source}, line {node.start_mark.line + 1} (event {number})"
            try:
                events.append(_event(dict(_pairs(node, loader, where)), where))
            except yaml.YAMLError as error:  # what looks like a date or a number and is none
                raise yamlfiles.no_yaml(error, f"{source}, event {number}") from None
        return tuple(events)
    except yaml.YAMLError as error:
        raise yamlfiles.no_yaml(error, source) from None
    finally:
        loader.dispose()


def _limits() -> Any:  # made here: most runs have no events, and need no YAML
    from deeprec_ext.yamlfiles import Limits

    use = "a run has no use for more events, and each is like {at_step: 200, scale: {ps: 4}}"
    return Limits(BYTES_MAX, DEPTH_MAX, VALUE_MAX, written=64 * BYTES_MAX, plain=True, use=use)


def _pairs(node: Any, loader: Any, where: str) -> Iterator[tuple[str, Any]]:
    """The keys and values of a mapping node; a key given twice is an error, and not the last one wins as in YAML."""
    import yaml

    if not isinstance(node, yaml.MappingNode):
        raise UsageError(f"{where}: must be a mapping like {{at_step: 200, scale: {{ps: 4}}}}")
    seen = set()
    for key_node, value_node in node.value:
        key = str(key_node.value)[:VALUE_MAX]
        if key in seen:
            raise UsageError(f"{where}: key `{key}` is given twice; leave one out")
        seen.add(key)
        if isinstance(value_node, yaml.MappingNode):
            yield key, dict(_pairs(value_node, loader, where))
        else:
            yield key, loader.construct_object(value_node, deep=True)


def _event(entry: dict[str, Any], where: str) -> ScriptedEvent:
    for key in entry:
        if key not in TRIGGERS + ACTIONS:
            raise UsageError(f"{where}: unknown key `{key}`; allowed are {', '.join(TRIGGERS + ACTIONS)}")
    trigger, action = _only(entry, TRIGGERS, where), _only(entry, ACTIONS, where)
    at, value = entry[trigger], entry[action]
    if isinstance(at, bool) or not isinstance(at, int if trigger == "at_step" else (int, float)) or at < 0:
        kind = "a whole number" if trigger == "at_step" else "a number"
        raise UsageError(f"{where}: `{trigger}` must be {kind}, 0 or more, not {at!r}")
    unit = "step" if trigger == "at_step" else "seconds"
    if not within(at, unit):
        raise UsageError(f"{where}: `{trigger}` must be {MOST[unit]:,} at the most")
    sizes = _scale(value, where) if action == "scale" else {}
    target = "" if action == "scale" else _target(action, value, where)
    if trigger == "at_step":
        return ScriptedEvent(action, target, **sizes, at_step=int(at))
    return ScriptedEvent(action, target, **sizes, at_seconds=float(at))


def _only(entry: dict[str, Any], allowed: tuple[str, ...], where: str) -> str:
    given = [key for key in allowed if key in entry]
    if len(given) != 1:
        found = f"{' and '.join(f'`{key}`' for key in given)} given" if given else "none given"
        raise UsageError(f"{where}: needs exactly one of {', '.join(allowed)}; {found}")
    return given[0]


def _scale(value: Any, where: str) -> dict[str, int]:
    if not isinstance(value, dict) or not value:
        raise UsageError(f"{where}: `scale` must be {{ps: N}}, {{workers: N}} or {{ps: N, workers: N}}, not {value!r}")
    return {what: _count(what, count, where) for what, count in value.items()}


def _count(what: str, count: Any, where: str) -> int:
    if what not in ("ps", "workers"):
        raise UsageError(f"{where}: unknown key `{what}` in `scale`; allowed are ps, workers")
    least = 1 if what == "ps" else 0
    if isinstance(count, bool) or not isinstance(count, int) or count < least:
        raise UsageError(f"{where}: `{what}` must be a whole number, {least} or more, not {count!r}")
    most = MOST["PS" if what == "ps" else what]
    if count > most:
        raise UsageError(f"{where}: `{what}` must be {most:,} at the most")
    return count


def _target(action: str, value: Any, where: str) -> str:
    if action == "rebalance":
        if value is not True:
            raise UsageError(f"{where}: `rebalance` must be true, not {value!r}; leave the event out instead")
        return ""
    if not isinstance(value, str) or not _ROLE_NAME.fullmatch(value):
        raise UsageError(
            f"{where}: `{action}` must name a role such as ps-1, worker-0, chief-0 or aimaster, not {value!r}"
        )
    if action == "replace" and not value.startswith(("ps-", "worker-")):
        raise UsageError(f"{where}: `replace` works for a PS or a worker, not for {value}")
    return value
