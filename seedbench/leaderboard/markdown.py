"""A leaderboard as Markdown, and the phrases that its page shares with it. All text is made inert and escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

from seedbench.leaderboard.board import Board, Row, StudyRow, Table
from seedbench.statistics import Rate
from seedbench.tables.build import spelled
from seedbench.tables.markdown import escape
from seedbench.tables.text import BLANK, one_line, percent
from seedbench.ui.text import inert

CAPTION = (
    "Success and macro (the mean over families) in percent, score x 100, each with its 95 % interval; n: attempts"
    " counted. Rank: every pair of rows is tested (paired, Holm's correction over the table); a range says which ranks"
    " the tests leave open. Oracles know the solutions and have no rank. Turns and tokens (generated) are means of an"
    " episode. Verified: every stored action was played again, and every number recomputed."
)
UNOFFICIAL = "Generated suites, and panels that are not a benchmark's own: they say nothing about the benchmarks."
REPORTED = (
    "Figures as papers and threads print them, in percent. They were not measured here, their protocols and panels"
    " differ from those above and from each other, and no rank or comparison with measured rows follows from them."
)
STUDIES = (
    "Whole studies: several methods and training seeds under one protocol and budget. The archive has the evaluations"
    " of every run's final checkpoint; all of their stored actions were played again. What was found stands in a"
    " study's own report, which is made again from the archive; no rank follows from it here."
)
STUDY_HEADS = ("Study", "Suite", "Protocol", "Panels", "Cells", "Evaluations", "Episodes", "Verified", "Archive")
_RATES = ("micro", "macro", "score")
_HEADS = ("Rank", "Method", "Model", "Success", "Macro", "Score", "n", "Turns", "Tokens", "Verified", "By")
_REPORTED = (
    "Paper", "Table", "Model", "Method", "Split", "Average", "Reported", "Derived", "Protocol", "Footnotes",
)  # fmt: skip


def markdown(board: Board) -> str:
    """Everything that stands between the marks of README.md."""
    parts = ["## Measured", *_section(board.official), escape(CAPTION)] if board.official else []
    if board.unofficial:
        parts += ["## Measured, not official", UNOFFICIAL, *_section(board.unofficial)]
        parts += [] if board.official else [escape(CAPTION)]
    if board.studies:
        parts += ["## Studies", STUDIES, *_studies(board.studies)]
    if board.reported:
        parts += ["## Reported by papers, not measured", REPORTED, *_reported(board)]
    return "\n\n".join(parts) + "\n"


def _studies(rows: Sequence[StudyRow]) -> Iterator[str]:
    lines = [[escape(flat(text)) for text in study(row)] for row in rows]
    for row, line in zip(rows, lines, strict=True):
        line[0] = f"[{line[0]}]({row.verified.page})" if row.verified.page else line[0]
        line[-1] = f"[{line[-1]}]({quote(row.path)})"
    yield _lines(STUDY_HEADS, lines, numbers=range(5, 7))
    if notes := study_notes(rows):
        yield "\n".join(f"- {escape(note)}" for note in notes)


def study(row: StudyRow) -> list[str]:
    """A study under `STUDY_HEADS`."""
    held = row.verified
    return [
        held.study, held.suite, held.protocol, ", ".join(held.panels.values()), "; ".join(row.cells),
        f"{held.evaluations:,}", f"{held.episodes:,}", f"{held.turns:,} turns", f"{held.bytes / 1e6:.1f} MB",
    ]  # fmt: skip


def study_notes(rows: Sequence[StudyRow]) -> list[str]:
    """What could not be checked of studies, a line each."""
    return [flat(f"{row.verified.study}: {note}") for row in rows for note in row.verified.notes]


def _section(tables: Sequence[Table]) -> Iterator[str]:
    for table in tables:
        yield f"### {escape(title(table))}"
        yield _pipes(_HEADS, [_measured(row) for row in table.rows], numbers=range(3, 9))
        if lines := notes(table):
            yield "\n".join(f"- {escape(line)}" for line in lines)


def _measured(row: Row) -> list[str]:
    turns, tokens = spent(row)
    return [
        row.rank, row.method, row.submission.model or BLANK, *(_shown(row.rate(name)) for name in _RATES),
        str(row.rate("micro").n),
        BLANK if turns is None else f"{turns:.1f}", BLANK if tokens is None else f"{tokens:.0f}",
        f"{row.verified.turns:,} turns", row.submission.submitter or BLANK,
    ]  # fmt: skip


def _shown(rate: Rate) -> str:
    return BLANK if rate.rate is None else f"{percent(rate)} [{100 * rate.lo:.1f}-{100 * rate.hi:.1f}]"


def _reported(board: Board) -> Iterator[str]:
    numbers = numbered(board)
    for suite in suites(board):
        rows = [(row, more) for row, more in board.reported if row.suite == suite]
        yield f"### {escape(suite)}: {len(rows)} reported rows"
        lines = [
            [
                row.paper, row.table, row.model, row.method, row.split, row.aggregation, figures(row.values),
                figures(more) or BLANK, row.protocol or BLANK, " ".join(str(numbers[key]) for key in row.caveats),
            ]
            for row, more in rows
        ]  # fmt: skip
        yield f"<details><summary>show</summary>\n\n{_pipes(_REPORTED, lines)}\n\n</details>"
    yield "\n".join(f"{number}. {escape(flat(board.caveats[key]))}" for key, number in numbers.items())


def flat(text: str) -> str:
    """A sentence from a file as one inert line of any length."""
    return " ".join(inert(text).split())


def _pipes(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: range = range(0)) -> str:
    return _lines(heads, [[escape(one_line(cell)) for cell in row] for row in rows], numbers)


def _lines(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: range) -> str:
    rule = ["--:" if place in numbers else ":--" for place in range(len(heads))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, rule, *rows))


def spent(row: Row) -> tuple[float | None, float | None]:
    """Mean turns and mean generated tokens of an episode; None where nothing was generated."""
    summary = row.summary
    generated, episodes = summary["tokens"]["generated"], summary["episodes"]
    return summary["turns"]["mean"], generated / episodes if generated else None


def notes(table: Table) -> list[str]:
    """What a reader must know of a table's rows, a line each."""
    lines = [f"{table.repeats} attempts a task; intervals are clustered by task."] if table.repeats > 1 else []
    if table.environment:
        lines.append(f"environment: {', '.join(spelled(table.environment))}")
    for row in table.rows:
        said = [row.submission.note, row.submission.url, *row.verified.notes]
        if errors := row.summary["outcomes"]["infra_error"]:
            said.append(f"{errors} infrastructure errors, not counted.")
        lines += [f"{row.id}: {text}" for text in said if text]
    return [flat(line) for line in lines]


def figures(values: Mapping[str, float]) -> str:
    """`Pick 44.4, Look 11.1`."""
    return ", ".join(f"{name} {value:.1f}" for name, value in values.items())


def suites(board: Board) -> list[str]:
    """The suites of the reported rows."""
    return sorted({row.suite for row, _ in board.reported})


def numbered(board: Board) -> dict[str, int]:
    """Footnotes that a reported row has -> their numbers, in the order of the file."""
    used = {key for row, _ in board.reported for key in row.caveats}
    return {key: number for number, key in enumerate((key for key in board.caveats if key in used), start=1)}


def title(table: Table) -> str:
    """Panel, size and hash, protocol and hash."""
    panel, protocol = table.panel, table.protocol
    return one_line(
        f"{panel['name']}, {panel['n']} tasks ({panel['hash'][:12]}), protocol {protocol['name']}"
        f" ({protocol['hash'][:12]})"
    )
