"""The tables of papers: what was measured by model and method, and apart from it what papers report."""

from seedbench.tables.paper.assemble import paper_table
from seedbench.tables.paper.layouts import PAPER_LAYOUTS
from seedbench.tables.paper.render import PAPER_FORMATS, render_paper

__all__ = ["PAPER_FORMATS", "PAPER_LAYOUTS", "paper_table", "render_paper"]
