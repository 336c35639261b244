"""The tables of papers, built from runs' summaries and printed in six formats."""

from seedbench.tables.build import Block, Row, Table, build
from seedbench.tables.layouts import LAYOUTS, Column, Layout
from seedbench.tables.render import FORMATS, render
from seedbench.tables.source import load_summary
from seedbench.tables.terminal import TerminalTable

__all__ = [
    "FORMATS",
    "LAYOUTS",
    "Block",
    "Column",
    "Layout",
    "Row",
    "Table",
    "TerminalTable",
    "build",
    "load_summary",
    "render",
]
