"""The panel that a command line chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seedbench.panels import Panel


def chosen_panel(spec: str, families: str, limit: int | None) -> Panel:
    """The panel `spec`, cut to the families of a list separated by commas (empty: all) and to `limit` tasks.

    Raises UsageError and SeedBenchError as `load_panel` and `Panel.subset`.
    """
    from seedbench.panels import load_panel

    return load_panel(spec).subset([name.strip() for name in families.split(",") if name.strip()], limit)
