"""The one kind of console: `rich` lays out and colours, the text that it is given is made safe."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from deeprec_ext.printable import behind, printable_lines


class Console(RichConsole):
    """On stdout unless `file` says otherwise, where nothing is cut off: it is `wide`. Brackets in a text are brackets: no
    markup, no emoji."""

    def __init__(self, *, file: Any = None, wide: int | None = None, **options: Any) -> None:
        super().__init__(file=behind(sys.stdout if file is None else file), markup=False, emoji=False, **options)
        if wide is not None and not self.is_terminal:
            self.width = wide

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(printable_lines(segment.text), segment.style)
