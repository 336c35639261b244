"""One HTML page that stands alone: no script, nothing from elsewhere, light or dark as the reader has it."""

from html import escape

from seedbench.tables.build import Block, Cell, Row, Table
from seedbench.tables.text import bracketed, counted, percent
from seedbench.ui.text import inert

_STYLE = """
:root { color-scheme: light dark; --ground: #fff; --text: #1a1a1a; --dim: #595959; --line: #d0d0d0; --note: #7a4b00 }
@media (prefers-color-scheme: dark) {
  :root { --ground: #15171a; --text: #e6e6e6; --dim: #a8a8a8; --line: #3c4046; --note: #f0c674 }
}
body { margin: 0 auto; max-width: 80rem; padding: 1rem; background: var(--ground); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere }
h1 { font-size: 1.4rem } h2 { font-size: 1.05rem }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top;
  white-space: nowrap; unicode-bidi: isolate }
.name { text-align: left; font-weight: normal; min-width: 8rem; white-space: normal }
td span { display: block; color: var(--dim); font-size: .8rem }
ul { color: var(--note) } footer { color: var(--dim) }
"""


def to_html(table: Table) -> str:
    """The table as a whole page; every text from outside is escaped, and its control characters are shown as codes."""
    title = _text(table.title)
    blocks = "".join(_section(table, block) for block in table.blocks)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{blocks}</main>
<footer><p>{_text(table.caption)}</p></footer>
</body>
</html>
"""


def _text(text: str) -> str:
    return escape(inert(text))


def _section(table: Table, block: Block) -> str:
    title = _text(block.title)
    heads = [
        *(f'<th scope="col" class="name">{_text(name)}</th>' for name in block.text_columns),
        *(f'<th scope="col">{_text(name)}</th>' for name in table.titles),
    ]
    rows = "\n".join(_row(table, block, row) for row in block.rows)
    notes = "".join(f"<li>{_text(note)}</li>\n" for note in block.notes)
    return f"""<section>
<h2>{title}</h2>
<div class="scroll" role="region" aria-label="{title}" tabindex="0">
<table>
<thead><tr>{"".join(heads)}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
{f"<ul>{notes}</ul>" if notes else ""}
</section>
"""


def _row(table: Table, block: Block, row: Row) -> str:
    label, *others = block.texts(row)
    cells = [
        f'<th scope="row" class="name">{_text(label)}</th>',
        *(f'<td class="name">{_text(text)}</td>' for text in others),
        *map(_cell, row.rates),
        *(f"<td>{_text(text)}</td>" for text in table.tail(row)),
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _cell(rate: Cell) -> str:
    detail = " ".join(part for part in (bracketed(rate), counted(rate)) if part)
    return f"<td>{percent(rate)}{f' <span>{detail}</span>' if detail else ''}</td>"
