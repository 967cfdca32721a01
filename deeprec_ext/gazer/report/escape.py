"""HTML that is escaped by construction: text becomes HTML in `element` and nowhere else."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
"""Control characters, halves of surrogate pairs, and what turns the direction of writing: none of it belongs on a page."""

_VOID = frozenset({"meta", "line", "rect", "path", "br"})
_SELF_CLOSED = frozenset({"line", "rect", "path"})


class Html(str):
    """Text that is HTML already."""


def clean(text: str) -> str:
    """Without characters that a page or a terminal could trip over; each becomes a replacement character."""
    return _FORBIDDEN.sub("\ufffd", text)


def escape(text: str) -> Html:
    return text if isinstance(text, Html) else Html(html.escape(clean(text), quote=True))


def join(parts: Iterable[Html]) -> Html:
    return Html("".join(parts))


def element(name: str, /, *inside: str, **attributes: str | float) -> Html:
    """`element("td", "a < b", class_="x")`; whatever is not Html is escaped. Attributes: `_` at the end is dropped, others
    become `-`."""
    words = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items())
    if name in _VOID:
        return Html(f"<{name}{words}{'/' if name in _SELF_CLOSED else ''}>")
    return Html(f"<{name}{words}>{''.join(map(escape, inside))}</{name}>")


def with_code(text: str) -> Html:
    """Plain text with `code` between backticks."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return join(element("code", part) if number % 2 else escape(part) for number, part in enumerate(parts))
