"""The documents' tables of options say what the table in `deeprec_ext/options.py` says.

`make settings` writes the page of the settings.
"""

from __future__ import annotations

import re

import pytest

from deeprec_ext import options
from deeprec_ext.options import all_rows, rows, written
from tests.docs.reading import ROOT

HEAD = """# Settings

Limits in time, sizes and choices of a job's AIMaster: `deeprec-ext run --setting NAME=VALUE`, which may be repeated. Those with
a flag are also said by it, or, in a TFJob, by the annotation of that name. Written from `deeprec_ext/options.py` by
`make settings`.

| setting | unit | default | what it does, and why |
|---|---|---|---|
"""


def settings_page() -> str:
    lines = []
    for row in rows(options.Settings):
        unit = ", ".join(f"`{word}`" for word in row.words) or row.unit or {bool: "true, false"}.get(row.type, "text")
        unit += f", {row.least:,} or more" if row.least else ""
        flag = f" (flag `--{row.key}`)" if row.flag else ""
        lines.append(f"| `{row.name}`{flag} | {unit} | {written(row.default)} | {row.help} |\n")
    return HEAD + "".join(lines)


def test_the_page_of_the_settings_is_as_the_table_has_them() -> None:
    assert (ROOT / "docs/settings.md").read_text() == settings_page(), "run: make settings"


def named(page: str, heading: str) -> set[str]:
    """Code in the first column of the table below such a heading."""
    text = (ROOT / page).read_text()
    table = text[text.index(heading) :].split("\n\n")[0].splitlines()[2:]
    return {word for line in table for word in re.findall(r"`([^`]+)`", line.split(" | ")[0])}


@pytest.mark.parametrize(
    ("page", "heading", "way"),
    [("docs/user-guide.md", "| flag | meaning | default |", "flag"),
     ("docs/kubernetes.md", "| annotation `aimaster.deeprec.io/…` | means | default |", "annotation")],
)  # fmt: skip
def test_every_option_is_in_the_documents_table(page: str, heading: str, way: str) -> None:
    found = {word.split()[0].removeprefix("--") for word in named(page, heading)}
    known = {row.key for row in all_rows() if getattr(row, way)}
    assert known <= found, known - found
    if way == "annotation":
        assert found == known, "and no other"


if __name__ == "__main__":
    (ROOT / "docs/settings.md").write_text(settings_page())
