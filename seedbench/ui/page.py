"""Episodes and traces as one HTML page: `seedbench view RUN --html FILE`. The page is static: no script, no network."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from seedbench.errors import UsageError
from seedbench.report.entries import entry
from seedbench.report.site import write
from seedbench.traces import Trace
from seedbench.types import Episode


def write_page(file: Path, title: str, about: str, entries: Iterable[Episode | Trace]) -> None:
    """Write the entries into `file` in one step, reading each only when it is its turn.

    `title` heads the page and `about` is the line under it, plain text both. Raises UsageError for a name that does not
    end in .html, SeedBenchError where the file cannot be written, and what reading the entries raises.
    """
    if file.suffix.lower() != ".html":  # so that a slip overwrites nothing else
        raise UsageError(f"--html '{file}': the name of a page ends in .html, e.g. `--html view.html`.")
    numbered = (entry(number, given) for number, given in enumerate(entries, 1))
    write(file, "view.html.jinja", title=title, about=about, entries=numbered)
