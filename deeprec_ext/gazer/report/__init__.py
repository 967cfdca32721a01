"""A report of a run: `Story` → findings and sections → HTML, Markdown or JSON.

- `story`: what a run is told by; `case` with `lines`, `load`, `trainers`, `resources`, `work`: what follows from it.
- `findings`: rules that say in plain words what stands out, and what to do.
- `sections`, `compose`: the document; `html` (with `svg`), `markdown`, `as_json`: its forms.

All of it is pure: nothing reads or writes a file. `deeprec_ext.launch.records.story` reads a run directory.
"""

from __future__ import annotations

import json

from deeprec_ext.gazer.report import as_json, html, markdown
from deeprec_ext.gazer.report.compose import compose
from deeprec_ext.gazer.report.story import Story


def to_html(story: Story) -> str:
    """One self-contained file."""
    return html.render(compose(story))


def to_markdown(story: Story) -> str:
    return markdown.render(compose(story))


def to_json(story: Story) -> str:
    return json.dumps(as_json.values(story), indent=2) + "\n"
