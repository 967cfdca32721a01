"""Whether the API server would make a pod of a template, as far as its schema says: told before anything is made.

The schema is the CRD's (`tfjob/manifests/make_template_schema.py`), so a server that has our CRD refuses the same. But for one
thing: it drops what the schema does not know without a word, and a key that is misspelt is told here.
"""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfjob.model.kinds import Manifest
from tfjob.model.spec import InvalidError

SCHEMA = Path(__file__).with_name("pod_template.json")
SHOWN = 10
"""Mistakes that are told at once."""

Schema = Mapping[str, Any]
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
}  # fmt: skip
_WHAT = {
    "object": "an object", "array": "a list", "string": "a text", "integer": "a whole number", "number": "a number",
    "boolean": "true or false",
}  # fmt: skip
_WORDS = re.compile(r"\^\(([A-Za-z|]*)\)\$")
"""A pattern that lists what may be written."""

_BITS = {"int32": 31, "int64": 63}


@functools.cache
def template_schema() -> Schema:
    """Of a pod template, as the CRD has it."""
    found: Schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return found


def check(manifest: Manifest) -> None:
    """Of all replicas of a TFJob. Raises InvalidError with the first mistake, and in its message with the others."""
    found = list(mistakes(manifest))
    if not found:
        return
    (path, text), *others = found
    lines = [f"{where}: {what}" for where, what in others[: SHOWN - 1]]
    if len(found) > SHOWN:
        lines.append(f"and {len(found) - SHOWN} more")
    raise InvalidError(path, "; ".join((text, *lines)))


def mistakes(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """(path, what is wrong) of each. What is no TFJob at all is for `TFJob.parse` to say."""
    spec = manifest.get("spec")
    replicas = spec.get("tfReplicaSpecs") if isinstance(spec, dict) else None
    for type_, one in replicas.items() if isinstance(replicas, dict) else ():
        if isinstance(one, dict) and one.get("template") is not None:
            yield from _mistakes(one["template"], template_schema(), f"spec.tfReplicaSpecs.{type_}.template")


def _mistakes(value: Any, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    if value is None and schema.get("nullable"):
        return
    if schema.get("x-kubernetes-int-or-string"):
        yield from _int_or_string(value, schema, path)
        return
    type_ = schema["type"]
    if not isinstance(value, _TYPES[type_]) or (isinstance(value, bool) and type_ != "boolean"):
        yield path, _no_such_type(value, type_, path)
    elif type_ == "object":
        yield from _object(value, schema, path)
    elif type_ == "array":
        yield from _array(value, schema, path)
    else:
        yield from _scalar(value, schema, path)


def _object(value: Any, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    known, others = schema.get("properties"), schema.get("additionalProperties", {})
    for key in schema.get("required", ()):
        if value.get(key) is None:
            yield f"{path}.{key}", "is required"
    for key, one in value.items():
        if known is None:
            yield from _mistakes(one, others, f"{path}[{key}]")
        elif key in known:
            if one is not None or key not in schema.get("required", ()):  # else it is told already
                yield from _mistakes(one, known[key], f"{path}.{key}")
        else:
            near = difflib.get_close_matches(str(key), list(known), n=1, cutoff=0.0)[0]
            yield f"{path}.{key}", f"there is no such field; is {near} meant?"


def _array(value: Any, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    for index, one in enumerate(value):
        yield from _mistakes(one, schema["items"], f"{path}[{index}]")
    keys = schema.get("x-kubernetes-list-map-keys")
    if not keys and schema.get("x-kubernetes-list-type") != "set":
        return
    taken: dict[str, int] = {}
    for index, one in enumerate(value):
        if keys and not isinstance(one, dict):
            continue
        defaults = {key: schema["items"]["properties"][key].get("default") for key in keys or ()}
        name = json.dumps([one.get(key) or defaults[key] for key in keys] if keys else one)
        first = taken.setdefault(name, index)
        if first != index:
            what = ", ".join(f"{key} {one.get(key) or defaults[key]}" for key in keys) if keys else repr(one)
            yield f"{path}[{index}]", f"{what} is there twice, the first time in [{first}]"


def _int_or_string(value: Any, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    quantity = "pattern" in schema
    example = "write for example 500m or 2Gi" if quantity else "write a whole number or a text"
    if isinstance(value, float):
        yield path, f'is {value!r}, which the server does not take so; write "{value:g}", in quotes'
    elif isinstance(value, bool) or not isinstance(value, (int, str)):
        yield path, f"is {_shown(value)}; {example}"
    elif quantity and isinstance(value, str) and not re.search(schema["pattern"], value):
        yield path, f"is {value!r}, which is no quantity; {example}"


def _scalar(value: Any, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    words = _WORDS.fullmatch(schema.get("pattern", ""))
    if words and isinstance(value, str):
        if value not in words[1].split("|"):
            yield path, f"is {_shown(value)}; write {', '.join(word for word in words[1].split('|') if word)}"
    elif isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            yield path, "is empty"
        elif len(value) > schema.get("maxLength", len(value)) or not re.search(schema.get("pattern", ""), value):
            most = schema["maxLength"]
            yield path, f"is {_shown(value)}; write lower case letters, digits and '-', at most {most} characters"
    elif isinstance(value, int) and "minimum" in schema and not schema["minimum"] <= value <= schema["maximum"]:
        yield path, f"is {value}; must be a number from {schema['minimum']} to {schema['maximum']}"
    elif isinstance(value, int) and not isinstance(value, bool) and schema.get("format") in _BITS:
        bits = _BITS[schema["format"]]
        if not -(1 << bits) <= value < 1 << bits:
            yield path, f"is {value}; must fit into {bits + 1} bits"


def _no_such_type(value: Any, type_: str, path: str) -> str:
    text = f"is {_shown(value)}; must be {_WHAT[type_]}"
    if type_ == "array" and isinstance(value, str):
        field = path.rpartition(".")[2]
        words = f'["sh", "-c", "{value}"]' if field == "command" else f'["{value}"]'
        return f"{text}: write {words}" if len(value) < 80 else text
    if type_ == "string" and isinstance(value, (bool, int, float)):
        return f'{text}: write "{str(value).lower() if isinstance(value, bool) else value}", in quotes'
    return text


def _shown(value: Any) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
