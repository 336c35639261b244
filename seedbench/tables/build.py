"""From summaries to a table: one block a panel, so that different panels never share a body."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seedbench.errors import UsageError, unknown
from seedbench.statistics import Rate
from seedbench.tables.layouts import LAYOUTS, Column, Layout
from seedbench.tables.text import one_line, steps

Cell = Rate | float | None
"""A rate or mean with its interval, a plain number, or nothing."""

SPENT = {
    "steps": ("turns", "total"),
    "prompt_tokens": ("tokens", "prompt"),
    "generated_tokens": ("tokens", "generated"),
    "wall_seconds": ("seconds", "wall"),
    "gpu_seconds": ("seconds", "gpu"),
}
"""Where a summary has what a run spent."""

_NOTHING = {"mean": None, "n": 0, "ci": [0.0, 1.0]}
"""A mean of nothing, as in summaries."""


@dataclass(frozen=True, slots=True)
class Row:
    """One run. Its texts are inert single lines."""

    label: str
    policy: str
    protocol: str
    protocol_hash: str
    repeats: int
    seed: int
    episodes: int
    """Finished attempts, infrastructure errors included."""
    expected: int
    """Attempts of the complete run."""
    infra_errors: int
    environment: str
    """What observations depended on beside the panel, in words; empty where nothing did."""
    steps: float | None
    rates: tuple[Cell, ...]
    """One for each column of the table: a mean in place of the rate where the column is one, a plain number where it
    is an amount; None where the run's panel lacks that family, or the amount is not known."""

    @property
    def unfinished(self) -> bool:
        """Whether attempts are still to come."""
        return self.episodes < self.expected


@dataclass(frozen=True, slots=True)
class Block:
    """The runs on one panel."""

    panel: str
    panel_hash: str
    n: int
    suite: str
    split: str
    official: bool
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    """What a reader must know about these rows."""

    @property
    def mixed_protocols(self) -> bool:
        """Whether the rows were run under more than one protocol."""
        return len({row.protocol_hash for row in self.rows}) > 1

    @property
    def title(self) -> str:
        """Panel, split, size, hash; the protocol where there is only one; whether it is official."""
        parts = [self.panel, f"split {self.split}", f"{self.n} tasks", f"hash {self.panel_hash[:12]}"]
        if not self.mixed_protocols:
            parts.append(f"protocol {self.protocol(self.rows[0])}")
        parts += unofficial(self.suite, self.official)
        return ", ".join(parts)

    def protocol(self, row: Row) -> str:
        """The row's protocol by name, with its hash where another in the block has the same name."""
        hashes = {other.protocol_hash for other in self.rows if other.protocol == row.protocol}
        return f"{row.protocol} ({row.protocol_hash[:12]})" if len(hashes) > 1 else row.protocol

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Titles of the columns before the numbers: those that tell these rows apart."""
        policies = any(row.policy != row.label for row in self.rows)
        return ("Run", *(["Policy"] if policies else []), *(["Protocol"] if self.mixed_protocols else []))

    def texts(self, row: Row) -> tuple[str, ...]:
        """The row's cells under `text_columns`; an unfinished run's label ends in ` *`."""
        cells = {
            "Run": row.label + (" *" if row.unfinished else ""),
            "Policy": row.policy,
            "Protocol": self.protocol(row),
        }
        return tuple(cells[title] for title in self.text_columns)


@dataclass(frozen=True, slots=True)
class Table:
    """What the renderers print."""

    layout: str
    title: str
    columns: tuple[Column, ...]
    blocks: tuple[Block, ...]
    caption: str
    steps: bool = True
    """Whether the mean number of steps follows the columns."""

    @property
    def titles(self) -> tuple[str, ...]:
        """Titles of the columns of numbers."""
        return (*(column.title for column in self.columns), *(["Steps"] if self.steps else []))

    def tail(self, row: Row) -> tuple[str, ...]:
        """The row's cells behind `columns`, as text."""
        return (steps(row.steps),) if self.steps else ()


def build(summaries: Sequence[tuple[str, Mapping[str, Any]]], layout: str) -> Table:
    """Arrange `(label, summary)` pairs as a table, a row each, in their order, in a block for each panel.

    Raises UsageError for an unknown layout, no summaries, or a summary that does not have the families or
    metrics of the layout.
    """
    if layout not in LAYOUTS:
        raise unknown("table layout", layout, LAYOUTS)
    if not summaries:
        raise UsageError("a table needs at least one run: name a run folder or a summary.json.")
    chosen = LAYOUTS[layout]
    panels: dict[tuple[str, str], list[tuple[str, Mapping[str, Any]]]] = {}
    for label, summary in summaries:
        if problem := _problem(summary, chosen):
            raise UsageError(
                f"layout '{layout}' does not fit run '{one_line(label)}': {problem}; "
                f"choose another layout (cost fits every run) or leave the run out."
            )
        panel = summary["panel"]
        panels.setdefault((panel["name"], panel["hash"]), []).append((label, summary))
    return Table(
        layout=layout,
        title=chosen.title,
        columns=chosen.columns,
        blocks=tuple(_block(members, chosen) for members in panels.values()),
        caption=chosen.caption,
        steps=chosen.steps,
    )


def _problem(summary: Mapping[str, Any], layout: Layout) -> str:
    """Why the layout does not fit the run; empty where it does."""
    known = [key for key, _ in layout.families]
    families = list(summary["success"]["families"])
    # Every family of the run needs a column, or the table would hide what its micro rate counts.
    if known and not (families and set(families) <= set(known)):
        return f"its families are {_listed(families)}, the layout's are {', '.join(known)}"
    needed = [key for key, _ in layout.metrics]
    metrics = list(summary["metrics"])
    # Before the first counted episode nobody knows which metrics a run has.
    if summary["score"]["n"] and not set(needed) <= set(metrics):
        return f"its metrics are {_listed(metrics)}, the layout needs {', '.join(needed)}"
    return ""


def _listed(names: Sequence[str]) -> str:
    return one_line(", ".join(names) or "(none)")


def _block(members: Sequence[tuple[str, Mapping[str, Any]]], layout: Layout) -> Block:
    panel = members[0][1]["panel"]
    rows = tuple(_row(label, summary, layout) for label, summary in members)
    return Block(
        panel=one_line(panel["name"]),
        panel_hash=one_line(panel["hash"]),
        n=panel["n"],
        suite=one_line(panel["suite"]),
        split=one_line(panel["split"]),
        official=panel["official"],
        rows=rows,
        notes=tuple(_notes(rows)),
    )


def _row(label: str, summary: Mapping[str, Any], layout: Layout) -> Row:
    return Row(
        label=one_line(label),
        policy=one_line(summary["policy"]["name"]),
        protocol=one_line(summary["protocol"]["name"]),
        protocol_hash=one_line(summary["protocol"]["hash"]),
        repeats=summary["repeats"],
        seed=summary["seed"],
        episodes=summary["episodes"],
        expected=summary["panel"]["n"] * summary["repeats"],
        infra_errors=summary["outcomes"]["infra_error"],
        environment=one_line(", ".join(spelled(summary["environment"]))) if summary.get("environment") else "",
        steps=summary["turns"]["mean"],
        rates=tuple(_cell(column, summary) for column in layout.columns),
    )


def _cell(column: Column, summary: Mapping[str, Any]) -> Cell:
    """The column's number; None for a family that the run's panel does not have, or an amount that is not known."""
    return _amount(column.key, summary) if column.kind == "amount" else rate_of(column.kind, column.key, summary)


def rate_of(kind: str, key: str, summary: Mapping[str, Any]) -> Rate | None:
    """The rate or mean of a family, of all (micro, macro, score) or of a metric; None for a family that it lacks."""
    success = summary["success"]
    match kind:
        case "family":
            cell = success["families"].get(key)
        case "micro" | "macro":
            cell = success[kind]
        case "score":
            cell = summary["score"]
        case _:
            cell = summary["metrics"].get(key, _NOTHING)
    return None if cell is None else Rate(cell["mean"] if "mean" in cell else cell["rate"], cell["n"], *cell["ci"])


def _amount(key: str, summary: Mapping[str, Any]) -> float | None:
    """What was spent on an episode or, over all episodes, for a solved one; None where nothing was solved."""
    spent, _, unit = key.partition("_per_")
    section, name = SPENT[spent]
    total = summary[section][name]
    count = summary["episodes"] if unit == "episode" else summary["outcomes"]["solved"]
    return total / count if count and total is not None else None


def unofficial(suite: str, official: bool) -> list[str]:
    """What to say of a panel that is not official, and nothing of one that is."""
    if official:
        return []
    return ["not official (generated)" if suite.startswith("mini-") else "not official"]


def spelled(environment: Mapping[str, Any]) -> Iterator[str]:
    """`engine bm25`, `corpus 7a34e0c35d97`...: every leaf by its own key, hashes cut to twelve digits."""
    for key, value in environment.items():
        if isinstance(value, Mapping):
            yield from spelled(value)
        elif isinstance(value, list) and all(isinstance(part, Mapping) for part in value):
            for part in value:
                yield from spelled(part)
        else:
            text = str(value)
            yield f"{key} {text[:12] if re.fullmatch('[0-9a-f]{64}', text) else text}"


def _notes(rows: Sequence[Row]) -> list[str]:
    notes = []
    environments = list(dict.fromkeys(row.environment for row in rows))
    if len(environments) > 1:
        notes.append("rows under different environments are not comparable")
        notes += [f"'{row.label}': environment {row.environment or '(none)'}" for row in rows]
    elif environments != [""]:
        notes.append(f"environment: {environments[0]}")
    if len({row.protocol_hash for row in rows}) > 1:
        notes.append("rows under different protocols are not comparable")
    for row in rows:
        if row.unfinished:
            notes.append(f"* unfinished: '{row.label}', {row.episodes} of {row.expected} episodes")
        if row.infra_errors:
            plural = "error" if row.infra_errors == 1 else "errors"
            notes.append(f"'{row.label}': {row.infra_errors} infrastructure {plural}, not counted")
        if row.repeats > 1:
            notes.append(f"'{row.label}': {row.repeats} attempts a task, intervals clustered by task")
    return notes
