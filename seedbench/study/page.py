"""The report of a study as one page: the same tables, sentences and figures, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from seedbench.report.site import write
from seedbench.study.sheets import Figure, Section, number, shown, text_columns


def write_page(target: Path, title: str, sections: Sequence[Section]) -> Path:
    """Write the page. Its figures are read from the folder it is written to, and stand in it.

    Raises SeedBenchError where it cannot be written, OSError where a figure is not there.
    """
    pictures = {
        block.name: _uri(target.with_name(f"{block.name}.svg"))
        for section in sections
        for block in section.blocks
        if isinstance(block, Figure)
    }
    return write(
        target,
        "study.html.jinja",
        title=title,
        sections=sections,
        pictures=pictures,
        shown=shown,
        number=number,
        text_columns=text_columns,
    )


def _uri(path: Path) -> Markup:
    # An image in the page's own text: its names cannot meet those of another figure, and it can run nothing.
    return Markup("data:image/svg+xml;base64,") + Markup(base64.b64encode(path.read_bytes()).decode())
