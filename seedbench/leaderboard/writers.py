"""A leaderboard's files. The same folder makes the same bytes."""

from __future__ import annotations

from pathlib import Path

from seedbench.errors import SeedBenchError
from seedbench.leaderboard import markdown as texts
from seedbench.leaderboard.board import load
from seedbench.leaderboard.data import to_csv, to_json
from seedbench.runs import write_json

README, CSV, JSON, PAGE = "README.md", "leaderboard.csv", "leaderboard.json", "index.html"
BEGIN = "<!-- tables: `seedbench leaderboard build` writes what follows -->"
END = "<!-- end of tables -->"


def build(folder: Path, out: Path) -> tuple[Path, ...]:
    """Write the tables into the folder's README.md, and leaderboard.csv, leaderboard.json and index.html into `out`.

    Returns the files written. Raises what `board.load` raises, and SeedBenchError where a file cannot be written.
    """
    from seedbench.report.site import write

    board = load(folder)
    try:
        out.mkdir(parents=True, exist_ok=True)
        readme = folder / README
        held = readme.read_text(encoding="utf-8") if readme.is_file() else "# Leaderboards\n"
        readme.write_text(_between(held, texts.markdown(board)), encoding="utf-8")
        (out / CSV).write_text(to_csv(board), encoding="utf-8")
    except OSError as error:
        raise SeedBenchError(f"cannot write '{error.filename}': {error.strerror}.") from error
    write_json(out / JSON, to_json(board))
    write(out / PAGE, "leaderboard.html.jinja", board=board, texts=texts)
    return readme, out / CSV, out / JSON, out / PAGE


def _between(held: str, text: str) -> str:
    head, begun, rest = held.partition(BEGIN)
    tail = rest.partition(END)[2] if begun else "\n"
    return f"{head.rstrip()}\n\n{BEGIN}\n\n{text}\n{END}{tail}"
