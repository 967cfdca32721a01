"""A part of a pod laid over a whole one: what an administrator wants of every pod that we make (mounts, node selectors).

As in a strategic merge patch: dictionaries by key, lists of named things by name (mounts: by path), anything else is
replaced, and null removes.
"""

from __future__ import annotations

from typing import Any

from tfjob.model.kinds import Manifest

_KEYS = ("name", "mountPath", "containerPort", "ip")


def merged(base: Manifest, patch: Manifest) -> Manifest:
    """A new manifest; neither argument is changed, but parts may be shared with it."""
    result = dict(base)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged_value(result.get(key), value)
    return result


def _merged_value(base: Any, patch: Any) -> Any:
    if isinstance(base, dict) and isinstance(patch, dict):
        return merged(base, patch)
    if isinstance(base, list) and isinstance(patch, list):
        key = _key_of([*base, *patch])
        if key:
            added = {item[key]: item for item in patch}
            kept = [merged(item, added.pop(item[key], {})) for item in base]
            return [*kept, *added.values()]
    return patch


def _key_of(items: list[Any]) -> str | None:
    """The key by which all of them are told apart; mounts have a name as well, so their path is asked first."""
    if not all(isinstance(item, dict) for item in items):
        return None
    if all("mountPath" in item for item in items):
        return "mountPath"
    return next((key for key in _KEYS if all(key in item for item in items)), None)
