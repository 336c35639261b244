r"""Paper tables as LaTeX: booktabs, a `table*` for each group of columns, footnotes in a paragraph after them.

Needs `\usepackage{booktabs}` and `\usepackage{graphicx}`, under pdfLaTeX too. A table wider than the text is scaled.
"""

from __future__ import annotations

import re

from seedbench.tables.latex import escape
from seedbench.tables.paper.layouts import ColumnGroup
from seedbench.tables.paper.model import Cell, PaperBlock, PaperRow, PaperTable, interval, printed
from seedbench.tables.paper.text import REPORTED, name_of

_MARKS = {"†": r"$^\dagger$", "‡": r"$^\ddagger$"}


def to_latex(table: PaperTable) -> str:
    r"""The tables; intervals stand under the numbers, reported rows in italics under those measured."""
    head = "% Needs \\usepackage{booktabs} and \\usepackage{graphicx}.\n"
    return head + "\n".join(_float(table, group) for group in table.groups) + _footnotes(table)


def _float(table: PaperTable, group: ColumnGroup) -> str:
    blocks = [_block(block, group.suite, table.places(group)) for block in table.blocks]
    name = re.sub(r"[^0-9a-z]+", "-", group.title.casefold())
    return f"""\\begin{{table*}}[t]
\\centering
\\footnotesize
\\setlength{{\\tabcolsep}}{{3pt}}
\\resizebox{{\\ifdim\\width>\\textwidth\\textwidth\\else\\width\\fi}}{{!}}{{%
\\begin{{tabular}}{{l{"r" * len(group.columns)}}}
\\toprule
{_line(["", *(_text(column.title) for column in group.columns)])}
\\midrule
{_MIDRULE.join(filter(None, blocks))}
\\bottomrule
\\end{{tabular}}}}
\\sloppy
\\caption{{{_caption(table, group)}}}
\\label{{tab:seedbench-{table.layout}-{name}}}
\\end{{table*}}
"""


_MIDRULE = "\n\\midrule\n"


def _text(text: str) -> str:
    return "".join(_MARKS.get(part) or escape(part) for part in re.split("([†‡])", text))


def _line(cells: list[str]) -> str:
    return f"{' & '.join(cells).strip()} \\\\"


def _caption(table: PaperTable, group: ColumnGroup) -> str:
    suite = group.suite
    bases = [source.text for block in table.blocks for source in block.sources if source.suite == suite]
    notes = [f"{note[0].upper()}{note[1:]}." for block in table.blocks for note in block.notes]
    head = f"{table.title}, {group.title}."
    return " ".join(_text(text) for text in (head, *dict.fromkeys(bases), *table.sentences(suite), *notes))


def _block(block: PaperBlock, suite: str, places: range) -> str:
    """The rows that have anything in these columns; empty where none has."""
    measured, reported = (
        [_row(row, suite, places) for row in rows if any(row.cells[place] for place in places)]
        for rows in (block.measured, block.reported)
    )
    if not (measured or reported):
        return ""
    lines = [_wide(_text(block.model), places), *measured]
    if reported:
        lines += ["\\addlinespace", _wide(f"\\textit{{{_text(REPORTED)}}}", places), *reported]
    return "\n".join(lines)


def _wide(text: str, places: range) -> str:
    return f"\\multicolumn{{{len(places) + 1}}}{{l}}{{{text}}} \\\\"


def _row(row: PaperRow, suite: str, places: range) -> str:
    name, cells = _text(name_of(row, suite).strip()), [row.cells[place] for place in places]
    if row.kind == "reported":
        name = f"\\textit{{{name}}}"
    line = _line([f"\\quad {name}", *(_number(row, cell) for cell in cells)])
    limits = [_interval(row, cell) for cell in cells]
    return f"{line}\n{_line(['', *limits])}" if any(limits) else line


def _number(row: PaperRow, cell: Cell | None) -> str:
    text = _text(printed(cell, row.kind))
    if row.kind == "reported" and cell is not None:
        return f"\\textit{{{text}}}" + (f" {{\\scriptsize {_text(cell.mark)}}}" if cell.mark else "")
    return f"\\textbf{{{text}}}" if cell is not None and cell.bold else text


def _interval(row: PaperRow, cell: Cell | None) -> str:
    limits = interval(cell, " to " if row.kind == "difference" else "--").strip("[]")
    return f"{{\\scriptsize {limits}}}" if limits else ""


def _footnotes(table: PaperTable) -> str:
    if not table.footnotes:
        return ""
    notes = " ".join(f"{{[}}{number}{{]}} {_text(text)}" for number, text in enumerate(table.footnotes, start=1))
    return f"{{\\footnotesize\\sloppy\\noindent {notes}\\par}}\n"
