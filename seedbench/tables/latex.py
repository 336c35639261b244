r"""LaTeX with booktabs: one `table*` for each panel, three lines a run (rate, interval, n).

Needs `\usepackage{booktabs,graphicx}` and nothing else, under pdfLaTeX too: of characters outside ASCII only
accented Latin letters and the degree sign are kept, others are written as their code. A table that is wider than
the page is shrunk to it.
"""

import re
import unicodedata

from seedbench.tables.build import Block, Row, Table
from seedbench.tables.text import counted, limits, percent

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "°": r"$^{\circ}$",  # marks columns of ours
    # Shorthands or quotes in some languages and encodings.
    '"': r"\symbol{34}",
    "`": r"\symbol{96}",
    # Right after a line end LaTeX would read these as that command's own arguments.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
}
# Pairs that fonts turn into another character.
_LIGATURE = re.compile(r"([-',])(?=\1)")


def escape(text: str) -> str:
    """One line of plain text as LaTeX that prints it, or codes like `U+4E2D`, and runs nothing."""
    characters = (_character(c) for c in unicodedata.normalize("NFC", text))
    return _LIGATURE.sub(r"\1{}", "".join(characters))


def to_latex(table: Table) -> str:
    r"""The table; its caption carries the panel, the protocol and the notes, its label the panel's hash."""
    head = "% Needs \\usepackage{booktabs,graphicx}.\n"
    return head + "\n".join(_float(table, block) for block in table.blocks)


def _character(c: str) -> str:
    if c in _SPECIAL:
        return _SPECIAL[c]
    if " " <= c <= "~":
        return c
    base = unicodedata.normalize("NFD", c)
    # Set up in every LaTeX since 2018 whatever the font encoding: letters of Latin-1 with one accent.
    if c <= "\u00ff" and len(base) == 2 and base[0].isascii():
        return c
    return f"U+{ord(c):04X}"


def _float(table: Table, block: Block) -> str:
    texts = block.text_columns
    titles = [*texts, *table.titles]
    spec = "l" * len(texts) + "r" * (len(titles) - len(texts))
    rows = "\n\\addlinespace\n".join(_row(table, block, row) for row in block.rows)
    caption = f"{escape(table.title)}: {escape(block.title)}. {escape(table.caption)}"
    notes = "".join(f" {escape(note[0].upper() + note[1:])}." for note in block.notes)
    label = re.sub(r"[^0-9A-Za-z]", "", block.panel_hash)[:12]
    return f"""\\begin{{table*}}[t]
\\centering
\\footnotesize
\\setlength{{\\tabcolsep}}{{3pt}}
\\resizebox{{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}}{{!}}{{%
\\begin{{tabular}}{{{spec}}}
\\toprule
{_line([escape(title) for title in titles])}
\\midrule
{rows}
\\bottomrule
\\end{{tabular}}}}
\\caption{{{caption}{notes}}}
\\label{{tab:seedbench-{table.layout}-{label}}}
\\end{{table*}}
"""


def _row(table: Table, block: Block, row: Row) -> str:
    texts = [escape(text) for text in block.texts(row)]
    blank = [""] * len(texts)
    intervals = [_small(limits(rate, "--")) for rate in row.rates]
    counts = [_small(counted(rate).replace("n=", "$n$=")) for rate in row.rates]
    tail = table.tail(row)
    empty = [""] * len(tail)
    return "\n".join(
        [
            _line([*texts, *(percent(rate) for rate in row.rates), *tail]),
            _line([*blank, *intervals, *empty]),
            _line([*blank, *counts, *empty]),
        ]
    )


def _small(text: str) -> str:
    return f"{{\\scriptsize {text}}}" if text else ""


def _line(cells: list[str]) -> str:
    return f"{' & '.join(cells).strip()} \\\\"
