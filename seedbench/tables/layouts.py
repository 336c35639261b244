"""Which families a table shows, in which order and under which titles. Add a layout by adding an entry."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """A suite's columns; micro and macro follow the families in every layout."""

    title: str
    families: tuple[tuple[str, str], ...]
    """(family key, column title)."""


LAYOUTS: dict[str, Layout] = {
    "alfworld": Layout(
        "ALFWorld success",
        (
            ("pick", "Pick"),
            ("look", "Look"),
            ("clean", "Clean"),
            ("heat", "Heat"),
            ("cool", "Cool"),
            ("pick2", "Pick2"),
        ),
    ),
}
