"""Text from models, files and folder names stays text in every format of a table."""

import csv
import io
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from seedbench.metrics import summarise
from seedbench.tables import FORMATS, Table, TerminalTable, build, render
from seedbench.tables.latex import escape as latex_escape
from seedbench.tables.markdown import escape as markdown_escape
from seedbench.tables.text import one_line

HOSTILE = [
    "[bold red]x[/] [link=https://a.b]y[/link] :boom:",
    "\x1b[31mred\x1b]0;title\x07\x9b2J",
    "a|b `c` *d* _e_ ~~f~~ [g](https://h.i) ![j](k) <b>l</b> &amp; #1 $m$ https://n.o",
    r"\input{/etc/passwd} \write18{ls} $x^2$ 100% {a} a_b #1 & ~ \\ \end{tabular}",
    "[1em] first \n\n\\\\* second\u2028third",
    "=HYPERLINK(1)",
    "-1+2",
    "@SUM(A1)",
    "+1",
    "quoted \"x\", ``y'' -- --- ,,z",
    "中文 é ß \U0001f600 \u202egnp.exe\u200b",
    "\ud800",
    "   ",
    "</td></table><script>alert(1)</script><img src=x onerror=alert(2)> \" onclick='x' javascript:alert(3)",
]


def hostile_table(text: str) -> Table:
    """Two unfinished runs of unlike protocols, named `text` in every place that takes a name."""

    def summary(protocol_hash: str) -> dict[str, Any]:
        return summarise(
            [],
            panel={"name": text, "hash": "ab" * 32, "n": 1, "suite": "s", "split": text, "official": True},
            protocol={"name": text, "hash": protocol_hash},
            policy={"name": text, "identity": {}},
            repeats=1,
            seed=0,
            families=["heat"],
        )

    return build([(text, summary("11" * 32)), ("b", summary("22" * 32))], "alfworld")


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("format", list(FORMATS))
def test_no_control_or_direction_characters_in_any_format(format: str, text: str) -> None:
    shown = render(hostile_table(text), format)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]", shown)
    shown.encode("utf-8")


@pytest.mark.parametrize("text", HOSTILE)
def test_terminal_parses_no_markup(text: str) -> None:
    out = io.StringIO()
    console = Console(file=out, width=300, force_terminal=True, color_system="truecolor")
    console.print(TerminalTable(hostile_table(text)))
    plain = re.sub("\x1b\\[[0-9;]*m", "", out.getvalue())
    assert "\x1b" not in plain
    assert one_line(text) in plain


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_shows_the_text_itself(text: str) -> None:
    table = hostile_table(text)
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(render(table, "markdown"))
    assert not [t for t in tokens if t.type in {"html_block", "code_block", "fence", "blockquote_open"}]
    inline = [t for t in tokens if t.type == "inline"]
    children = [child for t in inline for child in t.children or []]
    assert {child.type for child in children} <= {"text", "softbreak"}
    assert [t.type for t in tokens].count("tr_open") == 3
    assert [t.type for t in tokens].count("td_open") == 2 * [t.type for t in tokens].count("th_open")
    first_cell = inline[[t.type for t in tokens if t.type in {"inline", "td_open"}].index("td_open")]
    # The star marks the run as unfinished.
    assert "".join(child.content for child in first_cell.children or []) == f"{one_line(text)} *"


class Page(HTMLParser):
    """What a browser makes of a page: its tags, their attributes, and the text of the first row's first cell."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.label = ""
        self._inside = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self._inside = ("scope", "row") in attrs and not self.label

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        self.label += data if self._inside else ""


@pytest.mark.parametrize("text", HOSTILE)
def test_html_has_no_markup_but_ours(text: str) -> None:
    html = render(hostile_table(text), "html")
    page, plain = Page(html), Page(render(hostile_table("plain"), "html"))
    assert page.label == f"{one_line(text)} *"
    assert page.tags == plain.tags
    assert page.attributes == plain.attributes
    assert not page.tags & {"script", "img", "link", "a", "iframe"}
    assert not re.search(r"url\(|@import|src=|href=", re.sub('>[^<]*<|aria-label="[^"]*"', "><", html))


def test_html_stands_alone() -> None:
    html = render(hostile_table("plain"), "html")
    assert html.startswith('<!doctype html>\n<html lang="en">')
    assert "default-src 'none'" in html
    assert "color-scheme: light dark" in html


@pytest.mark.parametrize("text", HOSTILE)
def test_latex_has_no_command_but_ours(text: str) -> None:
    shown = latex_escape(one_line(text))
    commands = set(re.findall(r"\\([A-Za-z]+|.)", shown))
    assert commands <= {
        "textbackslash",
        "textasciicircum",
        "textasciitilde",
        "textless",
        "textgreater",
        "textbar",
        "symbol",
        *"{}$&#%_",
    }
    bare = re.sub(r"\\([A-Za-z]+|.)", "", shown)
    assert not re.search(r"[$&#%_^~<>|\"`]", bare)
    assert bare.count("{") == bare.count("}")
    assert re.fullmatch("[ -~À-ÿ]*", shown)


@pytest.mark.parametrize("text", HOSTILE)
def test_latex_structure_survives(text: str) -> None:
    latex = render(hostile_table(text), "latex")
    assert re.findall(r"\\(?:begin|end)\{.*?\}", latex) == [
        "\\begin{table*}",
        "\\begin{tabular}",
        "\\end{tabular}",
        "\\end{table*}",
    ]
    for rule in ("toprule", "midrule", "bottomrule"):
        assert latex.count(f"\\{rule}\n") == 1
    body = latex.split("\\toprule\n")[1].split("\\bottomrule")[0]
    lines = [line for line in body.splitlines() if not line.startswith(("\\midrule", "\\addlinespace"))]
    spec = re.search(r"\\begin\{tabular\}\{([lr]+)\}", latex)
    assert spec
    assert len(lines) == 1 + 2 * 3
    for line in lines:
        assert line.endswith(" \\\\")
        assert len(re.findall(r"(?<!\\)&", line)) == len(spec[1]) - 1
        # A bracket or star first in a line would become the argument of the line end before it.
        assert not line.startswith(("[", "*"))


def test_escapes_worked_by_hand() -> None:
    assert latex_escape(r"a_b 5% \x {y} [z] --- é 中") == (r"a\_b 5\% \textbackslash{}x \{y\} {[}z{]} -{}-{}- é U+4E2D")
    assert latex_escape("NQ°") == r"NQ$^{\circ}$"
    assert markdown_escape("a|b [c](d) <e> `f`") == r"a\|b \[c\](d) &lt;e&gt; \`f\`"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x"])
def test_csv_guards_formulas(text: str) -> None:
    (first, *_) = csv.DictReader(io.StringIO(render(hostile_table(text), "csv")))
    for field in ("label", "policy", "protocol", "panel", "split"):
        assert first[field] == f"'{text}"


def test_csv_fields_with_separators_read_back() -> None:
    text = 'a,"b";c'
    (first, *_) = csv.DictReader(io.StringIO(render(hostile_table(text), "csv")))
    assert first["label"] == text


def test_long_names_are_cut_and_say_so() -> None:
    assert one_line("x" * 5000) == "x" * 200 + "… (4,800 more characters)"
    assert one_line(" a\n\n b\u2028c\td ") == "a b c d"
    assert one_line("\n") == "(unnamed)"
